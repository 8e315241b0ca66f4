"""Above the bound for unstreamed requests, `send` streams internally."""

from __future__ import annotations

import json
import warnings
from typing import Any

import anthropic
import pytest
from anthropic._constants import MODEL_NONSTREAMING_TOKENS

from tests.providers.asking import FACES, HISTORY, KEY, ask, request
from tests.providers.events import START, STOP, block, call, end, streamed
from tests.providers.server import MESSAGE, Answer, message, serving, stream
from toolloop.errors import ModelError, ProtocolError
from toolloop.providers.sdk_arguments import MOST_UNSTREAMED, MOST_UNSTREAMED_BY_MODEL, must_stream

LONG = MOST_UNSTREAMED + 1


def test_a_long_request_is_streamed_underneath() -> None:
    """The reply is that of an unstreamed request; only `stream` joins the body."""
    options_cases: list[dict[str, Any]] = [{}, {"betas": ["b-2026-01-01"]}, {"extra_body": {"top_k": 1}}]
    for options in options_cases:
        for face in FACES:
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
    """Exactly the requests that `create` refuses to send unstreamed are streamed."""
    assert dict(MODEL_NONSTREAMING_TOKENS) == MOST_UNSTREAMED_BY_MODEL
    with serving(message()) as server, anthropic.Anthropic(api_key=KEY, base_url=server.url) as client:
        create: Any = client.messages.create
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
                assert must_stream(client, asked) is refused, (model, tokens)


def test_who_sets_a_timeout_is_not_streamed_to() -> None:
    """On the request or on the client."""
    for face in FACES:
        with serving(message()) as server:
            ask(face, server, request(max_tokens=LONG, options={"timeout": 5000}))
            ask(face, server, request(max_tokens=LONG, options={"timeout": None}))
            ask(face, server, request(max_tokens=LONG), timeout=5000)
        assert all("stream" not in json.loads(received.body) for received in server.received)


def test_a_wrong_number_of_tokens_is_for_the_api_to_judge() -> None:
    """A strange max_tokens is sent, not guessed about."""
    with serving(message()) as server:
        for tokens in (None, "many", 1e9):
            ask("sync", server, request(max_tokens=tokens))
    assert len(server.received) == 3


def test_an_invalid_stream_may_be_retried() -> None:
    """A cut or broken stream never gives half a reply."""
    answer_cases: list[tuple[Answer, str]] = [
        (stream(), "before its first event"),
        (stream(START, *call('{"a":')), "before its stop reason"),
        (stream(START, *call("{}"), end("tool_use")), "before its last event"),
        (stream(START, STOP), "before its stop reason"),
        (stream(START, *call('{"a":'), end("tool_use"), STOP), "is not a JSON object"),
        (stream(*block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": 1})), "invalid event"),
        (stream(START | {"message": {}}, end("end_turn"), STOP), "not a message"),
        (Answer(b"event: message_start\ndata: {oops\n\n", headers={"content-type": "text/event-stream"}), "not JSON"),
        (Answer(b"<html>", headers={"content-type": "text/html"}), "text/html"),
    ]
    for answer, words in answer_cases:
        for face in FACES:
            with serving(answer) as server, pytest.raises(ProtocolError, match=words) as failed:
                ask(face, server, request(max_tokens=LONG))
            assert failed.value.retryable


def test_an_error_in_the_stream_is_judged_by_its_type() -> None:
    """The status is 200, and its retry headers do not count."""
    kind_cases: list[tuple[str, bool]] = [
        ("overloaded_error", True),
        ("api_error", True),
        ("rate_limit_error", True),
        ("timeout_error", True),
        ("invalid_request_error", False),
    ]
    for kind, retryable in kind_cases:
        for face in FACES:
            broken = stream(START, {"type": "error", "error": {"type": kind, "message": "Later."}})
            answer = Answer(broken.body, headers={**broken.headers, "retry-after": "9", "x-should-retry": "false"})
            with serving(answer) as server, pytest.raises(ModelError, match="interrupted its reply") as failed:
                ask(face, server, request(max_tokens=LONG), max_retries=2)
            error = failed.value
            assert (error.status, error.kind, error.retryable, error.retry_after) == (200, kind, retryable, None)
            assert error.request_id == "req_1"
            assert isinstance(error.__cause__, anthropic.APIStatusError)
            assert len(server.received) == 1
