"""What a journal tells of each event: who did what, and when."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from attrs import evolve

from toolloop.core import events as ev
from toolloop.core.freezing import frozen
from toolloop.core.jsontext import JSON, decode
from toolloop.core.policy import settle_open
from toolloop.core.states import Executed, Failed, Finished, Open, Ready, Requesting, State
from toolloop.core.tree import round_of
from toolloop.core.values import Call, Outcome, Round, Ruling, StandingGrant, Status, Why

_RULED = {"approve": "approved", "deny": "denied", "answer": "answered", "rerun": "rerun"}
# What a caller or a driver did to the loop as a whole.
_PLAIN: dict[type[ev.Event], str] = {
    ev.Opened: "opened",
    ev.Adopted: "adopted",
    ev.Requested: "requested",
    ev.RequestCancelled: "request cancelled",
    ev.Continued: "continued",
    ev.Injected: "messages injected",
    ev.HistoryEdited: "history replaced",
    ev.ParamsChanged: "parameters changed",
    ev.FollowedUp: "followed up",
    ev.Extended: "limits extended",
    ev.Retried: "retried",
    ev.Forked: "forked",
}


@frozen
class Action:
    """Something that was done to a loop or to one of its calls.

    Attributes:
        entry: the number of the event in the journal that says so, counted from 1.
        at: when, aware UTC; None where the journal does not say.
        what: of a loop: `opened`, `adopted`, `requested`, `replied`, `request failed`, `request cancelled`,
            `request lost`, `round closed`, `continued`, `messages injected`, `history replaced`, `parameters changed`,
            `followed up`, `limits extended`, `retried`, `forked`, `woken`, `grant revoked`, `stopped`, `finished`,
            `summary requested`, `compacted`, `not compacted`. Of a call: `proposed`, `asked` (the caller was),
            `approved`, `denied`, `answered`, `rerun`, `granted` (later calls like it may run), `allowed by grant`,
            `rejected` (it could not run), `expired`, `started`, `ended`, `late` (an end that did not count),
            `cancelled`, `lost` (nobody will see it end), `not run`, `uncertain`, `spent` (its tool drove a loop of its
            own, and a request of that was answered).
        iteration, call_id, tool: which call.
        by: who decided, also of a call that was started, which driver woke the loop, or which strategy compacted it.
        reason: why, or how: of an end its outcome, of a reply its stop reason, of a compaction its tokens.
        grant: the id of the grant that was given, used or revoked.
        proposed: the input that the model proposed.
        decided: the input that a decision let run.
        ran: the input that ran.
        path: the ids of the calls that lead to the loop in which it was done, from the outermost down.

    """

    entry: int
    at: datetime | None
    what: str
    iteration: int | None = None
    call_id: str | None = None
    tool: str | None = None
    by: str | None = None
    reason: str | None = None
    grant: str | None = None
    proposed: JSON = None
    decided: JSON = None
    ran: JSON = None
    path: tuple[str, ...] = ()


@frozen
class Teller:
    """Tells what one event did in one loop. `entry`: its number; `path`: which loop; `event`: what it heard."""

    entry: int
    event: ev.Event
    path: tuple[str, ...] = ()

    def expired(self, before: Round, after: Round) -> Iterator[Action]:
        """The calls that had waited too long when the event came."""
        for was, now in zip(before.calls, after.calls, strict=True):
            if was.status is not now.status:
                yield evolve(self._of(after, now, "expired"), at=moment(now.expires_at or 0.0))

    def too_late(self) -> Iterator[Action]:
        """What the event says of a loop that is no longer there."""
        match self.event:
            case ev.Ended() as event:
                yield self._late(event, None)
            case ev.Spent() as event:
                yield self._spent(event, None)

    def cut_off(self, before: State) -> Iterator[Action]:
        """What became of a loop that was cut off by what happened above it."""
        if isinstance(before, Requesting):
            yield self._act("request lost")
        yield from self._cut_off(before)

    def acts(self, before: State | None, after: State) -> Iterator[Action]:
        """All that the event did. `before`: None for the first one of a loop."""
        yield from self._to_loop(before, after)
        if isinstance(before, Open) and not isinstance(self.event, ev.RoundAdopted):
            yield from self._to_calls(before, after)
        elif isinstance(self.event, ev.Ended):
            yield self._late(self.event, None)
        if isinstance(after, Finished) and not isinstance(before, Finished):
            if before is not None:
                yield from self._cut_off(before)
            yield self._act("finished", reason=after.termination.kind)

    def _to_loop(self, before: State | None, after: State) -> Iterator[Action]:
        match self.event:
            case ev.Replied(reply=reply):
                yield self._act("replied", reason=reply.stop_reason)
                round_ = Round(after.ledger.iterations, None)
                yield from (self._of(round_, call, "proposed") for call in reply.calls())
            case ev.RequestFailed(failure=failure):
                yield self._act("request failed", reason=failure.message)
            case ev.Judged(stop=True, reason=reason):
                yield self._act("stopped", by="stop_when", reason=reason)
            case ev.Stopped(reason=reason):
                yield self._act("stopped", reason=reason)
            case ev.GrantRevoked(grant_id=grant_id, by=by):
                yield self._act("grant revoked", by=by, grant=grant_id)
            case ev.TurnEnded() if isinstance(after, Executed | Ready):
                yield self._act("round closed")
            case ev.Spent() as event:
                yield self._spent(event, before)
            case ev.Woken() as event:
                yield from self._woken(event, before)
            case event if event.path == self.path:
                yield from self._said_here(event)

    def _said_here(self, event: ev.Event) -> Iterator[Action]:
        match event:
            case ev.Requested(summary=True):
                yield self._act("summary requested")
            case ev.Compacted(strategy=strategy, splices=(), problem=problem):
                yield self._act("not compacted", by=strategy, reason=problem)
            case ev.Compacted(strategy=strategy, before=before, after=after):
                yield self._act("compacted", by=strategy, reason=f"{before} tokens before, {after} after")
            case event if type(event) in _PLAIN:
                yield self._act(_PLAIN[type(event)])

    def _woken(self, event: ev.Woken, before: State | None) -> Iterator[Action]:
        """It is told where it was said, and what was lost with the other driver wherever that was."""
        if event.path == self.path:
            yield self._act("woken", by=event.driver)
        if isinstance(before, Requesting):
            yield self._act("request lost")

    def _to_calls(self, before: Open, after: State) -> Iterator[Action]:
        """What became of the calls of the open round."""
        round_ = after.round if isinstance(after, Open) else before.round
        pairs = [(was, now) for was, now in zip(before.round.calls, round_.calls, strict=True) if _differ(was, now)]
        match self.event:
            case ev.Judged():
                yield from (act for was, now in pairs for act in self._judged(round_, was, now))
            case ev.Decided():
                yield from self._decided(round_, pairs)
                yield from self._granted(round_, after.ledger.grants[len(before.ledger.grants) :])
            case ev.Started(call_id=call_id):
                started = (now for _, now in pairs if now.id == call_id)
                yield from (self._started(round_, now) for now in started)
            case ev.Ended() as event if pairs:
                yield from (self._of(round_, now, "ended", reason=_words(event.result.outcome)) for _, now in pairs)
            case ev.Ended() as event:
                yield self._late(event, before.round)
            case ev.Cancelled() | ev.Woken():
                yield from self._lost(round_, [now for was, now in pairs if was.status is Status.RUNNING])

    def _judged(self, round_: Round, was: Call, now: Call) -> Iterator[Action]:
        ruling = now.ruling
        if now.status is Status.WAITING:
            external = "its result comes from the caller" if now.why is Why.EXTERNAL else None
            yield self._of(round_, now, "asked", reason=now.reason or external)
        elif ruling is not None and ruling is not was.ruling:
            yield self._ruled(round_, now, ruling)
        elif now.result is not None:
            yield self._of(round_, now, "rejected", reason=_words(now.result.outcome))

    def _decided(self, round_: Round, pairs: Iterable[tuple[Call, Call]]) -> Iterator[Action]:
        for was, now in pairs:
            if was.status is Status.WAITING and now.ruling is not None:
                yield self._ruled(round_, now, now.ruling)

    def _granted(self, round_: Round, given: Iterable[StandingGrant]) -> Iterator[Action]:
        for grant in given:
            call = round_.find(grant.call_id)
            if call is not None:
                yield self._of(round_, call, "granted", by=grant.by, reason=grant.reason, grant=grant.id)

    def _ruled(self, round_: Round, call: Call, ruling: Ruling) -> Action:
        what = "allowed by grant" if ruling.grant is not None else _RULED[ruling.kind]
        by = ruling.by or ("the policy" if ruling.by_policy else None)
        decided = _effective(call) if ruling.kind in ("approve", "rerun") else None
        return self._of(round_, call, what, by=by, reason=ruling.reason, grant=ruling.grant, decided=decided)

    def _started(self, round_: Round, call: Call) -> Action:
        ruling = call.ruling
        ran = _effective(call)
        more = {} if ruling is None else {"decided": ran, "by": ruling.by, "grant": ruling.grant}
        return self._of(round_, call, "started", ran=ran, **more)

    def _lost(self, round_: Round, calls: Iterable[Call]) -> Iterator[Action]:
        for call in calls:
            if call.status is Status.SETTLED:
                yield self._of(round_, call, "cancelled")
            else:
                waits = call.status is Status.WAITING
                yield self._of(
                    round_, call, "lost", reason="it waits for a decision" if waits else "it may be run again"
                )

    def _late(self, event: ev.Ended, open_: Round | None) -> Action:
        """An end that did not count."""
        call = open_.find(event.call_id) if open_ is not None and event.iteration == open_.iteration else None
        reason = _words(event.result.outcome)
        if open_ is not None and call is not None:
            return self._of(open_, call, "late", reason=reason)
        return self._act("late", iteration=event.iteration or None, call_id=event.call_id, reason=reason)

    def _spent(self, event: ev.Spent, before: State | None) -> Action:
        round_ = None if before is None else round_of(before)
        call = None if round_ is None else round_.find(event.call_id)
        if round_ is None or call is None:
            return self._act("spent", call_id=event.call_id, reason=event.usage.model)
        return self._of(round_, call, "spent", reason=event.usage.model)

    def _cut_off(self, before: State) -> Iterator[Action]:
        """What became of the calls that were open when the loop ended."""
        if not isinstance(before, Open | Failed) or before.round is None:
            return
        settled = settle_open(before.round, before.ledger.setup.texts)
        for was, now in zip(before.round.calls, settled.calls, strict=True):
            if now.result is not None and was.status is not Status.SETTLED:
                yield self._of(settled, now, _words(now.result.outcome))

    def _of(self, round_: Round, call: Call, what: str, **more: Any) -> Action:
        of_call = {"iteration": round_.iteration, "call_id": call.id, "tool": call.name}
        return self._act(what, **of_call, proposed=decode(call.input), **more)

    def _act(self, what: str, **more: Any) -> Action:
        return Action(self.entry, moment(self.event.at), what, path=self.path, **more)


def _differ(was: Call, now: Call) -> bool:
    """Whether something became of a call. What goes on inside of it is told there."""
    return was is not now and evolve(was, child=None) != evolve(now, child=None)


def _effective(call: Call) -> JSON:
    return decode(call.effective_input)


def _words(outcome: Outcome) -> str:
    return str(outcome).replace("_", " ")


def moment(seconds: float) -> datetime | None:
    """A time of the journal, aware UTC; None for none at all, and for one that no calendar has."""
    try:
        return datetime.fromtimestamp(seconds, UTC) if seconds else None
    except (OverflowError, OSError, ValueError):
        return None
