"""The rule-based machine over a loop: when its rules apply, and rules that are whole scenes."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from attrs import evolve
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.properties.choices import APART, IN_FLIGHT, SETTINGS, spoken
from tests.properties.counting import TAKEN
from tests.properties.drawing import BOOM, FAULTS, PAUSING, answers
from tests.properties.granted import grants
from tests.properties.loops import Loop
from tests.properties.settings import Setting
from tests.properties.shortening import HOW, SUMMARIES
from toolloop import Approve, Continue
from toolloop.core.states import Deciding, Executed, Ready

#: After them a loop stands anywhere: it fails, pauses, waits for a person, is killed in a call or breaks off.
LAST_WORDS = (
    answers()
    | PAUSING
    | FAULTS
    | st.sampled_from(
        [
            spoken(("work", {"do": "interrupt", "ask": "", "n": 0})),
            spoken(("gate", {"do": "return", "ask": "", "n": 0})),
            evolve(spoken(), kinds=(BOOM,)),
            evolve(spoken(("work", {"do": "return", "ask": "", "n": 0})), kinds=(BOOM,)),
        ]
    )
)


def in_state(*states: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Only where the loop is in one of these states."""
    return precondition(lambda self: isinstance(self.loop.handle.state, states))


not_behind = precondition(lambda self: not self.loop.is_behind)


def meddles(function: Callable[..., None]) -> Callable[..., None]:
    """Beside the course of the loop; now and then, so that the loop gets on."""

    @wraps(function)
    def counted(self: Scenes, **drawn: Any) -> None:
        self.loop.meddled += 1
        self.loop.attempt(function, self, **drawn)

    return precondition(lambda self: self.loop.may_meddle)(counted)


def says(function: Callable[..., None]) -> Callable[..., None]:
    """Something that cannot be said for ever."""

    @wraps(function)
    def said(self: Scenes, **drawn: Any) -> None:
        self.loop.attempt(function, self, **drawn)

    return said


def drives(function: Callable[..., None]) -> Callable[..., None]:
    """The loop gets on."""

    @wraps(function)
    def counted(self: Scenes, **drawn: Any) -> None:
        self.loop.meddled = 0
        self.loop.attempt(function, self, **drawn)

    return counted


class Scenes(RuleBasedStateMachine):
    """Scenes of which each is rare unless it is asked for."""

    @initialize(setting=SETTINGS)
    def begin(self, setting: Setting) -> None:
        self.loop = Loop(setting, TAKEN)

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.loop.close()

    @invariant()
    def all_is_well(self) -> None:
        self.loop.check()

    @in_state(Ready)
    @not_behind
    @rule(names=st.lists(st.sampled_from(["work", "pure"]), min_size=1, max_size=2), in_flight=st.booleans())
    @drives
    def kill_and_wake(self, names: list[str], in_flight: bool) -> None:
        """In the middle of the first call, or of the request."""
        self.loop.in_flight = "interrupt" if in_flight else ""
        does = ["interrupt", "return"]
        calls = [(name, {"do": do, "ask": "", "n": 0}) for name, do in zip(names, does, strict=False)]
        self.loop.script.said[:] = [spoken(*calls)]
        self.loop.next_turn()
        if self.loop.was_killed:
            self.loop.wake_up_after_a_kill()

    @in_state(Ready)
    @precondition(lambda self: self.loop.is_stored)
    @rule(
        name=st.sampled_from(["work", "pure"]),
        do=st.sampled_from(["take", "take", "knock"]),
        beside=st.booleans(),
        apart=APART,
    )
    @drives
    def another_driver_comes(self, name: str, do: str, beside: bool, apart: tuple[int, list[Any]]) -> None:
        """In the middle of a call. Where it takes the loop over, this one is told, and what its call did is kept."""
        self.loop.steps_apart, more = apart
        calls = [(name, {"do": do, "ask": "", "n": 0})] + [("gate", {"do": "return", "ask": "", "n": 0})] * beside
        self.loop.script.said[:] = [spoken(*calls), *more]
        self.loop.next_turn()

    @in_state(Ready)
    @precondition(lambda self: self.loop.is_stored)
    @not_behind
    @rule(answer=answers() | FAULTS)
    @drives
    def stop_by_one_who_has_not_heard(self, answer: Any) -> None:
        """Another handle stops the loop, which has gone on by then."""
        self.loop.open_beside()
        self.loop.script.said[:] = [answer]
        self.loop.next_turn()
        self.loop.change_seats()
        self.loop.attempt(self.loop.stop)

    @in_state(Ready)
    @not_behind
    @rule(many=st.sampled_from([2, 2, 3]), then=LAST_WORDS, how=HOW, summary=SUMMARIES, in_flight=IN_FLIGHT)
    @drives
    def compact_a_long_history(self, many: int, then: Any, how: str, summary: Any, in_flight: str) -> None:
        """Some rounds with long results, and then a compaction, wherever the loop stands by then."""
        loop = self.loop
        for number in range(many):
            loop.script.said[:] = [spoken(("work", {"do": "long", "ask": "", "n": number}))]
            loop.next_turn()
            if not isinstance(loop.handle.state, Executed):
                return
            loop.handle.resume(Continue())
        loop.script.said[:] = [then]
        loop.next_turn()
        loop.script.summaries[:] = [summary]
        loop.compact(how, in_flight)

    @in_state(Ready)
    @rule(
        grant=st.sampled_from([3, 3, 3, 4, 5, 6, 7, 8, 9]),
        do=st.sampled_from(["return", "return", "revoke", "wait"]),
        ask=st.sampled_from(["", "", "", "human", "fresh"]),
        edit=st.booleans(),
        many=st.integers(1, 3),
        then=st.none() | PAUSING | FAULTS,
        flight=IN_FLIGHT,
    )
    @drives
    def allow_for_good(self, *, grant: int, do: str, ask: str, edit: bool, many: int, then: Any, flight: str) -> None:
        """A person approves a call, and what is like it; under `ready` others still wait when the loop goes on."""
        loop, handle = self.loop, self.loop.handle
        loop.script.said[:] = [spoken(*(("gate", {"do": do, "ask": ask, "n": n % 2}) for n in range(many)))]
        loop.next_turn()
        if not isinstance(handle.state, Deciding):
            return
        for call in handle.pending[: 1 if loop.setting.execution == "ready" else many]:
            remember = grants(loop.clock.now)[grant]
            decision = Approve({"do": "return", "n": 5} if edit else None, remember=remember)
            handle.decide({call: decision})
            loop.approved(call, decision)
        handle.resume(Continue())
        if then is not None and not handle.pending:
            loop.next_turn()
            if handle.pending:  # a tool took back by what another call was to run
                return
            loop.script.said[:] = [then]
            handle.resume(Continue())
            loop.in_flight = flight if flight in ("revoke", "inject", "wait") else ""
            loop.next_turn()
