"""Requests of a first-party client: ready bytes that equal the request of `messages.create`."""

from __future__ import annotations

import inspect
import json
from typing import Any

import anthropic
import httpx2
import pytest

from tests.providers.asking import FACES, HISTORY, KEY, ask, request
from tests.providers.server import Server, message, serving
from toolloop.errors import ModelError
from toolloop.providers import OPTION_NAMES, SECRET_OPTIONS, given

TOOL = {"name": "f", "description": "d", "input_schema": {"type": "object"}}

OPTIONS: dict[str, dict[str, Any]] = {
    "nothing beside": {},
    "betas": {"betas": ["a-2026-01-01", "b-2026-01-01"]},
    "no betas but the list": {"betas": []},
    "ids": {"user_profile_id": "up_1", "workspace_id": "ws_1"},
    "headers": {"extra_headers": {"x-mine": "1", "Anthropic-Beta": "c-2026-01-01"}, "betas": ["a-2026-01-01"]},
    "a header taken away": {"extra_headers": {"user-agent": anthropic.omit}},
    "query": {"extra_query": {"a": "1 2", "b": "ü"}, "betas": ["a-2026-01-01"]},
    "body": {"extra_body": {"top_k": 3, "metadata": {"user_id": "u"}, "speed": anthropic.omit}},
    "messages in the extra body": {"extra_body": {"messages": [{"role": "user", "content": "Else"}]}},
    "seconds": {"timeout": 7.5},
    "a timeout object": {"timeout": httpx2.Timeout(9, connect=2)},
    "no timeout": {"timeout": None},
}


def created(server: Server, *, options: dict[str, Any], client: dict[str, Any], **params: Any) -> None:
    with anthropic.Anthropic(api_key=KEY, base_url=server.url, max_retries=0, **client) as sdk:
        messages = sdk.beta.messages if "betas" in options else sdk.messages
        create: Any = messages.create
        create(messages=HISTORY, **params, **options)


def test_a_request_is_the_one_that_create_sends() -> None:
    """Same path, query, JSON and headers; only the SDK's wrong timeout header is corrected."""
    client_cases: list[dict[str, Any]] = [
        {},
        {"timeout": 30.0, "default_headers": {"anthropic-beta": "z", "x-team": "t"}},
    ]
    for options in OPTIONS.values():
        for client in client_cases:
            params: dict[str, Any] = {
                "model": "claude-opus-5-5",
                "max_tokens": 100,
                "tools": [TOOL],
                "system": "Sei kurz ✓",
            }
            with serving(message()) as server:
                created(server, options=options, client=client, **params)
                ask("sync", server, request(options=options, **params), **client)
                ask("asyncio", server, request(options=options, **params), **client)
            theirs, ours, awaited = server.received
            assert theirs.path == ours.path == awaited.path
            assert json.loads(theirs.body) == json.loads(ours.body)
            assert ours.body == awaited.body
            for headers in (theirs.headers, ours.headers):
                headers.pop("content-length")
                assert KEY in str(headers)
            said = theirs.headers.pop("x-stainless-timeout")
            assert ours.headers.pop("x-stainless-timeout") == ("30.0" if said == "NOT_GIVEN" else said)
            assert theirs.headers == ours.headers


def test_the_body_is_the_ready_bytes_and_the_same_on_repeat() -> None:
    """A request without body options sends exactly the bytes of `body()`."""
    for face in FACES:
        asked = request(metadata={"user_id": "ü"})
        with serving(message()) as server:
            ask(face, server, asked)
            ask(face, server, asked)
        assert [asked.body()] * 2 == [received.body for received in server.received]


def test_a_reply_keeps_its_text_its_id_and_integers_of_any_size() -> None:
    """Decoding the body gives the parameters, to the last digit."""
    for face in FACES:
        content = [
            {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"n": 2**80, "x": 1e300}},
            {"type": "new"},
        ]
        with serving(message(content=content)) as server:
            reply = ask(face, server, request())
        assert reply["content"] == content
        assert reply.text is not None
        assert json.loads(reply.text) == reply
        assert reply.request_id == "req_1"


def test_every_parameter_of_create_goes_into_the_body_or_is_an_option() -> None:
    """A new parameter of the SDK that is not part of the body fails here."""
    options = set()
    with serving(message()) as server, anthropic.Anthropic(api_key=KEY, base_url=server.url) as client:
        for create in (client.messages.create, client.beta.messages.create):
            names = set(inspect.signature(create).parameters) - {"stream", "extra_headers", "extra_query", "extra_body"}
            values: dict[str, Any] = {name: [{"marker": name}] for name in names}
            values |= {"model": "m", "max_tokens": 1, "timeout": 5, "user_profile_id": "u", "workspace_id": "w"}
            values |= {"betas": ["b"]} if "betas" in names else {}
            create(**values)
            options |= names - set(json.loads(server.received[-1].body))
    assert options | {"extra_headers", "extra_query", "extra_body"} == OPTION_NAMES
    assert SECRET_OPTIONS < OPTION_NAMES


def test_values_that_say_not_given_are_left_out() -> None:
    """`NOT_GIVEN` and `omit` work as in the SDK, in the body and in options."""
    params = {"model": "m", "system": anthropic.NOT_GIVEN, "tools": anthropic.omit, "timeout": None}
    assert given(params) == {"model": "m", "timeout": None}
    options = {"timeout": anthropic.NOT_GIVEN, "betas": anthropic.omit, "workspace_id": None, "extra_body": None}
    with serving(message()) as server:
        ask("sync", server, request(options=options))
        ask("sync", server, request())
    changed, bare = server.received
    assert changed.headers == bare.headers
    assert changed.body == bare.body


def test_an_extra_body_that_cannot_be_sent_is_refused() -> None:
    """It raises before anything is sent, and names the key."""
    cases: list[tuple[dict[str, Any], str]] = [
        ({"stream": True}, "has the key 'stream'"),
        ({"x": object()}, "extra_body.x is an object"),
    ]
    for extra, words in cases:
        with serving(message()) as server, pytest.raises(TypeError, match=words):
            ask("sync", server, request(options={"extra_body": extra}))
        assert server.received == []


def test_a_client_without_credentials_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """The SDK raises a bare TypeError when it sends; it becomes a ModelError."""
    for face in FACES:
        for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_PROFILE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
        with serving(message()) as server, pytest.raises(ModelError, match="authentication") as failed:
            ask(face, server, request(), api_key=None)
        assert not failed.value.retryable
        assert isinstance(failed.value.__cause__, TypeError)
        assert server.received == []
