"""The tally of a loop: how its calls were settled, how long they waited, and what it cost, by day.

It is made of the events as they are stored, and kept in the row of the loop. The same events always give the same
tally, so it can be counted again from the journal.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, Final

from attrs import define, field, frozen

from toolloop._journal.store_access import call_store
from toolloop._usage import Cost
from toolloop.machine.queries import Change, call_changes, has_expired
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import State
from toolloop.machine.tree import fold, step
from toolloop.machine.values.calls import Call, DecisionRecord, Outcome, Status
from toolloop.stores.optional import NO_LIMIT, keeps_tallies
from toolloop.stores.protocol import Store

A_DAY: Final = 86_400
#: How long calls wait, in seconds: each is the end of a bucket. Longer waits have a bucket of their own.
BUCKETS: Final = (
    *(1, 2, 5, 10, 30, 60, 120, 300, 600, 1800),
    *(3600, 2 * 3600, 4 * 3600, 8 * 3600, A_DAY, 2 * A_DAY, 4 * A_DAY, 7 * A_DAY, 30 * A_DAY),
)
_VERBS: Final = {"approve": "approved", "deny": "denied", "answer": "answered", "rerun": "rerun"}
_REFUSED: Final = {
    Outcome.UNKNOWN_TOOL: "invalid",
    Outcome.INVALID_INPUT: "invalid",
    Outcome.NOT_RUN: "not_run",
}
_OPEN: Final = (Status.PROPOSED, Status.WAITING)


@frozen
class Settled:
    """How calls were settled.

    Attributes:
        day: in days since the epoch, UTC.
        outcome: `approved`, `edited`, `denied`, `answered` or `rerun` by a person; with the prefix `rule_` by a policy;
            `grant`, `expired`, `unasked` (it needed no decision), `invalid` (the tool is unknown, or the input does not
            fit) or `not_run` (the loop ended before), or `late` (the end of its run arrived while it waited).
        by: the person, or the rule with its prefix; None otherwise.
        bucket: the index in `BUCKETS` for the time that it waited; None if it did not wait.

    """

    day: int
    tool: str
    outcome: str
    by: str | None = None
    bucket: int | None = None


@frozen
class Counted:
    """What an event changes in a tally.

    Attributes:
        now: the time after it, in seconds since the epoch.
        costs: what was spent.
        calls: those that began to wait or were settled: the path, the call before, and after if it is still there.
        approvals: new approvals of calls that need more of them.

    """

    now: float
    costs: Sequence[Cost]
    calls: Sequence[Change]
    approvals: Sequence[DecisionRecord]


@define
class Tally:
    """The tally of a loop.

    Attributes:
        settled: how often calls were settled in a way.
        approvals: how often persons approved a call that needed more approvals then: by day, person and outcome, which
            is `approved`, `edited` or `rerun`.
        costs: what was spent on a day.
        waiting: since when calls wait, by path, in seconds since the epoch.

    """

    settled: dict[Settled, int] = field(factory=dict)
    approvals: dict[tuple[int, str | None, str], int] = field(factory=dict)
    costs: dict[int, Cost] = field(factory=dict)
    waiting: dict[str, float] = field(factory=dict)

    @classmethod
    def of(cls, events: Iterable[ev.Event]) -> Tally:
        """Count a whole journal."""
        rest = iter(events)
        first = next(rest)
        state, tally = fold([first]), cls()
        tally.begin(state)
        for event in rest:
            before, state = state, step(state, event)
            if (found := find_counted(before, event, state)) is not None:
                tally.count(found)
        return tally

    def begin(self, state: State) -> None:
        """Begin with the first state of a loop. What was decided and spent before, the loop of origin has counted."""
        for path, loop in state.loops.items():
            if (round_ := loop.phase.round) is not None:
                for call in round_.calls.having(Status.WAITING):
                    self.waiting["/".join((*path, call.id))] = state.root.now

    def count(self, found: Counted) -> None:
        """Count what an event changed."""
        day = _to_day(found.now)
        for cost in found.costs:
            known = Cost(cost.dollars, cost.is_partial)  # no statistics name the models without a price
            self.costs[day] = self.costs.get(day, Cost()) + known
        for path, was, call in found.calls:
            self._count_call("/".join(path), was, call, found.now)
        for given in found.approvals:
            key = _to_day(given.at), given.by, _verb_of(given)
            self.approvals[key] = self.approvals.get(key, 0) + 1

    def _count_call(self, name: str, was: Call | None, call: Call | None, now: float) -> None:
        if call is not None and call.status is Status.WAITING:
            self.waiting[name] = now
        elif was is not None:
            at = now if call is None or call.decision is None or call.decision is was.decision else call.decision.at
            if call is not None and call.result is not None and call.result.outcome is Outcome.EXPIRED:
                at = min(at, call.expires_at or at)
            since = self.waiting.pop(name, None) if was.status is Status.WAITING else None
            bucket = None if since is None else bisect_left(BUCKETS, max(0.0, at - since))
            outcome, by = _find_outcome(was, call, now)
            key = Settled(_to_day(at), was.name, outcome, by, bucket)
            self.settled[key] = self.settled.get(key, 0) + 1

    @property
    def cost(self) -> Cost | None:
        """Return the cost of all days; None if there is none."""
        return sum(self.costs.values(), Cost()) if self.costs else None

    def copy(self) -> Tally:
        """Return a copy."""
        return Tally(dict(self.settled), dict(self.approvals), dict(self.costs), dict(self.waiting))

    @classmethod
    def read(cls, text: str) -> Tally:
        """Return the tally that `write` wrote."""
        fields = json.loads(text)
        return cls(
            {Settled(*key): count for *key, count in fields.get("settled", ())},
            {(day, by, verb): count for day, by, verb, count in fields.get("approvals", ())},
            {day: Cost(Decimal(dollars), bool(partial)) for day, dollars, partial in fields.get("costs", ())},
            fields.get("waiting", {}),
        )

    def write(self) -> str:
        """Return the tally as JSON text."""
        settled = [[key.day, key.tool, key.outcome, key.by, key.bucket, count] for key, count in self.settled.items()]
        approvals = [[*key, count] for key, count in self.approvals.items()]
        costs = [[day, f"{cost.dollars:f}", int(cost.is_partial)] for day, cost in self.costs.items()]
        fields: dict[str, Any] = {"settled": settled, "approvals": approvals, "costs": costs, "waiting": self.waiting}
        return json.dumps({name: value for name, value in fields.items() if value}, separators=(",", ":"))


def read_tallies(store: Store, metadata: Mapping[str, str]) -> Iterator[tuple[str, str | None]]:
    """Yield the id and the tally of each loop with this metadata, or None. Without tallies, the journals are read.

    Raises:
        StoreError: the store failed, or a journal cannot be read.

    """
    if keeps_tallies(store):
        listed: Callable[..., list[tuple[str, str | None]]] = store.tallies  # type: ignore[attr-defined] # it is optional
        yield from call_store(None, partial(listed, metadata=metadata))
        return
    for row in store.list(metadata=metadata, limit=NO_LIMIT):
        yield row.loop_id, count_journal(store, row.loop_id).write()


def count_journal(store: Store, loop_id: str, rev: int | None = None) -> Tally:
    """Return the tally of a loop, counted from its journal up to a revision; None means all of it."""
    from toolloop.stores.codec import decode_event  # noqa: PLC0415 - cattrs is loaded when it is first needed

    entries = call_store(loop_id, partial(store.load, loop_id)).entries
    return Tally.of(map(decode_event, entries[:rev]))


def find_counted(before: State, event: ev.Event, after: State) -> Counted | None:
    """Return what an event changes in the tally; None if it changes nothing."""
    calls: list[Change] = []
    approvals: list[DecisionRecord] = []
    for path, was, call in call_changes(before, event, after):
        if call is not None and call.status is Status.WAITING:
            if was is None or was.status is not Status.WAITING:
                calls.append((path, was, call))
        elif was is not None and (was.status is Status.WAITING or _is_new(was, call)):
            calls.append((path, was, call))
        if was is not None and call is not None and call.approvals is not was.approvals:
            known = (*was.approvals, was.decision)
            approvals += [given for given in call.approvals if all(given is not each for each in known)]
    used = after.root.usage_log[len(before.root.usage_log) :]
    costs = [entry.usage.cost for entry in used if entry.usage.cost is not None]
    return Counted(after.root.now, costs, calls, approvals) if costs or calls or approvals else None


def _to_day(at: float) -> int:
    return int(at // A_DAY)


def _is_new(was: Call, call: Call | None) -> bool:
    """Return whether a call was settled for the first time, without a wait."""
    return was.status is Status.PROPOSED and was.decision is None and (call is None or call.status not in _OPEN)


def _find_outcome(was: Call, call: Call | None, now: float) -> tuple[str, str | None]:
    """Return how a call was settled, and by whom."""
    if has_expired(was, call, now):
        return "expired", None
    result = None if call is None else call.result
    ended = Outcome.NOT_RUN if call is None else None if result is None else result.outcome
    if ended is not None and ended in _REFUSED:
        return _REFUSED[ended], None
    decision = None if call is None else call.decision
    if decision is None or decision is was.decision:
        return ("late" if was.status is Status.WAITING and ended is not None else "unasked"), None
    if decision.grant is not None:
        return "grant", None
    if decision.by_policy:
        return f"rule_{_VERBS[decision.kind]}", decision.by
    return _verb_of(decision), decision.by


def _verb_of(decision: DecisionRecord) -> str:
    return "edited" if decision.kind == "approve" and decision.content else _VERBS[decision.kind]
