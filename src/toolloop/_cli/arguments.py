"""The arguments of the command: stores, loops and calls, with shell completion."""

from __future__ import annotations

import getpass
import importlib
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from toolloop.inbox.transcript import visible
from toolloop.machine.values.jsontext import JSON, typed
from toolloop.stores.protocol import Store

if TYPE_CHECKING:
    from toolloop.stores.postgres.store import PostgresStore

_SCHEME = "sqlite:///"
_POSTGRES = ("postgresql://", "postgres://")


class StoreNotFoundError(Exception):
    """The store that was passed to a command does not exist."""


def postgres_store(url: str) -> PostgresStore:
    """Return the store of a URL; the end of the command closes it."""
    from toolloop.stores.postgres.store import PostgresStore  # noqa: PLC0415 - of the extra `postgres`

    return click.get_current_context().with_resource(PostgresStore(url))


class StoreType(click.ParamType[Store]):
    """An existing store: a path, `sqlite:///path` or the URL of a PostgreSQL database."""

    name = "store"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Store:
        """Open a store, without creating it."""
        from toolloop.stores.sqlite.store import SqliteStore  # noqa: PLC0415 - sqlite3 is imported when it is needed

        if value.startswith(_POSTGRES):
            store = postgres_store(value)
            if not store.is_migrated():
                raise StoreNotFoundError(
                    f"{store!r} lacks tables or columns of this version; `toolloop migrate` creates them"
                )
            return store
        if "://" in value and not value.startswith(_SCHEME):
            scheme = value.partition("://")[0]  # the rest may contain a password
            self.fail(f"{scheme!r} is not a kind of store: expected a path, sqlite:/// or postgresql://", param, ctx)
        path = Path(value.removeprefix(_SCHEME))
        if not path.is_file() or not path.stat().st_size:  # SQLite would turn an empty file into a store
            raise StoreNotFoundError(f"store not found: {visible(str(path))!r}. Commands do not create stores")
        return SqliteStore(path)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002 - click's signature
        """Complete a path."""
        return [CompletionItem(incomplete, type="file")]


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


def os_user() -> str:
    """Return the name of the operating system user."""
    try:
        return getpass.getuser()
    except (KeyError, OSError) as error:  # a container may run a user without a name
        raise click.UsageError("the operating system user has no name. Pass --by") from error


def as_object(_ctx: click.Context, _param: click.Parameter, text: str | None) -> dict[str, JSON] | None:
    """Parse an option as a JSON object."""
    if text is None:
        return None
    try:
        value = typed(text)
    except ValueError as error:
        raise click.BadParameter(f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise click.BadParameter('expected a JSON object, for example {"path": "other.txt"}')
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


store_argument = click.argument("store", type=StoreType())
loop_argument = click.argument("loop", shell_complete=complete_loop)
call_argument = click.argument("call", shell_complete=complete_call)
by_option = click.option("--by", default=os_user, show_default="the operating system user", help="Your name.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
