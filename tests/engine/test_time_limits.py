"""Active time: it bounds a model request and tools in progress. What is left behind then, `extend` goes on with."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable
from typing import Any, cast

import anyio
import pytest
from attrs import define, field

from tests.kit import inside
from tests.kit.concurrency import (
    DEADLINE,
    Gate,
    async_loop,
    either_kind,
    list_contents,
    make,
    on_both_backends,
    result_texts,
    turn,
)
from tests.kit.each import each
from tests.kit.loop_trees import join
from tests.kit.support import expect_completed, expect_yielded
from tests.kit.tools import params
from toolloop import AsyncToolLoopHandle, LoopConfig, ToolContext, ToolLoopHandle, Usage, tool
from toolloop.machine.values.setup import Texts
from toolloop.terminations import Timeout
from toolloop.testing import AsyncScriptedProvider, ScriptedProvider, reply

LONG = 10 * DEADLINE
Handle = ToolLoopHandle | AsyncToolLoopHandle


def _nothing() -> None:
    """Go on."""


@define
class Standing:
    """A provider that stands at a gate with its first request, and answers it when that is opened.

    Attributes:
        script: what it answers the others with.
        on: what else happens where a request comes in, by its number.
        over: the first request was answered, or the caller gave it up.

    """

    script: Any
    gate: Gate = field(factory=Gate)
    on: dict[int, Callable[[], object]] = field(factory=dict)
    over: threading.Event = field(factory=threading.Event)
    bodies: list[bytes] = field(factory=list)

    def take_request(self, request: Any) -> bool:
        """A request came in. Whether it is the first."""
        self.bodies.append(request.body())
        self.on.get(len(self.bodies), _nothing)()
        return len(self.bodies) == 1

    def send(self, request: Any) -> Any:
        """Stand, in a thread."""
        if not self.take_request(request):
            return ScriptedProvider(self.script).send(request)
        self.gate.stand()
        return ScriptedProvider([reply("too late")]).send(request)


@define
class AsyncStanding(Standing):
    """The same in a task."""

    async def send(self, request: Any) -> Any:
        if not self.take_request(request):
            return await AsyncScriptedProvider(self.script).send(request)
        try:
            return await self.gate.wait()
        finally:
            self.over.set()


def make_standing(kind: str, script: Any, **config: Any) -> tuple[Handle, Standing]:
    """A loop whose first request is not answered in time: its time is over when that comes in."""
    provider = Standing(script) if kind == "sync" else AsyncStanding(script)
    handle = (ToolLoopHandle if kind == "sync" else AsyncToolLoopHandle)(
        provider, params=params(), config=LoopConfig(timeout=DEADLINE, **config), loop_id="loop"
    )
    provider.on[1] = lambda: fly(handle)
    return handle, provider


# --- a request in progress -------------------------------------------------------------------------------------------


@either_kind
def test_a_request_that_takes_too_long_is_given_up(kind: str) -> None:
    """The loop ends as a timeout, as if the request had not been made; but it may cost something."""
    handle, provider = make_standing(kind, [])
    before = handle.messages
    ended = expect_completed(turn(kind, handle))
    assert (ended.termination, ended.iterations) == (Timeout(DEADLINE), 0)
    assert [(each.is_partial, each.usage) for each in ended.usage_log] == [(True, Usage())]
    assert handle.messages == before
    if kind != "sync":
        assert provider.over.is_set(), "the task was to be cancelled"
    provider.gate.opened.set()
    join()


@either_kind
def test_extend_makes_the_request_again(kind: str) -> None:
    """Byte for byte."""
    handle, provider = make_standing(kind, [reply("in time")])
    expect_completed(turn(kind, handle))
    provider.gate.opened.set()
    handle.extend(timeout=LONG)
    assert expect_completed(turn(kind, handle)).text == "in time"
    assert provider.bodies[0] == provider.bodies[1]


def test_a_reply_that_comes_too_late_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    """It changes nothing, and is logged at INFO: the limit is the reason, and nothing failed."""
    caplog.set_level(logging.INFO, "toolloop")
    handle, provider = make_standing("sync", [])
    ended = expect_completed(handle.next_turn())
    state = handle.state
    provider.gate.opened.set()
    join()
    assert handle.state is state
    assert handle.next_turn() is ended
    late = ("INFO", "a model request ended after the loop stopped waiting for it", "loop")
    assert late in [(record.levelname, record.message, vars(record).get("loop_id")) for record in caplog.records]


# --- tools in progress -----------------------------------------------------------------------------------------------


@define
class Slow:
    """A tool whose calls stand at a gate; when so many stand there, the loop has used up its time.

    Attributes:
        handle: of the loop; it is to be said before that is driven.
        seen: what `cancelled` was when they went through.

    """

    calls: int = 1
    gate: Gate = field(factory=Gate)
    seen: list[bool] = field(factory=list)
    handle: Any = None
    _here: Any = field(factory=lambda: itertools.count(1))

    def tool(self) -> Any:
        @tool
        def slow(context: ToolContext) -> str:
            """Stand at a gate."""
            if next(self._here) == self.calls:
                fly(self.handle)
            self.gate.stand()
            self.seen.append(context.cancelled)
            return "late but good"

        return slow

    def loop(self, kind: str, **config: Any) -> Handle:
        """A loop that calls it, and is out of time then."""
        script = [reply(calls=[("slow", {})] * self.calls), reply("fine")]
        self.handle = make(kind, script, [self.tool()], timeout=DEADLINE, stop_grace=0.0, **config)
        ended = expect_completed(turn(kind, self.handle))
        assert ended.termination == Timeout(DEADLINE)
        assert [call.name for call in ended.running] == ["slow"] * self.calls
        return cast("Handle", self.handle)

    def let_go(self) -> None:
        """Open the gate, and wait until all are through."""
        self.gate.opened.set()
        join()


def fly(handle: Handle) -> None:
    """Let the time of a loop be over."""
    inside.active_time_passes(handle, 2 * DEADLINE)


def test_tools_in_threads_are_waited_for() -> None:
    """`cancelled` tells them; the loop ends with their end, which counts, and not before."""
    slow = Slow()
    handle = slow.loop("sync")
    assert handle.view()["status"] == "stopping"
    assert len(handle.messages) == 1
    slow.let_go()
    assert slow.seen == [True]
    assert handle.view()["status"] == "ended"
    assert result_texts(handle.messages[-1]) == ["late but good"]


@each("early", [True, False])
@either_kind
def test_extend_takes_the_end_of_what_was_left_behind(kind: str, early: bool) -> None:
    """Whether it comes before, or while the loop goes on; nothing runs twice."""
    slow = Slow(calls=2)
    handle = slow.loop(kind)
    if early:
        slow.let_go()
    handle.extend(timeout=LONG)
    slow.gate.opened.set()
    executed = expect_yielded(turn(kind, handle))
    assert list_contents(executed) == ["late but good"] * 2
    executed.continue_loop()
    assert expect_completed(turn(kind, handle)).text == "fine"
    assert len(slow.seen) == 2


@on_both_backends
def test_async_tools_are_cancelled(backend: str) -> None:
    """They can clean up. If the loop goes on, repeatable calls are reported as cancelled, the others are uncertain."""
    begun, cleaned = list[str](), list[str]()

    async def stand(name: str) -> str:
        """Wait for ever."""
        begun.append(name)
        if len(begun) == 2:
            fly(handle)
        try:
            await anyio.sleep_forever()
        finally:
            cleaned.append(name)
        return "never"

    tools = [tool(stand, name="once"), tool(stand, name="pure", effect="pure")]
    script = [reply(calls=[(each.name, {"name": each.name}) for each in tools])]
    handle = async_loop(script, tools, timeout=DEADLINE)
    assert expect_completed(turn(backend, handle)).termination == Timeout(DEADLINE)
    assert sorted(cleaned) == ["once", "pure"]
    handle.extend(timeout=LONG)
    waiting = expect_yielded(turn(backend, handle))
    assert [(call.name, call.why) for call in waiting.pending] == [("once", "uncertain")]
    assert list_contents(waiting) == [None, Texts().cancelled]


@either_kind
def test_waiting_for_the_caller_takes_no_time(kind: str) -> None:
    """However long that is: only what the driver does counts."""

    @tool(needs_approval=True)
    def write() -> str:
        """Write."""
        return "written"

    handle = make(kind, [reply(calls=[("write", {})]), reply("fine")], [write], timeout=DEADLINE)
    waiting = expect_yielded(turn(kind, handle))
    fly(handle)
    waiting.approve_all()
    waiting.continue_loop()
    assert list_contents(turn(kind, handle)) == ["written"]
    assert handle.state.root.active < DEADLINE
