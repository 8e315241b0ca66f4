"""The commands on whole loops: `stop`, `say`, `retry` and `delete`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import click

from toolloop._cli.arguments import (
    Me,
    as_loop,
    by_option,
    complete_loop,
    is_in_terminal,
    json_option,
    loop_argument,
    metadata_option,
    text_or_input,
)
from toolloop._cli.group import Interrupted, command
from toolloop._cli.screen.progress import progress
from toolloop._cli.screen.tables import print_json
from toolloop.errors import LoopNotFound
from toolloop.inbox.inbox import Inbox
from toolloop.inbox.shown.words import count
from toolloop.stores.optional import NO_LIMIT, read_time, vacuum
from toolloop.stores.protocol import Store, StoredLoop

# By the result of `vacuum`. None: the store does not have it.
_ERASED = {
    True: " No text of them is left in the file.",
    False: " Text of them may still be in the log of the file, because another program reads it.",
    None: " Text of them may stay in unused parts of the database until it is vacuumed.",
}


def _done(store: Store, loop: str, *, as_json: bool) -> None:
    status = store.head(loop).status
    if as_json:
        print_json({"loop_id": loop, "status": status})
    else:
        click.echo(f"Done. The loop is now: {status}")


@command()
@loop_argument
@click.option("--reason", help="Why.")
@by_option
@json_option
def stop(store: Store, loop: str, reason: str | None, by: Me, *, as_json: bool) -> None:
    """End a loop permanently."""
    Inbox(store, via="command").stop(loop, reason, by.name)
    _done(store, loop, as_json=as_json)


@command()
@loop_argument
@click.argument("text")
@by_option
@json_option
def say(store: Store, loop: str, text: str, by: Me, *, as_json: bool) -> None:
    """Say TEXT to the model; "-" reads standard input. An ended loop continues; while a call waits, TEXT is kept."""
    Inbox(store, via="command").say(loop, text_or_input(text), by.name)
    _done(store, loop, as_json=as_json)


@command()
@loop_argument
@by_option
@json_option
def retry(store: Store, loop: str, by: Me, *, as_json: bool) -> None:
    """Retry a failed request."""
    Inbox(store, via="command").retry(loop, by.name)
    _done(store, loop, as_json=as_json)


@command()
@click.argument("loop", required=False, shell_complete=complete_loop, callback=as_loop)
@metadata_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def delete(store: Store, loop: str | None, metadata: dict[str, str], *, yes: bool, as_json: bool) -> None:
    """Delete a loop, or all loops with this metadata, with their journals. Its audit trail is gone, too."""
    if (loop is None) == (not metadata):
        raise click.UsageError("expected either LOOP or --metadata KEY=VALUE")
    rows = store.list(metadata=metadata, limit=NO_LIMIT) if loop is None else [store.head(loop)]
    if rows and not yes:
        _confirm(store, rows)
    deleted = _delete(store, rows)
    is_erased = vacuum(store) if deleted else None
    if as_json:
        print_json({"deleted": deleted, "erased": is_erased})
    else:
        click.echo(f"Deleted {count(len(deleted), 'loop')}.{_ERASED[is_erased] if deleted else ''}")


def _confirm(store: Store, rows: Sequence[StoredLoop]) -> None:
    """Ask a person whether these loops are to be deleted.

    Raises:
        click.UsageError: there is no terminal.
        click.exceptions.Exit: the person does not confirm.

    """
    if not is_in_terminal():
        raise click.UsageError(f"without a terminal, `delete` needs --yes. It would delete {count(len(rows), 'loop')}")
    now = read_time(store)
    waiting = sum(bool(row.pending) for row in rows)
    driven = sum(row.lease is not None and row.lease.until > now for row in rows)
    notes = [
        f"{number:,} {what}" for number, what in ((waiting, "with waiting calls"), (driven, "driven now")) if number
    ]
    more = f" ({', '.join(notes)})" if notes else ""
    if not click.confirm(f"Delete {count(len(rows), 'loop')}{more}, with the journals?"):
        click.echo("Nothing was deleted.")
        raise click.exceptions.Exit(1)


def _delete(store: Store, rows: Sequence[StoredLoop]) -> list[str]:
    deleted: list[str] = []
    try:
        with progress("Deleting", len(rows)) as advance:
            for row in rows:
                with suppress(LoopNotFound):  # another program was faster
                    store.delete(row.loop_id)
                    deleted.append(row.loop_id)
                advance()
    except KeyboardInterrupt:
        raise Interrupted(
            f"{len(deleted):,} of {count(len(rows), 'loop')} are deleted, the others unchanged."
        ) from None
    return deleted
