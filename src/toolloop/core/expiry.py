"""Time as an input: a call that waited too long for a decision has its result, whatever is heard first after that."""

from __future__ import annotations

from toolloop.core.evolving import evolve
from toolloop.core.grants import ask_where_gone
from toolloop.core.policy import error_result, settle
from toolloop.core.states import Deciding, Judging, Open, Running, State
from toolloop.core.texts import Texts, say
from toolloop.core.tree import each_child
from toolloop.core.values import Call, Outcome, Status


def expire(state: Open) -> Open:
    """The state at its time: calls that waited until their deadline are settled, in the whole tree.

    A grant has a time, too: a call that was cleared by one that is over waits for the caller.
    """
    now, round_ = state.ledger.now, state.round
    if any(is_over(call, now) for call in round_.calls):
        texts = state.ledger.setup.texts
        calls = tuple(_expired(each, texts) if is_over(each, now) else each for each in round_.calls)
        round_ = evolve(round_, calls=calls)
    if state.ledger.grants:
        round_ = ask_where_gone(state.ledger, round_)
    round_ = each_child(round_, _expire_inside)
    return state if round_ is state.round else evolve(state, round=round_)


def _expire_inside(child: State) -> State:
    return expire(child) if isinstance(child, Judging | Deciding | Running) else child


def is_over(call: Call, now: float) -> bool:
    """Whether the deadline of a waiting call has come. At it is too late."""
    return call.expires_at is not None and call.expires_at <= now and call.status is Status.WAITING


def _expired(call: Call, texts: Texts) -> Call:
    if call.started:  # it ran once, was lost, and asked whether it may run again
        text = say(texts, "uncertain", reason="nobody decided in time whether it may run again")
    else:
        text = say(texts, "expired")
    return settle(call, error_result(text, Outcome.EXPIRED))
