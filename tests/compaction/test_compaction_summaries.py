"""Summaries: their model, their requests, their costs, and what the loop does when they fail."""

from __future__ import annotations

import threading
from copy import deepcopy
from typing import Any

import pytest

from tests.compaction.compaction_stories import (
    TOOLS,
    USED,
    WORDS,
    Reader,
    Reading,
    asks_for_summary,
    book,
    reading,
    size,
)
from tests.kit.concurrency import either_driver, play
from tests.kit.each import each
from tests.kit.tools import user
from toolloop import AsyncToolLoopHandle, Budget, LoopConfig, ToolLoopHandle, Usage
from toolloop.compaction import SUMMARY_PROMPT, Summarize
from toolloop.terminations import BudgetExceeded, MaxIterations, NaturalEnd
from toolloop.testing import AsyncScriptedProvider, FakeMessagesAPI, ScriptedProvider, call, dropped, fault, html, reply

AT = 4000
SECRET = {"extra_headers": {"x-secret": "for the loop alone"}}


def summarize(provider: Any = None, **more: Any) -> Summarize:
    return Summarize(provider, **{"keep_last": 2, "at_tokens": AT, **more})


def summed_up(at: Reading) -> list[str]:
    """The words of the summaries in the last request."""
    texts = (message["content"][0].get("text", "") for message in at.page_requests[-1]["messages"][1:])
    return [text.partition("\n\n")[2] for text in texts if text.startswith("[Summary")]


# --- who writes them -------------------------------------------------------------------------------------------------


def test_the_loop_s_own_provider() -> None:
    """It is asked with a prefix of the very request before, the prompt behind it, and the loop's own headers."""

    async def story() -> None:
        async with reading("sync", Reader(5), summarize(), asked=book(**SECRET)) as at:
            assert (await at.to_the_end()).text == "done"
            assert summed_up(at) == [WORDS]
            (asked,) = at.summaries
            *prefix, prompt = asked["messages"]
            assert prompt == user([{"type": "text", "text": SUMMARY_PROMPT}])
            before = at.sent_bodies[at.sent_bodies.index(asked) - 1]
            assert before["messages"][: len(prefix)] == prefix
            assert {**asked, "messages": []} == {**before, "messages": [], "tool_choice": {"type": "none"}}
            assert {request.headers.get("x-secret") for request in at.api.requests} == {"for the loop alone"}

    play("sync", story)


@either_driver
@each("is_client", [True, False])
def test_another_provider_gets_no_secrets(driver: str, is_client: bool) -> None:
    """Neither headers nor the tokens of MCP servers, and the loop's own provider is asked for no summary."""
    servers = [{"type": "url", "name": "wiki", "url": "https://wiki.example", "authorization_token": "secret"}]
    asked = book(
        **SECRET,
        mcp_servers=servers,
        betas=["mcp-client-2025-11-20"],
        tools=[{"type": "mcp_toolset", "mcp_server_name": "wiki"}],
    )

    async def story() -> None:
        kind = ScriptedProvider if driver == "sync" else AsyncScriptedProvider
        scripted = kind([reply("from elsewhere", usage=USED)] * 9)
        with FakeMessagesAPI(Reader()) as other:
            client: Any = other.client() if driver == "sync" else other.async_client()
            writer = client if is_client else scripted
            async with reading(driver, Reader(5), summarize(writer), asked=asked) as at:
                assert (await at.to_the_end()).text == "done"
                assert summed_up(at) == [WORDS if is_client else "from elsewhere"]
                assert at.summaries == []
                assert "secret" in str(at.page_requests[-1])
                assert at.problems == [None]
                assert at.handle.usage_log[-3].kind == "summary"
            if driver != "sync":
                await client.close()
            if is_client:
                (request,) = other.requests
                assert "x-secret" not in request.headers
                assert b"secret" not in request.body
                assert request.headers["anthropic-beta"] == "mcp-client-2025-11-20"
            else:
                (sent,) = scripted.requests
                assert "secret" not in str(sent)
            assert other.refused == []

    play(driver, story)


@each(
    ("driver", "is_async"),
    [("sync", False), ("asyncio", False), ("asyncio", True), ("trio", False), ("trio", True)],
)
def test_a_function(driver: str, is_async: bool) -> None:
    """It gets the messages without the prompt, and its text is the summary. It costs nothing that is known."""
    given: list[Any] = []

    def write(messages: list[Any]) -> str:
        given.append((messages, threading.get_ident()))
        return "  In my own words.  "

    async def write_async(messages: list[Any]) -> str:
        return write(messages)

    async def story() -> None:
        async with reading(driver, Reader(5), summarize(write_async if is_async else write)) as at:
            assert (await at.to_the_end()).text == "done"
            assert summed_up(at) == ["In my own words."]
            ((messages, thread),) = given
            assert messages == at.page_requests[3]["messages"][: len(messages)]
            here = driver == "sync" or is_async
            assert (thread == threading.get_ident()) == here
            assert [entry.kind for entry in at.handle.usage_log] == ["reply"] * 6
            assert len(at.api.requests) == 6

    play(driver, story)


MISFITS: dict[str, Any] = {
    "sync handle, async function": (ToolLoopHandle, ScriptedProvider, lambda: _write_async),
    "sync handle, async provider": (ToolLoopHandle, ScriptedProvider, lambda: AsyncScriptedProvider([])),
    "async handle, sync provider": (AsyncToolLoopHandle, AsyncScriptedProvider, lambda: ScriptedProvider([])),
}


async def _write_async(_messages: Any) -> str:
    return "words"


@each("which", MISFITS)
def test_a_writer_that_the_handle_cannot_wait_for_is_refused_at_once(which: str) -> None:
    made, provider, writer = MISFITS[which]
    config = LoopConfig(compaction=Summarize(writer()))
    with pytest.raises(TypeError, match="async"):
        made(provider([]), params=book(), tools=TOOLS, config=config)


# --- what they cost --------------------------------------------------------------------------------------------------


def test_its_use_is_counted_but_it_is_not_an_iteration() -> None:
    """It is in `usage_log` and `total_usage`, and `max_iterations` bounds the replies alone."""

    async def story() -> None:
        async with reading("sync", Reader(9), summarize(), max_iterations=6) as at:
            done = await at.to_the_end()
            assert done.termination == MaxIterations(6)
            assert done.iterations == 6
            kinds = [entry.kind for entry in done.usage_log]
            assert kinds.count("reply") == 6
            assert kinds.count("summary") == len(at.summaries) == 1
            summary = next(entry for entry in done.usage_log if entry.kind == "summary")
            assert summary.usage == Usage(900, 30)
            assert done.total_usage == Usage(900 + 6 * 10, 30 + 6 * 5)

    play("sync", story)


BUDGETS: dict[str, tuple[Budget, str]] = {
    "requests": (Budget(requests=5), "requests"),
    "input": (Budget(input_tokens=500), "input_tokens"),
    "total": (Budget(total_tokens=900), "total_tokens"),
}


@each("which", BUDGETS)
def test_a_budget_that_the_summary_spends_ends_the_loop(which: str) -> None:
    """Before its next request; the compacted history stays."""
    budget, what = BUDGETS[which]

    async def story() -> None:
        async with reading("sync", Reader(9), summarize(), budget=budget) as at:
            done = await at.to_the_end()
            assert isinstance(done.termination, BudgetExceeded)
            assert done.termination.what == what
            assert asks_for_summary(at.sent_bodies[-1])
            assert done.iterations == 4
            assert at.problems == [None]
            assert len(at.handle.messages) == 4
            at.handle.extend(budget=Budget())
            assert (await at.to_the_end()).termination == NaturalEnd()

    play("sync", story)


# --- how they fail ---------------------------------------------------------------------------------------------------


LONG = "These are so many words that nothing is saved. " * 500
FAILURES: dict[str, tuple[Any, str]] = {
    "500": (fault(500), "500"),
    "529": (fault(529), "529"),
    "400": (fault(400), "400"),
    "dropped": (dropped(), ""),
    "html": (html(), ""),
    "max_tokens": (reply(WORDS, stop_reason="max_tokens", usage=USED), "max_tokens"),
    "refusal": (reply(WORDS, stop_reason="refusal", usage=USED), "refusal"),
    "calls": (reply(WORDS, calls=[call("page", {"number": 1})], usage=USED), "calls"),
    "pause": (reply(WORDS, stop_reason="pause_turn", usage=USED), "pause_turn"),
    "empty": (reply(content=[], usage=USED), "is blank"),
    "blank": (reply(" \n ", usage=USED), "is blank"),
    "only thoughts": (reply(thinking="hm", usage=USED), "is blank"),
    "too long": (reply(LONG, usage=USED), "saves nothing"),
}
ANSWERED = {name for name, (answer, _) in FAILURES.items() if isinstance(answer, dict)}


@each("how", FAILURES)
def test_a_summary_that_fails_costs_nothing_else(how: str) -> None:
    """The history is as before, the loop's own request is still sent, and the event says why."""
    answer, word = FAILURES[how]

    async def story() -> None:
        async with reading("sync", Reader(6, summaries=[answer, reply(WORDS)]), summarize()) as at:
            for _ in range(3):
                (await at.aturn()).continue_loop()
            (await at.aturn()).continue_loop()
            before = at.handle.messages
            await at.aturn()
            assert at.compactions[0].problem is not None
            assert word in at.compactions[0].problem
            assert at.compactions[0].before == at.compactions[0].after
            assert at.handle.messages[:-2] == before
            assert at.page_requests[-1]["messages"] == list(before)
            used = [entry.usage for entry in at.handle.usage_log if entry.kind == "summary"]
            assert used == ([Usage(900, 30)] if how in ANSWERED else [])
            assert at.dropped == []

    play("sync", story)


RAISED: dict[str, Any] = {
    "error": (ValueError("no pen"), "ValueError: no pen"),
    "none": (None, "expected a str as the summary, got None"),
    "number": (7, "int"),
    "blank": ("  ", "is blank"),
    "long": (LONG, "saves nothing"),
}


@each("how", RAISED)
def test_a_function_that_fails(how: str) -> None:
    """Its exception reaches only the event."""
    given, words = RAISED[how]

    def write(_messages: Any) -> Any:
        if isinstance(given, Exception):
            raise given
        return given

    async def story() -> None:
        async with reading("sync", Reader(5), summarize(write)) as at:
            assert (await at.to_the_end()).text == "done"
            assert words in str(at.problems[0])
            assert size(at.page_requests[-1]) > AT

    play("sync", story)


def test_the_request_for_a_summary_switches_manual_thinking_off() -> None:
    """Its prompt would continue a turn that has to begin with thinking. The loop's own requests keep it."""

    def script(body: Any) -> Any:
        if asks_for_summary(body):
            return reply(WORDS)
        number = len(body["messages"])
        thought = "Hm." if number == 1 else None
        return reply(thinking=thought, calls=[call("page", {"number": number})]) if number < 8 else reply("done")

    thinking = {"type": "enabled", "budget_tokens": 1024}
    asked = book(model="claude-sonnet-4-5", max_tokens=4096, thinking=thinking)
    with FakeMessagesAPI(script) as api:
        config = LoopConfig(compaction=Summarize(keep_last=1, at_tokens=AT), max_iterations=None)
        assert ToolLoopHandle(api.client(), params=asked, tools=TOOLS, config=config).run().unwrap().text == "done"
        assert api.refused == []
        requests = [request.json for request in api.requests]
        assert any(map(asks_for_summary, requests))
        assert all(("thinking" in body) != asks_for_summary(body) for body in requests)


BETAS = ["mcp-client-2025-11-20"]
WIKI = {"type": "url", "name": "wiki", "url": "https://wiki.example"}
OWN = {**WIKI, "authorization_token": "token-of-the-summary"}
LOOPS = {**WIKI, "authorization_token": "token-of-the-loop"}
WITH_WIKI = {"betas": BETAS, "tools": [{"type": "mcp_toolset", "mcp_server_name": "wiki"}]}


def tokens_in(at: Any) -> set[str]:
    """What the servers received in the requests that came in."""
    servers = [server for request in at.requests for server in request.json.get("mcp_servers", ())]
    return {server.get("authorization_token") for server in servers}


def test_a_token_of_one_loop_never_goes_to_the_provider_of_another() -> None:
    """One strategy serves two loops, and its own parameters are as they were given."""
    given = {"mcp_servers": [WIKI]}
    kept = deepcopy(given)
    strategy = Summarize(keep_last=1, at_tokens=3000, params=given)

    async def story() -> None:
        for server, tokens in ((LOOPS, {"token-of-the-loop"}), (WIKI, {None})):
            asked = book(mcp_servers=[dict(server)], **WITH_WIKI)
            async with reading("sync", Reader(4), strategy, asked=asked) as at:
                assert (await at.to_the_end()).text == "done"
                assert at.summaries
                assert tokens_in(at.api) == tokens
        assert given == kept

    play("sync", story)


@either_driver
@each("to", ["own", "other"])
def test_options_and_tokens_of_the_summary_are_sent(driver: str, to: str) -> None:
    """They outweigh the loop's; to another provider nothing goes that was meant for the loop's own."""
    given = {"extra_headers": {"x-key": "of the summary"}, "mcp_servers": [dict(OWN)]}
    kept = deepcopy(given)
    asked = book(
        mcp_servers=[dict(LOOPS)], extra_headers={"x-key": "of the loop"}, metadata={"user_id": "u-1"}, **WITH_WIKI
    )

    async def story() -> None:
        with FakeMessagesAPI(Reader()) as other:
            client: Any = other.client() if driver == "sync" else other.async_client()
            strategy = Summarize(client if to == "other" else None, 1, at_tokens=3000, params=given)
            async with reading(driver, Reader(4), strategy, asked=asked) as at:
                assert (await at.to_the_end()).text == "done"
                api = other if to == "other" else at.api
                summaries = [request for request in api.requests if asks_for_summary(request.json)]
                assert len(summaries) == len(at.compactions) > 0
                for request in summaries:
                    assert request.headers["x-key"] == "of the summary"
                    assert request.json["mcp_servers"] == [OWN]
                    assert ("metadata" in request.json) == (to == "own")
                for request in at.api.requests:
                    if not asks_for_summary(request.json):
                        assert request.headers["x-key"] == "of the loop"
                        assert request.json["mcp_servers"] == [LOOPS]
            if driver != "sync":
                await client.close()
            assert other.refused == []
            assert given == kept
            assert "token-of" not in repr(strategy)

    play(driver, story)
