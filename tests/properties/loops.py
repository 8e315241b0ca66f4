"""One loop under test: a handle, its fake API, and what is known of both from the outside."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import httpx2
import pytest
from anthropic import DefaultHttpxClient
from attrs import evolve, frozen

from tests.properties.bench import PARAMS_TOOLS, TOOLS, Bench, Boom, StopWhen, policy
from tests.properties.counting import CountingRecorder, Way, count
from tests.properties.drawing import WholeScript
from tests.properties.nonsense import Nonsense
from tests.properties.wire import check_results, check_verbatim, exact
from toolloop import InjectMessages, LoopConfig, LoopContext, Stop, ToolLoopHandle
from toolloop.core import events as ev
from toolloop.core.effects import SendRequest
from toolloop.core.machine import outstanding
from toolloop.core.states import Deciding, Executed, Finished, Judging, Paused, Ready, Running
from toolloop.history import rounds
from toolloop.testing import FakeMessagesAPI, fault

BINDS, FREE = "claude-opus-5-5", "claude-opus-4-8"


class Killed(BaseException):
    """The process was killed in the middle of a tool, or somebody pressed Ctrl-C."""


@frozen
class Setting:
    """How a loop is set up; drawn."""

    model: str
    execution: str
    parallel: int
    iterations: int
    pauses: int
    has_policy: bool
    has_stop_when: bool
    meddling: int  # how often in a row the caller does something else than to drive the loop

    def config(self, stop_when: StopWhen) -> LoopConfig:
        """The configuration of a handle."""
        return LoopConfig(
            execution=self.execution,  # type: ignore[arg-type]  # drawn from the two there are
            max_parallel_tools=self.parallel,
            max_iterations=self.iterations,
            max_pauses=self.pauses,
            on_tool_call=policy if self.has_policy else None,
            stop_when=stop_when if self.has_stop_when else None,
        )

    def params(self) -> dict[str, Any]:
        """The parameters of its requests."""
        return {
            "model": self.model,
            "max_tokens": 1000,
            "thinking": {"type": "adaptive"},
            "tools": PARAMS_TOOLS,
            "messages": [{"role": "user", "content": "Begin."}],
        }


class Loop:
    """A handle over real HTTP, and the checks that hold at every moment.

    Args:
        setting: how it is set up.
        taken: where the transitions are counted.

    """

    def __init__(self, setting: Setting, taken: Counter[Way]) -> None:
        """Start the servers, and make the handle."""
        self.setting = setting
        self.taken = taken
        self.script = WholeScript()
        self.edited = False
        self.meddled = 0
        self.injected: list[str] = []
        # The snapshot that a killed tool took, the state after the kill, and the call.
        self.asleep: tuple[Any, Any, str] | None = None
        self.received: list[Any] = []
        self.sent: list[tuple[bytes, int]] = []  # each request, and how many replies there were before it
        self.checked = 0
        self.api = FakeMessagesAPI(self.script)
        self.client = self.api.client(http_client=self._listening())
        self.mirror = FakeMessagesAPI(lambda body: fault(400), enforce=False)
        self.mirror_client = self.mirror.client()
        self.bench = Bench(has_policy=self.setting.has_policy, interfere=self._interfere)
        self.context = LoopContext(self.bench)
        self.stop_when = StopWhen()
        self.config = self.setting.config(self.stop_when)
        self.recorder: CountingRecorder
        self.take(
            ToolLoopHandle(
                self.client, params=self.setting.params(), tools=TOOLS, config=self.config, context=self.context
            )
        )

    def close(self) -> None:
        self.api.close()
        self.mirror.close()

    def _listening(self) -> httpx2.Client:
        hooks: Any = {"request": [self._see], "response": [self._hear]}
        return DefaultHttpxClient(trust_env=False, verify=False, event_hooks=hooks)

    def _see(self, request: httpx2.Request) -> None:
        self.sent.append((request.read(), len(self.received)))

    def _hear(self, response: httpx2.Response) -> None:
        raw = response.read()
        if response.status_code == 200 and raw.startswith(b"{"):
            self.received.append(exact(raw))

    def _interfere(self, what: str, call_id: str) -> None:
        """What a tool does to its own loop while it runs; alone in the caller's thread, so that its order is known."""
        if self.setting.parallel != 1:
            return
        match what:
            case "interrupt":
                self.killed = (self.handle.snapshot(), call_id)
                raise Killed
            case "inject":
                self.inject(f"from inside {call_id}")
            case "stop":
                self.handle.resume(Stop(f"from inside {call_id}"))

    # --- what a caller does -------------------------------------------------------------------------------------

    def take(self, handle: ToolLoopHandle) -> None:
        """Go on with this handle."""
        self.handle = handle
        self.recorder = count(handle, self.taken)

    def next_turn(self) -> None:
        """Drive; a broken stop condition and a kill come through, and leave a loop that can go on."""
        awaited = self._next_request()
        first = len(self.sent)
        try:
            self.handle.next_turn()
        except Boom:
            assert isinstance(self.handle.state, Judging)
        except Killed:
            assert isinstance(self.handle.state, Running)
            self.asleep = (self.killed[0], self.handle.state, self.killed[1])
        if awaited is not None:
            assert self.sent[first][0] == awaited, "a restored loop would have sent something else"

    def _next_request(self) -> bytes | None:
        """The bytes that a copy of the loop, woken up from its snapshot, sends next; None if it would not."""
        if outstanding(self.handle.state) != (SendRequest(),) or self.handle._working is not None:
            return None
        self.restored(self.mirror_client).next_turn()
        return self.mirror.requests[-1].body

    def inject(self, words: str, *more: Any) -> None:
        self.handle.resume(InjectMessages([{"role": "user", "content": words}, *more]))
        self.injected.append(words)

    @property
    def may_meddle(self) -> bool:
        """Whether the caller does something else than to drive; where it waits for a request, less than elsewhere."""
        more = 0 if isinstance(self.handle.state, Ready | Finished) else 2
        return self.meddled < self.setting.meddling + more

    @property
    def may_inject(self) -> bool:
        """Whether an injected user message is legal now."""
        waits = self.handle.pending and self.setting.execution == "barrier"
        return isinstance(self.handle.state, Ready | Judging | Deciding | Running | Executed | Paused) and not waits

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

    def edits(self) -> list[str]:
        """The edits of the history that the API cannot mind: a model that binds thinking minds most of them."""
        state = self.handle.state
        if self.setting.model == FREE:
            return ["append", "reword", "forget", "start anew"]
        return ["append"] if isinstance(state, Finished) or not getattr(state, "tail", True) else ["none"]

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

    def fork(self) -> None:
        """Go on with a copy; in it, every open call asks again."""
        before, copy = self.handle.state, self.handle.fork()
        assert self.handle.state is before
        assert copy.loop_id != self.handle.loop_id
        self.taken[type(before), ev.Forked, type(copy.state)] += 1
        self.bench.approved.clear()
        self.take(copy)

    def restore_with(self, parallel: int) -> None:
        """Wake up under other limits."""
        before = self.handle.state
        self.setting = evolve(self.setting, parallel=parallel)
        self.config = evolve(self.config, max_parallel_tools=parallel, max_iterations=5)
        self.take(self.restored(self.client))
        self.taken[type(before), ev.Woken, type(self.handle.state)] += 1

    @property
    def was_killed(self) -> bool:
        """Whether the last thing that happened is that the process was killed in the middle of a tool."""
        return self.asleep is not None and self.asleep[1] is self.handle.state

    def wake_up_after_a_kill(self) -> None:
        """What was saved while a tool ran wakes up in another process: a pure call runs again, another is uncertain."""
        assert self.asleep is not None
        snapshot, _, call_id = self.asleep
        self.bench.reruns[call_id] += call_id in self.bench.pure_calls
        self.take(self.restored(self.client, snapshot))

    def refuse(self, nonsense: Nonsense) -> None:
        """Ask for something that is refused, which changes nothing."""
        handle = self.handle
        before = (handle.state, handle.snapshot(), handle.messages, handle.pending, handle.pending_turn, handle.view())
        with pytest.raises(nonsense.refused):
            nonsense.ask(handle)
        assert handle.state is before[0]
        after = (handle.state, handle.snapshot(), handle.messages, handle.pending, handle.pending_turn, handle.view())
        assert after == before

    def restored(self, client: Any, snapshot: Any = None, **more: Any) -> ToolLoopHandle:
        """A handle from a snapshot that went through JSON; of now, unless given."""
        text = json.dumps(snapshot or self.handle.snapshot())
        more = {"config": self.config, "tools": TOOLS, "context": self.context, **more}
        return ToolLoopHandle.restore(json.loads(text), client, **more)

    # --- what must hold -----------------------------------------------------------------------------------------

    def check(self) -> None:
        """Whatever happened, this is so."""
        self._check_requests()
        self._check_usage()
        self._check_state()
        self._check_sleep()

    def _check_requests(self) -> None:
        refused = [request.refusal for request in self.api.refused]
        assert not refused, refused[0]
        for raw, before in self.sent[self.checked :]:
            body = exact(raw)
            check_results(body)
            check_verbatim(body, self.received[:before], edited=self.edited)
        self.checked = len(self.sent)

    def _check_usage(self) -> None:
        handle = self.handle
        assert handle.iterations == len(self.received) == len(handle.usage_log)
        for name in ("input_tokens", "output_tokens"):
            spent = sum(reply["usage"].get(name, 0) for reply in self.received)
            assert getattr(handle.total_usage, name) == spent

    def _check_state(self) -> None:
        handle = self.handle
        assert self.recorder.folded() == handle.state
        if handle.is_finished:
            result = handle.next_turn()
            assert handle.next_turn() is result
        if self.injected and not self.edited:
            said = json.dumps(handle.snapshot())
            assert [words for words in self.injected if words not in said] == []

    def _check_sleep(self) -> None:
        """A copy from the snapshot is the same loop, the bytes of its next request included."""
        handle = self.handle
        copy = self.restored(self.mirror_client)
        assert copy.state == handle.state
        assert copy.snapshot() == handle.snapshot()
        assert (copy.messages, copy.pending, copy.view()) == (handle.messages, handle.pending, handle.view())
