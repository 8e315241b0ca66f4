"""Short constructors, and that the server takes back whatever it handed out."""

from __future__ import annotations

from typing import Any

import pytest

from tests.testing.asking import Said, ask
from toolloop.testing import FakeMessagesAPI, call, compacted, reply, server_call, server_result

HI = {"role": "user", "content": "Hi"}
GO_ON = {"role": "user", "content": "Go on"}
SEARCH = {"type": "web_search_20250305", "name": "web_search"}


def request(*messages: dict[str, Any]) -> dict[str, Any]:
    return {"model": "claude-opus-5-5", "max_tokens": 99, "tools": [SEARCH], "messages": [HI, *messages]}


def said_by(api: FakeMessagesAPI, *messages: dict[str, Any]) -> list[dict[str, Any]]:
    message = api.client().messages.create(**request(*messages))
    content: list[dict[str, Any]] = message.to_dict(mode="json", warnings=False)["content"]
    return content


def claude(content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def test_a_reply_holds_thinking_text_other_blocks_and_calls_in_this_order() -> None:
    blocks = reply("t", thinking="h", content=[server_call("web_search")], calls=[call("a"), ("b", {"c": 1})])[
        "content"
    ]
    assert [block["type"] for block in blocks] == ["thinking", "text", "server_tool_use", "tool_use", "tool_use"]


def test_the_stop_reason_follows_from_the_calls() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        (reply("x"), "end_turn"),
        (reply(), "end_turn"),
        (reply(calls=[call("a")]), "tool_use"),
        (reply(content=[call("a")]), "tool_use"),
        (reply(content=[server_call("web_search")]), "end_turn"),
        (reply(calls=[call("a")], stop_reason="max_tokens"), "max_tokens"),
    ]
    for made, stop_reason in cases:
        assert made["stop_reason"] == stop_reason


def test_a_server_result_answers_the_oldest_open_server_call() -> None:
    content = [server_call("web_search"), server_call("web_search"), server_result("web_search")]
    with FakeMessagesAPI([reply(content=content), reply(content=[server_result("web_search")])]) as api:
        first = said_by(api)
        assert first[2]["tool_use_id"] == first[0]["id"] == "srvtoolu_fake_000001"
        assert said_by(api, claude(first))[0]["tool_use_id"] == first[1]["id"]


def test_a_paused_reply_may_be_sent_back_without_a_user_turn() -> None:
    for stop_reason in ("pause_turn", "compaction"):
        paused = reply("Still at it.", content=[{"type": "text", "text": " "}], stop_reason=stop_reason)
        with FakeMessagesAPI([paused, reply("Done."), reply("x")]) as api:
            kept = said_by(api)[:1]
            kept[-1]["cache_control"] = {"type": "ephemeral"}
            assert said_by(api, claude(kept))[0]["text"] == "Done."
            assert ask(api.client(), request(claude("Still at it, I say."))).status == 400


def test_the_server_takes_back_blocks_and_keys_that_only_it_knows() -> None:
    future = {"type": "hologram", "beam": [1, {"n": 2**80}]}
    odd = {"type": "text", "text": "x", "glow": 1}
    with FakeMessagesAPI([reply(content=[odd, future]), reply("fine")]) as api:
        client = api.client()
        assert ask(client, request()) == Said(200)
        assert ask(client, request(claude([odd, future]), GO_ON)) == Said(200)
        assert "hologram" in ask(client, request(claude([odd, {**future, "beam": []}]), GO_ON)).message
        assert "glow: Extra inputs" in ask(client, request(claude([{**odd, "glow": 2}]), GO_ON)).message


@pytest.mark.parametrize("stream", [False, True])
def test_a_container_comes_as_the_api_gives_it(stream: bool) -> None:
    """Whole, an object with an id and a time; in a stream it comes at the end."""
    with FakeMessagesAPI([reply("ran", container="container_1")]) as api:
        client = api.client()
        if stream:
            with client.messages.stream(**request()) as events:
                message = events.get_final_message()
        else:
            message = client.messages.create(**request())
        assert message.container is not None
        assert (message.container.id, message.container.expires_at.year) == ("container_1", 2099)


def test_a_compaction_leads_the_reply_that_it_belongs_to() -> None:
    """Alone it is a pause whose totals are nothing; at the head of a reply its use is an iteration of that."""
    block = {"type": "compaction", "content": "So far.", "encrypted_content": "E"}
    used = {"type": "compaction", "input_tokens": 100, "output_tokens": 20}
    alone = compacted("So far.", encrypted_content="E")
    nothing = {"input_tokens": 0, "output_tokens": 0}
    assert alone == {"content": [block], "stop_reason": "compaction", "usage": {**nothing, "iterations": [used]}}
    then = reply("Four.", calls=[("add", {})], usage={"input_tokens": 7, "output_tokens": 2})
    led = compacted("So far.", then, usage={"input_tokens": 9, "output_tokens": 1}, encrypted_content="E")
    assert (led["content"], led["stop_reason"]) == ([block, *then["content"]], "tool_use")
    assert led["usage"]["iterations"] == [
        {"type": "compaction", "input_tokens": 9, "output_tokens": 1},
        {"type": "message", "input_tokens": 7, "output_tokens": 2},
    ]
    assert {name: led["usage"][name] for name in then["usage"]} == then["usage"]
    assert compacted("So far.", reply("x"))["usage"]["iterations"][1]["input_tokens"] == 10
