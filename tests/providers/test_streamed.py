"""Above the bound for unstreamed requests `send` streams underneath, and the caller sees a reply like any other."""

from __future__ import annotations

import json
import warnings
from typing import Any

import anthropic
import pytest
from anthropic._constants import MODEL_NONSTREAMING_TOKENS

from tests.providers.asking import FACES, HISTORY, KEY, Face, ask, request
from tests.providers.events import START, STOP, block, call, end, streamed
from tests.providers.server import MESSAGE, Answer, message, refusal, serving, stream
from toolloop.core.errors import ModelError, ProtocolError
from toolloop.providers.calls import MOST_UNSTREAMED, MOST_UNSTREAMED_BY_MODEL, Bound

LONG = MOST_UNSTREAMED + 1


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("options", [{}, {"betas": ["b-2026-01-01"]}, {"extra_body": {"top_k": 1}}])
def test_a_long_request_is_streamed_underneath(face: Face, options: dict[str, Any]) -> None:
    """The reply is that of an unstreamed request; only `stream` joins the body."""
    content = [
        {"type": "text", "text": "Long."},
        {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"n": 2**80}},
    ]
    whole = MESSAGE | {"content": content, "stop_reason": "tool_use"}
    asked = request(max_tokens=LONG, options=options)
    with serving(stream(*streamed(whole))) as server:
        reply = ask(face, server, asked)
        ask(face, server, asked)
    assert reply == whole
    assert (reply.request_id, reply.text) == ("req_1", None)
    first, second = server.received
    assert first.body == second.body
    assert json.loads(first.body) == {**asked, **options.get("extra_body", {}), "stream": True}


def test_a_streamed_request_is_the_one_that_create_sends() -> None:
    """Same path, headers and JSON as `messages.create(stream=True)`."""
    with serving(stream(*streamed(MESSAGE))) as server:
        with anthropic.Anthropic(api_key=KEY, base_url=server.url) as client:
            create: Any = client.messages.create
            with create(model="claude-opus-5-5", max_tokens=LONG, messages=HISTORY, stream=True, timeout=600):
                pass
        ask("sync", server, request(max_tokens=LONG))
    theirs, ours = server.received
    assert json.loads(theirs.body) == json.loads(ours.body)
    for headers in (theirs.headers, ours.headers):
        headers.pop("content-length")
    assert theirs.headers == ours.headers


def test_the_bounds_are_the_sdks() -> None:
    """What `create` refuses to send unstreamed is streamed, and nothing else."""
    assert dict(MODEL_NONSTREAMING_TOKENS) == MOST_UNSTREAMED_BY_MODEL
    with serving(message()) as server, anthropic.Anthropic(api_key=KEY, base_url=server.url) as client:
        create: Any = client.messages.create
        bound = Bound()
        for model, most in [("claude-opus-5-5", MOST_UNSTREAMED), *MOST_UNSTREAMED_BY_MODEL.items()]:
            for tokens in (most, most + 1):
                asked = request(model=model, max_tokens=tokens)
                try:
                    with warnings.catch_warnings(action="ignore"):
                        create(**asked)
                except ValueError:
                    refused = True
                else:
                    refused = False
                assert bound.streams(client, asked) is refused, (model, tokens)


@pytest.mark.parametrize("face", FACES)
def test_who_sets_a_timeout_is_not_streamed_to(face: Face) -> None:
    """On the request, or on the client: the caller has decided how long it may take."""
    with serving(message()) as server:
        ask(face, server, request(max_tokens=LONG, options={"timeout": 5000}))
        ask(face, server, request(max_tokens=LONG, options={"timeout": None}))
        ask(face, server, request(max_tokens=LONG), timeout=5000)
    assert all("stream" not in json.loads(received.body) for received in server.received)


def test_what_is_no_number_of_tokens_is_for_the_api_to_judge() -> None:
    """A strange max_tokens is sent, not guessed about."""
    with serving(message()) as server:
        for tokens in (None, "many", 1e9):
            ask("sync", server, request(max_tokens=tokens))
    assert len(server.received) == 3


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (stream(), "before its first event"),
        (stream(START, *call('{"a":')), "before its stop reason"),
        (stream(START, *call("{}"), end("tool_use")), "before its end"),
        (stream(START, STOP), "before its stop reason"),
        (stream(START, *call('{"a":'), end("tool_use"), STOP), "is not a JSON object"),
        (stream(*block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": 1})), "makes no sense"),
        (stream(START | {"message": {}}, end("end_turn"), STOP), "not a message"),
        (Answer(b"event: message_start\ndata: {oops\n\n", headers={"content-type": "text/event-stream"}), "not JSON"),
        (Answer(b"<html>", headers={"content-type": "text/html"}), "text/html"),
    ],
)
def test_a_stream_that_makes_no_sense_may_be_tried_again(face: Face, answer: Answer, words: str) -> None:
    """Cut, broken or something else: never half a reply."""
    with serving(answer) as server, pytest.raises(ProtocolError, match=words) as failed:
        ask(face, server, request(max_tokens=LONG))
    assert failed.value.retryable


@pytest.mark.parametrize("face", FACES)
def test_a_server_that_does_not_stream_is_understood(face: Face) -> None:
    """Some proxies answer a streamed request in one piece."""
    with serving(message()) as server:
        reply = ask(face, server, request(max_tokens=LONG))
    assert reply == MESSAGE
    assert reply.text is not None


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize(
    ("kind", "retryable"),
    [
        ("overloaded_error", True),
        ("api_error", True),
        ("rate_limit_error", True),
        ("timeout_error", True),
        ("invalid_request_error", False),
    ],
)
def test_an_error_in_the_stream_is_judged_by_its_type(face: Face, kind: str, retryable: bool) -> None:
    """The status was 200 long before, and what the headers said of retrying was said of a good answer."""
    broken = stream(START, {"type": "error", "error": {"type": kind, "message": "Later."}})
    answer = Answer(broken.body, headers={**broken.headers, "retry-after": "9", "x-should-retry": "false"})
    with serving(answer) as server, pytest.raises(ModelError, match="broke off its reply") as failed:
        ask(face, server, request(max_tokens=LONG), max_retries=2)
    error = failed.value
    assert (error.status, error.kind, error.retryable, error.retry_after) == (200, kind, retryable, None)
    assert error.request_id == "req_1"
    assert isinstance(error.__cause__, anthropic.APIStatusError)
    assert len(server.received) == 1


@pytest.mark.parametrize("face", FACES)
def test_a_connection_lost_in_the_stream_may_be_tried_again(face: Face) -> None:
    """The SDK lets the transport's own exception through; it arrives as a ModelError."""
    with serving(stream(START, fault="cut")) as server, pytest.raises(ModelError, match="RemoteProtocol") as failed:
        ask(face, server, request(max_tokens=LONG))
    assert failed.value.retryable


@pytest.mark.parametrize("face", FACES)
def test_a_refusal_before_the_stream_is_an_ordinary_one(face: Face) -> None:
    """And the client retries it as ever, with the same body."""
    with serving(refusal(529, "overloaded_error", retry_after_ms="1"), stream(*streamed(MESSAGE))) as server:
        assert ask(face, server, request(max_tokens=LONG), max_retries=1) == MESSAGE
    assert len({received.body for received in server.received}) == 1
    assert len(server.received) == 2
