"""Lists: a table in a terminal, one whole row a line in a pipe, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import click
from attrs import asdict, frozen
from rich.console import Console
from rich.table import Table
from rich.text import Text

from toolloop._cli.screen.texts import exact
from toolloop._interface.heads import view_of_cost
from toolloop._journal.tally import Tally
from toolloop._usage import Cost
from toolloop.inbox.inbox import Inbox
from toolloop.inbox.items import InboxCall, TrailEntry, left_view
from toolloop.inbox.shown.characters import shown_line
from toolloop.inbox.shown.words import duration, time_left
from toolloop.stores.protocol import Store, StoredLoop

STATUS_STYLES = {"needs_decision": "bold yellow", "needs_command": "yellow", "failed": "red", "ended": "dim"}
_WIDE = 120  # columns from which a table has all of its columns


@frozen
class Column:
    """A column of a table. `cut`: whether a terminal cuts its cells to one line. `wide`: only in a wide window."""

    name: str
    style: str = ""
    cut: bool = False
    wide: bool = False


def print_json(value: object) -> None:
    """Print JSON, in ASCII. The format is stable: only new fields may be added."""
    click.echo(json.dumps(value, indent=2, default=plain))


def plain(value: object) -> object:
    """Convert a value for JSON that JSON does not have."""
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{value!r} cannot be converted to JSON")


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[str | Text]]) -> None:
    """Print a table. In a pipe it has no header; its cells have no tabs, which stand between them."""
    if not sys.stdout.isatty():
        for row in rows:
            click.echo("\t".join(_cell(cell).plain for cell in row))
        return
    console = Console(highlight=False)
    chosen = [at for at, column in enumerate(columns) if not column.wide or console.width >= _WIDE]
    table = Table(box=None, pad_edge=False, header_style="dim", expand=any(column.cut for column in columns))
    for column in (columns[at] for at in chosen):
        table.add_column(
            column.name,
            style=column.style,
            no_wrap=column.cut,
            overflow="ellipsis" if column.cut else "fold",
            ratio=1 if column.cut else None,
        )
    for row in rows:
        table.add_row(*(_cell(row[at]) for at in chosen))
    console.print(table)


def _cell(value: str | Text) -> Text:
    return value if isinstance(value, Text) else exact(value) if value else Text()


def say_how_many(shown: int, of: int, noun: str) -> None:
    """Say on stderr that there are no rows, or that a list stops before its end."""
    if not of:
        click.echo(f"No {noun}.", err=True)
    elif shown < of:
        click.echo(f"{shown:,} of {of:,} {noun}. Pass a greater --limit to see more.", err=True)


# --- loops -----------------------------------------------------------------------------------------------------------


def print_loops(loops: Sequence[StoredLoop]) -> None:
    """Print loops."""
    columns = (Column("loop", "bold"), Column("status"), Column("waits for"), Column("changed"), Column("metadata"))
    print_table((*columns, Column("cost", wide=True)), map(_loop_row, loops))


def _loop_row(loop: StoredLoop) -> tuple[str | Text, ...]:
    waits = [exact(f"{call.name} ({'/'.join(call.path)})") for call in loop.pending]
    if loop.left is not None:
        waits.append(Text.assemble(exact(loop.left.why), " since ", moment(loop.left.since)))
    calls = Text(", ").join(waits)
    status = Text(loop.status, STATUS_STYLES.get(loop.status, ""))
    return (loop.loop_id, status, calls, moment(loop.head.changed), metadata_of(loop), str(_cost_of(loop) or ""))


def _cost_of(loop: StoredLoop) -> Cost | None:
    return None if loop.head.tally is None else Tally.read(loop.head.tally).cost


def metadata_of(loop: StoredLoop | InboxCall) -> Text:
    """Return the metadata of a loop as one text."""
    return Text(" ").join(exact(f"{key}={value}", "dim") for key, value in loop.metadata.items())


def loop_as_json(loop: StoredLoop) -> dict[str, Any]:
    """Return a loop of the list as JSON. A call whose input is shortened has no digest."""
    return {
        "loop_id": loop.loop_id,
        "status": loop.status,
        "created": iso(loop.created),
        "changed": iso(loop.head.changed),
        "deadline": iso(loop.deadline),
        "retry_at": iso(loop.head.retry_at),
        "metadata": dict(loop.metadata),
        "left_to_others": left_view(loop.left),
        "cost": view_of_cost(_cost_of(loop)),
        "pending": [
            {
                "path": call.path,
                "name": call.name,
                "input": call.input,
                "truncated": call.truncated,
                "why": call.why,
                "reason": call.reason,
                "takes": call.takes,
                "expires_at": iso(call.expires_at),
                "digest": None if call.truncated else call.digest,
                "preview": call.preview,
            }
            for call in loop.pending
        ],
    }


# --- calls -----------------------------------------------------------------------------------------------------------

CALLS = (
    Column("deadline", "bold"),
    Column("loop", "bold"),
    Column("call"),
    Column("tool", "cyan"),
    Column("waits for", wide=True),
    Column("waits", wide=True),
    Column("input", cut=True),
    Column("metadata", wide=True),
)


def print_calls(store: Store, calls: Iterable[InboxCall], now: float) -> None:
    """Print calls that wait."""
    if sys.stdout.isatty():
        print_table(CALLS, (_call_row(call, now) for call in calls))
    else:
        print_table((), (whole_row(store, call) for call in calls))


def _call_row(call: InboxCall, now: float) -> tuple[str | Text, ...]:
    left = "-" if call.expires_at is None else time_left(call.expires_at.timestamp() - now)
    waits = "" if call.since is None else duration(now - call.since.timestamp())
    why = call.progress if call.missing > 1 or call.approvals else call.why
    return (
        left, call.loop_id, "/".join(call.path), " > ".join(call.names), why, waits, call.gist, metadata_of(call),
    )  # fmt: skip


def whole_row(store: Store, call: InboxCall) -> tuple[str | Text, ...]:
    """Return a call for a pipe: deadline, loop, call, tool, why it waits, since when, and its whole input as JSON."""
    given = call.input
    if call.truncated:  # the row of the store has only its beginning
        found = Inbox(store).show(call.loop_id)["pending"]
        given = next((each["input"] for each in found if each["path"] == [*call.path]), given)
    times = ["-" if each is None else each.isoformat() for each in (call.expires_at, call.since)]
    whole = Text("".join(piece.text for piece in shown_line(json.dumps(given, ensure_ascii=False)).pieces))
    return (times[0], call.loop_id, "/".join(call.path), " > ".join(call.names), call.why, times[1], whole)


def call_as_json(call: InboxCall) -> dict[str, Any]:
    """Return a call that waits as JSON: the fields of `InboxCall`. If its input is shortened, it has no digest."""
    found: dict[str, Any] = {**asdict(call), "metadata": dict(call.metadata), "left": left_view(call.left)}
    del found["notification_id"]
    return {**found, "digest": None if call.truncated else call.digest}


# --- the trail -------------------------------------------------------------------------------------------------------


def print_trail(entries: Iterable[TrailEntry]) -> None:
    """Print the decisions and messages of people."""
    columns = (
        Column("when"), Column("who"), Column("what", "bold"), Column("call"), Column("outcome"), Column("reason"),
        Column("content"),
    )  # fmt: skip
    print_table(columns, map(_entry_row, entries))


def _entry_row(entry: TrailEntry) -> tuple[str, ...]:
    who = f"rule {entry.rule}" if entry.rule else "policy" if entry.by_policy else entry.by or ""
    call = f"{entry.name} ({'/'.join(entry.path)})" if entry.path else ""
    content = entry.content if isinstance(entry.content, str | None) else json.dumps(entry.content, ensure_ascii=False)
    content = " ".join(filter(None, (content, entry.grant and f"grant {entry.grant}")))
    return (moment(entry.at.timestamp()), who, entry.kind, call, entry.outcome or "", entry.reason or "", content)


def moment(seconds: float) -> str:
    """Format seconds since the epoch: in a terminal in local time, in a pipe in UTC as ISO 8601."""
    at = datetime.fromtimestamp(seconds, UTC)
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S") if sys.stdout.isatty() else at.isoformat(timespec="seconds")


def clock_time(seconds: float) -> str:
    """Format seconds since the epoch as a local time of the day; with the date if that is another day."""
    at, today = datetime.fromtimestamp(seconds, UTC).astimezone(), datetime.now(UTC).astimezone().date()
    return at.strftime("%H:%M:%S" if at.date() == today else "%Y-%m-%d %H:%M:%S")


def iso(seconds: float | None) -> str | None:
    """Format seconds since the epoch for programs."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat()
