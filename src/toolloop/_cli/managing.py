"""The commands on a store: `migrate`, and `serve`, the page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from toolloop._cli.arguments import Me, as_function, by_option
from toolloop._cli.group import Interrupted, command, postgres_store, toolloop
from toolloop._cli.screen.progress import progress
from toolloop.rules import Rules
from toolloop.stores.protocol import Store

_GRANTS = """\b
A role that only uses the tables needs:
  GRANT USAGE ON SCHEMA toolloop TO role;
  GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA toolloop TO role;
  GRANT USAGE ON ALL SEQUENCES IN SCHEMA toolloop TO role;"""


@toolloop.command(epilog=_GRANTS)
@click.argument("url")
def migrate(url: str) -> None:
    """Create the tables of a PostgreSQL store in the schema `toolloop`, or what those of an earlier version lack."""
    store = postgres_store(url)
    try:
        with progress("Migrating"):
            store.migrate()
    except KeyboardInterrupt:
        raise Interrupted("Run `migrate` again to be sure: it adds only what is missing.") from None
    click.echo(f"{store!r} is ready")


@command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="0 selects a free port.")
@click.option("--who", callback=as_function, help="MODULE:FUNCTION that takes a request and returns the person's name.")
@click.option("--may", callback=as_function, help="MODULE:FUNCTION that says what a person may do. See inbox_app.")
@click.option("--sees", callback=as_function, help="MODULE:FUNCTION that returns the metadata of what a person sees.")
@click.option("--rules", type=click.Path(), help="The file with the workers' approval rules: shown for an edit.")
@click.option("--public-url", help="The URL that visitors use, if a proxy is in front. Its host name is answered, too.")
@click.option("--root-path", help="The prefix of the page, such as /approvals; default: the path of --public-url.")
@click.option("--proxy", "proxies", multiple=True, help="A proxy, whose X-Forwarded-* headers count; repeatable.")
@by_option
def serve(  # noqa: PLR0913 - what an operator decides
    store: Store,
    who: Callable[..., Any] | None,
    may: Callable[..., Any] | None,
    sees: Callable[..., Any] | None,
    rules: str | None,
    *,
    by: Me,
    **address: Any,
) -> None:
    """Serve the approval page. Without --who, only on this machine, through a link with a token."""
    from toolloop.inbox.page.serving import Address, serve_page  # noqa: PLC0415 - of the extra `inbox`

    asked: dict[str, Any] = {"who": who, "may": may, "sees": sees}
    asked["rules"] = None if rules is None else Rules.load(rules)
    serve_page(store, Address(**address), **asked, name=by.name, announce=lambda at: click.echo(f"Approve at {at}"))
