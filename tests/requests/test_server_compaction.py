"""Compaction and context edits of the API itself pass through the handles."""

from __future__ import annotations

from typing import Any

from tests.kit.concurrency import either_driver, play
from tests.kit.each import each
from tests.kit.tools import HUNDRED, assistant, params, user
from tests.kit.world import World, open_over_http_of
from toolloop import Usage, Yielded
from toolloop.providers.sdk_arguments import MOST_UNSTREAMED
from toolloop.terminations import NaturalEnd
from toolloop.testing import compacted, reply, server_call, server_result

BETAS = ["compact-2026-01-12", "context-management-2025-06-27"]
COMPACT = {"type": "compact_20260112", "pause_after_compaction": True, "trigger": None}
CLEAR = {"type": "clear_tool_uses_20250919", "keep": {"type": "tool_uses", "value": 2}}
EDITS = {"edits": [CLEAR, COMPACT]}
BLOCK = {"type": "compaction", "content": "So far."}
SUMMARY = {"input_tokens": 900, "output_tokens": 70}
PAUSED = compacted("So far.", usage=SUMMARY)
FOUR = {"type": "text", "text": "Four."}
whole_and_streamed = each("max_tokens", [256, MOST_UNSTREAMED + 1])


def add_edits(**more: Any) -> dict[str, Any]:
    return params(context_management=EDITS, betas=BETAS, **more)


@whole_and_streamed
@either_driver
def test_a_pause_after_a_compaction_is_a_pause_and_joins_with_the_reply_that_ends_it(
    driver: str, max_tokens: int
) -> None:
    """It is sent back unchanged, with no user turn, and every request carries the caller's parameters untouched."""

    async def story() -> None:
        script = [PAUSED, reply("Four.", usage=HUNDRED), reply("Five.")]
        async with open_over_http_of(driver, script, add_edits(max_tokens=max_tokens)) as at:
            turn = await at.aturn()
            assert (turn.reason, turn.calls, turn.assistant_content) == ("paused", (), (BLOCK,))
            assert list(at.handle.messages) == [user()]
            turn.continue_loop()
            assert (await at.aexpect_done()).text == "Four."
            assert at.list_sent() == [user(), assistant([BLOCK])]
            assert list(at.handle.messages) == [user(), assistant([BLOCK]), assistant([FOUR])]
            at.handle.follow_up([user("and?")])
            assert (await at.aexpect_done()).text == "Five."
            assert at.list_sent() == [user(), assistant([BLOCK]), assistant([FOUR]), user("and?")]
            assert [body["context_management"] for body in at.sent_bodies] == [EDITS] * 3
            assert [request.headers["anthropic-beta"] for request in at.api.requests] == [",".join(BETAS)] * 3
            assert [body.get("stream", False) for body in at.sent_bodies] == [max_tokens > MOST_UNSTREAMED] * 3

    play(driver, story)


@whole_and_streamed
def test_what_a_summary_used_is_counted(max_tokens: int) -> None:
    """The totals of such a reply are nothing; their sum is in its iterations."""

    async def story() -> None:
        script = [PAUSED, compacted("More.", reply("Four.", usage=HUNDRED), usage=SUMMARY)]
        async with open_over_http_of("sync", script, add_edits(max_tokens=max_tokens)) as at:
            turn = await at.aturn()
            assert turn.usage == turn.total_usage == Usage(900, 70)
            turn.continue_loop()
            done = await at.aexpect_done()
            assert done.total_usage == Usage(1900, 190)
            assert [entry.usage for entry in done.usage_log] == [Usage(900, 70), Usage(1000, 120)]

    play("sync", story)


def test_a_compaction_that_leads_a_reply_stays_at_its_head() -> None:
    """A round goes on as ever, with thinking that the server signed after the compaction."""

    async def story() -> None:
        led = compacted("So far.", reply(thinking="2 + 2", calls=[("add", {"a": 2, "b": 2})]))
        async with open_over_http_of("sync", [reply("Hi."), led, reply("Four."), reply("Five.")], add_edits()) as at:
            await at.aexpect_done()
            at.handle.follow_up([user("2 + 2?")])
            turn = await at.aturn()
            assert turn.reason == "tools_executed"
            turn.continue_loop()
            assert (await at.aexpect_done()).text == "Four."
            assert [block["type"] for block in at.list_sent()[3]["content"]] == ["compaction", "thinking", "tool_use"]
            at.handle.follow_up([user("and?")])
            assert (await at.aexpect_done()).text == "Five."

    play("sync", story)


def test_a_snapshot_of_such_a_pause_wakes_up_in_it() -> None:
    """It can be woken up more than once, and each copy goes on with the pause."""

    async def story() -> None:
        async with open_over_http_of("sync", [PAUSED, reply("Four."), reply("Five.")], add_edits()) as at:
            await at.aturn()
            snapshot = at.handle.snapshot()
            for words in ("Four.", "Five."):
                other = at.wake(snapshot)
                turn = other.handle.pending_turn
                assert turn is not None
                assert (turn.reason, turn.assistant_content) == ("paused", (BLOCK,))
                assert other.handle.total_usage == Usage(900, 70)
                turn.continue_loop()
                assert (await other.aexpect_done()).text == words
                assert at.list_sent() == [user(), assistant([BLOCK])]

    play("sync", story)


BETA = "compact-2026-09-04"
SUMMARIZE = {"type": "summarize", "instructions": "Keep the numbers."}
SEARCH = {"type": "web_search_20250305", "name": "web_search"}


def make_params(**more: Any) -> dict[str, Any]:
    return params(**{"betas": [BETA], "compaction": SUMMARIZE, **more})


def block_of(turn: Yielded) -> dict[str, Any]:
    """The compaction block that a pause shows."""
    assert turn.reason == "paused"
    assert turn.message is not None
    (block,) = turn.message["content"]
    assert block["type"] == "compaction"
    return dict(block)


def compactions(at: World) -> list[Any]:
    """The parameter in each request."""
    return [body.get("compaction") for body in at.sent_bodies]


@whole_and_streamed
@either_driver
def test_the_block_takes_the_place_of_the_whole_history(driver: str, max_tokens: int) -> None:
    """With the API's signature; the parameter goes out once, and the loop goes on from the block."""

    async def story() -> None:
        history = [user("2 + 2?"), assistant("Hm."), user("Well?")]
        script = [compacted("They ask for 2 + 2.", usage=SUMMARY), reply("Four.", usage=HUNDRED), reply("Five.")]
        async with open_over_http_of(driver, script, make_params(messages=history, max_tokens=max_tokens)) as at:
            turn = await at.aturn()
            block = block_of(turn)
            assert block["content"] == "They ask for 2 + 2."
            assert block["signature"]
            assert list(at.handle.messages) == [assistant([block])]
            turn.continue_loop()
            assert (await at.aexpect_done()).text == "Four."
            assert at.list_sent() == [assistant([block])]
            at.handle.follow_up([user("and?")])
            assert (await at.aexpect_done()).text == "Five."
            assert at.list_sent() == [assistant([block]), assistant([FOUR]), user("and?")]
            assert at.sent_bodies[0]["messages"] == history
            assert compactions(at) == [SUMMARIZE, None, None]

    play(driver, story)


def test_what_it_used_is_counted() -> None:
    async def story() -> None:
        async with open_over_http_of(
            "sync", [compacted("Hi.", usage=SUMMARY), reply("Four.", usage=HUNDRED)], make_params()
        ) as at:
            turn = await at.aturn()
            assert turn.usage == turn.total_usage == Usage(900, 70)
            turn.continue_loop()
            done = await at.aexpect_done()
            assert done.total_usage == Usage(1000, 120)

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
        given = make_params(betas=[BETA, "context-management-2025-06-27"], **ONLY_OF_REPLIES)
        async with open_over_http_of("sync", [compacted("Hi."), reply("Four.")], given) as at:
            (await at.aturn()).continue_loop()
            await at.aexpect_done()
            first, second = at.sent_bodies
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
        async with open_over_http_of(
            "sync", [compacted("Hi."), reply("Four.")], make_params(tool_choice={"type": "auto"})
        ) as at:
            (await at.aturn()).continue_loop()
            await at.aexpect_done()
            assert [body["tool_choice"] for body in at.sent_bodies] == [{"type": "auto"}] * 2

    play("sync", story)


def test_a_turn_that_the_server_paused_is_ended_first() -> None:
    """The API refuses to summarize the middle of a turn, so the wish waits for its end."""

    async def story() -> None:
        paused = reply(content=[server_call("web_search", {"query": "x"})], stop_reason="pause_turn")
        ended = reply(content=[server_result("web_search"), {"type": "text", "text": "Found."}])
        script = [paused, ended, compacted("It was found."), reply("Bye.")]
        async with open_over_http_of("sync", script, params(betas=[BETA], tools=[SEARCH])) as at:
            turn = await at.aturn()
            at.handle.update_params(compaction=SUMMARIZE)
            turn.continue_loop()
            assert (await at.aexpect_done()).text == "Found."
            assert compactions(at) == [None, None]
            at.handle.follow_up([user("thanks")])
            block = block_of(turn := await at.aturn())
            turn.continue_loop()
            assert (await at.aexpect_done()).text == "Bye."
            assert at.list_sent() == [assistant([block])]
            assert compactions(at) == [None, None, SUMMARIZE, None]

    play("sync", story)


def test_a_snapshot_keeps_the_block_and_not_the_wish() -> None:
    """Waking up with the parameters of the beginning asks for no second compaction."""

    async def story() -> None:
        async with open_over_http_of("sync", [compacted("Hi."), reply("Four."), reply("Five.")], make_params()) as at:
            block = block_of(await at.aturn())
            snapshot = at.handle.snapshot()
            for parts in ({}, {"params": make_params()}):
                other = at.wake(snapshot, **parts)
                assert list(other.handle.messages) == [assistant([block])]
                turn = other.handle.pending_turn
                assert turn is not None
                turn.continue_loop()
                assert (await other.aexpect_done()).termination == NaturalEnd()
                assert at.list_sent() == [assistant([block])]
            assert compactions(at) == [SUMMARIZE, None, None]

    play("sync", story)


def test_a_compaction_that_failed_changes_nothing_and_is_not_asked_for_again() -> None:
    async def story() -> None:
        async with open_over_http_of("sync", [compacted(None, usage=SUMMARY), reply("Four.")], make_params()) as at:
            turn = await at.aturn()
            assert turn.reason == "paused"
            assert list(at.handle.messages) == [user()]
            turn.continue_loop()
            assert (await at.aexpect_done()).text == "Four."
            assert at.list_sent() == [user()]
            assert compactions(at) == [SUMMARIZE, None]
            assert at.handle.total_usage.input_tokens == 910

    play("sync", story)
