"""The parameter `compaction`: the API's block takes the place of the whole history, and the wish is done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.each import each
from tests.loop.stored import store_at
from tests.loop.support import HUNDRED, TOOLS, assistant, completed, params, user, yielded
from tests.loop.talking import Params, Talk, either_driver, play, talking
from toolloop import ToolLoopHandle, Usage, Yielded
from toolloop.providers.sdk_arguments import MOST_UNSTREAMED
from toolloop.terminations import NaturalEnd
from toolloop.testing import FakeMessagesAPI, compacted, reply, server_call, server_result

BETA = "compact-2026-09-04"
SUMMARIZE = {"type": "summarize", "instructions": "Keep the numbers."}
SUMMARY = {"input_tokens": 900, "output_tokens": 70}
FOUR = {"type": "text", "text": "Four."}
SEARCH = {"type": "web_search_20250305", "name": "web_search"}

whole_and_streamed = each("max_tokens", [256, MOST_UNSTREAMED + 1])


def asked(**more: Any) -> Params:
    return params(**{"betas": [BETA], "compaction": SUMMARIZE, **more})


def block_of(turn: Yielded) -> dict[str, Any]:
    """The compaction block that a pause shows."""
    assert turn.reason == "paused"
    assert turn.message is not None
    (block,) = turn.message["content"]
    assert block["type"] == "compaction"
    return dict(block)


def compactions(at: Talk) -> list[Any]:
    """The parameter in each request."""
    return [body.get("compaction") for body in at.bodies()]


@whole_and_streamed
@either_driver
def test_the_block_takes_the_place_of_the_whole_history(driver: str, max_tokens: int) -> None:
    """With the API's signature; the parameter goes out once, and the loop goes on from the block."""

    async def story() -> None:
        history = [user("2 + 2?"), assistant("Hm."), user("Well?")]
        script = [compacted("They ask for 2 + 2.", usage=SUMMARY), reply("Four.", usage=HUNDRED), reply("Five.")]
        async with talking(driver, script, asked(messages=history, max_tokens=max_tokens)) as at:
            turn = await at.turn()
            block = block_of(turn)
            assert block["content"] == "They ask for 2 + 2."
            assert block["signature"]
            assert list(at.handle.messages) == [assistant([block])]
            turn.continue_loop()
            assert (await at.done()).text == "Four."
            assert at.sent() == [assistant([block])]
            at.handle.follow_up([user("and?")])
            assert (await at.done()).text == "Five."
            assert at.sent() == [assistant([block]), assistant([FOUR]), user("and?")]
            assert at.bodies()[0]["messages"] == history
            assert compactions(at) == [SUMMARIZE, None, None]

    play(driver, story)


def test_what_it_used_is_counted() -> None:
    async def story() -> None:
        async with talking("sync", [compacted("Hi.", usage=SUMMARY), reply("Four.", usage=HUNDRED)], asked()) as at:
            turn = await at.turn()
            assert turn.usage == turn.total_usage == Usage(900, 70)
            turn.continue_loop()
            done = await at.done()
            assert done.total_usage == Usage(1000, 120)

    play("sync", story)


def test_a_finished_loop_can_be_compacted_before_its_next_turn() -> None:
    """The parameter is set once, and asks for a second compaction when it is set again; the last block is kept."""

    async def story() -> None:
        script = [reply("Hi."), compacted("Once."), reply("Four."), compacted("Twice."), reply("Five.")]
        async with talking("sync", script, params(betas=[BETA])) as at:
            await at.done()
            for summary, words in (("Once.", "Four."), ("Twice.", "Five.")):
                at.handle.update_params(compaction={"type": "summarize"})
                at.handle.follow_up([user(words)])
                turn = await at.turn()
                assert block_of(turn)["content"] == summary
                turn.continue_loop()
                assert (await at.done()).text == words
                assert at.sent() == [assistant([block_of(turn)])]

    play("sync", story)


def test_a_round_is_answered_before_it_is_summarized() -> None:
    """The request for the compaction goes out with the results, and thinking before the block is gone with it."""

    async def story() -> None:
        called = reply(thinking="2 + 2", calls=[("add", {"a": 2, "b": 2})])
        script = [called, compacted("2 + 2 is 4."), reply("Four.", thinking="4"), reply("Five.")]
        async with talking("sync", script, params(betas=[BETA])) as at:
            turn = await at.turn()
            at.handle.update_params(compaction=SUMMARIZE)
            turn.continue_loop()
            paused = await at.turn()
            assert at.sent()[-1]["content"][0]["content"] == "4"
            paused.continue_loop()
            assert (await at.done()).text == "Four."
            at.handle.follow_up([user("and?")])
            assert (await at.done()).text == "Five."
            assert [message["role"] for message in at.sent()] == ["assistant", "assistant", "user"]

    play("sync", story)


ONLY_OF_REPLIES: dict[str, Any] = {
    "stop_sequences": ["stop"],
    "tool_choice": {"type": "any"},
    "context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]},
    "output_config": {"effort": "high", "format": {"type": "json_schema", "schema": {"type": "object"}}},
}


def test_what_shapes_a_reply_is_left_out_of_the_request_for_it_alone() -> None:
    """The API refuses the two together; the next request has them again, to the letter."""

    async def story() -> None:
        given = asked(betas=[BETA, "context-management-2025-06-27"], **ONLY_OF_REPLIES)
        async with talking("sync", [compacted("Hi."), reply("Four.")], given) as at:
            (await at.turn()).continue_loop()
            await at.done()
            first, second = at.bodies()
            assert set(ONLY_OF_REPLIES) & set(first) == {"output_config"}
            assert first["output_config"] == {"effort": "high"}
            assert {name: second[name] for name in ONLY_OF_REPLIES} == ONLY_OF_REPLIES
            assert {**first, **ONLY_OF_REPLIES, "messages": [], "compaction": None} == {
                **second,
                "messages": [],
                "compaction": None,
            }

    play("sync", story)


def test_a_choice_that_forces_nothing_stays() -> None:
    async def story() -> None:
        async with talking("sync", [compacted("Hi."), reply("Four.")], asked(tool_choice={"type": "auto"})) as at:
            (await at.turn()).continue_loop()
            await at.done()
            assert [body["tool_choice"] for body in at.bodies()] == [{"type": "auto"}] * 2

    play("sync", story)


def test_a_compaction_that_failed_changes_nothing_and_is_not_asked_for_again() -> None:
    async def story() -> None:
        async with talking("sync", [compacted(None, usage=SUMMARY), reply("Four.")], asked()) as at:
            turn = await at.turn()
            assert turn.reason == "paused"
            assert list(at.handle.messages) == [user()]
            turn.continue_loop()
            assert (await at.done()).text == "Four."
            assert at.sent() == [user()]
            assert compactions(at) == [SUMMARIZE, None]
            assert at.handle.total_usage.input_tokens == 910

    play("sync", story)


def test_a_turn_that_the_server_paused_is_ended_first() -> None:
    """The API refuses to summarize the middle of a turn, so the wish waits for its end."""

    async def story() -> None:
        paused = reply(content=[server_call("web_search", {"query": "x"})], stop_reason="pause_turn")
        ended = reply(content=[server_result("web_search"), {"type": "text", "text": "Found."}])
        script = [paused, ended, compacted("It was found."), reply("Bye.")]
        async with talking("sync", script, params(betas=[BETA], tools=[SEARCH])) as at:
            turn = await at.turn()
            at.handle.update_params(compaction=SUMMARIZE)
            turn.continue_loop()
            assert (await at.done()).text == "Found."
            assert compactions(at) == [None, None]
            at.handle.follow_up([user("thanks")])
            block = block_of(turn := await at.turn())
            turn.continue_loop()
            assert (await at.done()).text == "Bye."
            assert at.sent() == [assistant([block])]
            assert compactions(at) == [None, None, SUMMARIZE, None]

    play("sync", story)


def test_a_search_that_goes_on_over_a_round_is_ended_first() -> None:
    """The results of the client's own calls go out without the wish, while the server's search is open."""

    async def story() -> None:
        called = reply(content=[server_call("web_search", {"query": "x"})], calls=[("add", {"a": 2, "b": 2})])
        ended = reply(content=[server_result("web_search"), {"type": "text", "text": "Found."}])
        script = [called, ended, compacted("It was found."), reply("Bye.")]
        async with talking("sync", script, params(betas=[BETA], tools=[SEARCH])) as at:
            turn = await at.turn()
            at.handle.update_params(compaction=SUMMARIZE)
            turn.continue_loop()
            assert (await at.done()).text == "Found."
            at.handle.follow_up([user("thanks")])
            (await at.turn()).continue_loop()
            assert (await at.done()).text == "Bye."
            assert compactions(at) == [None, None, SUMMARIZE, None]

    play("sync", story)


def test_a_stop_after_it_leaves_the_block() -> None:
    """The compaction is done, whatever comes next; a follow-up goes on from it."""

    async def story() -> None:
        async with talking("sync", [compacted("Hi."), reply("Four.")], asked()) as at:
            turn = await at.turn()
            block = block_of(turn)
            turn.stop("enough")
            await at.done()
            assert list(at.handle.messages) == [assistant([block])]
            at.handle.follow_up([user("and?")])
            assert (await at.done()).text == "Four."
            assert at.sent() == [assistant([block]), user("and?")]
            assert compactions(at) == [SUMMARIZE, None]

    play("sync", story)


def test_words_of_the_user_may_follow_the_block_at_once() -> None:
    async def story() -> None:
        async with talking("sync", [compacted("Hi."), reply("Four.")], asked()) as at:
            turn = await at.turn()
            turn.inject_and_continue([user("2 + 2?")])
            assert (await at.done()).text == "Four."
            assert at.sent() == [assistant([block_of(turn)]), user("2 + 2?")]

    play("sync", story)


def test_a_snapshot_keeps_the_block_and_not_the_wish() -> None:
    """Waking up with the parameters of the beginning asks for no second compaction."""

    async def story() -> None:
        async with talking("sync", [compacted("Hi."), reply("Four."), reply("Five.")], asked()) as at:
            block = block_of(await at.turn())
            snapshot = at.handle.snapshot()
            for parts in ({}, {"params": asked()}):
                other = at.restored(snapshot, **parts)
                assert list(other.handle.messages) == [assistant([block])]
                turn = other.handle.pending_turn
                assert turn is not None
                turn.continue_loop()
                assert (await other.done()).termination == NaturalEnd()
                assert at.sent() == [assistant([block])]
            assert compactions(at) == [SUMMARIZE, None, None]

    play("sync", story)


def test_a_snapshot_before_it_keeps_the_wish() -> None:
    async def story() -> None:
        async with talking("sync", [compacted("Hi."), reply("Four.")], asked()) as at:
            other = at.restored(at.handle.snapshot())
            block = block_of(turn := await other.turn())
            turn.continue_loop()
            assert (await other.done()).text == "Four."
            assert at.sent() == [assistant([block])]

    play("sync", story)


@pytest.mark.parametrize("where", ["memory", "sqlite"])
def test_a_stored_loop_goes_on_from_the_block(where: str, tmp_path: Path) -> None:
    """Whoever opens it next finds the block, and asks for no second compaction."""
    with FakeMessagesAPI([compacted("Hi."), reply("Four."), reply("Five.")]) as api:
        client = api.client()
        store = store_at(where, tmp_path)
        with ToolLoopHandle.open(store, "loop", client, tools=TOOLS, params=asked()) as handle:
            block = block_of(yielded(handle.next_turn()))
        for words in ("Four.", "Five."):
            with ToolLoopHandle.open(store, "loop", client, tools=TOOLS, params=asked()) as handle:
                if (turn := handle.pending_turn) is not None:
                    assert list(handle.messages) == [assistant([block])]
                    turn.continue_loop()
                else:
                    handle.follow_up([user("and?")])
                assert completed(handle.next_turn()).text == words
        assert [request.json["messages"][0] for request in api.requests[1:]] == [assistant([block])] * 2
        assert ["compaction" in request.json for request in api.requests] == [True, False, False]
        assert api.refused == []
