"""The commands, which call `toolloop.Inbox`."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import click
from attrs import asdict

from toolloop._cli import output
from toolloop._cli.arguments import (
    as_function,
    as_metadata,
    as_object,
    by_option,
    call_argument,
    json_option,
    loop_argument,
    postgres_store,
    store_argument,
)
from toolloop._interface.standing import Standing
from toolloop.inbox.inbox import Inbox
from toolloop.machine.values.calls import Answer, Approve, Decision, Deny, Rerun
from toolloop.stores.protocol import Store

_STATUSES = ("needs_decision", "needs_command", "runnable", "running", "stopping", "failed", "ended")
Command = Callable[..., Any]
_GRANTS = """\b
A role that only uses the tables needs:
  GRANT USAGE ON SCHEMA toolloop TO role;
  GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA toolloop TO role;
  GRANT USAGE ON ALL SEQUENCES IN SCHEMA toolloop TO role;"""


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="toolloop")
def toolloop() -> None:
    """Show stored loops and decide their calls.

    STORE is an existing store: a path, sqlite:///path or the URL of a PostgreSQL database. LOOP is the id of a loop,
    CALL the id of a call (or its path, joined with "/"). Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found,
    4 not allowed now.
    """


@toolloop.command("list")
@store_argument
@click.option("--status", multiple=True, type=click.Choice(_STATUSES), help="Only loops with this status; repeatable.")
@click.option("--metadata", multiple=True, callback=as_metadata, help="Only loops with this KEY=VALUE; repeatable.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=100, show_default=True, help="The maximum number of loops."
)
@json_option
def list_(store: Store, status: tuple[str, ...], metadata: dict[str, str], limit: int, *, as_json: bool) -> None:
    """List the loops, newest first."""
    loops = store.list(status or None, metadata=metadata or None, limit=limit)
    if as_json:
        output.print_json([output.loop_as_json(loop) for loop in loops])
    else:
        output.print_loops(loops)


@toolloop.command()
@store_argument
@loop_argument
@click.option("--wait", is_flag=True, help="Wait while the loop is driven, and show its progress.")
@json_option
def show(store: Store, loop: str, *, wait: bool, as_json: bool) -> None:
    """Show the conversation of a loop, and its waiting calls."""
    look = functools.partial(Inbox(store).show, loop)
    shown = output.wait_for(look) if wait else look()
    if as_json:
        output.print_json(shown)
    else:
        output.print_loop(shown)


@toolloop.command()
@store_argument
@loop_argument
@json_option
def trail(store: Store, loop: str, *, as_json: bool) -> None:
    """Show the decisions and messages of people, with time and reason."""
    entries = Inbox(store).trail(loop)
    if as_json:
        output.print_json([asdict(entry) for entry in entries])
    else:
        output.print_trail(entries)


toolloop.add_command(
    click.Command("history", params=trail.params, callback=trail.callback, hidden=True, deprecated="Use `trail`.")
)


# --- commands --------------------------------------------------------------------------------------------------------


def _done(store: Store, loop: str, *, as_json: bool, standing: Standing | None = None) -> None:
    status = store.head(loop).status
    if as_json:
        more = {} if standing is None else {"standing": asdict(standing)}
        output.print_json({"loop_id": loop, "status": status, **more})
    else:
        click.echo(f"{_told(standing)} The loop is now: {status}")


def _told(standing: Standing | None) -> str:
    if standing is not None and not standing.is_yours:
        return f"Nothing changed: {standing.by or 'another person'} has decided this already ({standing.kind})."
    if standing is not None and standing.missing:
        return f"Done; {standing.missing} more {'approval is' if standing.missing == 1 else 'approvals are'} needed."
    return "Done."


@toolloop.command()
@store_argument
@loop_argument
@click.option("--reason", help="Why.")
@by_option
@json_option
def stop(store: Store, loop: str, reason: str | None, by: str, *, as_json: bool) -> None:
    """End a loop permanently."""
    Inbox(store, via="command").stop(loop, reason, by)
    _done(store, loop, as_json=as_json)


@toolloop.command()
@store_argument
@loop_argument
@click.argument("text")
@by_option
@json_option
def say(store: Store, loop: str, text: str, by: str, *, as_json: bool) -> None:
    """Say TEXT to the model; "-" reads standard input. An ended loop continues; while a call waits, TEXT is kept."""
    Inbox(store, via="command").say(loop, _read(text), by)
    _done(store, loop, as_json=as_json)


@toolloop.command()
@store_argument
@loop_argument
@by_option
@json_option
def retry(store: Store, loop: str, by: str, *, as_json: bool) -> None:
    """Retry a failed request."""
    Inbox(store, via="command").retry(loop, by)
    _done(store, loop, as_json=as_json)


# --- decisions -------------------------------------------------------------------------------------------------------


def _decision(make: Callable[..., Decision]) -> Command:
    """Make a command from a function that returns a decision for its options, `digest` and `by`."""

    @functools.wraps(make)
    def command(store: Store, loop: str, call: str, *, as_json: bool, **parts: Any) -> None:
        standing = Inbox(store, via="command").decide(loop, {call: make(**parts)})
        _done(store, loop, as_json=as_json, standing=standing[call])

    digest = click.option("--digest", help="Decide only if the call still has this digest.")
    wrapped: Command = command
    for part in (json_option, by_option, digest, call_argument, loop_argument, store_argument):
        wrapped = part(wrapped)
    return toolloop.command()(wrapped)


@_decision
@click.option("--input", "given", callback=as_object, help="Run this JSON object instead of the proposed input.")
@click.option("--reason", help="The reason, for the audit trail.")
def approve(given: dict[str, Any] | None, reason: str | None, digest: str | None, by: str) -> Decision:
    """Let a call run."""
    return Approve(given, by=by, reason=reason, digest=digest)


@_decision
@click.option("--reason", required=True, help="The reason, which the model sees.")
def deny(reason: str, digest: str | None, by: str) -> Decision:
    """Deny a call; it does not run."""
    return Deny(reason, by=by, digest=digest)


@_decision
@click.argument("text")
@click.option("--error", is_flag=True, help="The result is an error.")
def answer(text: str, *, error: bool, digest: str | None, by: str) -> Decision:
    """Answer a call with TEXT, without running it; "-" reads standard input."""
    return Answer(_read(text), is_error=error, by=by, digest=digest)


@_decision
def rerun(digest: str | None, by: str) -> Decision:
    """Run a call again if its end is unknown."""
    return Rerun(by=by, digest=digest)


# --- the store -------------------------------------------------------------------------------------------------------


@toolloop.command(epilog=_GRANTS)
@click.argument("url")
def migrate(url: str) -> None:
    """Create the tables of a PostgreSQL store in the schema `toolloop`, or what those of an earlier version lack."""
    store = postgres_store(url)
    store.migrate()
    click.echo(f"{store!r} is ready")


# --- the page --------------------------------------------------------------------------------------------------------


@toolloop.command()
@store_argument
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="0 selects a free port.")
@click.option("--who", callback=as_function, help="MODULE:FUNCTION that takes a request and returns the person's name.")
@click.option("--public-url", help="The URL that visitors use, if a proxy is in front. Its host name is answered, too.")
@click.option("--root-path", help="The prefix of the page, such as /approvals; default: the path of --public-url.")
@click.option("--proxy", "proxies", multiple=True, help="A proxy, whose X-Forwarded-* headers count; repeatable.")
@by_option
def serve(store: Store, who: Callable[..., Any] | None, by: str, **address: Any) -> None:
    """Serve the approval page. Without --who, only on this machine, through a link with a token."""
    from toolloop.inbox.page.serving import Address, serve_page  # noqa: PLC0415 - of the extra `inbox`

    serve_page(store, Address(**address), who=who, name=by, announce=lambda at: click.echo(f"Approve at {at}"))


def _read(text: str) -> str:
    return sys.stdin.read() if text == "-" else text
