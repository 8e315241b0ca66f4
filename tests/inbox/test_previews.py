"""What a call would do: made when it begins to wait, kept with it, shown to the person who decides."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.inbox.support import PARAMS, previewed
from tests.kit.concurrency import either_kind
from tests.kit.tools import PAY
from tests.kit.world import World, hold_at
from toolloop import Approve, AsyncToolLoopHandle, Inbox, Rerun, ToolLoopHandle, Yielded, tool
from toolloop.errors import BadTool, Conflict
from toolloop.stores.memory import MemoryStore
from toolloop.testing import AsyncScriptedProvider, ScriptedProvider, call, reply


def test_a_preview_is_kept_with_the_call(tmp_path: Path) -> None:
    """The page of waiting calls and the loop have it, without the tool."""
    found = previewed(lambda given: f"writes {given['text']}", tmp_path)
    (waits,) = found.inbox.pending()
    assert waits.preview == "writes new"
    assert found.inbox.show("loop")["pending"][0]["preview"] == "writes new"
    assert found.store.head("loop").pending[0].preview == "writes new"


def test_a_long_preview_is_shortened_in_the_list(tmp_path: Path) -> None:
    """`truncated` says so; the loop has it whole."""
    found = previewed(lambda _: "x" * 5000, tmp_path)
    (waits,) = found.inbox.pending()
    assert (waits.truncated, waits.preview) == (True, "x" * 2000 + "…")
    assert found.inbox.show("loop")["pending"][0]["preview"] == "x" * 5000


@pytest.mark.parametrize("preview", [lambda given: given["none"], lambda _: 5, lambda: "", lambda _: "\ud800"])
def test_a_preview_that_fails_becomes_a_text(preview: Any, tmp_path: Path) -> None:
    """The person still decides."""
    (waits,) = previewed(preview, tmp_path).inbox.pending()
    assert waits.preview


def test_an_edited_input_has_no_preview(tmp_path: Path) -> None:
    """It would be one of another input."""
    found = previewed(str, tmp_path)
    found.inbox.decide("loop", {"c1": Approve({"text": "other"})})
    assert "'new'" not in str(found.store.load("loop").entries[-1])


def test_an_async_handle_awaits_a_preview() -> None:
    """A sync one refuses such a tool when it is made."""

    async def preview(given: dict[str, Any]) -> str:
        await asyncio.sleep(0)
        return f"writes {given['text']}"

    @tool(needs_approval=True, preview=preview)
    def write(text: str) -> str:
        """Write."""
        return text

    async def of_arguments(text: str) -> str:
        return await preview({"text": text})

    typed = tool(write.function, needs_approval=True, preview=of_arguments, typed=True)

    async def main(writing: Any) -> None:
        provider = AsyncScriptedProvider([reply(calls=[call("write", {"text": "new"}, id="c1")])])
        async with AsyncToolLoopHandle(provider, params=PARAMS, tools=[writing]) as handle:
            turn = await handle.next_turn()
            assert isinstance(turn, Yielded)
            assert turn.pending[0].preview == "writes new"

    for writing in (write, typed):
        asyncio.run(main(writing))
        with pytest.raises(BadTool, match="preview of the tool 'write' is async"):
            ToolLoopHandle(ScriptedProvider([]), params=PARAMS, tools=[writing])


def test_a_preview_is_a_function() -> None:
    """Anything else is refused where the tool is made."""
    with pytest.raises(BadTool, match="preview of write: expected a function"):
        tool(lambda: None, name="write", description="", preview=5)  # type: ignore[call-overload]


def explained(pay: Any, seen: list[Any]) -> Any:
    """The tool, with a preview that notes what it is asked about."""

    def preview(given: dict[str, Any]) -> str:
        seen.append(given)
        return f"pays {given['amount']}"

    return tool(pay.function, name="pay", preview=preview)


@either_kind
def test_an_uncertain_call_that_never_waited_gets_its_preview(kind: str) -> None:
    """From the driver that finds it; a person decides whether it runs again. It is made once."""
    seen: list[Any] = []
    world = World(kind, MemoryStore(), script=(reply(calls=[PAY]), reply("done")))
    world.tools = (explained(world.tools[0], seen), *world.tools[1:])
    with hold_at(world, "t1", world.open()) as turn:
        worker = world.open(take_over=True)
        worker.run()
        (waits,) = Inbox(world.store).pending()
        assert (waits.why, waits.preview, seen) == ("uncertain", "pays 1", [{"amount": 1}])
        worker.run()
        worker.decide(t1=Rerun(by="ana"))
        assert worker.text() == "done"
    with pytest.raises(Conflict):
        turn.result()
    assert (world.ran, seen) == (["t1", "t1"], [{"amount": 1}])


@either_kind
def test_a_preview_of_an_uncertain_call_that_fails_becomes_a_text(kind: str) -> None:
    """The turn still ends."""
    world = World(kind, MemoryStore(), script=(reply(calls=[PAY]), reply("done")))
    world.tools = (tool(world.tools[0].function, name="pay", preview=lambda given: given["none"]), *world.tools[1:])
    with hold_at(world, "t1", world.open()) as turn:
        world.open(take_over=True).run()
        (waits,) = Inbox(world.store).pending()
        assert str(waits.preview).startswith("preview failed: ")
    with pytest.raises(Conflict):
        turn.result()
