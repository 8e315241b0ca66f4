"""The pure machine alone: what one turn with one call costs it, at the start of a conversation and far into it."""

from __future__ import annotations

import time
from itertools import count, islice
from statistics import median
from typing import TYPE_CHECKING, TypeVar

from tests.measured.benchmarks import scenario
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.effects import EndTurn, Judge, RunCall, SendRequest
from toolloop.machine.record.loop import Waiting
from toolloop.machine.record.replies import ParsedReply, read_reply
from toolloop.machine.tree import begin, step
from toolloop.machine.tree_effects import outstanding
from toolloop.machine.values.calls import Result
from toolloop.machine.values.jsontext import encode
from toolloop.machine.values.setup import Limits, Setup

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolloop.machine.record.state import State

_TURNS = 200
_ENDLESS = 1_000_000

E = TypeVar("E", bound="SendRequest | Judge | RunCall | EndTurn")


def seconds_per_turn(*rounds: int, loops: int = 5) -> dict[int, float]:
    """Seconds of CPU for one turn, without its request and its tool: medians over 200 turns from each round on."""
    each = [list(islice(conversation(), max(rounds) + _TURNS)) for _ in range(loops)]
    return {round_: median(median(taken[round_ : round_ + _TURNS]) for taken in each) for round_ in rounds}


def conversation() -> Iterator[float]:
    """Seconds of CPU of each turn of a loop without end."""
    params = scenario.params(_ENDLESS)
    messages = tuple(encode(message) for message in params.pop("messages"))
    setup = Setup("loop", encode(params), limits=Limits(max_iterations=None))
    state: State = begin(ev.Opened(setup, messages))
    for turn in count(1):
        reply = read_reply(scenario.reply(turn, _ENDLESS))
        result = Result(encode(scenario.add(turn * 17, turn + 25)))
        start = time.process_time()
        state = turn_of(state, reply, result)
        yield time.process_time() - start


def turn_of(state: State, reply: ParsedReply, result: Result) -> State:
    """One turn, in the order in which a driver goes: it asks what is outstanding, does it, and says what happened."""
    _only(state, SendRequest)
    state = step(state, ev.Requested())
    state = step(state, ev.Replied(reply))
    _only(state, Judge)
    state = step(state, ev.Judged())
    call = _only(state, RunCall).call_id
    state = step(state, ev.Started(call))
    state = step(state, ev.Ended(call, result))
    _only(state, EndTurn)
    state = step(state, ev.TurnEnded())
    if not isinstance(state.root.phase, Waiting):
        raise TypeError(f"the round did not close: the loop is {type(state.root.phase).__name__}")
    return step(state, ev.Continued())


def _only(state: State, kind: type[E]) -> E:
    (effect,) = outstanding(state)
    if not isinstance(effect, kind):
        raise TypeError(f"{kind.__name__} was to be outstanding, not {effect!r}")
    return effect
