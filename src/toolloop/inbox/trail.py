"""The audit trail in a journal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from datetime import UTC, datetime
from functools import partial
from typing import Any

from attrs import evolve, frozen

from toolloop._forks import ProcessState
from toolloop._journal.store_access import KnownStates, Weight, call_store
from toolloop.errors import LoopNotFound, StaleRevision, UnreadableSnapshot
from toolloop.inbox.items import TrailEntry
from toolloop.machine.queries import Change, call_changes, has_expired, is_granted
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import Failed, Path, State, find_round_at
from toolloop.machine.rules.approving import count_missing, demands_of
from toolloop.machine.rules.calls import digest_of
from toolloop.machine.rules.grants import grant_id_of
from toolloop.machine.values.calls import Call, DecisionRecord, GrantSpec, Outcome, Status
from toolloop.machine.values.jsontext import JSON, decode
from toolloop.stores.codec import replay
from toolloop.stores.protocol import Entry, Store
from toolloop.tools.secrets import SecretKey, give_no_key, hide_secrets

_JSON = ("input", "content", "remember")
_LOST = "it was started before the store was restored from a backup, and its end is unknown"


def read_trail(entries: Iterable[Entry], key: SecretKey = give_no_key) -> tuple[TrailEntry, ...]:
    """Return the commands of people, the decisions of people, policies and grants, and the expiries, in order.

    `key`: see `hide_secrets`.
    """
    first, *steps = replay(entries)
    return (*_forked(*first), *trail_of(first[1], steps, key))


def trail_of(before: State, steps: Iterable[tuple[ev.Event, State]], key: SecretKey = give_no_key) -> list[TrailEntry]:
    """Return what `read_trail` says of some events. `before`: the state before them; `steps`: each with that after."""
    trail: list[TrailEntry] = []
    _add_steps(trail, {}, before, steps, key)
    return trail


@frozen
class KnownTrail:
    """The trail of a stored loop up to a revision.

    Attributes:
        state, rev, first_id, weight: see `Known`.
        entries: the trail.
        decided: where the last decision on each call is in it.

    """

    state: State
    rev: int
    first_id: str
    weight: Weight
    entries: tuple[TrailEntry, ...]
    decided: Mapping[Path, int]


_KNOWN: ProcessState[KnownStates[KnownTrail]] = ProcessState(KnownStates)


def load_trail(store: Store, loop_id: str) -> tuple[TrailEntry, ...]:
    """Return the trail of a stored loop. If this process has read it before, only what is new is read.

    Raises:
        LoopNotFound: the loop does not exist.
        StoreError: the store failed, or the journal is damaged.

    """
    found, known = None, _KNOWN.value.find(store, loop_id)
    if known is not None:
        with suppress(LoopNotFound, StaleRevision, UnreadableSnapshot):  # it is of another loop, or of another branch
            found = _read_on(store, loop_id, known)
    if found is None:
        found = _read_on(store, loop_id, None)
    _KNOWN.value.keep(store, found)
    return tuple(map(_copy, found.entries))


def _read_on(store: Store, loop_id: str, known: KnownTrail | None) -> KnownTrail:
    """Return the trail of a loop after what is known of it, if anything."""
    if known is None:
        journal = call_store(loop_id, partial(store.load, loop_id))
        steps = replay(journal.entries)
        first, before = next(steps)
        first_id, weight, trail, decided = journal.entries[0].id, Weight(), [*_forked(first, before)], {}
    else:
        journal = call_store(loop_id, partial(store.load, loop_id, after=known.rev, first_id=known.first_id))
        steps, before = replay(journal.entries, known.state, known.rev), known.state
        first_id, weight, trail, decided = known.first_id, known.weight, [*known.entries], {**known.decided}
    state = _add_steps(trail, decided, before, steps, store.secret)
    return KnownTrail(state, journal.rev, first_id, weight.plus(journal.entries), tuple(trail), decided)


def _copy(entry: TrailEntry) -> TrailEntry:
    """Return an entry that may be changed, because it has no value of the one that is kept."""
    return evolve(entry, **{name: deepcopy(getattr(entry, name)) for name in _JSON if getattr(entry, name) is not None})


def _add_steps(
    trail: list[TrailEntry],
    decided: dict[Path, int],
    before: State,
    steps: Iterable[tuple[ev.Event, State]],
    key: SecretKey,
) -> State:
    """Add to a trail what it says of some events, and return the state after them. `decided`: see `KnownTrail`."""
    for event, state in steps:
        changes = list(call_changes(before, event, state))
        trail += [
            _expired(before, path, was, key)
            for path, was, call in changes
            if was is not None and has_expired(was, call, state.root.now)
        ]
        for said in (*_said(before, state, event, key), *_granted(state, changes, key)):
            if said.kind != "uncertain":
                decided[said.path] = len(trail)
            trail.append(said)
        for path, was, call in changes:
            if path in decided and (outcome := _new_outcome(was, call)) not in (None, Outcome.EXPIRED):
                trail[decided[path]] = evolve(trail[decided[path]], outcome=str(outcome))
        before = state
    return before


def _new_outcome(was: Call | None, call: Call | None) -> Outcome | None:
    """Return the outcome of a call that got its result between these two."""
    if was is None or was.result is not None or call is None or call.result is None:
        return None
    return call.result.outcome


def _forked(event: ev.Event, state: State) -> Iterator[TrailEntry]:
    if isinstance(event, ev.Adopted) and event.forked_from is not None:
        content = {"forked_from": event.forked_from, "at": event.message or event.iteration or None}
        yield TrailEntry("fork", datetime.fromtimestamp(state.root.now, UTC), event.by, content=content, via=event.via)


def _expired(state: State, path: Path, call: Call, key: SecretKey) -> TrailEntry:
    at = datetime.fromtimestamp(state.root.now if call.expires_at is None else call.expires_at, UTC)
    return TrailEntry("expired", at, outcome="expired", **_of_call(state, path, call, key), demands=call.demands)


def _granted(state: State, changes: Iterable[Change], key: SecretKey) -> Iterator[TrailEntry]:
    """Yield the calls that a grant lets run, with the person who gave it."""
    at = datetime.fromtimestamp(state.root.now, UTC)
    for path, was, call in changes:
        if call is not None and call.decision is not None and is_granted(was, call):
            given, grant = call.decision, "/".join((*path[:-1], call.decision.grant or ""))
            more: dict[str, Any] = {"groups": given.groups, "grant": grant, "demands": call.demands}
            yield TrailEntry("grant", at, given.by, given.reason, **_of_call(state, path, call, key), **more)


def _of_call(state: State, path: Path, call: Call, key: SecretKey) -> dict[str, Any]:
    """Return what an entry says of a call."""
    given = _shown(state, path, call, decode(call.input), key)
    return {"path": path, "name": call.name, "input": given, "digest": _digest_of(state, path, call)}


def _digest_of(state: State, path: Path, call: Call) -> str | None:
    """Return the digest of a call, as it was shown."""
    round_ = find_round_at(state, path[:-1])
    return None if round_ is None else digest_of(state.loops[path[:-1]].setup, round_.iteration, call)


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


def command_of(  # noqa: C901 - a case for each kind of command
    before: State, event: ev.Event, at: datetime
) -> Iterator[TrailEntry]:
    """Yield the command that an event records, if it does."""
    match event:
        case ev.Stopped():
            yield TrailEntry("stop", at, event.by, event.reason, via=event.via)
        case ev.GrantRevoked():
            yield TrailEntry("revoke", at, event.by, grant="/".join((*event.path, event.grant_id)), via=event.via)
        case ev.LinksRevoked():
            path = () if event.call is None else tuple(event.call.split("/"))
            yield TrailEntry("unlink", at, event.by, path=path, name=_name_of(before, path), via=event.via)
        case ev.MetadataChanged():
            changed = {key: {"before": was, "after": now} for key, was, now in event.changes}
            yield TrailEntry("metadata", at, event.by, content=changed, via=event.via)
        case ev.Withdrawn():
            taken = next((each.messages for each in before.root.kept if each.id == event.id), ())
            yield TrailEntry("withdraw", at, event.by, content=[decode(text) for text in taken], via=event.via)
        case ev.Restored():
            yield TrailEntry("restored", at, event.by, via=event.via)
            for name, *_ in event.runs:
                path = tuple(name.split("/"))
                yield TrailEntry("uncertain", at, None, _LOST, path, name=_name_of(before, path))
        case ev.Continued() | ev.FollowedUp() | ev.Said() if event.messages:
            yield TrailEntry("say", at, event.by, content=[decode(text) for text in event.messages], via=event.via)
        case ev.Continued() if isinstance(before.root.phase, Failed):
            yield TrailEntry("retry", at, event.by, via=event.via)
        case ev.Continued() if event.by is not None:
            yield TrailEntry("continue", at, event.by, via=event.via)
        case ev.Changed() if event.by is not None:
            yield TrailEntry("extend", at, event.by, via=event.via)


def _missing(call: Call) -> int:
    return sum(count_missing(demands_of(call), call.approvals))


def _decision(
    state: State, path: Path, record: DecisionRecord, at: datetime, key: SecretKey, **parts: Any
) -> TrailEntry:
    call = _call_at(state, path)
    more: dict[str, Any] = {"path": path}
    content = None if record.content is None else decode(record.content)
    if call is not None:
        more = _of_call(state, path, call, key) | {"demands": () if record.via is None else call.demands}
        content = _shown(state, path, call, content, key) if record.kind == "approve" and content else content
        if record.remember is not None:
            more |= _remembered(state, path, call, record.remember, key)
    if record.digest is not None:
        more["digest"] = record.digest
    more |= {name: getattr(record, name) for name in ("via", "groups", "rule", "rule_digest")} | parts
    return TrailEntry(record.kind, at, record.by, record.reason, content=content, **more)


def _remembered(state: State, path: Path, call: Call, spec: GrantSpec, key: SecretKey) -> dict[str, Any]:
    """Return the grant that was given with an approval, and its id."""
    match = None if spec.match is None else _shown(state, path, call, decode(spec.match), key)
    until = None if spec.expires_at is None else datetime.fromtimestamp(spec.expires_at, UTC).isoformat()
    remember = {"tool": spec.tool or call.name, "match": match, "uses": spec.uses, "expires_at": until}
    grant_id = grant_id_of(state.loops[path[:-1]].iterations, call)
    return {"remember": remember, "grant": "/".join((*path[:-1], grant_id))}


def _name_of(state: State, path: Path) -> str | None:
    call = _call_at(state, path) if path else None
    return None if call is None else call.name


def _call_at(state: State, path: Path) -> Call | None:
    return state.find_call(path)
