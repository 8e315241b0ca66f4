"""The rules of a loop that another driver takes up, and of its copies. See `rules`."""

from __future__ import annotations

from attrs import evolve

from tests.oracle import events as ev
from tests.oracle.calls import ask_again, lose
from tests.oracle.request_rules import give_up
from tests.oracle.setup import Setup
from tests.oracle.shared_steps import not_now, ready, run, set_up
from tests.oracle.states import (
    Back,
    Deciding,
    Failed,
    Finished,
    Judging,
    Ledger,
    Open,
    Proposed,
    Requesting,
    Running,
    State,
)
from tests.oracle.thinking import same_beginning, unbind
from tests.oracle.values import Call, Round, Status


def wake(state: State, event: ev.Woken) -> State:
    """Another driver took over: what ran is lost to it, and policies judge once more what has not started."""
    setup = event.setup or state.ledger.setup
    if setup.within != state.ledger.setup.within:
        raise not_now(state, event, "the setup is that of a loop in another place")
    is_same = same_beginning(state.ledger.setup, setup, state.ledger.unbound)
    state = evolve(state, ledger=evolve(state.ledger, setup=setup))
    if not is_same:
        state = unbind(state)
    match state:
        case Requesting():
            return give_up(state, event)
        case Running():
            return run(state.ledger, _wake_round(state.round, setup))
        case Proposed() | Judging() | Deciding():
            return evolve(state, round=_wake_round(state.round, setup))
        case Failed(round=Round() as round_):
            return evolve(state, round=_wake_round(round_, setup))
        case Finished(back=Back(round=Round() as round_) as back):
            return evolve(state, back=evolve(back, round=_wake_round(round_, setup)))
    return state


def _wake_round(round_: Round, setup: Setup) -> Round:
    return evolve(round_, calls=tuple(woken(call, setup) for call in round_.calls))


def woken(call: Call, setup: Setup) -> Call:
    """A call that another driver takes up."""
    if call.status is Status.RUNNING:
        return lose(call, setup) if call.child is None else evolve(call, child=wake(call.child, ev.Woken()))
    return call if call.status is Status.SETTLED else evolve(call, judged=False)


def fork(state: State, event: ev.Forked) -> State:
    """A loop of its own: what was started is uncertain in it, every open call asks again, and no grant is in it."""
    forked = set_up(state, loop_id=event.loop_id)
    forked = evolve(forked, ledger=evolve(forked.ledger, grants=()))
    match forked:
        case Requesting():
            return ready(forked.ledger, forked.tail)
        case Proposed() | Judging() | Deciding() | Running() if _was_looked_at(forked):
            return Deciding(forked.ledger, _ask_again(forked.ledger, forked.round, event))
        case Failed(round=Round() as round_):
            return evolve(forked, round=_ask_again(forked.ledger, round_, event))
        case Finished(back=Back(round=Round() as round_) as back):
            return evolve(forked, back=evolve(back, round=_ask_again(forked.ledger, round_, event)))
    return forked


# What somebody looked at, and has no result.
_BEGUN = (Status.WAITING, Status.DECIDED, Status.CLEARED, Status.RUNNING)


def _was_looked_at(state: Open) -> bool:
    """Whether something is known of the open calls that does not hold in a copy."""
    match state:
        case Proposed():
            return bool(state.round.having(*_BEGUN))
        case Judging():
            return bool(state.round.calls) and not state.round.having(Status.PROPOSED)
    return True


def _ask_again(ledger: Ledger, round_: Round, event: ev.Forked) -> Round:
    return evolve(round_, calls=tuple(_copied(call, ledger, event) for call in round_.calls))


def _copied(call: Call, ledger: Ledger, event: ev.Forked) -> Call:
    if call.child is not None and call.status is Status.RUNNING:  # the loop inside of it is a value, and has a copy
        return evolve(call, child=fork(call.child, event))
    return ask_again(call, ledger.setup, ledger.now)
