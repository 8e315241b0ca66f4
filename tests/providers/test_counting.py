"""The API counts the tokens of a request: as the SDK asks it, from ready bytes, by whatever client."""

from __future__ import annotations

import asyncio
import inspect
import json
from typing import TYPE_CHECKING, Any

import anthropic
import pytest
import trio

from tests.providers.asking import FACES, HISTORY, KEY, Face, request
from tests.providers.server import Answer, Server, refusal, serving
from tests.providers.test_other_clients import KINDS, client
from toolloop.core.errors import ModelError, ProtocolError
from toolloop.providers import AnthropicProvider, AsyncAnthropicProvider
from toolloop.providers.counting import COUNTED
from toolloop.testing import FakeMessagesAPI

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolloop.providers import Request

TOOL = {"name": "f", "description": "d", "input_schema": {"type": "object"}}
COUNT = Answer(b'{"input_tokens": 42}', headers={"request-id": "req_1"})
PARAMS: dict[str, Any] = {"tools": [TOOL], "system": "Sei kurz \u2713", "thinking": {"type": "adaptive"}}
#: What only a reply asks for.
OTHERS: dict[str, Any] = {"max_tokens": 90_000, "stop_sequences": ["x"], "metadata": {"user_id": "u"}, "container": "c"}
OPTIONS: dict[str, dict[str, Any]] = {
    "nothing beside": {},
    "betas": {"betas": ["a-2026-01-01", "b-2026-01-01"]},
    "ids": {"user_profile_id": "up_1", "workspace_id": "ws_1"},
    "headers and query": {"extra_headers": {"x-mine": "1"}, "extra_query": {"a": "1"}},
    "body": {"extra_body": {"speed": "fast", "tools": []}},
    "messages in the extra body": {"extra_body": {"messages": [{"role": "user", "content": "Else"}]}},
    "seconds": {"timeout": 7.5},
}


def counted(face: Face, asked: Request, make: Callable[[bool], Any]) -> int:
    """The count, by a client of its own; `make` is told whether it is an async one."""
    if face == "sync":
        with make(False) as sdk:
            return AnthropicProvider(sdk).count_tokens(asked)

    async def main() -> int:
        async with make(True) as sdk:
            return await AsyncAnthropicProvider(sdk).count_tokens(asked)

    return asyncio.run(main()) if face == "asyncio" else trio.run(main)


def plain_client(server: Server) -> Callable[[bool], Any]:
    arguments: dict[str, Any] = {"api_key": KEY, "base_url": server.url, "max_retries": 0}
    return lambda is_async: (anthropic.AsyncAnthropic if is_async else anthropic.Anthropic)(**arguments)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_it_asks_as_the_sdk_does(options: dict[str, Any]) -> None:
    """Same path, same JSON, same headers; what only a reply asks for is left out."""
    with serving(COUNT) as server:
        with plain_client(server)(False) as sdk:
            count: Any = (sdk.beta.messages if "betas" in options else sdk.messages).count_tokens
            count(model="claude-opus-5-5", messages=HISTORY, **PARAMS, **options)
        asked = request(options=options, **PARAMS, **OTHERS)
        assert [counted(face, asked, plain_client(server)) for face in FACES] == [42, 42, 42]
    theirs, *ours = server.received
    headers = {"anthropic-beta", "x-mine", "anthropic-user-profile-id", "anthropic-workspace-id", "content-type"}
    for received in ours:
        assert received.path == theirs.path
        assert json.loads(received.body) == json.loads(theirs.body)
        assert {name: received.headers.get(name) for name in headers} == {
            name: theirs.headers.get(name) for name in headers
        }


def test_what_only_a_reply_asks_for_is_left_out_of_the_extra_body_too() -> None:
    with serving(COUNT) as server:
        counted("sync", request(options={"extra_body": {"top_k": 3, "speed": "fast"}}), plain_client(server))
    assert json.loads(server.received[0].body) == {"model": "claude-opus-5-5", "speed": "fast", "messages": HISTORY}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "bedrock"])
@pytest.mark.parametrize("face", FACES)
def test_other_clients_ask_their_own_way(face: Face, kind: str) -> None:
    asked = request(options={"betas": ["a-2026-01-01"]}, mcp_servers=[], **PARAMS, **OTHERS)
    with serving(COUNT) as server:
        assert counted(face, asked, lambda is_async: client(kind, server, is_async=is_async)) == 42
    sent = json.loads(server.received[0].body)
    assert sent["messages"] == HISTORY
    assert not OTHERS.keys() & sent.keys()


@pytest.mark.parametrize("options", [{}, {"betas": ["a-2026-01-01"]}])
@pytest.mark.parametrize("face", FACES)
def test_a_platform_that_cannot_count_says_so(face: Face, options: dict[str, Any]) -> None:
    with serving(COUNT) as server, pytest.raises(ModelError) as caught:
        counted(face, request(options=options), lambda is_async: client("bedrock", server, is_async=is_async))
    assert not caught.value.retryable
    assert server.received == []


def test_an_answer_of_the_clients_own_making_counts() -> None:
    """Middleware may answer without asking anybody."""

    def answering(_asked: Any, _call_next: Any) -> Any:
        return anthropic.types.MessageTokensCount(input_tokens=7)

    with anthropic.Anthropic(api_key=KEY, base_url="http://nobody.invalid", middleware=[answering]) as sdk:
        assert AnthropicProvider(sdk).count_tokens(request()) == 7


@pytest.mark.parametrize("face", FACES)
def test_a_refusal_is_a_model_error(face: Face) -> None:
    with serving(refusal(429, "rate_limit_error", retry_after="3")) as server, pytest.raises(ModelError) as caught:
        counted(face, request(), plain_client(server))
    assert (caught.value.status, caught.value.kind, caught.value.retry_after) == (429, "rate_limit_error", 3)
    assert caught.value.retryable


@pytest.mark.parametrize(
    "body", [b"<html>", b"[]", b"{}", b'{"input_tokens": "9"}', b'{"input_tokens": true}', b"\xff"]
)
@pytest.mark.parametrize("kind", ["plain", "subclass"])
def test_an_answer_that_is_no_count_is_refused(kind: str, body: bytes) -> None:
    with serving(Answer(body, headers={"request-id": "req_1"})) as server:
        make = plain_client(server) if kind == "plain" else lambda _: client(kind, server, is_async=False)
        with pytest.raises(ProtocolError, match="the answer to request req_1 is no count of tokens") as caught:
            counted("sync", request(), make)
    assert caught.value.retryable


@pytest.mark.parametrize("face", FACES)
def test_the_fake_api_counts(face: Face) -> None:
    """What it would refuse, it refuses to count."""
    with FakeMessagesAPI([]) as api:
        make = lambda is_async: api.async_client() if is_async else api.client()  # noqa: E731 - the two of them in one
        few, more = request(model="claude-sonnet-4-5"), request(model="claude-sonnet-4-5", system="Be brief." * 20)
        assert 0 < counted(face, few, make) < counted(face, more, make)
        with pytest.raises(ModelError, match="prefill"):
            counted(face, request(), make)


def test_the_parameters_are_those_of_the_sdk() -> None:
    """Of both kinds of `count_tokens`, but for what goes beside the body."""
    names = {
        name
        for messages in (anthropic.resources.Messages, anthropic.resources.beta.Messages)
        for name in inspect.signature(messages.count_tokens).parameters
    }
    beside = {
        "self",
        "betas",
        "extra_body",
        "extra_headers",
        "extra_query",
        "timeout",
        "user_profile_id",
        "workspace_id",
    }
    assert names - beside - {"output_format"} == COUNTED
