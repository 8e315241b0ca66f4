"""The audit trail in a journal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from toolloop.inbox.items import TrailEntry
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import Failed, round_of
from toolloop.machine.record.state import Path, State
from toolloop.machine.tree import fold, step
from toolloop.machine.values.calls import Call, DecisionRecord
from toolloop.machine.values.jsontext import decode
from toolloop.stores.codec import decode_event
from toolloop.stores.protocol import Entry


def read_trail(entries: Iterable[Entry]) -> Iterator[TrailEntry]:
    """Yield the commands of people and the decisions of people and policies, in order."""
    state: State | None = None
    for entry in entries:
        event = decode_event(entry)
        before, state = state, fold([event]) if state is None else step(state, event)
        if before is not None:
            yield from _said(before, state, event)


def _said(before: State, after: State, event: ev.Event) -> Iterator[TrailEntry]:
    at = datetime.fromtimestamp(event.said_at or after.root.now, UTC)
    match event:
        case ev.Decided():
            for name, record in event.decisions:
                said_at = datetime.fromtimestamp(max(record.at, before.root.now), UTC)
                yield _decision(before, (*event.path, *name.split("/")), record, said_at)
        case ev.Judged():
            for call_id, result in event.results:
                if isinstance(result, DecisionRecord):
                    yield _decision(before, (*event.path, call_id), result, at, by_policy=True)
        case _:
            yield from _command(before, event, at)


def _command(before: State, event: ev.Event, at: datetime) -> Iterator[TrailEntry]:
    match event:
        case ev.Stopped():
            yield TrailEntry("stop", at, event.by, event.reason, via=event.via)
        case ev.GrantRevoked():
            yield TrailEntry("revoke", at, event.by, content=event.grant_id, via=event.via)
        case ev.Continued() | ev.FollowedUp() if event.messages:
            yield TrailEntry("say", at, event.by, content=[decode(text) for text in event.messages], via=event.via)
        case ev.Continued() if isinstance(before.root.phase, Failed):
            yield TrailEntry("retry", at, event.by, via=event.via)
        case ev.Continued() if event.by is not None:
            yield TrailEntry("continue", at, event.by, via=event.via)
        case ev.Changed() if event.by is not None:
            yield TrailEntry("extend", at, event.by, via=event.via)


def _decision(state: State, path: Path, record: DecisionRecord, at: datetime, *, by_policy: bool = False) -> TrailEntry:
    call = _call_at(state, path)
    more: dict[str, Any] = {} if call is None else {"name": call.name, "input": decode(call.input)}
    content = None if record.content is None else decode(record.content)
    more |= {"by_policy": by_policy, "via": record.via, "groups": record.groups}
    return TrailEntry(record.kind, at, record.by, record.reason, path, content=content, **more)


def _call_at(state: State, path: Path) -> Call | None:
    loop = state.at(path[:-1])
    round_ = None if loop is None else round_of(loop)
    return None if round_ is None else round_.find(path[-1])
