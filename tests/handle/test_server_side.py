"""What the server does to the conversation by itself passes through the handles: edits, compactions, their pauses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.handle.stored import store_at
from tests.handle.support import HUNDRED, TOOLS, assistant, completed, params, user, yielded
from tests.handle.talking import Params, each_driver, play, talking
from toolloop import ToolLoopHandle, Usage
from toolloop.core.usage import Billed
from toolloop.providers.calls import MOST_UNSTREAMED
from toolloop.testing import FakeMessagesAPI, compacted, reply

BETAS = ["compact-2026-01-12", "context-management-2025-06-27"]
COMPACT = {"type": "compact_20260112", "pause_after_compaction": True, "trigger": None}
CLEAR = {"type": "clear_tool_uses_20250919", "keep": {"type": "tool_uses", "value": 2}}
EDITS = {"edits": [CLEAR, COMPACT]}
BLOCK = {"type": "compaction", "content": "So far."}
SUMMARY = {"input_tokens": 900, "output_tokens": 70}
CLEARED = {"type": "clear_tool_uses_20250919", "cleared_tool_uses": 3, "cleared_input_tokens": 900}
PAUSED = compacted("So far.", usage=SUMMARY)
FOUR = {"type": "text", "text": "Four."}

whole_and_streamed = pytest.mark.parametrize("max_tokens", [256, MOST_UNSTREAMED + 1], ids=["whole", "streamed"])


def asked(**more: Any) -> Params:
    return params(context_management=EDITS, betas=BETAS, **more)


@whole_and_streamed
@each_driver
def test_a_pause_after_a_compaction_is_a_pause_and_joins_with_the_reply_that_ends_it(
    driver: str, max_tokens: int
) -> None:
    """It is sent back as it came, with no user turn, and every request carries the caller's parameters untouched."""

    async def story() -> None:
        script = [PAUSED, reply("Four.", usage=HUNDRED), reply("Five.")]
        async with talking(driver, script, asked(max_tokens=max_tokens)) as at:
            turn = await at.turn()
            assert (turn.reason, turn.calls, turn.assistant_content) == ("paused", (), (BLOCK,))
            assert list(at.handle.messages) == [user()]
            turn.continue_loop()
            assert (await at.done()).text == "Four."
            assert at.sent() == [user(), assistant([BLOCK])]
            assert list(at.handle.messages) == [user(), assistant([BLOCK]), assistant([FOUR])]
            at.handle.follow_up([user("and?")])
            assert (await at.done()).text == "Five."
            assert at.sent() == [user(), assistant([BLOCK]), assistant([FOUR]), user("and?")]
            assert [body["context_management"] for body in at.bodies()] == [EDITS] * 3
            assert [request.headers["anthropic-beta"] for request in at.api.requests] == [",".join(BETAS)] * 3
            assert [body.get("stream", False) for body in at.bodies()] == [max_tokens > MOST_UNSTREAMED] * 3

    play(driver, story)


@whole_and_streamed
@each_driver
def test_what_a_summary_used_is_counted(driver: str, max_tokens: int) -> None:
    """The totals of such a reply are nothing; its iterations tell what is billed, and the context is not known."""

    async def story() -> None:
        script = [PAUSED, compacted("More.", reply("Four.", usage=HUNDRED), usage=SUMMARY)]
        async with talking(driver, script, asked(max_tokens=max_tokens)) as at:
            turn = await at.turn()
            assert turn.usage == turn.total_usage == Usage(900, 70)
            turn.continue_loop()
            done = await at.done()
            assert done.total_usage == Usage(1900, 190)
            first, second = done.usage_log
            assert first.billed == (Billed("compaction", None, Usage(900, 70)),)
            assert first.context_tokens is None
            assert second.billed == (
                Billed("compaction", None, Usage(900, 70)),
                Billed("message", None, Usage(100, 50)),
            )
            assert second.context_tokens == 150

    play(driver, story)


@each_driver
def test_a_compaction_that_leads_a_reply_stays_at_its_head(driver: str) -> None:
    """A round goes on as ever, with thinking that the server signed after the compaction."""

    async def story() -> None:
        led = compacted("So far.", reply(thinking="2 + 2", calls=[("add", {"a": 2, "b": 2})]))
        async with talking(driver, [reply("Hi."), led, reply("Four."), reply("Five.")], asked()) as at:
            await at.done()
            at.handle.follow_up([user("2 + 2?")])
            turn = await at.turn()
            assert turn.reason == "tools_executed"
            turn.continue_loop()
            assert (await at.done()).text == "Four."
            assert [block["type"] for block in at.sent()[3]["content"]] == ["compaction", "thinking", "tool_use"]
            at.handle.follow_up([user("and?")])
            assert (await at.done()).text == "Five."

    play(driver, story)


@whole_and_streamed
@each_driver
def test_the_response_tells_which_edits_were_applied(driver: str, max_tokens: int) -> None:
    async def story() -> None:
        applied = {"applied_edits": [CLEARED]}
        async with talking(driver, [reply("Four.", context_management=applied)], asked(max_tokens=max_tokens)) as at:
            done = await at.done()
            assert done.response is not None
            assert done.response["context_management"] == applied

    play(driver, story)


@each_driver
def test_a_snapshot_of_such_a_pause_wakes_up_in_it(driver: str) -> None:
    """It can be woken up more than once, and each copy goes on with the pause."""

    async def story() -> None:
        async with talking(driver, [PAUSED, reply("Four."), reply("Five.")], asked()) as at:
            await at.turn()
            snapshot = at.handle.snapshot()
            for words in ("Four.", "Five."):
                other = at.restored(snapshot)
                turn = other.handle.pending_turn
                assert turn is not None
                assert (turn.reason, turn.assistant_content) == ("paused", (BLOCK,))
                assert other.handle.total_usage == Usage(900, 70)
                turn.continue_loop()
                assert (await other.done()).text == words
                assert at.sent() == [user(), assistant([BLOCK])]

    play(driver, story)


@each_driver
def test_a_page_shows_such_a_pause_like_any_other(driver: str) -> None:
    """The view has no words of the model: a summary is not for the user."""

    async def story() -> None:
        async with talking(driver, [PAUSED, reply("Four.")], asked()) as at:
            turn = await at.turn()
            view = at.handle.view()
            assert (view["state"], view["pending"], view["text"]) == ("Paused", [], None)
            turn.continue_loop()
            await at.done()
            assert at.handle.view()["text"] == "Four."

    play(driver, story)


@pytest.mark.parametrize("where", ["memory", "sqlite"])
def test_such_a_pause_outlives_its_process_in_a_store(where: str, tmp_path: Path) -> None:
    with FakeMessagesAPI([PAUSED, reply("Four.")]) as api:
        client = api.client()
        store = store_at(where, tmp_path)
        with ToolLoopHandle.open(store, "loop", client, tools=TOOLS, params=asked()) as handle:
            assert yielded(handle.next_turn()).reason == "paused"
        with ToolLoopHandle.open(store, "loop", client, tools=TOOLS) as handle:
            turn = handle.pending_turn
            assert turn is not None
            turn.continue_loop()
            assert completed(handle.next_turn()).text == "Four."
            assert list(handle.messages) == [user(), assistant([BLOCK]), assistant([FOUR])]
            assert [request.json["context_management"] for request in api.requests] == [EDITS] * 2
            assert api.refused == []


@each_driver
def test_a_compaction_that_failed_is_sent_back_too(driver: str) -> None:
    """The API says that it does nothing, and takes it."""

    async def story() -> None:
        async with talking(driver, [compacted(None), reply("Four.")], asked()) as at:
            (await at.turn()).continue_loop()
            await at.done()
            assert at.sent() == [user(), assistant([{"type": "compaction", "content": None}])]

    play(driver, story)


@each_driver
def test_a_stop_drops_such_a_pause(driver: str) -> None:
    """The history is whole without it, and the next turn of the user goes out without the block."""

    async def story() -> None:
        async with talking(driver, [PAUSED, reply("Four.")], asked()) as at:
            (await at.turn()).stop("enough")
            await at.done()
            assert list(at.handle.messages) == [user()]
            at.handle.follow_up([user("again")])
            assert (await at.done()).text == "Four."
            assert at.sent() == [user(), user("again")]

    play(driver, story)
