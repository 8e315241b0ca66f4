"""The audit trail in a journal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from attrs import evolve

from toolloop.errors import AlreadyDecided
from toolloop.inbox.items import TrailEntry
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import Failed, round_of
from toolloop.machine.record.state import Path, State
from toolloop.machine.rules.approving import demands_of, missing
from toolloop.machine.tree import fold, step
from toolloop.machine.values.calls import Call, DecisionRecord, Outcome, Status
from toolloop.machine.values.jsontext import JSON, decode
from toolloop.stores.codec import decode_event
from toolloop.stores.protocol import Entry
from toolloop.tools.secrets import SecretKey, hide_secrets, no_key


def read_trail(entries: Iterable[Entry], key: SecretKey = no_key) -> tuple[TrailEntry, ...]:
    """Return the commands of people, the decisions of people and policies, and the expiries, in order.

    `key`: see `hide_secrets`.
    """
    state: State | None = None
    trail: list[TrailEntry] = []
    decided: dict[Path, int] = {}  # where the last decision on each call is
    for entry in entries:
        event = decode_event(entry)
        before, state = state, fold([event]) if state is None else step(state, event)
        if before is None:
            continue
        settled = list(_settled(before, state))
        trail += [_expired(before, path, call, key) for path, call in settled if _has_expired(call)]
        for said in _said(before, state, event, key):
            decided[said.path] = len(trail)
            trail.append(said)
        for path, call in settled:
            if path in decided and call.result is not None and not _has_expired(call):
                trail[decided[path]] = evolve(trail[decided[path]], outcome=str(call.result.outcome))
    return tuple(trail)


def _settled(before: State, after: State) -> Iterator[tuple[Path, Call]]:
    """Yield the calls that got their result, by path."""
    for path, loop in after.loops.items():
        old = before.loops.get(path)
        if old is None or old is loop or old.round is None or loop.round is None:
            continue
        for was, call in loop.round.calls.changes(old.round.calls):
            if was.result is None and call.result is not None:
                yield (*path, call.id), call


def _has_expired(call: Call) -> bool:
    return call.result is not None and call.result.outcome is Outcome.EXPIRED


def _expired(state: State, path: Path, call: Call, key: SecretKey) -> TrailEntry:
    at = datetime.fromtimestamp(state.root.now if call.expires_at is None else call.expires_at, UTC)
    given = _shown(state, path, call, decode(call.input), key)
    return TrailEntry("expired", at, path=path, name=call.name, input=given, outcome="expired")


def _shown(state: State, path: Path, call: Call, given: JSON, key: SecretKey) -> JSON:
    """Return an input of a call with its secret values hidden."""
    return hide_secrets(given, state.loops[path[:-1]].setup.secrets_of(call.name), key)


def _said(before: State, after: State, event: ev.Event, key: SecretKey) -> Iterator[TrailEntry]:
    at = datetime.fromtimestamp(event.said_at or after.root.now, UTC)
    match event:
        case ev.Decided():
            for name, record in event.decisions:
                said_at = datetime.fromtimestamp(max(record.at, before.root.now), UTC)
                path = (*event.path, *name.split("/"))
                call = _call_at(after, path)
                still = 0 if call is None or call.status is not Status.WAITING else _missing(call)
                yield _decision(before, path, record, said_at, key, missing=still)
        case ev.Judged():
            for call_id, result in event.results:
                if isinstance(result, DecisionRecord):
                    yield _decision(before, (*event.path, call_id), result, at, key, by_policy=True)
        case _:
            yield from command_of(before, event, at)


def command_of(before: State, event: ev.Event, at: datetime) -> Iterator[TrailEntry]:
    """Yield the command that an event records, if it does."""
    match event:
        case ev.Stopped():
            yield TrailEntry("stop", at, event.by, event.reason, via=event.via)
        case ev.GrantRevoked():
            yield TrailEntry("revoke", at, event.by, content=event.grant_id, via=event.via)
        case ev.Withdrawn():
            taken = next((each.messages for each in before.root.kept if each.id == event.id), ())
            yield TrailEntry("withdraw", at, event.by, content=[decode(text) for text in taken], via=event.via)
        case ev.Continued() | ev.FollowedUp() | ev.Said() if event.messages:
            yield TrailEntry("say", at, event.by, content=[decode(text) for text in event.messages], via=event.via)
        case ev.Continued() if isinstance(before.root.phase, Failed):
            yield TrailEntry("retry", at, event.by, via=event.via)
        case ev.Continued() if event.by is not None:
            yield TrailEntry("continue", at, event.by, via=event.via)
        case ev.Changed() if event.by is not None:
            yield TrailEntry("extend", at, event.by, via=event.via)


def _missing(call: Call) -> int:
    return sum(missing(demands_of(call), call.approvals))


def _decision(
    state: State, path: Path, record: DecisionRecord, at: datetime, key: SecretKey, **parts: Any
) -> TrailEntry:
    call = _call_at(state, path)
    more: dict[str, Any] = {}
    content = None if record.content is None else decode(record.content)
    if call is not None:
        more = {"name": call.name, "input": _shown(state, path, call, decode(call.input), key)}
        content = _shown(state, path, call, content, key) if record.kind == "approve" and content else content
    more |= {name: getattr(record, name) for name in ("via", "groups", "digest", "rule", "rule_digest")} | parts
    return TrailEntry(record.kind, at, record.by, record.reason, path, content=content, **more)


def _call_at(state: State, path: Path) -> Call | None:
    loop = state.at(path[:-1])
    round_ = None if loop is None else round_of(loop)
    return None if round_ is None else round_.find(path[-1])


def with_decision(error: AlreadyDecided, trail: Iterable[TrailEntry]) -> AlreadyDecided:
    """Return an error about a decided call with the last decision on it, if the trail has one."""
    last = next((entry for entry in reversed([*trail]) if entry.path and "/".join(entry.path) == error.call), None)
    if last is None:
        return error
    when = last.at.isoformat(timespec="seconds")
    if last.kind == "expired":
        text = f"the call {error.call!r} expired at {when} without a decision, and did not run"
        return type(error)(text, call=error.call, decision=None, by=None, at=None)
    by = "" if last.by is None else f" by {last.by}"
    text = f"the call {error.call!r} is already decided ({last.kind}{by} at {when})"
    return type(error)(text, call=error.call, decision=last.kind, by=last.by, at=last.at)
