"""`watch`: what begins to wait, is decided, ends or fails in a store, as it happens."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, get_args

import click
from attrs import define, field, frozen
from rich.console import Console
from rich.text import Text

from toolloop._cli.arguments import json_option, metadata_option
from toolloop._cli.group import Interrupted, command
from toolloop._cli.screen import tables
from toolloop._cli.screen.texts import exact
from toolloop.errors import LoopNotFound, UnknownCall
from toolloop.inbox.inbox import Inbox
from toolloop.inbox.items import InboxCall
from toolloop.inbox.shown.cards import card_of
from toolloop.inbox.shown.keys import key_of
from toolloop.inbox.shown.words import count
from toolloop.machine.queries import LoopStatus
from toolloop.machine.values.names import Person
from toolloop.stores.optional import NO_LIMIT, read_time, watch_store
from toolloop.stores.protocol import Store, StoredLoop

_ACTIVE = tuple(status for status in get_args(LoopStatus) if status != "ended")
_NEWEST = 100  # loops that may begin and end between two looks
_POLL = 1.0  # seconds, for stores that do not report changes, or not all of them
_STYLES = {"waits": "bold yellow", "decided": "cyan", "ended": "green", "failed": "bold red", "deleted": "dim"}


@command()
@metadata_option
@json_option
def watch(store: Store, metadata: dict[str, str], *, as_json: bool) -> None:
    """Print what begins to wait, is decided, ends or fails, as it happens. Ctrl-C ends it."""
    watcher, news = Watcher(store, metadata or None), threading.Event()
    try:
        with watch_store(store, news.set):
            watcher.begin()
            waiting, failed = len(watcher.waiting), sum(row.status == "failed" for row in watcher.rows.values())
            click.echo(
                f"{count(waiting, 'call')} waiting, {count(failed, 'loop')} failed. Watching; Ctrl-C ends it.", err=True
            )
            while True:
                for event in watcher.look():
                    _print(store, event, as_json=as_json)
                news.wait(_POLL)
                news.clear()
    except KeyboardInterrupt:
        raise Interrupted("Watching has ended.") from None


@frozen
class Event:
    """What happened.

    Attributes:
        kind: `waits`, `decided`, `ended`, `failed` or `deleted`.
        call: the call that waits, or waited.

    """

    kind: str
    loop_id: str
    text: str = ""
    call: InboxCall | None = None
    at: float = field(factory=time.time)


Key = tuple[str, tuple[str, ...], str]


@define
class Watcher:
    """Compares a store with what it was.

    Attributes:
        rows: the loops that have not ended.
        waiting: the calls that wait.
        ended: the loops whose end is known, of those that were created at or after `since`.

    """

    store: Store
    metadata: Mapping[str, str] | None
    since: float = 0.0
    rows: dict[str, StoredLoop] = field(factory=dict)
    waiting: dict[Key, InboxCall] = field(factory=dict)
    ended: set[str] = field(factory=set)

    def begin(self) -> None:
        """Read the store, to compare it later."""
        newest = self._newest()
        self.since = max((row.created for row in newest), default=0.0)
        self.ended = {row.loop_id for row in newest}
        self.rows, self.waiting = self._read()

    def look(self) -> Iterator[Event]:
        """Yield what happened since the last look."""
        rows, waiting = self._read()
        old_rows, old_waiting, self.rows, self.waiting = self.rows, self.waiting, rows, waiting
        yield from (self._gone(call) for key, call in old_waiting.items() if key not in waiting)
        yield from (Event("waits", call.loop_id, call=call) for key, call in waiting.items() if key not in old_waiting)
        for loop_id, row in rows.items():
            if row.status == "failed" and (loop_id not in old_rows or old_rows[loop_id].status != "failed"):
                yield Event("failed", loop_id, self._why(loop_id, "error"))
        for loop_id in [each for each in old_rows if each not in rows]:
            yield self._over(loop_id)
        for row in self._newest():  # those that began and ended since the last look
            if row.created >= self.since and row.loop_id not in self.ended:
                yield self._over(row.loop_id)

    def _newest(self) -> list[StoredLoop]:
        return self.store.list("ended", metadata=self.metadata, limit=_NEWEST)

    def _read(self) -> tuple[dict[str, StoredLoop], dict[Key, InboxCall]]:
        rows = {row.loop_id: row for row in self.store.list(_ACTIVE, metadata=self.metadata, limit=NO_LIMIT)}
        now = read_time(self.store)
        calls = [
            InboxCall.of(row, call)
            for row in rows.values()
            for call in row.pending
            if call.expires_at is None or call.expires_at > now
        ]
        return rows, {(call.loop_id, call.path, call.digest): call for call in calls}

    def _gone(self, call: InboxCall) -> Event:
        """Return what became of a call that no longer waits."""
        text = "no longer waits"
        with suppress(LoopNotFound, UnknownCall):  # the loop may have been deleted, and created again
            text = card_of(self.store, key_of(call.loop_id, call.path), Person(""), read_time(self.store)).tag.text
        return Event("decided", call.loop_id, text, call)

    def _over(self, loop_id: str) -> Event:
        """Return what became of a loop that is not active any more."""
        try:
            text = self._why(loop_id, "termination")
        except LoopNotFound:
            return Event("deleted", loop_id)
        self.ended.add(loop_id)
        return Event("ended", loop_id, text)

    def _why(self, loop_id: str, name: str) -> str:
        shown: Mapping[str, Any] = Inbox(self.store).show(loop_id)
        return str(shown[name] or "")


def _print(store: Store, event: Event, *, as_json: bool) -> None:
    call = event.call
    if as_json:
        fields: dict[str, Any] = {
            "at": tables.iso(event.at),
            "event": event.kind,
            "loop_id": event.loop_id,
            "text": event.text,
        }
        fields["call"] = None if call is None else tables.call_as_json(call)
        click.echo(json.dumps(fields, default=tables.plain))
    elif not sys.stdout.isatty():
        cells = () if call is None else tables.whole_row(store, call)
        row = (tables.moment(event.at), event.kind, event.loop_id, event.text or "-", *cells)
        tables.print_table((), [row])
    else:
        line = Text.assemble((f"{tables.clock_time(event.at)} ", "dim"), (f"{event.kind:<8}", _STYLES[event.kind]))
        line.append_text(exact(event.loop_id, "bold"))
        for part in (
            "" if call is None else f"{call.name} ({'/'.join(call.path)})",
            event.text,
            "" if call is None else call.gist,
        ):
            if part:
                line.append("  ").append_text(exact(part))
        Console(highlight=False).print(line, no_wrap=True, overflow="ellipsis")
    sys.stdout.flush()
