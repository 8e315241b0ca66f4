"""One loop under test: a handle, its fake API, and what is known of both from the outside."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import httpx2
from anthropic import DefaultHttpxClient
from attrs import define, field, frozen

from tests.properties.bench import PARAMS_TOOLS, TOOLS, Bench, Boom, StopWhen, policy
from tests.properties.counting import CountingRecorder, Way, count
from tests.properties.drawing import WholeScript
from tests.properties.wire import check_results, check_verbatim, exact
from toolloop import InjectMessages, LoopConfig, LoopContext, Stop, ToolLoopHandle
from toolloop.core.effects import SendRequest
from toolloop.core.machine import outstanding
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
            "container": "container_1",
            "tools": PARAMS_TOOLS,
            "messages": [{"role": "user", "content": "Begin."}],
        }


@define(eq=False)
class Loop:
    """A handle over real HTTP, and the checks that hold at every moment."""

    setting: Setting
    taken: Counter[Way]
    script: WholeScript = field(factory=WholeScript)
    edited: bool = False
    own: set[str] = field(factory=set)
    injected: list[str] = field(factory=list)
    asleep: dict[str, Any] | None = None  # a snapshot that a tool took while it ran

    def __attrs_post_init__(self) -> None:
        """Start the servers, and make the handle."""
        self.received: list[Any] = []
        self.sent: list[tuple[bytes, int]] = []  # each request, and how many replies there were before it
        self.checked = 0
        self.api = FakeMessagesAPI(self.script)
        self.client = self.api.client(http_client=self._listening())
        self.mirror = FakeMessagesAPI(lambda body: fault(400), enforce=False)
        self.mirror_client = self.mirror.client()
        self.bench = Bench(has_policy=self.setting.has_policy, interfere=self._interfere)
        self.context = LoopContext(self.bench)
        self.config = self.setting.config(StopWhen())
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
                self.asleep = self.handle.snapshot()
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
        except (Boom, Killed):
            assert not self.handle.is_finished
        if awaited is not None:
            assert self.sent[first][0] == awaited, "a restored loop would have sent something else"

    def _next_request(self) -> bytes | None:
        """The bytes that a copy of the loop, woken up from its snapshot, sends next; None if it would not."""
        if outstanding(self.handle.state) != (SendRequest(),) or self.handle._working is not None:
            return None
        self.restored(self.mirror_client).next_turn()
        return self.mirror.requests[-1].body

    def inject(self, words: str) -> None:
        self.handle.resume(InjectMessages([{"role": "user", "content": words}]))
        self.injected.append(words)

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
        assert [request.refusal for request in self.api.refused] == []
        for raw, before in self.sent[self.checked :]:
            body = exact(raw)
            check_results(body)
            check_verbatim(body, self.received[:before], self.own, edited=self.edited)
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
        said = json.dumps(handle.snapshot())
        assert self.edited or [words for words in self.injected if words not in said] == []

    def _check_sleep(self) -> None:
        """A copy from the snapshot is the same loop, the bytes of its next request included."""
        handle = self.handle
        copy = self.restored(self.mirror_client)
        assert copy.state == handle.state
        assert copy.snapshot() == handle.snapshot()
        assert (copy.messages, copy.pending, copy.view()) == (handle.messages, handle.pending, handle.view())
