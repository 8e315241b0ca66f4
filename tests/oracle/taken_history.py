"""The rules of a caller who takes the history into their own hands, reply by reply: see `rules`.

The caller's history counts as it is. What of an open round is still in it stays as it was, so that nothing runs twice;
what is not is gone, and none of its calls runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from attrs import evolve

from tests.oracle import events as ev
from tests.oracle.calls import is_settled, settle
from tests.oracle.chain import Chain
from tests.oracle.joining import close_round
from tests.oracle.jsontext import decode
from tests.oracle.repetition import follow, unwarned
from tests.oracle.replies import calls_in, ends_in_reply
from tests.oracle.rules import run_decided
from tests.oracle.shared_steps import not_now, ready, run
from tests.oracle.splicing import Splice, common, spliced
from tests.oracle.states import Deciding, Judging, Ledger, Proposed, Ready, Running, State
from tests.oracle.stops import Fate
from tests.oracle.thinking import all_messages, unbind
from tests.oracle.tree import round_of, tail_of, waiting
from tests.oracle.values import Call, Round, Ruling, Status, same_json

S = TypeVar("S", bound=State)


def go_on(state: Proposed, event: ev.Continued) -> State:
    """The caller leaves the reply as it is: its calls are judged, or, once all have their results, the round closes."""
    if is_settled(state.round):
        closed = close_round(state.ledger, state.round)
        return ready(closed.ledger, closed.tail)
    return run_decided(state, event)


def discard_reply(state: State, event: ev.ReplyDiscarded) -> Ready:
    """The open round or pause is gone, and another history may be in its place.

    A round whose calls all ran, and which the caller put into it with results, goes on to count where repetitions do.
    """
    ledger, tail = _taken(state, event.splices), tail_of(state) if event.keeps_tail else ()
    round_ = round_of(state)
    if round_ is not None and _has_joined(round_, state.ledger.messages, ledger.messages):
        ledger = follow(evolve(ledger, held=state.ledger.held), round_.calls)
    return _rebound(state, ready(ledger if tail else evolve(ledger, container=None), tail))


def adopt_round(state: State, event: ev.RoundAdopted) -> Proposed | Deciding | Judging | Running:
    """An assistant message of the caller's history is the open round; what is known of its calls stays known.

    Those that run go on, and their ends count. So nothing starts a second time beside its first run.
    """
    old = round_of(state) or Round(0, None)
    calls = [_kept(old, call) for call in _calls(state, event)]
    answered = dict(event.results)
    if strangers := answered.keys() - {call.id for call in calls}:
        raise not_now(state, event, f"a result is of {min(strangers)!r}, which is no call of that message")
    ledger, tail = _taken(state, event.splices), tail_of(state) if event.keeps_tail else ()
    if not tail and not any(old.find(call.id) is call for call in calls):
        ledger = evolve(ledger, container=None)
    calls = [settle(call, answered[call.id]) if call.id in answered else call for call in calls]
    round_ = Round(ledger.iterations, event.reply, tuple(calls), tail, event.after)
    if isinstance(state, Judging | Running) and round_.having(Status.RUNNING):
        judges = isinstance(state, Judging)  # it stays so: what is next in it is asked anew
        return _rebound(state, Judging(ledger, round_, Fate.RUN) if judges else run(ledger, round_))
    shown = Proposed(ledger, round_)
    return _rebound(state, Deciding(ledger, round_) if waiting(shown) else shown)


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


def _has_joined(round_: Round, before: Sequence[str], after: Sequence[str]) -> bool:
    """Whether a round that has all its results came to the end of the history; an equal one may have been in it."""
    last = next((text for text in reversed(after) if ends_in_reply((text,))), None)
    is_settled = all(call.status is Status.SETTLED for call in round_.calls)
    return (
        is_settled and last is not None and last == round_.reply and list(after).count(last) > list(before).count(last)
    )


def _rebound(before: State, after: S) -> S:
    """The state after a change of messages: thinking that comes after the first that is another is unbound."""
    return unbind(after, common(all_messages(before), all_messages(after)))
