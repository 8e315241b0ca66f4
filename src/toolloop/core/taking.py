"""The rules of a caller who takes the history into their own hands, reply by reply: see `rules`.

The caller's history counts as it is. What of an open round is still in it stays as it was, so that nothing runs twice;
what is not is gone, and none of its calls runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from toolloop.core import events as ev
from toolloop.core.binding import all_messages, unbind
from toolloop.core.chain import Chain
from toolloop.core.closing import close_round
from toolloop.core.detection import unwarned
from toolloop.core.evolving import evolve
from toolloop.core.jsontext import decode
from toolloop.core.moves import not_now, ready
from toolloop.core.policy import settle
from toolloop.core.replies import calls_in, ends_in_reply
from toolloop.core.rules import run_decided
from toolloop.core.splicing import Splice, spliced
from toolloop.core.states import Deciding, Ledger, Paused, Proposed, Ready, Running, State
from toolloop.core.tree import round_of, waiting
from toolloop.core.values import Call, Round, Ruling, Status, same_json
from toolloop.core.waking import woken

S = TypeVar("S", bound=State)


def go_on(state: Proposed, event: ev.Continued) -> State:
    """The caller leaves the reply as it is: its calls are judged, or, once all have their results, the round closes."""
    if all(call.status is Status.SETTLED for call in state.round.calls):
        closed = close_round(state.ledger, state.round)
        return ready(closed.ledger, closed.tail)
    return run_decided(state, event)


def discard_reply(state: State, event: ev.ReplyDiscarded) -> Ready:
    """The open round or pause is gone, and another history may be in its place."""
    ledger, tail = _taken(state, event.splices), _tail(state) if event.keeps_tail else ()
    return _rebound(state, ready(ledger if tail else evolve(ledger, container=None), tail))


def adopt_round(state: State, event: ev.RoundAdopted) -> Proposed | Deciding:
    """An assistant message of the caller's history is the open round; what is known of its calls stays known."""
    old = round_of(state) or Round(0, None)
    calls = [_kept(old, call) for call in _calls(state, event)]
    answered = dict(event.results)
    if strangers := answered.keys() - {call.id for call in calls}:
        raise not_now(state, event, f"a result is of {min(strangers)!r}, which is no call of that message")
    ledger, tail = _taken(state, event.splices), _tail(state) if event.keeps_tail else ()
    if not tail and not any(old.find(call.id) is call for call in calls):
        ledger = evolve(ledger, container=None)
    calls = [settle(call, answered[call.id]) if call.id in answered else call for call in calls]
    if isinstance(state, Running):  # nothing goes on while the caller has the word
        calls = [woken(call, ledger.setup) if call.status is Status.RUNNING else call for call in calls]
    shown = Proposed(ledger, Round(ledger.iterations, event.reply, tuple(calls), tail, event.after))
    return _rebound(state, Deciding(ledger, shown.round) if waiting(shown) else shown)


def reopen_calls(state: Proposed, event: ev.CallsReopened) -> Proposed:
    """Calls that ran are to run again, by name: what the earlier runs give, or gave, is no result any more."""
    calls = {call.id: call for call in state.round.calls}
    for call_id in event.call_ids:
        call = calls.get(call_id)
        if call is None or call.status is not Status.SETTLED or not call.started:
            raise not_now(state, event, _why_not(call_id, call))
        fresh = evolve(call, status=Status.CLEARED, judged=True, result=None, child=None, run=call.run + 1)
        calls[call_id] = evolve(fresh, why=None, reason=None, ruling=Ruling("rerun", at=state.ledger.now))
    return evolve(state, round=evolve(state.round, calls=tuple(calls.values())))


def _why_not(call_id: str, call: Call | None) -> str:
    if call is None:
        return f"{call_id!r} is no call of the open round"
    if call.result is None:
        return f"the call {call_id!r} has no result yet: it is {call.status}, and nothing of it is to be done again"
    return f"the call {call_id!r} never ran: its result is {call.result.outcome}"


def _calls(state: State, event: ev.RoundAdopted) -> Sequence[Call]:
    blocks = decode(event.reply)["content"] if ends_in_reply((event.reply,)) else ()
    calls = () if isinstance(blocks, str) else calls_in(blocks)
    if not calls:
        raise not_now(state, event, "it is no assistant message with calls")
    return calls


def _kept(old: Round, call: Call) -> Call:
    """The call as the loop knows it, if it is that."""
    known = old.find(call.id)
    same = known is not None and known.name == call.name and same_json(known.input, call.input)
    return known if same and known is not None else call


def _taken(state: State, splices: Sequence[Splice]) -> Ledger:
    """The ledger with another closed history; a warning about a round that is gone, or judged anew, goes with it."""
    ledger = unwarned(state.ledger)
    if splices:
        ledger = evolve(ledger, messages=Chain(spliced(ledger.messages, splices)))
    return evolve(ledger, compacted=(), edited_at=ledger.iterations)


def _tail(state: State) -> tuple[str, ...]:
    """The messages that wait beside the history before the open reply."""
    round_ = round_of(state)
    if round_ is not None:
        return round_.tail
    tail: tuple[str, ...] = getattr(state, "tail", ())
    return tail[:-1] if isinstance(state, Paused) and ends_in_reply(tail) else tail


def _rebound(before: State, after: S) -> S:
    """The state after a change of messages: thinking that comes after the first that is another is unbound."""
    old, new = all_messages(before), all_messages(after)
    same = next((at for at, (one, other) in enumerate(zip(old, new, strict=False)) if one != other), None)
    return unbind(after, min(len(old), len(new)) if same is None else same)
