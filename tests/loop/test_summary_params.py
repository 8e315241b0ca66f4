"""The parameters of requests for summaries: which of them are sent, and to which provider."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import anthropic
import pytest

from tests.each import each
from tests.loop.compaction_stories import Reader, asks_for_summary, book, reading
from tests.loop.talking import either_driver, play
from toolloop.compaction import Summarize
from toolloop.testing import FakeMessagesAPI

BETAS = ["mcp-client-2025-11-20"]
WIKI = {"type": "url", "name": "wiki", "url": "https://wiki.example"}
OWN = {**WIKI, "authorization_token": "token-of-the-summary"}
LOOPS = {**WIKI, "authorization_token": "token-of-the-loop"}
WITH_WIKI = {"betas": BETAS, "tools": [{"type": "mcp_toolset", "mcp_server_name": "wiki"}]}


def test_parameters_that_are_not_json_are_refused_at_once() -> None:
    """Not in the middle of a loop; and what was not given is not there."""
    with pytest.raises(TypeError, match="system"):
        Summarize(params={"system": object()})

    async def story() -> None:
        strategy = Summarize(keep_last=1, at_tokens=3000, params={"system": anthropic.NOT_GIVEN})
        async with reading("sync", Reader(4), strategy, asked=book(system="Be brief.")) as at:
            assert (await at.to_the_end()).text == "done"
            assert set(at.problems) == {None}
            assert [body["system"] for body in at.summaries] == ["Be brief."] * len(at.summaries)

    play("sync", story)


def test_none_takes_a_parameter_away() -> None:
    """The other model takes no adaptive thinking, and is asked without."""

    async def story() -> None:
        away = {"model": "claude-haiku-4-5", "thinking": None, "system": None}
        strategy = Summarize(keep_last=1, at_tokens=3000, params=away)
        async with reading("sync", Reader(4), strategy, asked=book(system="Be brief.")) as at:
            assert (await at.to_the_end()).text == "done"
            assert at.compactions
            assert set(at.problems) == {None}
            for body in at.summaries:
                assert body["model"] == "claude-haiku-4-5"
                assert {"thinking", "system"} & body.keys() == set()

    play("sync", story)


def tokens_in(at: Any) -> set[str]:
    """What the servers were told in the requests that came in."""
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


@either_driver
def test_nothing_of_the_loop_s_own_goes_elsewhere(driver: str) -> None:
    """No server, no user, no header, where the summary has none of these itself."""
    asked = book(
        mcp_servers=[dict(LOOPS)], extra_headers={"x-key": "of the loop"}, metadata={"user_id": "u-1"}, **WITH_WIKI
    )

    async def story() -> None:
        with FakeMessagesAPI(Reader()) as other:
            client: Any = other.client() if driver == "sync" else other.async_client()
            async with reading(driver, Reader(4), Summarize(client, 1, at_tokens=3000), asked=asked) as at:
                await at.to_the_end()
            if driver != "sync":
                await client.close()
            assert other.requests
            for request in other.requests:
                assert {"mcp_servers", "metadata"} & request.json.keys() == set()
                assert "x-key" not in request.headers

    play(driver, story)
