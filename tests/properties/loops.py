"""One loop under test: what a caller, a tool in the middle of its run, and another process may do to it."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from attrs import evolve

from tests.properties.bench import Boom
from tests.properties.granted import given
from tests.properties.nonsense import Nonsense
from tests.properties.settings import Killed
from tests.properties.shortening import BY_HAND
from tests.properties.sleeping import Sleeping
from toolloop import Answer, Approve, Continue, Deny, InjectMessages, Rerun, Stop, ToolLoopHandle
from toolloop.core.effects import SendRequest
from toolloop.core.machine import outstanding
from toolloop.core.states import Deciding, Executed, Failed, Finished, Judging, Paused, Ready, Requesting, Running
from toolloop.errors import CallerError, Conflict, Drift
from toolloop.handle.binding import hangs_on_thinking
from toolloop.history import rounds


class Loop(Sleeping):
    """A loop, and everything that can be done to it."""

    meddled = 0  # how often in a row the caller did something else than to drive the loop
    steps_apart = 0  # how far another driver gets that takes the loop over
    taken_over: ToolLoopHandle | None = None

    def attempt(self, function: Any, *arguments: Any, **named: Any) -> None:
        """Do something with the handle. If it has not heard what others said, that may be refused."""
        has_missed = self.is_behind or self.has_other_tools
        try:
            function(*arguments, **named)
        except (CallerError, Conflict) as error:
            if not has_missed:
                raise
            self.meddled = 0
            if isinstance(error, Drift):
                self.reopen(closed=True)

    @property
    def has_other_tools(self) -> bool:
        """Whether another handle woke the loop up with other tools or limits than this one has."""
        handle, setup = self.handle, self.truth.ledger.setup
        names = {facts.name for facts in setup.tools}
        return self.is_stored and (names != set(handle._tools.names) or bool(handle._drifted))

    # --- driving ------------------------------------------------------------------------------------------------

    def next_turn(self) -> None:
        """Drive; a broken stop condition and a kill come through, and leave a loop that can go on."""
        awaited = self._next_request()
        first = len(self.sent)
        self.clock.pace = self.setting.pace
        try:
            self.handle.next_turn()
        except Boom:
            assert isinstance(self.handle.state, Judging)
        except Killed:
            assert isinstance(self.handle.state, Running | Ready)
            self.asleep = (self.left[0], self.handle.state, self.left[1])
        except Conflict:
            if self.taken_over is None:
                raise
            self.change_seats()
        else:
            assert self.taken_over is None, "another driver took over, and this one was not told"
        finally:
            self.taken_over, self.in_flight, self.clock.pace = None, "", 0.0
        if awaited is not None:
            sent = next((body for body, _ in self.sent[first:]), b"")
            assert sent == awaited, "a restored loop would have sent something else"

    def _next_request(self) -> bytes | None:
        """The bytes that a copy of the loop, woken up from its snapshot, sends next; None if none is due.

        They are empty where lower limits that it wakes up with end it instead.
        """
        handle = self.handle
        if outstanding(handle.state) != (SendRequest(),) or handle._working is not None or self.is_behind:
            return None
        awake = {} if not handle._drifted else {"tools": handle._tools, "config": self.config}
        first = len(self.mirror.requests)
        self.restored(self.mirror_client, **awake, on_drift="accept").next_turn()
        return next((request.body for request in self.mirror.requests[first:]), b"")

    def interfere(self, what: str, call_id: str | None) -> None:
        """What happens in the middle of a call, or of a request. Only in the caller's thread: its order is known."""
        if threading.current_thread() is not threading.main_thread() or self.driver is not self.handle:
            return
        handle, words = self.driver, f"in the middle of {call_id}"
        match what:
            case "interrupt":
                self.leave(call_id)
                raise Killed
            case "inject":
                self.inject(words)
            case "stop":
                handle.resume(Stop(words))
            case "update":
                handle.update_params(max_tokens=777)
            case "extend":
                self.extend(1)
            case "revoke":
                for grant in handle.grants:
                    self.revoke(grant.id)
            case "wait":
                self.clock.now += 100
                handle.tick(self.clock.now)
            case "unheard" if self.beside is not None:
                self.clock.now += 100
                self.beside.tick(self.clock.now)
            case "copy":
                self.copy_in_flight()
            case "knock":
                self.knock()
            case "take" if self.is_stored:
                self._be_taken_over(call_id)
            case "apart" if self.is_stored:
                self.beside = other = self.opened()
                self._go_on_apart(other)

    def _be_taken_over(self, call_id: str | None) -> None:
        """Another process thinks that this one is dead, and goes on without it."""
        self.lost(call_id)
        self.clock.pace = 0.0
        other = self.opened(take_over=True)
        self.beside = self.taken_over = other
        self._go_on_apart(other)
        self.is_unheard = call_id is None

    def _go_on_apart(self, other: ToolLoopHandle) -> None:
        self.driver = other
        for _ in range(self.steps_apart):
            self._step_apart(other)
        self.driver = self.handle

    def _step_apart(self, other: ToolLoopHandle) -> None:
        match other.state:
            case Finished():
                other.follow_up([{"role": "user", "content": "And apart?"}])
            case Deciding() | Executed():
                for call in other.pending:
                    self._decide_apart(other, call)
                other.resume(Continue())
            case Ready() | Judging() | Running():
                try:
                    other.next_turn()
                except Boom:
                    assert isinstance(other.state, Judging)

    def _decide_apart(self, other: ToolLoopHandle, call: Any) -> None:
        if self.clock.is_over(call.expires_at):
            return
        match call.why:
            case "approval":
                other.decide({call: Approve()})
                self.bench.approved.add(call.id)
            case "uncertain" if self.steps_apart % 2:
                self.bench.reruns[call.id] += 1
                other.decide({call: Rerun()})
            case "uncertain":
                other.decide({call: Deny("who knows")})
                self.bench.closed.add(call.id)
            case _:
                other.decide({call: Answer("from apart")})
                self.bench.closed.add(call.id)

    # --- what a caller says -------------------------------------------------------------------------------------

    def inject(self, words: str, *more: Any) -> None:
        self.handle.resume(InjectMessages([{"role": "user", "content": words}, *more]))
        self.injected.append(words)

    @property
    def may_meddle(self) -> bool:
        """Whether the caller does something else than to drive; where it waits for a request, less than elsewhere."""
        more = 0 if isinstance(self.handle.state, Ready | Finished) else 2
        return self.meddled < self.setting.meddling + more

    @property
    def waits(self) -> bool:
        """Whether a call waits for a decision that can still come in time."""
        return any(not self.clock.is_over(call.expires_at) for call in self.handle.pending)

    @property
    def may_inject(self) -> bool:
        """Whether an injected user message is legal now."""
        waits = self.waits and self.setting.execution == "barrier" and isinstance(self.handle.state, Deciding)
        open_ = (Ready, Requesting, Judging, Deciding, Running, Executed, Paused)
        return isinstance(self.handle.state, open_) and not waits

    def stop(self) -> None:
        self.handle.resume(Stop("enough"))
        assert isinstance(self.handle.state, Finished)

    def follow_up(self, *, replace_last: bool) -> None:
        self.edited |= replace_last
        self.handle.follow_up([{"role": "user", "content": "And now?"}], replace_last=replace_last)

    def extend(self, more: int) -> None:
        ledger = self.handle.state.ledger
        iterations, pauses = ledger.turn_iterations + more, ledger.pauses + more
        self.handle.extend(max_iterations=iterations, max_pauses=pauses)
        self.config = evolve(self.config, max_iterations=iterations, max_pauses=pauses)

    def approved(self, call: Any, decision: Approve) -> None:
        """Note an approval, and the grant that came with it."""
        self.bench.approved.add(call.id)
        if decision.remember is not None:
            runs = call.effective_input if decision.input is None else decision.input
            self.bench.grants[f"{self.handle.iterations}/{call.id}"] = given(decision.remember, call, runs)

    def revoke(self, grant_id: str) -> None:
        self.handle.grants.revoke(grant_id, by="ana")
        self.bench.grants[grant_id].revoked = True

    def edits(self) -> list[str]:
        """The edits of the history; what a model has bound to other words is left out of what is sent."""
        return ["append", "reword", "forget", "start anew"]

    @property
    def may_edit(self) -> bool:
        """Whether other words may come before what the model said so far: not if that needs its thinking beside it."""
        return not hangs_on_thinking(self.handle.state)

    def edit(self, how: str) -> None:
        """Edit the history; the next command, or the next turn, takes it over."""
        working = self.handle.messages_mut()
        self.edited = True
        self.meddled = self.setting.meddling + 2  # what comes next takes the edit over
        match how:
            case "append":
                working.append({"role": "user", "content": "Added."})
            case "reword":
                working[0] = {"role": "user", "content": "Begin otherwise."}
            case "forget":
                working[1:] = [message for kept in rounds(working)[1:][-1:] for message in kept]
            case "start anew":
                working[:] = [{"role": "user", "content": "A summary."}]

    def compact(self, how: str, in_flight: str = "") -> None:
        """Compact the history by hand; now and then something happens while a summary is written.

        Nobody holds the loop for that: another handle may go on with it.
        """
        strategy, over = BY_HAND[how], isinstance(self.handle.state, Finished | Failed)
        can = {"inject": self.may_inject, "stop": not over, "interrupt": False}
        self.in_flight = {"take": "apart", "knock": "apart"}.get(in_flight, in_flight) * can.get(in_flight, True)
        try:
            done = strategy(self.handle)
        finally:
            self.in_flight = ""
            self.script.summaries.clear()
        can_fail = strategy.name == "Summarize"
        assert done.problem is None or can_fail or done.problem.startswith("the model pauses")

    def refuse(self, nonsense: Nonsense) -> None:
        """Ask for something that is refused, which changes nothing."""
        handle = self.handle
        before = (handle.state, handle.snapshot(), handle.messages, handle.pending, handle.pending_turn, handle.view())
        with pytest.raises(nonsense.refused):
            nonsense.ask(handle)
        assert handle.state is before[0]
        after = (handle.state, handle.snapshot(), handle.messages, handle.pending, handle.pending_turn, handle.view())
        assert after == before
