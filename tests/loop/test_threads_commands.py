"""What other threads may say and ask while a turn is in progress."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from tests import inside
from tests.loop.concurrency import (
    DEADLINE,
    Background,
    Counted,
    Gate,
    awaited,
    either_kind,
    make,
    result_texts,
    run_async,
    turn,
)
from tests.loop.support import completed, params, user, yielded
from toolloop import (
    Approve,
    AsyncToolLoopHandle,
    Deny,
    InjectMessages,
    LoopConfig,
    Stop,
    Texts,
    ToolContext,
    ToolLoopHandle,
    Yielded,
    tool,
)
from toolloop.errors import IllegalCommand
from toolloop.terminations import NaturalEnd, StopCondition
from toolloop.testing import FakeMessagesAPI, delayed, reply


class OverHTTP:
    """A loop over real HTTP whose client lives as long as one turn: an async one has one event loop only."""

    def __init__(self, kind: str, script: Any, tools: Any = ()) -> None:
        self.kind = kind
        self.api = FakeMessagesAPI(script)
        make: Any = ToolLoopHandle if kind == "sync" else AsyncToolLoopHandle
        client = self.api.client() if kind == "sync" else self.api.async_client()
        self.handle: Any = make(client, params=params(), tools=tools, config=LoopConfig(), loop_id="loop")

    def run(self, steps: int = 1) -> Any:
        """So many turns, continued between."""
        if self.kind == "sync":
            for _ in range(steps - 1):
                self.handle.next_turn().continue_loop()
            return self.handle.next_turn()

        async def main() -> Any:
            async with inside.provider_of(self.handle).client:
                for _ in range(steps - 1):
                    (await self.handle.next_turn()).continue_loop()
                return await self.handle.next_turn()

        return run_async(self.kind, main)

    def sent(self, number: int) -> list[Any]:
        return [message["content"] for message in self.api.requests[number].json["messages"]]


@either_kind
def test_reads_during_a_request_and_a_second_driver_is_refused(kind: str) -> None:
    """View, pending and snapshot are answered; one caller drives, and another is told so at once."""
    held = delayed(DEADLINE, reply("done"))
    loop = OverHTTP(kind, [held])
    with loop.api:
        driver = Background(loop.run)
        awaited(held.arrived)
        assert loop.handle.view()["state"] == "Requesting"
        assert (loop.handle.pending, loop.handle.pending_turn) == ((), None)
        assert json.loads(json.dumps(loop.handle.snapshot())) == loop.handle.snapshot()
        with pytest.raises(IllegalCommand, match="another caller drives"):
            turn(kind, loop.handle)
        with pytest.raises(IllegalCommand, match="in progress"):
            loop.handle.messages_mut()
        held.release()
        assert completed(driver.result()).text == "done"


@either_kind
def test_stop_during_a_request_ends_the_loop_with_the_reply(kind: str) -> None:
    """The reply is in the history with its calls settled, and none of them ran."""
    counted = Counted()

    @tool
    def work(context: ToolContext) -> str:
        """Work."""
        counted.add(context)
        return "done"

    held = delayed(DEADLINE, reply("I shall", calls=[("work", {})]))
    loop = OverHTTP(kind, [held], [work])
    with loop.api:
        driver = Background(loop.run)
        awaited(held.arrived)
        loop.handle.resume(Stop("enough"))
        held.release()
        ended = completed(driver.result())
        assert (ended.termination, ended.text, ended.iterations) == (StopCondition("enough"), "I shall", 1)
        assert result_texts(loop.handle.messages[-1]) == [Texts().not_run]
        assert counted.ran == []


@either_kind
def test_a_message_injected_during_a_request_joins_after_its_reply(kind: str) -> None:
    """A reply that would end the loop does not: what was said meanwhile is answered."""
    held = delayed(DEADLINE, reply("first"))
    loop = OverHTTP(kind, [held, reply("second")])
    with loop.api:
        driver = Background(loop.run)
        awaited(held.arrived)
        loop.handle.resume(InjectMessages([user("one")]))
        loop.handle.resume(InjectMessages([user("two")]))
        held.release()
        ended = completed(driver.result())
        assert (ended.text, ended.termination) == ("second", NaturalEnd())
        assert loop.sent(0) == ["hello"]
        assert loop.sent(1) == ["hello", [{"type": "text", "text": "first"}], "one", "two"]
        assert loop.api.refused == []


@either_kind
def test_a_message_injected_during_a_request_follows_the_results(kind: str) -> None:
    """After a reply with calls it joins once they have their results, as a message of its own."""

    @tool
    def work() -> str:
        """Work."""
        return "done"

    held = delayed(DEADLINE, reply(calls=[("work", {})]))
    loop = OverHTTP(kind, [held, reply("bye")], [work])
    with loop.api:
        driver = Background(lambda: loop.run(2))
        awaited(held.arrived)
        loop.handle.resume(InjectMessages([user("meanwhile")]))
        held.release()
        assert completed(driver.result()).text == "bye"
        assert [len(content) if isinstance(content, list) else content for content in loop.sent(1)] == [
            "hello",
            1,
            1,
            "meanwhile",
        ]
        assert loop.api.refused == []


@either_kind
def test_stop_during_tools_leaves_their_threads_behind(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """The running ones are told as cancelled, their context says so, and their late ends change nothing."""
    gates = {"one": Gate(), "two": Gate()}
    seen: list[bool] = []

    @tool
    def slow(name: str, context: ToolContext) -> str:
        """Stand at a gate, then look whether anybody still waits."""
        seen.append(context.cancelled)
        gates[name].stand()
        seen.append(context.cancelled)
        if len(seen) == 4:
            both.set()
        return "too late"

    both = threading.Event()
    calls = [("slow", {"name": name}) for name in gates]
    handle = make(kind, [reply(calls=calls)], [slow])
    driver = Background(lambda: turn(kind, handle))
    for gate in gates.values():
        awaited(gate.arrived)
    handle.resume(Stop("enough"))
    ended = completed(driver.result())
    assert ended.termination == StopCondition("enough")
    assert result_texts(handle.messages[-1]) == [Texts().cancelled] * 2
    before, threads = handle.snapshot(), tool_threads()
    for gate in gates.values():
        gate.opened.set()
    for thread in threads:
        thread.join(DEADLINE)
    awaited(both)
    assert sorted(seen) == [False, False, True, True]
    assert handle.snapshot() == before
    assert turn(kind, handle) is ended
    assert caplog.text.count("ended after the loop stopped waiting for it") == 2


def tool_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("toolloop-")]


@either_kind
def test_decisions_during_tools_join_the_next_turn(kind: str) -> None:
    """Under `ready` one call runs while another waits; what is decided meanwhile runs in the next turn."""
    gate, counted = Gate(), Counted()

    @tool
    def slow(context: ToolContext) -> str:
        """Stand at a gate."""
        counted.add(context)
        gate.stand()
        return "slow"

    @tool(needs_approval=True)
    def asks(context: ToolContext) -> str:
        """Need approval."""
        counted.add(context)
        return "asked"

    script = [reply(calls=[("asks", {}), ("slow", {}), ("asks", {})]), reply("done")]
    handle = make(kind, script, [slow, asks], execution="ready", max_parallel_tools=1)
    first = yielded(turn(kind, handle))
    first_id, _, third_id = (call.id for call in first.calls)
    first.continue_loop()
    driver = Background(lambda: turn(kind, handle))
    awaited(gate.arrived)
    assert [call.id for call in handle.pending] == [first_id, third_id]
    handle.decide({first_id: Approve(by="ana"), third_id: Deny("no", by="ana")})
    assert handle.pending == ()
    assert len(counted.ran) == 1
    gate.opened.set()
    second = yielded(driver.result())
    assert (second.reason, second.pending, len(counted.ran)) == ("decision_required", (), 1)
    second.continue_loop()
    third = yielded(turn(kind, handle))
    assert third.reason == "tools_executed"
    assert [slot.content for slot in third.results if slot][:2] == ["asked", "slow"]
    counted.assert_once()


@either_kind
def test_observers_see_one_order_and_may_look_at_the_loop(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """One asks for a view in each event, one decides in an event, one raises: all see the same, nothing is harmed."""
    seen: dict[str, list[str]] = {"first": [], "last": []}
    barrier = threading.Barrier(4)

    @tool(needs_approval=True)
    def meet() -> str:
        """Meet the others."""
        barrier.wait(DEADLINE)
        return "met"

    def looks(event: Any) -> None:
        seen["first"].append(repr(event))
        assert handle.view()["loop_id"] == "loop"
        handle.snapshot()

    def decides(event: Any) -> None:
        if type(event).__name__ == "CallWaiting":
            handle.decide({event.call_id: Approve()})

    def fails(event: Any) -> None:
        raise LookupError("an observer that fails")

    def last(event: Any) -> None:
        seen["last"].append(repr(event))

    script = [reply(calls=[("meet", {})] * 4), reply("done")]
    handle = make(kind, script, [meet], observers=[looks, decides, fails, last])
    results = [turn(kind, handle)]
    while isinstance(results[-1], Yielded):
        results[-1].continue_loop()
        results.append(turn(kind, handle))
    assert completed(results[-1]).text == "done"
    told = [repr(event) for result in results for event in result.events]
    assert seen["first"] == seen["last"] == told
    assert caplog.text.count("an observer failed") == len(told)
