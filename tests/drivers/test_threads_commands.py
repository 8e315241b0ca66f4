"""What other threads may say and ask while a turn is in progress."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.kit import inside
from tests.kit.concurrency import (
    DEADLINE,
    Background,
    Counted,
    either_kind,
    result_texts,
    run_async,
    turn,
    wait_for,
)
from tests.kit.support import expect_completed
from tests.kit.tools import params, user
from toolloop import (
    AsyncToolLoopHandle,
    InjectMessages,
    LoopConfig,
    Stop,
    Texts,
    ToolContext,
    ToolLoopHandle,
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

    def list_sent(self, number: int) -> list[Any]:
        return [message["content"] for message in self.api.requests[number].json["messages"]]


@either_kind
def test_reads_during_a_request_and_a_second_driver_is_refused(kind: str) -> None:
    """View, pending and snapshot are answered; one caller drives, and another gets an error at once."""
    held = delayed(DEADLINE, reply("done"))
    loop = OverHTTP(kind, [held])
    with loop.api:
        driver = Background(loop.run)
        wait_for(held.arrived)
        assert loop.handle.view()["state"] == "Requesting"
        assert (loop.handle.pending, loop.handle.pending_turn) == ((), None)
        assert json.loads(json.dumps(loop.handle.snapshot())) == loop.handle.snapshot()
        with pytest.raises(IllegalCommand, match="another caller drives"):
            turn(kind, loop.handle)
        with pytest.raises(IllegalCommand, match="in progress"):
            loop.handle.messages_mut()
        held.release()
        assert expect_completed(driver.result()).text == "done"


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
        wait_for(held.arrived)
        loop.handle.resume(Stop("enough"))
        held.release()
        ended = expect_completed(driver.result())
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
        wait_for(held.arrived)
        loop.handle.resume(InjectMessages([user("one")]))
        loop.handle.resume(InjectMessages([user("two")]))
        held.release()
        ended = expect_completed(driver.result())
        assert (ended.text, ended.termination) == ("second", NaturalEnd())
        assert loop.list_sent(0) == ["hello"]
        assert loop.list_sent(1) == ["hello", [{"type": "text", "text": "first"}], "one", "two"]
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
        wait_for(held.arrived)
        loop.handle.resume(InjectMessages([user("meanwhile")]))
        held.release()
        assert expect_completed(driver.result()).text == "bye"
        assert [len(content) if isinstance(content, list) else content for content in loop.list_sent(1)] == [
            "hello",
            1,
            1,
            "meanwhile",
        ]
        assert loop.api.refused == []
