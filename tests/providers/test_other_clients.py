"""Bedrock, Vertex, subclasses and clients with middleware go through their own `messages.create`."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from typing import TYPE_CHECKING, Any

import anthropic
import pytest
import trio

from tests.providers.asking import KEY, request
from tests.providers.events import streamed
from tests.providers.server import MESSAGE, Answer, Server, message, refusal, serving, stream
from toolloop.errors import ModelError, ProtocolError
from toolloop.providers import AnthropicProvider, AsyncAnthropicProvider
from toolloop.providers.sdk_arguments import MOST_UNSTREAMED

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolloop.providers import Reply, Request

LONG = MOST_UNSTREAMED + 1
CONTENT = [
    {"type": "text", "text": "Hi.", "citations": None},
    {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"n": 2**80, "x": 1.5, "none": None}},
    {"type": "yet_unknown", "value": {"a": [1]}},
]


class Sub(anthropic.Anthropic):
    """A subclass may edit the JSON of a request."""


class AsyncSub(anthropic.AsyncAnthropic):
    """Likewise."""


def passing(asked: Any, call_next: Callable[[Any], Any]) -> Any:
    return call_next(asked)


async def async_passing(asked: Any, call_next: Callable[[Any], Any]) -> Any:
    return await call_next(asked)


_AMAZON = {"api_key": KEY, "aws_region": "us-east-1"}
_GOOGLE = {"region": "r", "project_id": "p", "access_token": "t"}
# What makes the sync client, the async one, and with which arguments.
CLIENTS: dict[tuple[str, bool], tuple[Any, dict[str, Any]]] = {
    ("subclass", False): (Sub, {"api_key": KEY}),
    ("subclass", True): (AsyncSub, {"api_key": KEY}),
    ("middleware", False): (anthropic.Anthropic, {"api_key": KEY, "middleware": [passing]}),
    ("middleware", True): (anthropic.AsyncAnthropic, {"api_key": KEY, "middleware": [async_passing]}),
    ("bedrock", False): (anthropic.AnthropicBedrock, _AMAZON),
    ("bedrock", True): (anthropic.AsyncAnthropicBedrock, _AMAZON),
    ("vertex", False): (anthropic.AnthropicVertex, _GOOGLE),
    ("vertex", True): (anthropic.AsyncAnthropicVertex, _GOOGLE),
}
KINDS = ["subclass", "middleware", "bedrock", "vertex"]


def client(kind: str, server: Server, *, is_async: bool, **more: Any) -> Any:
    make, arguments = CLIENTS[kind, is_async]
    return make(**{"base_url": server.url, "max_retries": 0} | arguments | more)


def ask(kind: str, server: Server, asked: Request, *, run: str, **more: Any) -> Reply:
    if run == "sync":
        with client(kind, server, is_async=False, **more) as sdk:
            return AnthropicProvider(sdk).send(asked)

    async def main() -> Reply:
        async with client(kind, server, is_async=True, **more) as sdk:
            return await AsyncAnthropicProvider(sdk).send(asked)

    return asyncio.run(main()) if run == "asyncio" else trio.run(main)


def read(kind: str, server: Server, asked: Request, *, run: str, most: int | None = None, **more: Any) -> list[Any]:
    """Return the events of a streamed reply, or the first of them."""
    if run == "sync":
        with client(kind, server, is_async=False, **more) as sdk:
            events = AnthropicProvider(sdk).stream(asked)
            read = list(itertools.islice(events, most))
            events.close()
            return read

    async def main() -> list[Any]:
        read: list[Any] = []
        async with client(kind, server, is_async=True, **more) as sdk:
            events = AsyncAnthropicProvider(sdk).stream(asked)
            while len(read) != most and (event := await anext(events, None)) is not None:
                read.append(event)
            await events.aclose()
        return read

    return asyncio.run(main()) if run == "asyncio" else trio.run(main)


RUNS = ["sync", "asyncio", "trio"]


def test_the_reply_is_lossless() -> None:
    """Unknown blocks, nulls and big integers come through, with the text as received."""
    for kind in KINDS:
        for run in RUNS:
            with serving(message(content=CONTENT)) as server:
                reply = ask(kind, server, request(), run=run)
            assert reply == MESSAGE | {"content": CONTENT}
            assert reply.text is not None
            assert reply.request_id == "req_1"


def test_a_long_reply_is_streamed_and_lossless() -> None:
    """The SDK's event objects are turned back into the JSON they came from."""
    for kind in ("subclass", "middleware", "vertex"):
        for run in RUNS:
            with serving(stream(*streamed(MESSAGE | {"content": CONTENT}))) as server:
                reply = ask(kind, server, request(max_tokens=LONG), run=run)
            assert reply == MESSAGE | {"content": CONTENT}
            assert reply.request_id == "req_1"


def test_the_events_of_a_stream_are_lossless() -> None:
    """They are the JSON that was sent, with lone surrogates and unknown events. Closing early warns of nothing."""
    for kind in ("subclass", "middleware", "vertex"):
        for run in RUNS:
            half = [{"type": "text", "text": "half a \ud83d"}]
            whole = MESSAGE | {"content": half}
            events = [event for event in streamed(whole) if event["type"] != "ping"]
            events.insert(1, {"type": "forecast", "mood": None})
            with serving(stream(*events)) as server:
                assert read(kind, server, request(), run=run) == events
                assert read(kind, server, request(), run=run, most=2) == events[:2]
            assert [json.loads(received.body)["stream"] for received in server.received] == [True, True]


def test_a_message_or_a_page_instead_of_a_stream_is_recognized() -> None:
    """As with a first-party client."""
    for kind in ("subclass", "middleware", "vertex"):
        for run in RUNS:
            with serving(message(content=CONTENT)) as server:
                assert read(kind, server, request(), run=run) == [MESSAGE | {"content": CONTENT}]
            page = Answer(b"<html>", headers={"content-type": "text/html"})
            with serving(page) as server, pytest.raises(ProtocolError, match="text/html"):
                read(kind, server, request(), run=run)


def test_body_and_options_reach_the_server() -> None:
    """Parameters that `create` does not know go into the body; betas go through `beta.messages`."""
    for kind in KINDS:
        for run in RUNS:
            options = {"betas": ["b-2026-01-01"], "extra_headers": {"x-mine": "1"}, "extra_body": {"top_k": 3}}
            with serving(message()) as server:
                ask(kind, server, request(yet_unknown={"a": 1}, system="s", options=options), run=run)
            received = server.received[0]
            body = json.loads(received.body)
            assert {"yet_unknown": {"a": 1}, "system": "s", "top_k": 3}.items() <= body.items()
            assert received.headers["x-mine"] == "1"
            assert received.headers["anthropic-beta"] == "b-2026-01-01"
            assert len(body["messages"]) == 2


def test_failures_are_model_and_protocol_errors() -> None:
    """A refusal and a page are the same errors as with a first-party client."""
    for kind in KINDS:
        for run in RUNS:
            with (
                serving(refusal(429, "rate_limit_error", retry_after="3")) as server,
                pytest.raises(ModelError) as failed,
            ):
                ask(kind, server, request(), run=run)
            assert (failed.value.status, failed.value.retry_after) == (429, 3.0)
            page = Answer(b"<html>", headers={"content-type": "text/html"})
            with serving(page) as server, pytest.raises(ProtocolError, match="text/html"):
                ask(kind, server, request(), run=run)


def test_middleware_sees_and_may_change_the_json() -> None:
    """So such a client does not post a ready body."""

    def warmer(asked: Any, call_next: Callable[[Any], Any]) -> Any:
        return call_next(asked.copy(body=asked.json | {"system": "changed"}))

    with serving(message()) as server:
        ask("middleware", server, request(), run="sync", middleware=[warmer])
    assert json.loads(server.received[0].body)["system"] == "changed"


@pytest.mark.parametrize("run", RUNS)
def test_middleware_may_answer(run: str) -> None:
    """Then there is no response, only the SDK's message."""
    made = anthropic.types.Message.construct(**MESSAGE)

    def cached(asked: Any, call_next: Callable[[Any], Any]) -> Any:
        return made

    async def async_cached(asked: Any, call_next: Callable[[Any], Any]) -> Any:
        return made

    with serving(message()) as server:
        middleware = [cached if run == "sync" else async_cached]
        reply = ask("middleware", server, request(), run=run, middleware=middleware)
        long = ask("middleware", server, request(max_tokens=LONG), run=run, middleware=middleware)
        events = read("middleware", server, request(), run=run, middleware=middleware)
    assert (reply, long, events) == (MESSAGE, MESSAGE, [MESSAGE])
    assert (server.received, reply.text, reply.request_id) == ([], None, None)


def test_a_client_that_cannot_send_is_a_model_error(caplog: pytest.LogCaptureFixture) -> None:
    """Settings that the SDK rejects raise a ModelError that is not retryable."""
    caplog.set_level(logging.CRITICAL)
    with serving(message()) as server, pytest.raises(ModelError, match="non-empty value for `model`") as failed:
        ask("bedrock", server, request(model=""), run="sync")
    assert not failed.value.retryable
    assert isinstance(failed.value.__cause__, ValueError)
