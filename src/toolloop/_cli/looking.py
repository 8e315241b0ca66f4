"""The commands that look: `list`, `show`, `pending` and `trail`."""

from __future__ import annotations

import functools
from typing import get_args

import click
from attrs import asdict

from toolloop._cli.arguments import json_option, limit_option, loop_argument, metadata_option, tool_option
from toolloop._cli.group import StoreCommand, command, toolloop
from toolloop._cli.screen import tables
from toolloop._cli.screen.conversation import print_loop, wait_for
from toolloop.inbox.inbox import Inbox
from toolloop.machine.queries import LoopStatus
from toolloop.stores.optional import read_time
from toolloop.stores.protocol import Store

_STATUSES = get_args(LoopStatus)


@command("list")
@click.option("--status", multiple=True, type=click.Choice(_STATUSES), help="Only loops with this status; repeatable.")
@metadata_option
@limit_option
@json_option
def list_(store: Store, status: tuple[str, ...], metadata: dict[str, str], limit: int, *, as_json: bool) -> None:
    """List the loops, newest first."""
    loops = store.list(status or None, metadata=metadata or None, limit=limit)
    if as_json:
        tables.print_json([tables.loop_as_json(loop) for loop in loops])
    elif loops:
        tables.print_loops(loops)
    of = len(loops)
    if of == limit:
        counts = Inbox(store).counts(metadata or None).loops
        of = sum(counts[each] for each in set(status or _STATUSES))
    tables.say_how_many(len(loops), of, "loops")


@command()
@loop_argument
@click.option("--wait", is_flag=True, help="Wait while the loop is driven, and show its progress.")
@json_option
def show(store: Store, loop: str, *, wait: bool, as_json: bool) -> None:
    """Show the conversation of a loop, and its waiting calls."""
    look = functools.partial(Inbox(store).show, loop)
    shown = wait_for(look) if wait else look()
    if as_json:
        tables.print_json(shown)
    else:
        print_loop(shown)


@command()
@metadata_option
@tool_option
@limit_option
@json_option
def pending(store: Store, metadata: dict[str, str], tool: str | None, limit: int, *, as_json: bool) -> None:
    """List the calls that wait, earliest deadline first."""
    page = Inbox(store).pending(metadata or None, limit, tool=tool)
    if as_json:
        tables.print_json([tables.call_as_json(call) for call in page])
    elif page:
        tables.print_calls(store, page, read_time(store))
    tables.say_how_many(len(page), page.counts["waiting"], "calls")


@command()
@loop_argument
@json_option
def trail(store: Store, loop: str, *, as_json: bool) -> None:
    """Show the decisions and messages of people, with time and reason."""
    entries = Inbox(store).trail(loop)
    if as_json:
        tables.print_json([asdict(entry) for entry in entries])
    else:
        tables.print_trail(entries)


toolloop.add_command(
    StoreCommand("history", params=trail.params, callback=trail.callback, hidden=True, deprecated="Use `trail`.")
)
