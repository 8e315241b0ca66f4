"""Edits and compactions of a history: open server calls, equal messages, and loops opened with other parameters."""

from __future__ import annotations

from typing import Any

from tests.loop.compaction_stories import FREE, TOOLS, Reader, book, read, reading, thoughts_in
from tests.loop.support import completed, refused, user
from tests.loop.talking import either_driver, play
from toolloop import Continue, LoopConfig, MemoryStore, Stop, ToolLoopHandle, tool
from toolloop.compaction import DropRounds, MaskResults, Summarize
from toolloop.errors import InvalidHistory
from toolloop.terminations import StopCondition
from toolloop.testing import FakeMessagesAPI, call, compacted, reply, server_call, server_result

OTHER = user("Read another book.")
SEARCH = {"type": "web_search_20250305", "name": "web_search"}
SUMMARIZE, BETAS = {"type": "summarize"}, ["compact-2026-09-04"]


# --- server calls that nobody answers ---


def open_call() -> dict[str, Any]:
    return server_call("web_search", {"query": "storms"}, id="srvtoolu_1")


@either_driver
def test_an_edit_that_leaves_a_server_call_open_is_refused(driver: str) -> None:
    """Also where the very next request would be taken, for the one after it would not."""

    async def story() -> None:
        async with reading(driver, Reader(1), asked=book(tools=[SEARCH])) as at:
            turn = await at.turn()
            edited = at.handle.messages_mut()
            edited[1]["content"].insert(1, open_call())
            with refused(at.handle, InvalidHistory, "srvtoolu_1", "open-server-call"):
                turn.continue_loop()
            del edited[1]["content"][1]
            turn.continue_loop()
            assert (await at.to_the_end()).text == "done"

    play(driver, story)


def test_a_loop_that_began_with_an_open_call_may_be_edited_elsewhere() -> None:
    """It was the caller who gave it so, and the model goes on from there."""
    begun = [user("Search."), {"role": "assistant", "content": [{"type": "text", "text": "Yes."}, open_call()]}]
    found = reply(content=[server_result("web_search", id="srvtoolu_1"), {"type": "text", "text": "done"}])

    async def story() -> None:
        async with reading("sync", [found], asked=book(model=FREE, tools=[SEARCH], messages=begun)) as at:
            at.handle.messages_mut()[0] = OTHER
            assert (await at.to_the_end()).text == "done"
            assert at.sent()[0] == OTHER

    play("sync", story)


# --- the server's own compaction ---


def test_what_is_compacted_is_not_compacted_again_at_once() -> None:
    """The API refuses a compaction of nothing: the wish waits until there is something."""

    async def story() -> None:
        script = [reply("Hello."), compacted("a summary"), reply("fine"), compacted("another"), reply("done")]
        async with reading("sync", script, asked=book(betas=BETAS)) as at:
            await at.done()
            at.handle.follow_up([user("More.")])
            at.handle.update_params(compaction=SUMMARIZE)
            turn = await at.turn()
            assert turn.reason == "paused"
            at.handle.update_params(compaction=SUMMARIZE)
            turn.continue_loop()
            assert (await at.done()).text == "fine"
            assert [body.get("compaction") for body in at.bodies()] == [None, SUMMARIZE, None]
            at.handle.follow_up([user("And more.")])
            (await at.turn()).continue_loop()
            assert (await at.done()).text == "done"
            assert at.bodies()[3]["compaction"] == SUMMARIZE

    play("sync", story)


def test_a_history_that_the_server_compacted_is_a_new_one_to_each_strategy() -> None:
    """What one of them left of the old one says nothing of it, so it is due as soon as it is long."""

    async def story() -> None:
        script = Reader(1, first=[*map(read, range(1, 5)), compacted("a summary")])
        async with reading("sync", script, DropRounds(1), asked=book(betas=BETAS)) as at:
            for _ in range(4):
                turn = await at.turn()
                turn.continue_loop()
            assert at.handle.state.root.compacted
            at.handle.update_params(compaction=SUMMARIZE)
            assert (await at.turn()).reason == "paused"
            assert at.handle.state.root.compacted == ()

    play("sync", story)


def test_a_turn_that_is_replaced_is_a_new_one_to_each_strategy() -> None:
    """The same of `follow_up(replace_last=True)`."""

    async def story() -> None:
        async with reading("sync", Reader(4), DropRounds(1)) as at:
            await at.to_the_end()
            assert at.handle.state.root.compacted
            at.handle.follow_up([OTHER], replace_last=True)
            assert at.handle.state.root.compacted == ()

    play("sync", story)


def test_a_compaction_is_told_of_where_a_stop_is_said_meanwhile() -> None:
    """While the loop asks `stop_when` about the very reply that is the block."""

    async def story() -> None:
        def stop_when(view: Any) -> None:
            if view.iteration == 2:
                at.handle.resume(Stop("enough"))

        script = [read(1), compacted("a summary")]
        async with reading("sync", script, asked=book(betas=BETAS), stop_when=stop_when) as at:
            turn = await at.turn()
            at.handle.update_params(compaction=SUMMARIZE)
            turn.continue_loop()
            assert (await at.done()).termination == StopCondition("enough")
            assert "a summary" in str(at.handle.messages)
            assert [event.strategy for event in at.compactions] == ["compaction"]

    play("sync", story)


# --- what was accepted, and not yet driven ---


@tool
def other_tool(number: int) -> str:
    """Do something else."""
    return str(number)


def test_a_loop_that_was_opened_with_other_words() -> None:
    """The request for a summary has all of the new ones, and none of the thinking after the old."""

    async def story() -> None:
        store = MemoryStore()
        async with reading("sync", Reader(6), asked=book(system="Be brief."), store=store) as at:
            for _ in range(3):
                (await at.turn()).continue_loop()
            await at.turn()
            at.handle.close()
            asked = {name: value for name, value in book(system="Be long.").items() if name != "messages"}
            tools = (*TOOLS, other_tool)
            woken = ToolLoopHandle.open(
                store,
                "loop",
                at.client,
                tools=tools,
                params=asked,
                config=LoopConfig(compaction=Summarize(keep_last=1, at_tokens=2500)),
                on_drift="accept",
            )
            woken.resume(Continue())
            assert completed(woken.run()).text == "done"
            body = at.summaries[0]
            assert body["system"] == "Be long."
            assert [each["name"] for each in body["tools"]] == ["page", "sign", "other_tool"]
            assert thoughts_in(body["messages"]) == []

    play("sync", story)


# --- messages that are equal ---


def test_equal_messages_are_told_apart_by_their_places() -> None:
    """Masks land on all but the last, and a loop that woke up elsewhere masks the same and sends the same bytes."""
    calls = iter(range(100))

    def script(_body: Any) -> Any:
        number = next(calls)
        return reply(f"ok {number}") if number % 2 else reply(calls=[call("page", {"number": 1}, id="page-1")])

    config = LoopConfig(max_iterations=100)
    with FakeMessagesAPI(script) as api:
        client = api.client()
        living = ToolLoopHandle(client, params=book(model=FREE), tools=TOOLS, config=config, loop_id="loop")
        living.run()
        for number in range(4):
            living.follow_up([user(f"Once more: {number}.")])
            living.run()
        woken = ToolLoopHandle.restore(living.snapshot(), client, tools=TOOLS, config=config)
        for handle in (living, woken):
            handle.messages_mut()[:] = MaskResults(keep_rounds=2)(handle.messages)
        for handle in (living, woken):
            handle.follow_up([user("Go on.")])
            handle.next_turn()
        results = [
            block["content"].startswith("Page 1.")
            for message in living.messages
            for block in message["content"]
            if isinstance(block, dict) and block["type"] == "tool_result"
        ]
        assert results == [False] * 4 + [True, True]
        assert api.requests[-1].body == api.requests[-2].body
        assert api.refused == []
