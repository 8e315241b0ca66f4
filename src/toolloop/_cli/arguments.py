"""The arguments of the commands: loops and calls, with shell completion, and the person who gives the command."""

from __future__ import annotations

import getpass
import importlib
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import click
from attrs import frozen

from toolloop.machine.values.jsontext import JSON, read_typed
from toolloop.stores.arguments import check_text


@frozen
class Me:
    """The person who gives a command.

    Attributes:
        user: the user of the operating system.
        note: the text of `--by`, or None. It is recorded, but does not make the user another person.

    """

    user: str
    note: str | None = None

    @property
    def name(self) -> str:
        """The name that is recorded."""
        return self.user if self.note is None else f"{self.note}, said by {self.user}"


def _me(_ctx: click.Context, _param: click.Parameter, note: str | None) -> Me:
    try:
        return Me(getpass.getuser(), note)
    except (KeyError, OSError) as error:  # a container may run a user without a name
        raise click.UsageError("the operating system user has no name. Set the variable LOGNAME") from error


def complete_loop(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the loop ids with this prefix; an empty list without a store."""
    with suppress(Exception):  # a completion must not print errors
        return [each.loop_id for each in ctx.params["store"].list(limit=1000) if each.loop_id.startswith(incomplete)]
    return []


def complete_call(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the waiting calls of a loop with this prefix."""
    with suppress(Exception):
        names = ["/".join(each.path) for each in ctx.params["store"].head(ctx.params["loop"]).pending]
        return [name for name in names if name.startswith(incomplete)]
    return []


def as_object(_ctx: click.Context, _param: click.Parameter, text: str | None) -> dict[str, JSON] | None:
    """Parse an option as a JSON object."""
    if text is None:
        return None
    try:
        return object_of(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def object_of(text: str) -> dict[str, JSON]:
    """Parse a text as a JSON object.

    Raises:
        ValueError: it is not one.

    """
    try:
        value = read_typed(text)
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError('expected a JSON object, for example {"path": "other.txt"}')  # noqa: TRY004 - a text is wrong
    return value


def as_function(_ctx: click.Context, _param: click.Parameter, name: str | None) -> Callable[..., Any] | None:
    """Import a function given as `module:function`, also from the current directory."""
    if name is None:
        return None
    module, _, function = name.partition(":")
    sys.path.insert(0, "")
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise click.BadParameter(f"cannot import {name!r}: {error}. Expected MODULE:FUNCTION") from error
    if not callable(found):
        raise click.BadParameter(f"{name!r} is not a function")
    return found


def as_metadata(_ctx: click.Context, _param: click.Parameter, pairs: tuple[str, ...]) -> dict[str, str]:
    """Parse options of the form `key=value`."""
    if bad := [pair for pair in pairs if "=" not in pair]:
        raise click.BadParameter(f"{bad[0]!r} has no '='. Expected KEY=VALUE, e.g. owner=ana")
    return {key: value for key, _, value in (pair.partition("=") for pair in pairs)}


def as_loop(_ctx: click.Context, _param: click.Parameter, loop_id: str | None) -> str | None:
    """Refuse a loop id that no store can keep."""
    if loop_id is not None:
        try:
            check_text("LOOP", loop_id)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error
    return loop_id


def text_or_input(text: str) -> str:
    """Return a text, or standard input for "-"."""
    return sys.stdin.read() if text == "-" else text


def is_in_terminal() -> bool:
    """Return whether a person sees the output and types the input."""
    return sys.stdin.isatty() and sys.stdout.isatty()


loop_argument = click.argument("loop", shell_complete=complete_loop, callback=as_loop)
call_argument = click.argument("call", shell_complete=complete_call)
by_option = click.option("--by", callback=_me, metavar="TEXT", help="A note, recorded beside your user name.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
limit_option = click.option(
    "--limit", type=click.IntRange(min=1), default=100, show_default=True, help="The maximum number of rows."
)
metadata_option = click.option(
    "--metadata", multiple=True, callback=as_metadata, help="Only loops with this KEY=VALUE; repeatable."
)
tool_option = click.option("--tool", help="Only calls of this tool.")
