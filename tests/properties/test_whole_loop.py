"""A rule-based machine over a whole loop, against the fake API over real HTTP.

The checks after every step are in `loops.Loop.check`; what a tool checks when it starts is in `bench.Bench.start`.
`TOOLLOOP_DEEP=n` runs n times as many examples.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.properties.counting import BY_A_HANDLE, TAKEN
from tests.properties.drawing import answers
from tests.properties.loops import BINDS, FREE, Loop, Setting
from tests.properties.nonsense import NONSENSE
from toolloop import Answer, Approve, Continue, Deny, Rerun
from toolloop.core.states import Deciding, Executed, Failed, Finished, Judging, Paused, Ready, Running

DEEP = int(os.environ.get("TOOLLOOP_DEEP", "1"))
SETTINGS = st.builds(
    Setting,
    model=st.sampled_from([BINDS, FREE, FREE]),
    execution=st.sampled_from(["barrier", "ready"]),
    parallel=st.sampled_from([1, 1, 1, 8]),
    iterations=st.sampled_from([1, 3, 20, 20]),
    pauses=st.sampled_from([0, 1, 5]),
    has_policy=st.booleans(),
    has_stop_when=st.booleans(),
    meddling=st.sampled_from([0, 1, 2, 3]),
)
KINDS = {
    "approval": ["approve", "approve", "edit", "deny", "answer"],
    "external": ["answer", "deny"],
    "uncertain": ["rerun", "answer", "deny"],
}
SAID = {"kind": "text", "text": "a person knows"}


def in_state(*states: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Only where the loop is in one of these states."""
    return precondition(lambda self: isinstance(self.loop.handle.state, states))


def meddles(function: Callable[..., None]) -> Callable[..., None]:
    """Beside the course of the loop; now and then, so that the loop gets on."""

    @wraps(function)
    def counted(self: WholeLoop, **drawn: Any) -> None:
        self.loop.meddled += 1
        function(self, **drawn)

    return precondition(lambda self: self.loop.may_meddle)(counted)


def drives(function: Callable[..., None]) -> Callable[..., None]:
    """The loop gets on."""

    @wraps(function)
    def counted(self: WholeLoop, **drawn: Any) -> None:
        self.loop.meddled = 0
        function(self, **drawn)

    return counted


class WholeLoop(RuleBasedStateMachine):
    """Everything that a caller can do to a loop, in any order."""

    @initialize(setting=SETTINGS)
    def begin(self, setting: Setting) -> None:
        self.loop = Loop(setting, TAKEN)

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.loop.close()

    @invariant()
    def all_is_well(self) -> None:
        self.loop.check()

    # --- driving ------------------------------------------------------------------------------------------------

    @in_state(Ready)
    @rule(answer=answers())
    @drives
    def next_turn(self, answer: Any) -> None:
        self.loop.script.said[:] = [answer]
        self.loop.next_turn()

    @in_state(Judging, Running)
    @rule()
    @drives
    def run_the_calls(self) -> None:
        self.loop.script.said.clear()
        self.loop.next_turn()

    # --- deciding -----------------------------------------------------------------------------------------------

    @precondition(lambda self: self.loop.handle.pending)
    @rule(data=st.data())
    @meddles
    def decide_some(self, data: st.DataObject) -> None:
        """Some of the calls that wait, in any order, one by one or all at once."""
        pending = data.draw(st.permutations(self.loop.handle.pending), label="order")
        self._decide(data, pending[: data.draw(st.integers(1, len(pending)), label="how many")])

    @in_state(Deciding)
    @rule(data=st.data())
    @drives
    def decide_all_and_go_on(self, data: st.DataObject) -> None:
        self._decide(data, list(self.loop.handle.pending))
        self.loop.handle.resume(Continue())

    def _decide(self, data: st.DataObject, calls: list[Any]) -> None:
        handle, bench = self.loop.handle, self.loop.bench
        decisions: dict[Any, Any] = {}
        for call in calls:
            kind = data.draw(st.sampled_from(KINDS[call.why]), label=call.id)
            match kind:
                case "approve":
                    decision: Any = Approve(by="ana")
                case "edit":
                    decision = Approve(
                        {"n": 0, "do": "return", "ask": data.draw(st.sampled_from(["", "human", "deny"]))}
                    )
                case "deny":
                    decision = Deny("not today", by="ana")
                case "answer":
                    decision = Answer(data.draw(st.sampled_from(["known", "", [{"type": "text", "text": "known"}]])))
                case _:
                    decision = Rerun()
                    bench.reruns[call.id] += 1
            (bench.approved if kind in ("approve", "edit", "rerun") else bench.closed).add(call.id)
            decisions[call if data.draw(st.booleans(), label="as shown") else call.id] = decision
        handle.decide(decisions)
        handle.decide(decisions)  # the same twice is one decision

    # --- commands -----------------------------------------------------------------------------------------------

    @in_state(Executed, Paused, Deciding)
    @precondition(lambda self: self.loop.setting.execution == "ready" or not self.loop.handle.pending)
    @rule()
    @drives
    def continue_loop(self) -> None:
        turn = self.loop.handle.pending_turn
        assert turn is not None
        turn.continue_loop()
        assert turn.is_spent

    @precondition(lambda self: self.loop.may_inject)
    @rule()
    @meddles
    def inject(self) -> None:
        self.loop.inject(f"injected {len(self.loop.injected)}.")

    @in_state(Ready, Judging, Deciding, Running, Executed, Paused)
    @rule()
    @meddles
    def stop(self) -> None:
        self.loop.stop()

    @in_state(Finished)
    @rule(replace=st.booleans())
    @drives
    def follow_up(self, replace: bool) -> None:
        self.loop.follow_up(replace_last=replace)

    @rule(more=st.integers(0, 3))
    @meddles
    def extend(self, more: int) -> None:
        self.loop.extend(more)

    @in_state(Failed)
    @rule()
    @drives
    def retry(self) -> None:
        self.loop.handle.retry()

    @rule(max_tokens=st.integers(500, 2000))
    @meddles
    def update_params(self, max_tokens: int) -> None:
        self.loop.handle.update_params(max_tokens=max_tokens)

    # --- the history --------------------------------------------------------------------------------------------

    @rule(data=st.data())
    @meddles
    def edit_the_history(self, data: st.DataObject) -> None:
        self.loop.edit(data.draw(st.sampled_from(self.loop.edits()), label="edit"))

    @in_state(Judging, Running)
    @rule(data=st.data())
    @drives
    def edit_the_history_and_run(self, data: st.DataObject) -> None:
        """These states do not last: an edit in them is rare unless it is asked for."""
        self.loop.edit(data.draw(st.sampled_from(self.loop.edits()), label="edit"))
        self.loop.script.said.clear()
        self.loop.next_turn()

    # --- sleep, wake, copy --------------------------------------------------------------------------------------

    @rule()
    @meddles
    def restore(self) -> None:
        self.loop.take(self.loop.restored(self.loop.client))

    @rule(parallel=st.sampled_from([1, 8]))
    @meddles
    def restore_with_another_configuration(self, parallel: int) -> None:
        self.loop.restore_with(parallel)

    @precondition(lambda self: self.loop.was_killed)
    @rule()
    @drives
    def wake_up_after_a_kill(self) -> None:
        self.loop.wake_up_after_a_kill()

    @rule()
    @meddles
    def fork(self) -> None:
        self.loop.fork()

    # --- what is refused ----------------------------------------------------------------------------------------

    @rule(data=st.data())
    @meddles
    def ask_for_nonsense(self, data: st.DataObject) -> None:
        """What is refused changes nothing."""
        possible = [name for name, nonsense in NONSENSE.items() if nonsense.fits(self.loop.handle)]
        self.loop.refuse(NONSENSE[data.draw(st.sampled_from(possible), label="nonsense")])


def test_a_whole_loop() -> None:
    """Whatever a caller does, in any order: nothing undecided starts, nothing starts twice, nothing is lost."""
    TAKEN.clear()
    run_state_machine_as_test(
        WholeLoop,
        settings=settings(
            max_examples=240 * DEEP,
            stateful_step_count=50,
            derandomize=DEEP == 1,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate, Phase.shrink],
        ),
    )
    never = BY_A_HANDLE - {(state, event) for state, event, _ in TAKEN}
    assert sorted(f"{state.__name__}, {event.__name__}" for state, event in never) == []
