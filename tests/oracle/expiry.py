"""Time as an input: a call that waited too long for a decision has its result, whatever is heard first after that."""

from __future__ import annotations

from typing import Any, TypeGuard, get_args

from tests.oracle.calls import error_result, settle, with_calls
from tests.oracle.grants import ask_where_gone
from tests.oracle.states import Deciding, Judging, Running, State
from tests.oracle.texts import Texts, say
from tests.oracle.tree import each_child, with_round
from tests.oracle.values import Call, Outcome, Round, Status

Timed = Judging | Deciding | Running  # where a call may wait
_TIMED: frozenset[type[Any]] = frozenset(get_args(Timed))


def expire(state: Timed) -> State:
    """The state at its time: calls that waited until their deadline are settled, in the whole tree.

    A grant has a time, too: a call that was cleared by one that is over waits for the caller.
    """
    ledger, round_ = state.ledger, state.round
    if any(is_over(call, ledger.now) for call in round_.calls):
        texts = ledger.setup.texts
        round_ = with_calls(
            round_, [_expired(each, texts) if is_over(each, ledger.now) else each for each in round_.calls]
        )
    if ledger.grants:
        round_ = ask_where_gone(ledger, round_)
    round_ = each_child(round_, lambda child: expire(child) if is_timed(child) else child)
    return state if round_ is state.round else with_round(state, round_)


def is_timed(state: State) -> TypeGuard[Timed]:
    """Whether time alone may change something here: a call has a deadline, or a loop inside of it, or there is a grant.

    Every event asks, and in most loops it is no.
    """
    if state.__class__ not in _TIMED:
        return False
    round_: Round = state.round  # type: ignore[union-attr,assignment]  # those have one
    for call in round_.calls:
        if call.expires_at is not None or call.child is not None:
            return True
    return bool(state.ledger.grants)


def is_over(call: Call, now: float) -> bool:
    """Whether the deadline of a waiting call has come. At it is too late."""
    return call.expires_at is not None and call.expires_at <= now and call.status is Status.WAITING


def _expired(call: Call, texts: Texts) -> Call:
    if call.started:  # it ran once, was lost, and asked whether it may run again
        text = say(texts, "uncertain", reason="nobody decided in time whether it may run again")
    else:
        text = say(texts, "expired")
    return settle(call, error_result(text, Outcome.EXPIRED))
