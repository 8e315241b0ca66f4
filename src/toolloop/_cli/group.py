"""The group of commands, and where a command finds its store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from toolloop.inbox.transcript import escape_hidden
from toolloop.stores.protocol import Store

if TYPE_CHECKING:
    from toolloop.stores.postgres.store import PostgresStore

VARIABLE = "TOOLLOOP_STORE"
_SCHEME = "sqlite:///"
_POSTGRES = ("postgresql://", "postgres://")
_AS_ARGUMENT = "toolloop.store_as_argument"
Function = Callable[..., Any]


class StoreNotFoundError(Exception):
    """The store that was passed to a command does not exist."""


class Interrupted(Exception):
    """A person pressed Ctrl-C. The text says what is done."""


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
            raise StoreNotFoundError(f"store not found: {escape_hidden(str(path))!r}. Commands do not create stores")
        return SqliteStore(path)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002 - click's signature
        """Complete a path."""
        return [CompletionItem(incomplete, type="file")]


_option = click.option(
    "--store",
    type=StoreType(),
    envvar=VARIABLE,
    show_envvar=True,
    help="A path, sqlite:///path or the URL of a PostgreSQL database.",
)
_argument = click.Argument(["store_argument"], type=StoreType(), metavar="STORE")


class StoreCommand(click.Command):
    """A command on a store. A first argument STORE is still accepted, where there is one argument too many."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters: the deprecated argument instead of the option, where it is given."""
        found = super().get_params(ctx)
        if not ctx.meta.get(_AS_ARGUMENT):
            return found
        return [_argument, *(param for param in found if param.name != "store")]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, and check that there is a store."""
        options, extra, _ = self.make_parser(ctx).parse_args([*args])
        ctx.meta[_AS_ARGUMENT] = len(extra) == 1 and "store" not in options
        rest = super().parse_args(ctx, args)
        if ctx.meta[_AS_ARGUMENT]:
            ctx.params["store"] = ctx.params.pop("store_argument")
            click.echo(f"toolloop: STORE as an argument is deprecated; use --store or {VARIABLE}", err=True)
        if ctx.params["store"] is None and not ctx.resilient_parsing:
            raise click.UsageError(f"no store is given. Pass --store, or set the variable {VARIABLE}", ctx)
        return rest


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="toolloop")
def toolloop() -> None:
    """Show stored loops and decide their calls.

    The store is --store or the variable TOOLLOOP_STORE: a path, sqlite:///path or the URL of a PostgreSQL database.
    Only `migrate` creates one. LOOP is the id of a loop, CALL the id of a call (or its path, joined with "/"). Exit
    codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 not allowed now, 130 interrupted.
    """


def command(name: str | None = None, **more: Any) -> Callable[[Function], click.Command]:
    """Return a decorator that makes a command of a function of a store."""
    return lambda function: toolloop.command(name, cls=StoreCommand, **more)(_option(function))
