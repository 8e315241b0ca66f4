"""A rule-based machine over a whole loop, against the fake API over real HTTP.

The checks after every step are in `loops.Loop.check`; what a tool checks when it starts is in `bench.Bench.start`.
`TOOLLOOP_DEEP=n` runs n times as many examples.
"""

from __future__ import annotations

import os
import secrets
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.properties.choices import APART, IN_FLIGHT, KINDS, TOOL_SETS
from tests.properties.counting import BY_A_HANDLE, TAKEN
from tests.properties.drawing import answers
from tests.properties.granted import grants
from tests.properties.nonsense import NONSENSE
from tests.properties.scenes import Scenes, drives, in_state, meddles, not_behind, says
from tests.properties.settings import FREE
from tests.properties.shortening import HOW, SUMMARIES
from toolloop import Answer, Approve, Continue, Deny, Rerun
from toolloop.core.states import Deciding, Executed, Failed, Finished, Judging, Paused, Ready, Running
from toolloop.errors import UnknownCall

DEEP = int(os.environ.get("TOOLLOOP_DEEP", "1"))


class WholeLoop(Scenes):
    """Everything that a caller can do to a loop, in any order."""

    # --- driving ------------------------------------------------------------------------------------------------

    @in_state(Ready)
    @rule(answer=answers(), in_flight=IN_FLIGHT, apart=APART, summary=SUMMARIES)
    @drives
    def next_turn(self, answer: Any, in_flight: str, apart: tuple[int, list[Any]], summary: Any) -> None:
        """A turn, in which now and then something happens while the request is under way."""
        self.loop.steps_apart, more = apart
        if in_flight == "interrupt" and self.loop.is_behind:
            in_flight = ""
        self.loop.in_flight = in_flight
        self.loop.script.said[:] = [*more, answer] if in_flight == "take" else [answer, *more]
        self.loop.script.summaries[:] = [summary]
        self.loop.next_turn()

    @in_state(Judging, Running)
    @rule(apart=APART)
    @drives
    def run_the_calls(self, apart: tuple[int, list[Any]]) -> None:
        self.loop.steps_apart, self.loop.script.said[:] = apart
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
        self.loop.handle.tick(self.loop.clock.now)
        if self.loop.handle.pending:
            self._decide(data, list(self.loop.handle.pending))
        self.loop.handle.resume(Continue())

    def _decide(self, data: st.DataObject, calls: list[Any]) -> None:
        handle, bench = self.loop.handle, self.loop.bench
        decisions: dict[Any, Any] = {}
        said = []
        for call in calls:
            kind = data.draw(st.sampled_from(KINDS[call.why]), label=call.id)
            said.append((call, kind))
            match kind:
                case "approve" | "edit":
                    edit = {"n": 0, "do": "return", "ask": data.draw(st.sampled_from(["", "human", "deny"]))}
                    remember = data.draw(st.sampled_from(grants(self.loop.clock.now)), label="to remember")
                    decision: Any = Approve(edit if kind == "edit" else None, by="ana", remember=remember)
                case "deny":
                    decision = Deny("not today", by="ana")
                case "answer":
                    decision = Answer(data.draw(st.sampled_from(["known", "", [{"type": "text", "text": "known"}]])))
                case _:
                    decision = Rerun()
            decisions[call if data.draw(st.booleans(), label="as shown") else call.id] = decision
        if any(self.loop.clock.is_over(call.expires_at) for call in calls):
            with pytest.raises(UnknownCall, match="expired"):
                handle.decide(decisions)
            return
        handle.decide(decisions)
        known = len(handle.grants)
        handle.decide(decisions)  # the same twice is one decision
        assert len(handle.grants) == known
        for (call, kind), decision in zip(said, decisions.values(), strict=True):
            bench.reruns[call.id] += kind == "rerun"
            if isinstance(decision, Approve):
                self.loop.approved(call, decision)
            else:
                (bench.approved if kind == "rerun" else bench.closed).add(call.id)

    @precondition(lambda self: self.loop.handle.next_deadline is not None)
    @rule()
    @says
    def wait_until_the_deadline(self) -> None:
        """A call that nobody decided by then has its result."""
        handle = self.loop.handle
        assert handle.next_deadline is not None
        self.loop.clock.now = max(self.loop.clock.now, handle.next_deadline.timestamp())
        handle.tick(self.loop.clock.now)
        assert not any(self.loop.clock.is_over(call.expires_at) for call in handle.pending)

    @rule(seconds=st.sampled_from([1, 5, 60]), ticks=st.booleans())
    @meddles
    def let_time_pass(self, seconds: int, ticks: bool) -> None:
        """Whether anybody ticks or not."""
        self.loop.clock.now += seconds
        if ticks:
            self.loop.handle.tick(self.loop.clock.now)
            assert not any(self.loop.clock.is_over(call.expires_at) for call in self.loop.handle.pending)

    @precondition(lambda self: self.loop.handle.grants)
    @rule(data=st.data())
    @says
    def revoke(self, data: st.DataObject) -> None:
        self.loop.revoke(data.draw(st.sampled_from(list(self.loop.handle.grants))).id)

    # --- commands -----------------------------------------------------------------------------------------------

    @in_state(Executed, Paused, Deciding)
    @precondition(lambda self: self.loop.setting.execution == "ready" or not self.loop.waits)
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

    @precondition(lambda self: self.loop.may_edit)
    @rule(data=st.data())
    @meddles
    def edit_the_history(self, data: st.DataObject) -> None:
        self.loop.edit(data.draw(st.sampled_from(self.loop.edits()), label="edit"))

    @in_state(Judging, Running)
    @precondition(lambda self: self.loop.may_edit)
    @rule(data=st.data())
    @drives
    def edit_the_history_and_run(self, data: st.DataObject) -> None:
        """These states do not last: an edit in them is rare unless it is asked for."""
        self.loop.edit(data.draw(st.sampled_from(self.loop.edits()), label="edit"))
        self.loop.script.said.clear()
        self.loop.next_turn()

    @rule(how=HOW, summary=SUMMARIES, in_flight=IN_FLIGHT)
    @meddles
    def compact(self, how: str, summary: Any, in_flight: str) -> None:
        self.loop.script.summaries[:] = [summary]
        self.loop.compact(how, in_flight)

    # --- sleep, wake, copy --------------------------------------------------------------------------------------

    @not_behind
    @rule(fork=st.booleans())
    @meddles
    def copy(self, fork: bool) -> None:
        """Go on with a fork, or with a copy from the snapshot."""
        if fork:
            self.loop.fork()
        else:
            self.loop.restore()

    @not_behind
    @rule(parallel=st.sampled_from([1, 8]), names=st.sampled_from(TOOL_SETS))
    @meddles
    def wake_up_otherwise(self, parallel: int, names: list[str]) -> None:
        """With other limits, or with other tools; a model that binds thinking to its tools minds those."""
        if parallel == self.loop.setting.parallel and self.loop.setting.model == FREE:
            self.loop.drift(names)
        else:
            self.loop.wake_with(parallel)

    @precondition(lambda self: self.loop.was_killed)
    @rule()
    @drives
    def wake_up_after_a_kill(self) -> None:
        self.loop.wake_up_after_a_kill()

    # --- a store ------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.loop.is_stored)
    @rule(closed=st.booleans())
    @meddles
    def open_again(self, closed: bool) -> None:
        self.loop.reopen(closed=closed)

    @precondition(lambda self: self.loop.is_stored)
    @rule()
    @meddles
    def open_beside(self) -> None:
        self.loop.open_beside()

    @precondition(lambda self: self.loop.beside is not None)
    @rule()
    @meddles
    def say_it_to_the_other_handle(self) -> None:
        """From here on; what the other one did, it has not heard of."""
        self.loop.change_seats()

    # --- what is refused ----------------------------------------------------------------------------------------

    @not_behind
    @rule(data=st.data())
    @meddles
    def ask_for_nonsense(self, data: st.DataObject) -> None:
        """What is refused changes nothing."""
        self.loop.handle.tick(self.loop.clock.now)  # what has expired is refused in another way
        possible = [name for name, nonsense in NONSENSE.items() if nonsense.fits(self.loop.handle)]
        self.loop.refuse(NONSENSE[data.draw(st.sampled_from(possible), label="nonsense")])


# Pairs that take luck: not every two rounds bring them about. The product of states and events takes each of them.
RARE = {
    f"{state}, {event}"
    for event, states in {
        "Compacted": "Judging Running",
        "Decided": "Judging",
        "Ended": "Deciding Executed Failed Finished Judging Paused Ready",
        "Forked": "Deciding Executed Failed Judging Paused Requesting",
        "GrantRevoked": "Deciding Executed Judging Paused Requesting",
        "Injected": "Deciding",
        "Ticked": "Judging Running",
        "Woken": "Executed Failed Paused",
    }.items()
    for state in states.split()
}


def never_taken() -> set[str]:
    """The pairs that no example has brought about yet."""
    never = BY_A_HANDLE - {(state, event) for state, event, _ in TAKEN}
    return {f"{state.__name__}, {event.__name__}" for state, event in never}


def test_a_whole_loop() -> None:
    """Whatever a caller does, in any order: nothing undecided starts, nothing starts twice, nothing is lost.

    Two rounds of examples, which take every pair of the table but some that take luck.
    """
    TAKEN.clear()
    for number in range(2 * DEEP):
        run_state_machine_as_test(
            seed(number if DEEP == 1 else secrets.randbits(32))(WholeLoop),
            settings=settings(
                max_examples=80 * DEEP,
                stateful_step_count=50,
                database=None,
                deadline=None,
                suppress_health_check=list(HealthCheck),
                phases=[Phase.generate, Phase.shrink],
            ),
        )
    assert never_taken() <= RARE
