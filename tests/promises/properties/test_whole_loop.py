"""Everything that a caller can do to a loop, in any order, against anything that the model may say.

In memory and stored, sync and async, with loops inside calls; the process is killed anywhere, and others take over.
What must hold is in `loop_under_test.py`: after every step, as each request goes out, and as each tool starts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from hypothesis import HealthCheck, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.kit.effort import examples
from tests.promises.properties.drawn_compaction import COMPACTIONS, SUMMARIES
from tests.promises.properties.drawn_programs import BINDS, FREE, THREAD_FAULTS
from tests.promises.properties.drawn_replies import NAMES, answers, messages
from tests.promises.properties.loop_under_test import LoopUnderTest, Setting
from toolloop import Answer, Approve, Continue, Deny, Grant, LoopDetection, Rerun, Stop
from toolloop._requests.left_out_thinking import hangs_on_thinking
from toolloop.machine.record.loop import Failed, Finished, Judging, Ready, Running, Waiting

SETTINGS = st.builds(
    Setting,
    model=st.sampled_from([BINDS, FREE, FREE]),
    kind=st.sampled_from(["sync", "sync", "asyncio", "trio"]),
    execution=st.sampled_from(["barrier", "ready"]),
    parallel=st.sampled_from([1, 1, 8]),
    iterations=st.sampled_from([1, 3, 20, 20, 20]),
    pauses=st.sampled_from([0, 1, 5]),
    has_policy=st.booleans(),
    has_stop_when=st.booleans(),
    patience=st.sampled_from([None, 50.0]),
    store=st.sampled_from(["", "memory", "memory", "sqlite"]),
    circles=st.sampled_from([None, None, LoopDetection(1, "inject_warning"), LoopDetection(2, "stop")]),
    compaction=COMPACTIONS,
    threads=st.booleans(),
    thread_faults=st.sampled_from([(None,), *((None, None, code) for code in THREAD_FAULTS), THREAD_FAULTS]),
)
NESTING = messages(stop_reason=st.just("tool_use"), calls=st.integers(1, 3), names=st.one_of(NAMES, st.just("nested")))
ANSWERS = st.lists(st.one_of(answers(), answers(), NESTING), min_size=1, max_size=4)
IN_FLIGHT = st.sampled_from(
    [*[""] * 8, "interrupt", "inject", "stop", "revoke", "wait", "take", "beside", "update", "extend", "copy"]
)
READS = st.sampled_from([None, None, None, 0, 1, 2, 3, 5, 8, 20])  # how many events before a stream is left
Rule = Callable[..., None]
MOST_MEDDLING = 2  # how often in a row the caller does something else than to let the loop get on
GRANTS = [Grant(), Grant(match={}), Grant(match={}, uses=1), Grant(match={"do": "re*"}), Grant(match={"n": 0})]
COMMANDS = ["tick", "extend", "params", "revoke", "inject", "stop"]
DECISIONS = {
    "approval": st.one_of(
        st.builds(Approve, remember=st.sampled_from([None, None, None, *GRANTS])),
        st.just(Approve({"n": 0, "do": "return", "ask": ""})),
        st.just(Deny("not today", by="ana")),
        st.just(Answer("known")),
    ),
    "external": st.sampled_from([Answer("known"), Answer([{"type": "text", "text": "known"}]), Deny("no")]),
    "uncertain": st.sampled_from([Rerun(), Answer("it happened"), Deny("who knows")]),
}


def in_phase(*phases: type) -> Callable[[Rule], Rule]:
    """Only where the outermost loop is in one of these phases."""
    return precondition(lambda self: isinstance(self.loop.handle.state.root.phase, phases))


def meddling(function: Rule) -> Rule:
    """Beside the course of the loop; now and then, so that the loop gets on."""
    return precondition(lambda self: self.loop.meddled < MOST_MEDDLING)(function)


class WholeLoop(RuleBasedStateMachine):
    """A caller who does what may be done."""

    @initialize(setting=SETTINGS)
    def begin(self, setting: Setting) -> None:
        self.loop = LoopUnderTest(setting)

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            try:
                self.loop.attempt(self.loop.check_end)
            finally:
                self.loop.close()

    @invariant()
    def all_is_well(self) -> None:
        self.loop.attempt(self.loop.check)

    def _gets_on(self, act: Any) -> None:
        self.loop.meddled = 0
        self.loop.attempt(act)

    def _meddles(self, act: Any) -> None:
        self.loop.meddled += 1
        self.loop.attempt(act)

    # --- driving ---

    @in_phase(Ready, Judging, Running)
    @rule(said=ANSWERS, in_flight=IN_FLIGHT, steps=st.integers(0, 6), summary=SUMMARIES, reads=READS)
    def next_turn(self, *, said: list[Any], in_flight: str, steps: int, summary: Any, reads: int | None) -> None:
        """Now and then something happens while the request is in progress."""
        loop = self.loop
        loop.steps_apart, loop.in_flight, loop.reads = steps, in_flight, reads
        loop.script.said[:], loop.script.summaries[:] = said, [summary]
        self._gets_on(loop.next_turn)

    @in_phase(Waiting)
    @rule(data=st.data())
    def decide_all_and_continue(self, data: st.DataObject) -> None:
        def act() -> None:
            self._decide(data, list(self.loop.handle.pending))
            self.loop.say(self.loop.handle.resume, Continue())

        self._gets_on(act)

    @precondition(lambda self: self.loop.handle.pending)
    @meddling
    @rule(data=st.data(), many=st.integers(1, 3))
    def decide_some(self, data: st.DataObject, many: int) -> None:
        pending = data.draw(st.permutations(self.loop.handle.pending), label="order")
        self._meddles(lambda: self._decide(data, pending[:many]))

    def _decide(self, data: st.DataObject, calls: list[Any]) -> None:
        decisions = {
            call: Approve() if call.name == "nested" else data.draw(DECISIONS[call.why], label=call.id)
            for call in calls
        }
        if decisions:
            self.loop.decide(decisions)

    @in_phase(Waiting)
    @rule()
    def continue_loop(self) -> None:
        self._gets_on(lambda: self.loop.say(self.loop.handle.resume, Continue()))

    @in_phase(Finished)
    @rule(replace=st.booleans())
    def follow_up(self, replace: bool) -> None:
        def act() -> None:
            said = [{"role": "user", "content": "And now?"}]
            accepted = self.loop.say(self.loop.handle.follow_up, said, replace_last=replace)
            self.loop.edited |= replace and accepted

        self._gets_on(act)

    @in_phase(Failed)
    @rule()
    def retry(self) -> None:
        self._gets_on(lambda: self.loop.say(self.loop.handle.retry))

    # --- beside the course of the loop ---

    @meddling
    @rule(seconds=st.sampled_from([1, 60]), kind=st.sampled_from(COMMANDS))
    def say_something(self, seconds: int, kind: str) -> None:
        """A command that is illegal now is refused."""
        loop, handle = self.loop, self.loop.handle
        root = handle.state.root
        act: Callable[[], object]
        match kind:
            case "tick":
                loop.now += seconds
                act = partial(loop.say, handle.tick, loop.now)
            case "extend":
                more = {"max_iterations": root.turn_iterations + 2, "max_pauses": root.pauses + 1}
                act = partial(loop.say, handle.extend, **more)
            case "params":
                act = partial(loop.say, handle.update_params, max_tokens=500 + seconds)
            case "revoke":
                act = loop.revoke_all
            case "inject":
                act = partial(loop.inject, f"injected {len(loop.injected)}.")
            case _ if seconds == 1:
                act = partial(loop.say, handle.resume, Stop("enough"))
            case _:
                return
        self._meddles(act)

    @precondition(lambda self: not hangs_on_thinking(self.loop.handle.state.root))
    @meddling
    @rule(how=st.sampled_from(["append", "reword", "start again"]))
    def edit_the_history(self, how: str) -> None:
        self._meddles(lambda: self.loop.edit(how))

    @meddling
    @rule(crash_at=st.none() | st.integers(0, 25), fork=st.booleans(), stale=st.integers(0, 3))
    def go_on_with_another_handle(self, crash_at: int | None, fork: bool, stale: int) -> None:
        """A copy; or a handle in another process, which may crash; or one that has not heard what this one did."""
        loop = self.loop
        if loop.is_stored and stale == 0:
            self._meddles(loop.change_seats)
        elif loop.is_stored:
            self._meddles(lambda: loop.open_again(crash_at))
        elif loop.store is None:
            self._meddles(lambda: loop.copy(fork=fork))


def test_a_whole_loop() -> None:
    """Nothing undecided starts, nothing starts twice, nothing is lost, and every request is accepted."""
    run_state_machine_as_test(
        WholeLoop,
        settings=examples(25, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)),
    )
