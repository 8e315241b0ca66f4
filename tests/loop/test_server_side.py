"""What the server does to the conversation by itself passes through the handles: edits, compactions, their pauses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.each import each
from tests.loop.stored import store_at
from tests.loop.support import HUNDRED, TOOLS, assistant, completed, params, user, yielded
from tests.loop.talking import Params, either_driver, play, talking
from toolloop import ToolLoopHandle, Usage
from toolloop.providers.sdk_arguments import MOST_UNSTREAMED
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

whole_and_streamed = each("max_tokens", [256, MOST_UNSTREAMED + 1])


def asked(**more: Any) -> Params:
    return params(context_management=EDITS, betas=BETAS, **more)


@whole_and_streamed
@either_driver
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
def test_what_a_summary_used_is_counted(max_tokens: int) -> None:
    """The totals of such a reply are nothing; their sum is in its iterations."""

    async def story() -> None:
        script = [PAUSED, compacted("More.", reply("Four.", usage=HUNDRED), usage=SUMMARY)]
        async with talking("sync", script, asked(max_tokens=max_tokens)) as at:
            turn = await at.turn()
            assert turn.usage == turn.total_usage == Usage(900, 70)
            turn.continue_loop()
            done = await at.done()
            assert done.total_usage == Usage(1900, 190)
            assert [entry.usage for entry in done.usage_log] == [Usage(900, 70), Usage(1000, 120)]

    play("sync", story)


def test_a_compaction_that_leads_a_reply_stays_at_its_head() -> None:
    """A round goes on as ever, with thinking that the server signed after the compaction."""

    async def story() -> None:
        led = compacted("So far.", reply(thinking="2 + 2", calls=[("add", {"a": 2, "b": 2})]))
        async with talking("sync", [reply("Hi."), led, reply("Four."), reply("Five.")], asked()) as at:
            await at.done()
            at.handle.follow_up([user("2 + 2?")])
            turn = await at.turn()
            assert turn.reason == "tools_executed"
            turn.continue_loop()
            assert (await at.done()).text == "Four."
            assert [block["type"] for block in at.sent()[3]["content"]] == ["compaction", "thinking", "tool_use"]
            at.handle.follow_up([user("and?")])
            assert (await at.done()).text == "Five."

    play("sync", story)


@whole_and_streamed
def test_the_response_tells_which_edits_were_applied(max_tokens: int) -> None:
    async def story() -> None:
        applied = {"applied_edits": [CLEARED]}
        async with talking("sync", [reply("Four.", context_management=applied)], asked(max_tokens=max_tokens)) as at:
            done = await at.done()
            assert done.response is not None
            assert done.response["context_management"] == applied

    play("sync", story)


def test_a_snapshot_of_such_a_pause_wakes_up_in_it() -> None:
    """It can be woken up more than once, and each copy goes on with the pause."""

    async def story() -> None:
        async with talking("sync", [PAUSED, reply("Four."), reply("Five.")], asked()) as at:
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

    play("sync", story)


def test_a_page_shows_such_a_pause_like_any_other() -> None:
    """The view has no words of the model: a summary is not for the user."""

    async def story() -> None:
        async with talking("sync", [PAUSED, reply("Four.")], asked()) as at:
            turn = await at.turn()
            view = at.handle.view()
            assert (view["state"], view["pending"], view["text"]) == ("Waiting", [], None)
            turn.continue_loop()
            await at.done()
            assert at.handle.view()["text"] == "Four."

    play("sync", story)


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


def test_a_compaction_that_failed_is_sent_back_too() -> None:
    """The API says that it does nothing, and takes it."""

    async def story() -> None:
        async with talking("sync", [compacted(None), reply("Four.")], asked()) as at:
            (await at.turn()).continue_loop()
            await at.done()
            assert at.sent() == [user(), assistant([{"type": "compaction", "content": None}])]

    play("sync", story)


def test_a_stop_drops_such_a_pause() -> None:
    """The history is whole without it, and the next turn of the user goes out without the block."""

    async def story() -> None:
        async with talking("sync", [PAUSED, reply("Four.")], asked()) as at:
            (await at.turn()).stop("enough")
            await at.done()
            assert list(at.handle.messages) == [user()]
            at.handle.follow_up([user("again")])
            assert (await at.done()).text == "Four."
            assert at.sent() == [user(), user("again")]

    play("sync", story)
