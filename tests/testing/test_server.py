"""The fake API as a server: scripts, what it records, faults, and how it starts and stops."""

from __future__ import annotations

import concurrent.futures
import json
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from typing import Any

import anthropic
import anyio
import pytest

from toolloop.testing import FakeMessagesAPI, delayed, dropped, fault, html, reply, verbatim

ASK: dict[str, Any] = {
    "model": "claude-opus-5-5",
    "max_tokens": 100,
    "messages": [{"role": "user", "content": "What is 2 + 2?"}],
    "tools": [{"name": "add", "input_schema": {"type": "object"}}],
}


def post(url: str, body: bytes, **headers: str) -> tuple[int, dict[str, Any]]:
    """A post without the SDK, which could not be made to send some of these."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, data=body, headers={"content-type": "application/json", **named})
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_the_answers_come_in_the_order_of_the_script() -> None:
    with FakeMessagesAPI([reply("one"), reply("two", calls=[("add", {"a": 2})])]) as api:
        client = api.client()
        first, second = client.messages.create(**ASK), client.messages.create(**ASK)
        assert [block.to_dict() for block in first.content] == [{"type": "text", "text": "one"}]
        assert first.stop_reason == "end_turn"
        assert second.stop_reason == "tool_use"
        assert second.content[1].to_dict() == {
            "type": "tool_use",
            "id": "toolu_fake_000001",
            "name": "add",
            "input": {"a": 2},
        }
        assert (first.id, second.id) == ("msg_fake_000001", "msg_fake_000002")
        assert (first._request_id, second._request_id) == ("req_fake_000001", "req_fake_000002")
        assert first.model == "claude-opus-5-5"
        assert (first.usage.input_tokens, first.usage.output_tokens) == (10, 5)


def test_a_function_answers_from_the_request() -> None:
    def echo(request: dict[str, Any]) -> dict[str, Any]:
        return reply(request["messages"][-1]["content"][::-1])

    with FakeMessagesAPI(echo) as api:
        message = api.client().beta.messages.create(**ASK, extra_query={"beta": "true"})
        assert message.content[0].to_dict()["text"] == "?2 + 2 si tahW"
        assert api.requests[0].path == "/v1/messages?beta=true"


def test_every_request_is_recorded_unchanged() -> None:
    with FakeMessagesAPI([reply("hi"), fault(529)]) as api:
        client = api.client()
        client.messages.create(**ASK, extra_headers={"x-mine": "7"})
        with pytest.raises(anthropic.InternalServerError):
            client.messages.create(**ASK)
        first, second = api.requests
        assert json.loads(first.body) == ASK == first.json
        assert first.headers["x-mine"] == "7"
        assert "test-key" in first.headers.get("x-api-key", first.headers.get("authorization", ""))
        assert (first.method, first.path) == ("POST", "/v1/messages")
        assert (first.status, second.status) == (200, 529)
        assert api.refused == []
        with pytest.raises(AttributeError):
            first.status = 500  # type: ignore[misc]


def test_a_script_that_has_run_out_says_so_at_once() -> None:
    with FakeMessagesAPI([]) as api:
        with pytest.raises(anthropic.InternalServerError, match="the script has run out"):
            api.client(max_retries=5).messages.create(**ASK)
        assert len(api.requests) == 1
        assert api.refused == []


def test_a_fault_has_the_type_of_its_status() -> None:
    cases: list[tuple[int, str, type[anthropic.APIStatusError]]] = [
        (400, "invalid_request_error", anthropic.BadRequestError),
        (401, "authentication_error", anthropic.AuthenticationError),
        (403, "permission_error", anthropic.PermissionDeniedError),
        (404, "not_found_error", anthropic.NotFoundError),
        (409, "conflict_error", anthropic.ConflictError),
        (413, "request_too_large", anthropic.APIStatusError),
        (429, "rate_limit_error", anthropic.RateLimitError),
        (500, "api_error", anthropic.InternalServerError),
        (529, "overloaded_error", anthropic.InternalServerError),
    ]
    for status, kind, error in cases:
        with FakeMessagesAPI([fault(status, message="so it is")]) as api:
            with pytest.raises(error, match="so it is") as caught:
                api.client().messages.create(**ASK)
            assert caught.value.status_code == status
            assert caught.value.type == kind
            assert caught.value.request_id == "req_fake_000001"


def test_a_client_with_retries_gets_through_with_the_same_body() -> None:
    cases: list[Any] = [fault(529, retry_after=0.001), fault(500, retry_after=0.001)]
    for trouble in cases:
        with FakeMessagesAPI([trouble, trouble, reply("at last")]) as api:
            message = api.client(max_retries=2).messages.create(**ASK)
            assert message.content[0].to_dict()["text"] == "at last"
            assert len({request.body for request in api.requests}) == 1
            assert [request.headers["x-stainless-retry-count"] for request in api.requests] == ["0", "1", "2"]


def test_a_dropped_connection_is_not_an_answer() -> None:
    with FakeMessagesAPI([dropped(), reply("back again")]) as api:
        client = api.client()
        with pytest.raises(anthropic.APIConnectionError):
            client.messages.create(**ASK)
        assert client.messages.create(**ASK).content[0].to_dict()["text"] == "back again"
        assert [request.status for request in api.requests] == [None, 200]


def test_a_delayed_answer_waits_for_its_release() -> None:
    late = delayed(threading.Event(), reply("late"))
    # The server closes first: whatever fails, the pool does not wait for an answer that never comes.
    with concurrent.futures.ThreadPoolExecutor() as pool, FakeMessagesAPI([late, reply("early")]) as api:
        client = api.client()
        waiting = pool.submit(lambda: client.messages.create(**ASK))
        assert late.arrived.wait(30)
        assert client.messages.create(**ASK).content[0].to_dict()["text"] == "early"
        assert not waiting.done()
        late.release()
        assert waiting.result(30).content[0].to_dict()["text"] == "late"


def test_a_web_page_is_a_200_that_is_not_json() -> None:
    with FakeMessagesAPI([html()]) as api:
        raw = api.client().messages.with_raw_response.create(**ASK)
        assert raw.status_code == 200
        assert raw.headers["content-type"] == "text/html"
        assert raw.text().startswith("<!doctype html>")


def test_a_verbatim_answer_is_sent_to_the_byte() -> None:
    with FakeMessagesAPI([verbatim(418, {"x-should-retry": "false", "x-pot": "tea"}, b'{"a":  1}')]) as api:
        with pytest.raises(anthropic.APIStatusError) as caught:
            api.client(max_retries=3).messages.create(**ASK)
        assert caught.value.response.content == b'{"a":  1}'
        assert caught.value.response.headers["x-pot"] == "tea"
        assert len(api.requests) == 1


def test_any_other_address_is_not_found() -> None:
    cases: list[tuple[str, str]] = [("GET", "/v1/messages"), ("POST", "/v1/complete"), ("DELETE", "/")]
    for method, path in cases:
        with FakeMessagesAPI([reply()]) as api:
            request = urllib.request.Request(api.url + path, method=method, data=b"{}")
            with pytest.raises(urllib.error.HTTPError) as caught, urllib.request.urlopen(request, timeout=30):
                pass
            with caught.value as error:
                assert (error.code, json.load(error)["error"]["type"]) == (404, "not_found_error")
            assert [request.status for request in api.refused] == [404]


def test_a_request_without_a_key_is_refused() -> None:
    with FakeMessagesAPI([reply("by token")]) as api:
        status, answer = post(f"{api.url}/v1/messages", json.dumps(ASK).encode())
        assert (status, answer["error"]["type"]) == (401, "authentication_error")
        status, answer = post(f"{api.url}/v1/messages", json.dumps(ASK).encode(), authorization="Bearer t")
        assert (status, answer["content"][0]["text"]) == (200, "by token")


def test_a_body_that_is_not_json_is_refused() -> None:
    cases: list[bytes] = [b"", b"{", b'{"a": NaN}', b"\xff"]
    for body in cases:
        with FakeMessagesAPI([]) as api:
            status, answer = post(f"{api.url}/v1/messages", body, x_api_key="k")
            assert (status, answer["error"]["type"]) == (400, "invalid_request_error")
            assert "not valid JSON" in answer["error"]["message"]
            assert api.requests[0].json is None


def test_a_body_over_32_megabytes_is_refused() -> None:
    with FakeMessagesAPI([]) as api:
        big = {**ASK, "messages": [{"role": "user", "content": "x" * (32 * 1024 * 1024)}]}
        status, answer = post(f"{api.url}/v1/messages", json.dumps(big).encode(), x_api_key="k")
        assert (status, answer["error"]["type"]) == (413, "request_too_large")


def test_a_model_that_cannot_exist_is_not_found() -> None:
    with FakeMessagesAPI([reply()]) as api:
        client = api.client()
        client.messages.create(**{**ASK, "model": "claude-future-9"})
        for unknown in ("gpt-5", "claude-x"):
            with pytest.raises(anthropic.NotFoundError, match=f"model: {unknown}"):
                client.messages.create(**{**ASK, "model": unknown})


def test_without_enforcement_anything_is_answered() -> None:
    with FakeMessagesAPI([reply("fine", thinking="as you like")], enforce=False) as api:
        status, answer = post(f"{api.url}/v1/messages", b'{"messages": 7}')
        assert (status, answer["content"][1]["text"]) == (200, "fine")
        assert api.refused == []


def test_many_clients_at_once_each_get_one_answer() -> None:
    with FakeMessagesAPI([reply(str(n)) for n in range(40)]) as api:
        client = api.client()
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            messages = list(pool.map(lambda _: client.messages.create(**ASK), range(40)))
        assert sorted(int(message.content[0].to_dict()["text"]) for message in messages) == list(range(40))
        assert len({message.id for message in messages}) == len(api.requests) == 40


def test_closing_is_quick_frees_who_waits_and_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    late = delayed(3600, reply("never"))
    api = FakeMessagesAPI([late, reply()])
    client = api.client()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        waiting = pool.submit(lambda: client.messages.create(**ASK))
        assert late.arrived.wait(30)
        started = time.monotonic()
        api.close()
        api.close()
        assert time.monotonic() - started < 60  # not the hour, or for ever, that the answer takes
        assert waiting.exception(30) is not None or waiting.result().content
    assert {thread for thread in set(threading.enumerate()) - before if thread.is_alive()} == set()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", int(api.url.rpartition(":")[2])), timeout=5)


def test_the_kit_imports_no_client_until_one_is_wanted() -> None:
    code = "import sys, toolloop.testing as t; t.FakeMessagesAPI([]).close(); sys.exit('anthropic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_client_of_ones_own_is_taken(capfd: pytest.CaptureFixture[str]) -> None:
    async def both(api: FakeMessagesAPI) -> None:
        with anthropic.DefaultHttpxClient(trust_env=False) as plain:
            api.client(http_client=plain).messages.create(**ASK)
        async with anthropic.DefaultAsyncHttpxClient(trust_env=False) as plain:
            await api.async_client(http_client=plain).messages.create(**ASK)

    with FakeMessagesAPI([reply(), reply()]) as api:
        anyio.run(both, api)
    assert capfd.readouterr() == ("", "")
