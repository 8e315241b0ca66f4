"""What only the async handle does: callables that may be async, and one task that drives."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import anyio
import pytest

from tests.kit.concurrency import async_loop, async_wire, run_async
from tests.kit.each import each
from tests.kit.support import expect_completed, expect_yielded
from tests.kit.tools import params
from toolloop import (
    Ask,
    AsyncToolLoopHandle,
    Deny,
    PolicyView,
    ToolCall,
    Yielded,
    tool,
)
from toolloop.errors import IllegalCommand
from toolloop.terminations import StopCondition
from toolloop.testing import AsyncScriptedProvider, reply


@tool
def read_file(path: str) -> str:
    """Read a text file."""
    return f"text of {path}"


@tool(needs_approval=True)
def write_file(path: str, text: str) -> str:
    """Replace a text file."""
    return f"wrote {len(text)} letters to {path}"


TOOLS = (read_file, write_file)
TYPO: tuple[Any, ...] = (
    reply("I look", calls=[("read_file", {"path": "a"})]),
    reply(calls=[("write_file", {"path": "a", "text": "x"}), ("write_file", {"path": "b", "text": "y"})]),
    reply("The typo is gone."),
)


@each("is_async", [False, True])
def test_policies_stop_conditions_and_predicates_may_be_async(is_async: bool) -> None:
    """Each is awaited where it is async; what each says counts the same."""

    def either(function: Callable[..., Any]) -> Callable[..., Any]:
        async def waiting(*args: Any) -> Any:
            await anyio.lowlevel.checkpoint()
            return function(*args)

        return waiting if is_async else function

    def policy(call: ToolCall, view: PolicyView) -> Any:
        return {"denied": Deny("never"), "asked": Ask("really?")}.get(call.input["word"])

    def enough(view: PolicyView) -> Any:
        return "enough" if view.iteration == 2 else None

    def is_loud(call: ToolCall) -> bool:
        return str(call.input["word"]).isupper()

    @tool(needs_approval=either(is_loud))
    def say(word: str) -> str:
        """Say a word."""
        return word

    async def main() -> None:
        calls = [("say", {"word": word}) for word in ("denied", "asked", "quiet", "LOUD")]
        handle = async_loop(
            [reply(calls=calls), reply(calls=calls)], [say], on_tool_call=either(policy), stop_when=either(enough)
        )
        turn = expect_yielded(await handle.next_turn())
        assert [(call.input["word"], call.reason) for call in turn.pending] == [("asked", "really?"), ("LOUD", None)]
        turn.approve_all()
        turn.continue_loop()
        turn = expect_yielded(await handle.next_turn())
        assert [slot.content for slot in turn.results if slot][1:] == ["asked", "quiet", "LOUD"]
        turn.continue_loop()
        assert expect_completed(await handle.next_turn()).termination == StopCondition("enough")

    run_async("asyncio", main)


@each("is_async", [False, True])
def test_run_asks_and_goes_on(is_async: bool) -> None:
    """`ask` may be async; without it the waiting turn is returned."""

    def approve(turn: Yielded) -> None:
        turn.approve_all(by="ana")

    async def approve_later(turn: Yielded) -> None:
        await anyio.lowlevel.checkpoint()
        approve(turn)

    async def main() -> None:
        async with async_wire(TYPO, TOOLS) as (handle, _):
            waiting = expect_yielded(await handle.run())
            assert (waiting.reason, len(waiting.pending)) == ("decision_required", 2)
            assert expect_yielded(await handle.run()) is waiting
            done = expect_completed(await handle.run(approve_later if is_async else approve))
            assert done.text == "The typo is gone."
            assert await handle.run() is done

    run_async("asyncio", main)


def test_one_task_drives() -> None:
    """A second `next_turn()` during one is refused at once; the first goes on."""
    refusals: list[BaseException] = []

    async def main() -> None:
        inside, leave = anyio.Event(), anyio.Event()

        @tool
        async def slow() -> str:
            """Wait to be let go."""
            inside.set()
            await leave.wait()
            return "done"

        handle = async_loop([reply(calls=[("slow", {})]), reply("done")], [slow])

        async def second() -> None:
            await inside.wait()
            with pytest.raises(IllegalCommand, match="another caller drives") as caught:
                await handle.next_turn()
            refusals.append(caught.value)
            leave.set()

        async with anyio.create_task_group() as group:
            group.start_soon(second)
            assert expect_completed(await handle.run()).text == "done"
        assert len(refusals) == 1

    run_async("asyncio", main)


def test_under_asyncio_another_thread_may_just_be_importing_trio(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its module is there already, but without its parts."""
    monkeypatch.setitem(sys.modules, "trio", ModuleType("trio"))

    async def drive() -> bool:
        handle = AsyncToolLoopHandle(AsyncScriptedProvider([reply("done")]), params=params(), loop_id="loop")
        async with handle.stream() as stream:
            return expect_completed(await stream.finish()).text == "done"

    assert asyncio.run(drive())
