"""Small steps that several rules share."""

from __future__ import annotations

from typing import Any, TypeVar

from attrs import evolve

from tests.oracle import events as ev
from tests.oracle.calls import to_judge
from tests.oracle.errors import IllegalCommand
from tests.oracle.joining import join
from tests.oracle.states import Judging, Ledger, Ready, Running, State
from tests.oracle.stops import Fate
from tests.oracle.values import Round

S = TypeVar("S", bound=State)


def ready(ledger: Ledger, tail: tuple[str, ...] = ()) -> Ready:
    """A request is next; what was held joins now if it can."""
    return Ready(ledger, tail) if tail or not ledger.held else Ready(join(ledger, ()))


def run(ledger: Ledger, round_: Round) -> Judging | Running:
    """Run what is cleared; what was edited, or slept, since it was judged is judged first."""
    if any(to_judge(call) for call in round_.calls):
        return Judging(ledger, round_, Fate.RUN)
    return Running(ledger, round_)


def hold(ledger: Ledger, event: ev.Injected) -> Ledger:
    """The ledger with the messages of an injection, which wait for a legal place."""
    return evolve(ledger, held=(*ledger.held, *event.messages))


def set_up(state: S, **changes: Any) -> S:
    """The state with something else in its setup."""
    return evolve(state, ledger=evolve(state.ledger, setup=evolve(state.ledger.setup, **changes)))


def not_now(state: State, event: ev.Event, why: str) -> IllegalCommand:
    """The error for an event that the state knows, and whose payload does not fit it."""
    name, asked = type(state).__name__, type(event).__name__
    return IllegalCommand(
        f"{asked} is not possible while the loop is {name}: {why}", state=name, asked=asked, allowed=()
    )
