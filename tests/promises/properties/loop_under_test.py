"""A loop under test with what is known of it from outside: what the model said, what ran, what the caller said."""

from __future__ import annotations

import json
import tempfile
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, partial
from itertools import cycle
from pathlib import Path
from typing import Any

import anyio
from attrs import define, evolve, field, frozen

from tests.kit import inside
from tests.promises.properties.checked_tools import PARAMS_TOOLS, TOOLS, Bench, Boom, StopWhen, policy
from tests.promises.properties.drawn_compaction import STRATEGIES, SummingScript, is_for_summary
from tests.promises.properties.drawn_programs import Kind
from tests.promises.properties.drawn_replies import TASK
from tests.promises.properties.wire import check_accepted, check_results, check_verbatim, exact
from toolloop import (
    Answer,
    Approve,
    AsyncToolLoopHandle,
    Continue,
    Deny,
    InjectMessages,
    LoopConfig,
    LoopContext,
    LoopDetection,
    MemoryStore,
    Rerun,
    SqliteStore,
    Stop,
    ToolLoopHandle,
    sub_loop,
)
from toolloop.errors import CallerError, Conflict, ModelError, StoreError
from toolloop.machine.queries import everywhere, outstanding, under_way
from toolloop.machine.record.effects import SendRequest
from toolloop.machine.record.loop import Failed, Finished, Judging, Loop, Ready, Running, Waiting, round_of
from toolloop.machine.values.calls import Call, Status
from toolloop.machine.values.setup import Setup
from toolloop.providers import AnthropicProvider
from toolloop.stores.codec import dump, read_journal
from toolloop.stores.protocol import Store
from toolloop.testing import FakeMessagesAPI
from toolloop.testing.crash_store import CrashHistory, CrashingStore, SimulatedCrash
from toolloop.testing.promises import check_promises

Handle = Any  # of either kind
FIRST = exact(b'{"role": "user", "content": "Begin."}')


class Killed(BaseException):
    """The process was killed in the middle of something, or a person pressed Ctrl-C."""


@frozen
class Setting:
    """How a loop is set up; drawn. `store`: empty for none; `compaction`: names of strategies.

    `thread_faults`: with which the server refuses requests of message threads, in turn; None accepts one.
    """

    model: str
    kind: Kind
    execution: Any
    parallel: int
    iterations: int
    pauses: int
    has_policy: bool
    has_stop_when: bool
    patience: float | None
    store: str
    circles: LoopDetection | None
    compaction: tuple[str, ...]
    threads: bool = False
    thread_faults: tuple[str | None, ...] = (None,)

    def params(self) -> dict[str, Any]:
        """The parameters of the first requests."""
        return {**_params(self.model), "messages": [{"role": "user", "content": "Begin."}]}

    def config(self) -> LoopConfig:
        """The configuration of the outermost loop."""
        return LoopConfig(
            execution=self.execution,
            max_parallel_tools=self.parallel,
            max_iterations=self.iterations,
            max_pauses=self.pauses,
            decision_timeout=self.patience,
            loop_detection=self.circles,
            compaction=[STRATEGIES[name] for name in self.compaction],
            on_tool_call=policy if self.has_policy else None,
            stop_when=StopWhen() if self.has_stop_when else None,
            threads=self.threads,
        )


def _params(model: str) -> dict[str, Any]:
    return {"model": model, "max_tokens": 1000, "thinking": {"type": "adaptive"}, "tools": PARAMS_TOOLS}


@cache
def _tools(model: str, *, has_policy: bool, threads: bool) -> list[Any]:
    """The tools; one of them is a loop, in which one is a loop."""
    config = LoopConfig(max_iterations=3, on_tool_call=policy if has_policy else None, threads=threads)
    tools: list[Any] = [*TOOLS]
    for _ in range(2):
        tools = [*TOOLS, sub_loop("nested", "Do a task.", params=_params(model), tools=tools, config=config)]
    return tools


@define
class Sender:
    """A provider that shows each request before it is sent; one of a thread when the server has made it whole."""

    loop: LoopUnderTest
    handle: Handle = None

    @property
    def takes_threads(self) -> bool:
        return self.loop.setting.threads

    def send(self, request: Any) -> Any:
        body = exact(request.body())
        if request.thread is None:
            self.loop.see(self.handle, body)
        self.loop.meet()
        reply = self.loop.provider.send(request)
        if request.thread is not None:
            body = self.loop.whole(reply.request_id or "")
            self.loop.see(self.handle, body)
        self.loop.hear(body, exact((reply.text or "").encode()))
        return reply


@define
class AsyncSender:
    """The same for an async handle."""

    sender: Sender

    @property
    def takes_threads(self) -> bool:
        return self.sender.takes_threads

    async def send(self, request: Any) -> Any:
        return self.sender.send(request)


@define
class Capture:
    """A provider that answers nothing."""

    takes_threads: bool = False
    bodies: list[bytes] = field(factory=list)

    def send(self, request: Any) -> Any:
        self.bodies.append(request.body())
        raise ModelError("the server does not answer", status=500, retryable=True)


class LoopUnderTest:
    """A handle over real HTTP, and all that a caller, a tool in its run and another process may do to the loop."""

    def __init__(self, setting: Setting) -> None:
        """Start the server, and make the handle."""
        self.setting, self.config, self.tools = (
            setting,
            setting.config(),
            _tools(setting.model, has_policy=setting.has_policy, threads=setting.threads),
        )
        self.script = SummingScript()
        self.now = 1_000_000.0
        self.edited = False
        self.is_compacted = False
        self.injected: list[str] = []
        self.said: dict[int, tuple[str, Any]] = {}  # by its input tokens: whose reply it is, and the reply
        self.in_flight = ""  # what happens while the next request is in progress
        self.reads: int | None = None  # how many events of the next turn are read before its stream is left
        self.steps_apart = 0  # how far another driver gets that takes the loop over
        self.heir: Handle = None  # it took the loop over
        self.beside: Handle = None  # another handle of the same stored loop
        self.is_stale = False  # the handle may have missed what others said
        self.left: Any = None  # the snapshot that a killed process left
        self.meddled = 0
        self.rest = ExitStack()
        faults = cycle(setting.thread_faults)
        self.api = self.rest.enter_context(FakeMessagesAPI(self.script, refuse_thread=lambda _: next(faults)))
        self.provider = AnthropicProvider(self.api.client())
        self.bench = Bench(has_policy=setting.has_policy, interfere=self.interfere, find=self._find)
        self.history = CrashHistory()
        self.process: CrashingStore | None = None
        self.store = self._new_store() if setting.store else None
        self.handle = self.driver = self._made(crash_at=None)

    def close(self) -> None:
        """Stop the server, and throw the stores away."""
        self.rest.close()

    def _new_store(self) -> Store:
        if self.setting.store == "memory":
            return MemoryStore()
        folder = Path(self.rest.enter_context(tempfile.TemporaryDirectory()))
        return self.rest.enter_context(SqliteStore(folder / "loops.db"))

    # --- handles ---

    def _made(
        self, make: Callable[..., Handle] | None = None, *args: Any, kind: Kind | None = None, **more: Any
    ) -> Any:
        """A handle of the kind that was drawn: new, or opened from the store."""
        kind = kind or self.setting.kind
        sender = Sender(self)
        crash_at = more.pop("crash_at", None)
        parts = {
            "tools": self.tools,
            "config": self._config(opens=make is None),
            "context": LoopContext(self.bench),
            "clock": lambda: self.now,
            **more,
        }
        cls: Any = ToolLoopHandle if kind == "sync" else AsyncToolLoopHandle
        provider = sender if kind == "sync" else AsyncSender(sender)
        if make is not None:
            handle = make(cls, provider, parts)
        elif self.store is None:
            handle = cls(provider, params=self.setting.params(), **parts)
        else:
            self.process = CrashingStore(self.store, self.history, crash_at)
            given = {} if self.is_stored else {"params": self.setting.params()}
            opening = cls.open(self.process, "one", provider, **given, **parts)
            handle = opening if kind == "sync" else anyio.run(_awaited, opening, backend=kind)
        sender.handle = handle
        return handle

    @property
    def is_stored(self) -> bool:
        """Whether the loop is in its store by now."""
        return self.store is not None and any(self.store.list())

    def _config(self, *, opens: bool) -> LoopConfig:
        """The callables, with the limits that the loop has by now: in the store, or as this handle knows it."""
        setup: Setup | None = None
        if opens and self.is_stored:
            setup = self.journaled().root.setup
        elif hasattr(self, "handle"):
            setup = self.handle.state.root.setup
        if setup is None:
            return self.config
        return evolve(self.config, max_iterations=setup.limits.max_iterations, max_pauses=setup.limits.max_pauses)

    def journaled(self) -> Any:
        """The state that the store has."""
        assert self.store is not None
        return read_journal(self.store.load("one").entries)

    def restored(self, provider: Any = None, **more: Any) -> Handle:
        """A copy from a snapshot that went through JSON."""
        snapshot = json.loads(json.dumps(more.pop("snapshot", None) or self.handle.snapshot()))
        return self._made(
            lambda cls, own, parts: cls.restore(snapshot, provider or own, **parts),
            kind=None if provider is None else "sync",
        )

    def turn(self, handle: Handle) -> Any:
        """The next turn of a handle of either kind; or, of one that is streamed, the first events."""
        reads, self.reads = self.reads, None
        if not isinstance(handle, ToolLoopHandle):
            return anyio.run(
                handle.next_turn if reads is None else partial(_read, handle, reads), backend=self.setting.kind
            )
        if reads is None:
            return handle.next_turn()
        with handle.stream_turn() as stream:
            return [event for _, event in zip(range(reads), stream, strict=False)]

    def say(self, act: Callable[..., object], *arguments: Any, **named: Any) -> bool:
        """Say something, and have it stored. Return whether it was accepted."""
        try:
            act(*arguments, **named)
            if isinstance(self.handle, AsyncToolLoopHandle) and self.store is not None:
                anyio.run(self.handle.flush, backend=self.setting.kind)
        except (CallerError, Conflict):
            return False
        return True

    def attempt(self, act: Callable[[], object]) -> None:
        """Do something, in the middle of which the process may be killed."""
        try:
            act()
        except Boom:
            assert isinstance(self.handle.state.root.phase, Judging), self.handle.state.root.phase
        except (Killed, SimulatedCrash):
            self.wake_up()
        except StoreError:
            if self.process is None or not self.process.is_dead:
                raise
            self.wake_up()

    # --- what happens to it ---

    def hear(self, body: Any, reply: Any) -> None:
        """A reply came in."""
        self.said[int(reply["usage"]["input_tokens"])] = "summary" if is_for_summary(body) else _key(body), reply

    def whole(self, request_id: str) -> Any:
        """A request as the model saw it."""
        request = self.api.requests[int(request_id.removeprefix("req_fake_")) - 1]
        return exact(json.dumps(request.whole).encode())

    def meet(self) -> None:
        """A request goes out: something else may happen meanwhile."""
        what, self.in_flight = self.in_flight, ""
        with self._noted():
            if what:
                self.interfere(what, None)

    def see(self, handle: Handle, body: Any) -> None:
        """A request is what it should be; its reply is not recorded yet."""
        with self._noted():
            log = handle.usage_log
            check_results(body)
            check_accepted(body)
            key, cut = _key(body), self._is_shortened(handle)
            received = [self.said[entry.usage.input_tokens] for entry in log]
            own = [reply for whose, reply in received if whose == key]
            is_root = key == ""
            if not is_for_summary(body):
                masked = "mask" in self.setting.compaction
                check_verbatim(body, own, edited=is_root and cut, masked=is_root and masked)
            assert not is_root or self.edited or body["messages"][0] == FIRST, "the first words of the user are gone"

    @contextmanager
    def _noted(self) -> Iterator[None]:
        """What is wrong in a provider would only fail its request."""
        try:
            yield
        except Exception:
            self.bench.wrong.append(traceback.format_exc())
            raise

    def _is_shortened(self, handle: Handle) -> bool:
        return self.edited or bool(handle.state.root.edited_at) or bool(set(self.setting.compaction) - {"mask"})

    def _find(self, call_id: str) -> Call | None:
        rounds = (round_of(loop) for _, loop in everywhere(self.driver.state))
        return next((call for each in rounds if each and (call := each.find(call_id))), None)

    def interfere(self, what: str, call_id: str | None) -> None:
        """Something happens in the middle of a call, or of a request. Only where its order is known."""
        if call_id is not None:
            self._check_started(call_id)
        handle = self.driver
        if threading.current_thread() is not threading.main_thread() or handle is not self.handle:
            return
        words = f"in the middle of {call_id}"
        match what:
            case "interrupt":
                self.left = None if self.store is not None else handle.snapshot()
                raise Killed
            case "inject":
                handle.resume(InjectMessages([{"role": "user", "content": words}]))
                self.injected.append(words)
            case "stop":
                handle.resume(Stop(words))
            case "update":
                handle.update_params(max_tokens=777)
            case "extend":
                handle.extend(max_iterations=20)
            case "revoke" if self.setting.parallel == 1:
                for grant in handle.grants:
                    handle.grants.revoke(grant.id)
                    self.bench.grants.pop(grant.id, None)
            case "wait":
                self.now += 100
                handle.tick(self.now)
            case "copy" if isinstance(handle, ToolLoopHandle):
                assert handle.fork().iterations == handle.iterations
            case "beside" if self.is_stored:  # another process says something meanwhile
                own = self.process
                self._made(kind="sync").update_params(max_tokens=888)
                self.process = own
            case "take" if self.is_stored and self.heir is None:
                self._be_taken_over()

    def _check_started(self, call_id: str) -> None:
        """A call that runs has its start in the store."""
        if self.store is None:
            return
        events = [json.loads(entry.body) for entry in self.store.load("one").entries]
        started = sum(event["event"] == "Started" and event["call_id"] == call_id for event in events)
        assert started >= self.bench.starts[call_id], f"{call_id} runs, and its start is not stored"

    def _be_taken_over(self) -> None:
        """Another process thinks that this one is dead, and goes on without it."""
        self._allow_repeats()
        dead = self.process
        self.heir = self.driver = other = self._made(kind="sync", take_over=True)
        for _ in range(self.steps_apart):
            self._step_apart(other)
        self.driver, self.process = self.handle, dead

    def _step_apart(self, other: Handle) -> None:
        match other.state.root.phase:
            case Finished():
                other.follow_up([{"role": "user", "content": "And apart?"}])
            case Waiting():
                other.tick(self.now)
                for call in other.pending:
                    decision = Approve() if call.why == "approval" else Answer("from apart")
                    other.decide({call: decision})
                    (self.bench.approved if call.why == "approval" else self.bench.closed).add(call.id)
                other.resume(Continue())
            case Ready() | Judging() | Running():
                with suppress(Boom):
                    other.next_turn()

    def _allow_repeats(self) -> None:
        """The end of what runs is lost, so what may be repeated will be."""
        self.bench.reruns.update(self.bench.pure_calls)

    def wake_up(self) -> None:
        """The process is gone; another one wakes the loop up."""
        self._wait_for_tools()
        self._allow_repeats()
        self.beside = self.heir = None
        if self.store is None:
            assert self.left is not None
            self.handle = self.driver = self.restored(snapshot=self.left)
        else:
            assert self.process is not None
            self.process.die()
            self.handle = self.driver = self._made()
        self._take_decisions()
        whole = self._whole()
        self.injected = [words for words in self.injected if words in whole]
        self._take_grants()
        self.is_stale = False

    def _wait_for_tools(self) -> None:
        """Tools run on in their threads if a turn was left, or a process is gone only in name."""
        for run in inside.tool_runs_of(self.handle).values():
            if run.thread is not None:
                run.thread.join(30)

    def _take_decisions(self) -> None:
        """What was said when the process died may have been stored, or not."""
        bench = self.bench
        bench.approved -= {call.id for call in self.handle.pending}
        bench.closed -= {call.id for call in self.handle.pending}
        rounds = [round_of(loop) for _, loop in everywhere(self.handle.state)]
        for call in [call for each in rounds if each is not None for call in each.calls]:
            taken = None if call.decision is None or call.decision.by_policy else call.decision
            if taken is not None and taken.grant is None and call.status is not Status.WAITING:
                lets_run = taken.kind in ("approve", "rerun")
                (bench.approved if lets_run else bench.closed).add(call.id)
                bench.reruns[call.id] += taken.kind == "rerun"

    def _take_grants(self) -> None:
        """Which grants there are, as the loop says."""
        loops = [loop for _, loop in everywhere(self.handle.state)]
        self.bench.grants = {grant.id: grant.tool for loop in loops for grant in loop.grants}

    def _whole(self) -> str:
        return json.dumps(dump(self.handle.state))

    # --- what a caller does ---

    def next_turn(self) -> None:
        """Drive. A copy of the loop would send the same."""
        awaited, is_left = self._next_request(), self.reads is not None
        first = len(self.api.requests)
        try:
            self.turn(self.handle)
        except (CallerError, Conflict):
            if self.heir is None:
                if not self.is_stale:
                    raise
                return
            self._go_on_with_heir()
        else:
            assert self.heir is None or is_left, "another driver took over, and this one was not told"
            self.is_stale = False
            if self.heir is not None:
                self._go_on_with_heir()
        finally:
            self.heir, self.reads, self.in_flight = None, None, ""
        assert not self.bench.wrong, self.bench.wrong[0]
        if awaited is not None:
            sent = next((request.body for request in self.api.requests[first:]), b"")
            assert sent == awaited or (is_left and not sent), "a restored loop would have sent something else"

    def _go_on_with_heir(self) -> None:
        self.handle = self.driver = self.heir
        self.is_stale = True  # it has not heard of the end that came late

    def _next_request(self) -> bytes | None:
        """The bytes that a copy of the loop sends next; None if none is due."""
        if outstanding(self.handle.state) != (SendRequest(),) or self.is_stale:
            return None
        capture = Capture(takes_threads=self.setting.threads)
        self.restored(capture).next_turn()
        return next(iter(capture.bodies), b"")

    def decide(self, decisions: dict[Any, Any]) -> None:
        """Decide calls, all or none of them."""
        before = len(self.handle.grants)
        if not self.say(self.handle.decide, decisions):
            return
        for call, decision in decisions.items():
            match decision:
                case Approve():
                    self.bench.approved.add(call.id)
                case Rerun():
                    self.bench.reruns[call.id] += 1
                    self.bench.approved.add(call.id)
                case Deny() | Answer():
                    self.bench.closed.add(call.id)
        self._take_grants()
        if not self.is_stale:
            known = len(self.handle.grants)
            assert known >= before
            self.handle.decide(decisions)  # the same twice is one decision
            assert len(self.handle.grants) == known

    def revoke_all(self) -> None:
        """Take every grant back."""
        for grant in self.handle.grants:
            if self.say(self.handle.grants.revoke, grant.id, by="ana"):
                self.bench.grants.pop(grant.id, None)

    def edit(self, how: str) -> None:
        """Edit the history; the next command, or the next turn, takes it over."""
        working = self.handle.messages_mut()
        self.edited = True
        match how:
            case "append":
                working.append({"role": "user", "content": "Added."})
            case "reword":
                working[0] = {"role": "user", "content": "Begin otherwise."}
            case "start again":
                working[:] = [{"role": "user", "content": "A summary."}]

    def inject(self, words: str) -> None:
        """Inject a user message."""
        over = isinstance(self.handle.state.root.phase, (Finished, Failed))  # then it does nothing
        if self.say(self.handle.resume, InjectMessages([{"role": "user", "content": words}])) and not over:
            self.injected.append(words)

    def copy(self, *, fork: bool) -> None:
        """Go on with a copy."""
        self._wait_for_tools()
        if under_way(self.handle.state):
            self._allow_repeats()
        if fork:
            self.bench.approved.clear()
            self.bench.grants.clear()
            provider = inside.provider_of(self.handle)  # the copy has the same
            copied = self.handle.fork()
            kind = self.setting.kind
            self.handle = self.driver = copied if kind == "sync" else anyio.run(_awaited, copied, backend=kind)
            (provider if isinstance(provider, Sender) else provider.sender).handle = self.handle
        else:
            snapshot = self.handle.snapshot()
            before = self.handle.state
            self.handle = self.driver = self.restored(snapshot=snapshot)
            assert self.handle.state == before or under_way(before)

    def open_again(self, crash_at: int | None) -> None:
        """Go on with a handle that was opened again, in a process that is going to crash."""
        self._wait_for_tools()
        with suppress(CallerError, Conflict):  # an edit came too late; the lease is given back all the same
            if isinstance(self.handle, ToolLoopHandle):
                self.handle.close()
            else:
                anyio.run(self.handle.aclose, backend=self.setting.kind)
        truth = self.journaled()
        assert self.is_stale or truth == self.handle.state
        self.beside = None
        self.handle = self.driver = self._made(crash_at=crash_at)
        self.is_stale = False

    def change_seats(self) -> None:
        """Go on with another handle of the same loop, which has not heard what this one did."""
        if self.beside is None:
            self.beside = self._made()
        self.handle, self.beside = self.beside, self.handle
        self.driver, self.is_stale = self.handle, True

    # --- what must hold ---

    def check(self) -> None:
        """Whatever happened, this is so."""
        assert not self.bench.wrong, self.bench.wrong[0]
        assert [text for each in self.api.refused if not (text := str(each.refusal)).startswith("thread: ")] == []
        handle = self.handle
        root: Loop = handle.state.root
        self._check_usage(root)
        if not self.is_stale and not self._is_shortened(handle):
            whole = self._whole()
            assert [words for words in self.injected if words not in whole] == []
        if handle.is_finished and not self.is_stale:
            assert self.turn(handle) is self.turn(handle)

    def _check_usage(self, root: Loop) -> None:
        used = [entry.usage.input_tokens for entry in root.usage_log]
        assert not [tokens for tokens, times in Counter(used).items() if times > 1], "a reply is counted twice"
        whose = Counter(self.said[tokens][0] for tokens in used)
        assert root.iterations == whose[""]
        assert root.total_usage.input_tokens == sum(used)
        spent = sum(self.said[tokens][1]["usage"].get("output_tokens", 0) for tokens in used)
        assert root.total_usage.output_tokens == spent

    def check_end(self) -> None:
        """At the end of its life: the journal keeps every promise, and a copy is the same."""
        handle = self.handle
        if not self.say(handle.snapshot):  # it takes an edit over, which may have come too late
            return
        copy = self.restored(Capture())
        if under_way(handle.state):
            return
        assert (copy.state, copy.snapshot()) == (handle.state, handle.snapshot())
        assert (copy.messages, copy.pending, copy.view()) == (handle.messages, handle.pending, handle.view())
        if self.is_stored and self.store is not None:
            assert check_promises(self.store.load("one").entries).broken == ()
            assert self.is_stale or self.journaled() == handle.state


def _key(body: Any) -> str:
    """Which loop sends a request: the task of a nested one; empty for the outermost one."""
    first = body["messages"][0]["content"]
    return first if isinstance(first, str) and first.startswith(TASK) else ""


async def _read(handle: AsyncToolLoopHandle, reads: int) -> None:
    async with handle.stream_turn() as stream:
        async for _ in stream:
            reads -= 1
            if reads < 0:
                return


async def _awaited(opening: Any) -> Any:
    return await opening
