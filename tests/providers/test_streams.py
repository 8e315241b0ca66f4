"""`stream` returns the raw events of a reply, and a broken stream is never half a reply."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import httpx2
import pytest
from hypothesis import given, strategies as st

from tests.providers.asking import FACES, HISTORY, KEY, Face, ask, read, request, run
from tests.providers.events import streamed as events_of
from tests.providers.server import MESSAGE, Answer, message, refusal, serving, stream
from toolloop.errors import ModelError, ProtocolError
from toolloop.providers import (
    AnthropicProvider,
    AsyncAnthropicProvider,
    accumulate,
)
from toolloop.providers.sdk_arguments import MOST_UNSTREAMED
from toolloop.testing import FakeMessagesAPI, fault, reply, streamed

LONG = MOST_UNSTREAMED + 1
TEXT = "Grüße \N{SNOWMAN} \U0001f600."
CONTENT = [
    {"type": "text", "text": TEXT},
    {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"n": 2**80, "ü": "\U0001f600"}},
    {"type": "yet_unknown", "value": {"a": [None]}},
]
WHOLE = MESSAGE | {"content": CONTENT, "stop_reason": "tool_use"}
EVENTS = [event for event in events_of(WHOLE) if event["type"] != "ping"]
BYTES = stream(*events_of(WHOLE)).body
KIND = {"content-type": "text/event-stream; charset=utf-8", "request-id": "req_1"}


def test_the_events_are_those_of_the_wire() -> None:
    """As JSON and in order, without the pings, which the SDK drops; only `stream` is added to the body."""
    options_cases: list[dict[str, Any]] = [{}, {"betas": ["b-2026-01-01"]}, {"extra_body": {"top_k": 1}}]
    for options in options_cases:
        for face in FACES:
            asked = request(options=options)
            with serving(stream(*events_of(WHOLE))) as server:
                assert read(face, server, asked) == (EVENTS, "req_1")
            (received,) = server.received
            assert json.loads(received.body) == {**asked, **options.get("extra_body", {}), "stream": True}


def test_a_streamed_request_is_the_one_that_send_streams_underneath() -> None:
    """Path, headers and body are the same."""
    for face in FACES:
        asked = request(max_tokens=LONG)
        with serving(stream(*events_of(WHOLE))) as server:
            events, request_id = read(face, server, asked)
            sent = ask(face, server, asked)
        assert (accumulate(events), request_id) == (sent, sent.request_id)
        first, second = server.received
        assert first == second


@pytest.mark.parametrize("face", FACES)
def test_nothing_is_sent_before_the_first_event_is_asked_for(face: Face) -> None:
    """A stream that is closed, or dropped, before that asks for nothing; closed, it has no events."""

    async def main() -> list[Any]:
        async with api.async_client() as sdk:
            provider = AsyncAnthropicProvider(sdk)
            provider.stream(request())
            closed = provider.stream(request())
            await closed.aclose()
            await closed.aclose()
            return [event async for event in closed]

    with FakeMessagesAPI([reply("Hi")]) as api:
        if face == "sync":
            provider = AnthropicProvider(api.client())
            provider.stream(request())
            closed = provider.stream(request())
            closed.close()
            closed.close()
            events = list(closed)
        else:
            events = run(face, main)
        assert (events, api.requests) == ([], [])


def test_a_server_that_does_not_stream_gives_its_message_as_the_only_item() -> None:
    """Accumulated, it is the reply, and nothing of it is lost."""
    for face in FACES:
        with serving(message(content=CONTENT)) as server:
            events, request_id = read(face, server, request())
        assert (accumulate(events), request_id) == (MESSAGE | {"content": CONTENT}, "req_1")
        (whole,) = events
        assert json.loads(whole.text) == whole  # type: ignore[attr-defined] # it is a Reply


def test_a_refusal_is_raised_with_the_first_event() -> None:
    """Once the client's own retries are used up."""
    for face in FACES:
        refused = refusal(429, "rate_limit_error", retry_after_ms="1")
        with serving(refused) as server, pytest.raises(ModelError) as failed:
            read(face, server, request(), max_retries=1)
        assert (failed.value.status, failed.value.retryable, len(server.received)) == (429, True, 2)


def test_an_event_too_deep_to_be_read_is_an_error() -> None:
    """The SDK's RecursionError is converted."""
    for face in FACES:
        body = b'event: forecast\ndata: {"type": "forecast", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n\n"
        with serving(Answer(body, headers=KIND)) as server, pytest.raises(ModelError):
            read(face, server, request())


def test_the_received_part_of_a_broken_reply_is_reported() -> None:
    """The error is retryable and has the text so far."""
    how_cases: list[tuple[dict[str, Any], type[ModelError | ProtocolError]]] = [
        ({"cut": 5}, ModelError),
        ({"cut_bytes": -1}, ModelError),
        ({"end": 5}, ProtocolError),
        ({"end_bytes": -1}, ProtocolError),
        ({"end": 5, "fault": fault(529)}, ModelError),
    ]
    for how, kind in how_cases:
        for face in FACES:
            text = "This will take a while, and then it will not be over."
            with FakeMessagesAPI([streamed(reply(text), **how)]) as api, pytest.raises(kind) as failed:
                ask(face, api, request(messages=HISTORY[:1], max_tokens=LONG))
            error: Any = failed.value
            assert error.retryable
            assert error.partial_text == (text if "cut_bytes" in how or "end_bytes" in how else text[:32])


class Chunks(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    """A body in given chunks, and then the end or an error of the connection."""

    def __init__(self, chunks: list[bytes], error: Exception | None) -> None:
        self.chunks = chunks
        self.error = error

    def __iter__(self) -> Any:
        yield from self.chunks
        if self.error is not None:
            raise self.error

    async def __aiter__(self) -> Any:
        for chunk in self:
            yield chunk


def answered(face: Face, chunks: list[bytes], error: Exception | None = None) -> Any:
    transport = httpx2.MockTransport(lambda _: httpx2.Response(200, stream=Chunks(chunks, error), headers=KIND))
    settings: dict[str, Any] = {"api_key": KEY, "max_retries": 0}
    if face == "sync":
        with anthropic.Anthropic(**settings, http_client=httpx2.Client(transport=transport)) as sdk:
            return AnthropicProvider(sdk).send(request(max_tokens=LONG))

    async def main() -> Any:
        async with anthropic.AsyncAnthropic(**settings, http_client=httpx2.AsyncClient(transport=transport)) as sdk:
            return await AsyncAnthropicProvider(sdk).send(request(max_tokens=LONG))

    return run(face, main)


PLACES = st.lists(st.integers(0, len(BYTES)), max_size=12).map(sorted)


@given(st.sampled_from(FACES), PLACES)
def test_any_split_of_the_bytes_gives_the_same_reply(face: Face, places: list[int]) -> None:
    """Also inside characters, and with empty chunks."""
    chunks = [BYTES[start:stop] for start, stop in zip([0, *places], [*places, len(BYTES)], strict=True)]
    assert answered(face, chunks) == WHOLE


@given(st.sampled_from(FACES), st.integers(0, len(BYTES)), st.booleans())
def test_any_cut_gives_the_whole_reply_or_an_error(face: Face, place: int, lost: bool) -> None:
    """Whether the connection is lost there or ends normally; the error has a part of the text."""
    if place == len(BYTES) and not lost:
        assert answered(face, [BYTES]) == WHOLE
        return
    lost_there = httpx2.RemoteProtocolError("lost") if lost else None
    with pytest.raises(ModelError if lost else ProtocolError) as failed:
        answered(face, [BYTES[:place]], lost_there)
    error: Any = failed.value
    assert error.retryable
    assert TEXT.startswith(error.partial_text or "")
