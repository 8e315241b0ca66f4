"""Somebody else speaks in the very moment between what is about to be done and its being stored.

A request's bytes are made by then, and a call's input is chosen. What goes out is what the journal says, all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from attrs import define, field

from tests.loop.concurrency import run_async
from tests.loop.support import params, user
from toolloop import (
    Approve,
    AsyncToolLoopHandle,
    Completed,
    LoopConfig,
    ToolLoopHandle,
    Yielded,
    tool,
)
from toolloop.errors import Conflict, DecisionConflict
from toolloop.stores import MemoryStore
from toolloop.stores.protocol import Entry, Head, Lease
from toolloop.testing import AsyncScriptedProvider, ScriptedProvider, call, reply
from toolloop.testing.promises import check_promises

ID = "loop"


class Interrupted(MemoryStore):
    """Once, somebody else speaks right before an event of this kind is appended."""

    def __init__(self) -> None:
        super().__init__()
        self.before = ""
        self.speak: Callable[[], object] = list

    def append(
        self,
        loop_id: str,
        entries: Sequence[Entry],
        *,
        expected_rev: int | None,
        head: Head | None = None,
        lease: Lease | None = None,
    ) -> int:
        if self.before and any(f'"event":"{self.before}"' in entry.body for entry in entries):
            self.before = ""
            self.speak()
        return super().append(loop_id, entries, expected_rev=expected_rev, head=head, lease=lease)


@define
class Scene:
    """A stored loop that pays if it may, and what was sent and done."""

    needs_approval: bool
    store: Interrupted = field(factory=Interrupted)
    sent: list[Any] = field(factory=list)
    paid: list[int] = field(factory=list)

    def tools(self) -> list[Any]:
        @tool(needs_approval=self.needs_approval)
        def pay(amount: int) -> str:
            """Pay."""
            self.paid.append(amount)
            return f"paid {amount}"

        return [pay]

    def answer(self, request: Any) -> Any:
        self.sent.append(request["messages"])
        asked = any(message["role"] == "assistant" for message in request["messages"])
        return reply("done") if asked else reply(calls=[call("pay", {"amount": 1000}, id="c1")])

    def sync_handle(self) -> ToolLoopHandle:
        return ToolLoopHandle(
            ScriptedProvider(self.answer), params=params(), tools=self.tools(), store=self.store, loop_id=ID
        )

    def async_handle(self, timeout: float | None = None) -> AsyncToolLoopHandle:
        async def answer(request: Any) -> Any:
            return self.answer(request)

        return AsyncToolLoopHandle(
            AsyncScriptedProvider(answer),
            params=params(),
            tools=self.tools(),
            store=self.store,
            loop_id=ID,
            config=LoopConfig(timeout=timeout),
        )

    def elsewhere(self, before: str, say: Callable[[ToolLoopHandle], object]) -> None:
        """Let another handle say something right before an event of this kind is stored."""

        def speak() -> None:
            with ToolLoopHandle.open(self.store, ID, ScriptedProvider([]), tools=self.tools()) as other:
                say(other)

        self.store.before, self.store.speak = before, speak

    def is_sound(self) -> bool:
        return check_promises(self.store.load(ID).entries).broken == ()


def inject(handle: ToolLoopHandle) -> None:
    assert handle.pending_turn is not None
    handle.pending_turn.inject_and_continue([user("THEIRS")])


def edit(handle: ToolLoopHandle) -> None:
    handle.messages_mut()[0]["content"] = "THEIRS"
    assert handle.pending_turn is not None
    handle.pending_turn.continue_loop()


@pytest.mark.parametrize("say", [inject, edit])
def test_a_request_goes_out_with_all_that_stands_before_it(say: Callable[[ToolLoopHandle], None]) -> None:
    """`run()` stores its own going on with the request, and somebody else was there first."""
    scene = Scene(needs_approval=False)
    handle = scene.sync_handle()
    assert isinstance(handle.next_turn(), Yielded)
    scene.elsewhere("Requested", say)
    assert isinstance(handle.run(), Completed)
    assert scene.sent[-1] == list(handle.messages)[: len(scene.sent[-1])]
    assert "THEIRS" in str(scene.sent[-1])
    assert len(scene.sent) == 2
    assert scene.is_sound()


def test_an_approval_that_is_refused_runs_nothing() -> None:
    """The other one's decision counts, and with its input."""
    scene = Scene(needs_approval=True)

    async def drive() -> None:
        handle = scene.async_handle()
        turn = await handle.next_turn()
        assert isinstance(turn, Yielded)
        turn.approve("c1", by="me")
        turn.continue_loop()
        scene.elsewhere("Started", lambda other: other.decide({"c1": Approve(input={"amount": 1}, by="boss")}))
        with pytest.raises(DecisionConflict):
            await handle.next_turn()
        assert scene.paid == []
        assert isinstance(await handle.run(), Completed)
        assert scene.paid == [1]

    run_async("asyncio", drive)
    assert scene.is_sound()


@pytest.mark.parametrize("timeout", [None, 100.0])
def test_a_message_that_is_refused_is_not_sent(timeout: float | None) -> None:
    """Also where requests go out side by side, for a limit of time."""
    scene = Scene(needs_approval=False)

    async def drive() -> None:
        handle = scene.async_handle(timeout)
        turn = await handle.next_turn()
        assert isinstance(turn, Yielded)
        turn.inject_and_continue([user("MINE")])
        scene.elsewhere("Requested", inject)
        with pytest.raises(Conflict):
            await handle.next_turn()
        assert len(scene.sent) == 1
        assert isinstance(await handle.run(), Completed)

    run_async("asyncio", drive)
    assert "THEIRS" in str(scene.sent[-1])
    assert "MINE" not in str(scene.sent)
    assert scene.is_sound()
