"""A value search: no key, header or token is found in anything that the library hands out, stores or logs."""

from __future__ import annotations

import base64
import json
import logging
import pickle
import traceback
from typing import Any

import pytest

from tests.kit.each import each
from tests.kit.tools import TOOLS, params
from toolloop import Approve, LoopConfig, LoopContext, ToolLoopHandle
from toolloop.errors import Drift, InvalidHistory, ModelError
from toolloop.testing import FakeMessagesAPI, call, dropped, fault, html, reply, verbatim

KEY = "sk-ant-api03-kkkkkkkkkkkkkkkk"
HEADER = "hhhhhhhhhhhhhhhh"
TOKEN = "tttttttttttttttt"
STATE = "ssssssssssssssss"
SECRETS = (KEY, HEADER, TOKEN, STATE)
BETA = "mcp-client-2025-11-20"
MCP = {"type": "url", "url": "https://mcp.example", "name": "files", "authorization_token": TOKEN}
WRITE = call("write", {"path": "a", "text": "b"}, id="toolu_w")
ADD = call("add", {"a": 1, "b": 2}, id="toolu_a")


def make_params(**more: Any) -> dict[str, Any]:
    """Parameters with secrets in every place that holds some."""
    return params(betas=[BETA], extra_headers={"x-gateway-key": HEADER}, mcp_servers=[dict(MCP)], timeout=30, **more)


def find_in(*texts: object) -> list[str]:
    """The secrets that are found in any of these, plain or in base64."""
    whole = "\n".join(map(str, texts))
    hidden = {secret: base64.b64encode(secret.encode()).decode()[:16] for secret in SECRETS}
    return [secret for secret in SECRETS if secret in whole or hidden[secret] in whole]


def list_shown(handle: ToolLoopHandle) -> list[object]:
    """All that a handle tells of itself."""
    told: list[object] = [
        json.dumps(handle.snapshot()),
        repr(handle),
        repr(handle.state),
        repr(handle.view()),
        handle.messages,
        repr(handle.pending_turn),
        repr(handle.into_result()),
        handle.usage_log,
        pickle.dumps(handle.state),
    ]
    turn = handle.pending_turn
    return told + ([] if turn is None else [turn.message, turn.events, repr(turn.calls), repr(turn.results)])


def check(handle: ToolLoopHandle) -> None:
    assert find_in(*list_shown(handle)) == []


SCRIPTS: dict[str, Any] = {
    "a loop that goes well": reply("end"),
    "an error": fault(400, message="bad"),
    "an error that may be retried": fault(529, retry_after=1),
    "a dropped connection": dropped(),
    "a web page": html(),
    "a reply that is none": verbatim(200, {"content-type": "application/json"}, "{}"),
    "an answer without a stop reason": reply("x") | {"stop_reason": None},
}


@each("last", SCRIPTS.values())
def test_no_secret_is_shown_stored_or_logged(last: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Snapshots, reprs, views, results, events, errors with their pickles and tracebacks, and logs at DEBUG."""
    caplog.set_level(logging.DEBUG)
    seen: list[object] = []
    with FakeMessagesAPI([reply(calls=[WRITE, ADD]), last], enforce=False) as api:
        handle = ToolLoopHandle(
            api.client(api_key=KEY),
            params=make_params(),
            tools=TOOLS,
            config=LoopConfig(observers=[seen.append]),
            context=LoopContext(state=[STATE]),
        )
        check(handle)
        handle.next_turn()
        check(handle)
        handle.decide({"toolu_w": Approve(by="ana")})
        check(handle)
        result: Any = handle.run()
        check(handle)
        assert find_in(repr(result), result.events, seen) == []
        error = getattr(result, "error", None)
        if error is not None:
            own = traceback.format_exception_only(error)
            assert find_in(error, repr(error), vars(error), pickle.dumps(error), *own, repr(error.__cause__)) == []
        assert len(api.requests) == 2
        for request in api.requests:
            assert find_in(*request.headers.values()) == [KEY, HEADER]
            assert request.json["mcp_servers"][0]["authorization_token"] == TOKEN
    ours = [record for record in caplog.records if record.name.split(".")[0] == "toolloop"]
    assert ours
    assert find_in(*[record.getMessage() for record in ours], *[vars(record) for record in ours]) == []


@each("end", ["\n", "\r\nx: y", "\x00"])
@each("place", ["key", "value", "name"])
@each("streams", [False, True])
def test_a_header_that_cannot_be_sent_is_in_no_traceback(place: str, end: str, streams: bool) -> None:
    """The client's own error quotes it, so it is not shown as the cause."""
    secret = HEADER + end
    headers = {"value": {"x-gateway-key": secret}, "name": {secret: "x"}}.get(place, {})
    with FakeMessagesAPI([reply("end")]) as api:
        client = api.client(api_key=secret if place == "key" else KEY, max_retries=0)
        handle = ToolLoopHandle(client, params=params(extra_headers=headers))
        if streams:
            with handle.stream_turn() as stream:
                result: Any = stream.finish()
        else:
            result = handle.next_turn()
        with pytest.raises(ModelError) as caught:
            result.unwrap()
        whole = traceback.format_exception(caught.value)
        assert "did not send the request" in str(caught.value)
        assert not result.retryable
        assert find_in(*whole, repr(result), vars(result.error), pickle.dumps(result.error)) == []
        check(handle)


def test_what_was_left_out_comes_back_through_params() -> None:
    """Headers, timeouts and tokens are given again at `restore`; the request is the same, header and token included."""
    with FakeMessagesAPI([reply(calls=[WRITE]), reply("end"), reply("end")], enforce=False) as api:
        client = api.client(api_key=KEY)
        handle = ToolLoopHandle(client, params=make_params(), tools=TOOLS)
        handle.next_turn()
        copy = ToolLoopHandle.restore(handle.snapshot(), client, tools=TOOLS, params=make_params())
        for each in (handle, copy):
            each.decide({"toolu_w": Approve(by="ana")})
            assert each.run().unwrap().text == "end"
        first, second = api.requests[1:]
        assert first.body == second.body
        assert second.headers["x-gateway-key"] == HEADER
        check(copy)


def test_a_changed_token_is_stored_nowhere() -> None:
    """`update_params` keeps what is secret with the process too."""
    with FakeMessagesAPI([reply("end")], enforce=False) as api:
        handle = ToolLoopHandle(api.client(), params=params())
        handle.update_params(mcp_servers=[dict(MCP)], betas=[BETA], extra_headers={"x-gateway-key": HEADER}, timeout=5)
        check(handle)
        handle.run()
        assert api.requests[0].json["mcp_servers"][0]["authorization_token"] == TOKEN
        assert find_in(json.dumps(handle.fork().snapshot())) == []


def test_errors_of_the_caller_hold_no_secret() -> None:
    """Refusals quote what was asked, never what is secret."""
    with FakeMessagesAPI([reply("end")], enforce=False) as api:
        handle = ToolLoopHandle(api.client(api_key=KEY), params=make_params(), tools=TOOLS)
        snapshot = handle.snapshot()
        with pytest.raises(InvalidHistory) as invalid:
            ToolLoopHandle(api.client(api_key=KEY), params=make_params(messages=[{"role": "user"}]), tools=TOOLS)
        other = make_params(system="other")
        other["mcp_servers"] = [{**MCP, "url": "https://other.example"}]
        with pytest.raises(Drift) as drift:
            ToolLoopHandle.restore(
                snapshot, api.client(api_key=KEY), tools=TOOLS, params=other, on_drift="strict"
            ).run()
        for caught in (invalid.value, drift.value):
            assert find_in(caught, vars(caught), pickle.dumps(caught)) == []


def tokens(api: FakeMessagesAPI) -> list[Any]:
    """The server and the token of each entry in the last request."""
    servers = api.requests[-1].json.get("mcp_servers") or []
    return [(server["url"], server.get("authorization_token")) for server in servers]


def server(name: str, url: str, token: str | None = None) -> dict[str, Any]:
    entry = {"type": "url", "name": name, "url": url}
    return entry if token is None else {**entry, "authorization_token": token}


def test_a_token_goes_to_its_own_server_and_to_no_other() -> None:
    """Two servers of one name keep their own; a server that moved, came back or is new gets none that is not its."""
    one, two = server("a", "https://one.example", TOKEN), server("a", "https://two.example", HEADER)
    moved = server("a", "https://three.example")
    with FakeMessagesAPI([reply("end")] * 4, enforce=False) as api:
        handle = ToolLoopHandle(api.client(), params=params(betas=[BETA], mcp_servers=[one, two]))
        handle.run()
        assert tokens(api) == [("https://one.example", TOKEN), ("https://two.example", HEADER)]
        for servers, sent in (
            ([moved], [("https://three.example", None)]),
            (None, []),
            ([server("a", "https://one.example")], [("https://one.example", None)]),
        ):
            handle.update_params(mcp_servers=servers)
            handle.follow_up([{"role": "user", "content": "again"}])
            handle.run()
            assert tokens(api) == sent
        check(handle)


def test_a_token_in_the_extra_body_is_refused() -> None:
    """There it could not be told from what is stored; as a parameter it can."""
    with FakeMessagesAPI([]) as api:
        with pytest.raises(ValueError, match="mcp_servers"):
            ToolLoopHandle(api.client(), params=params(extra_body={"mcp_servers": [dict(MCP)]}))
        handle = ToolLoopHandle(api.client(), params=params())
        with pytest.raises(ValueError, match="mcp_servers"):
            handle.update_params(extra_body={"mcp_servers": [dict(MCP)]})
        check(handle)


def test_a_key_in_the_query_is_stored_nowhere() -> None:
    """Gateways take keys there."""
    with FakeMessagesAPI([reply("end")]) as api:
        handle = ToolLoopHandle(api.client(), params=params(extra_query={"key": HEADER}))
        check(handle)
        handle.run()
        assert HEADER in api.requests[0].path
