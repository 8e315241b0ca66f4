"""The fake API recognizes the thinking that it handed out and, if the model binds it, the conversation before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anthropic
import pytest

from toolloop.testing import FakeMessagesAPI, reply, server_call, server_result

BINDS = "claude-opus-5-5"
LOOSE = "claude-opus-4-8"
ADD = {"name": "add", "input_schema": {"type": "object"}}
SEARCH = {"type": "web_search_20250305", "name": "web_search"}
START: dict[str, Any] = {
    "max_tokens": 4096,
    "system": "Be brief.",
    "tools": [ADD, SEARCH],
    "messages": [{"role": "user", "content": "Hi"}, {"role": "user", "content": "Add it up."}],
}
HIDDEN = {"type": "redacted_thinking", "data": "a secret"}

Change = Callable[[dict[str, Any]], None]


def second_request(api: FakeMessagesAPI, model: str) -> tuple[anthropic.Anthropic, dict[str, Any]]:
    """A conversation with thinking in it, up to its second request."""
    client = api.client()
    request = {**START, "model": model}
    first = client.messages.create(**request).to_dict(mode="json")
    answered = {"type": "tool_result", "tool_use_id": "toolu_fake_000001", "content": "4"}
    more = [{"role": "assistant", "content": first["content"]}, {"role": "user", "content": [answered]}]
    return client, {**request, "messages": [*START["messages"], *more]}


def script() -> list[dict[str, Any]]:
    return [reply("So.", thinking="Two and two.", content=[HIDDEN], calls=[("add", {})]), reply("Four.")]


def thinking(request: dict[str, Any]) -> dict[str, Any]:
    return request["messages"][2]["content"][0]  # type: ignore[no-any-return]


def unchanged(_request: dict[str, Any]) -> None:
    pass


def mark(request: dict[str, Any]) -> None:
    request["messages"][-1]["content"][-1]["cache_control"] = {"type": "ephemeral"}
    request["system"] = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    request["tools"] = [{**ADD, "cache_control": {"type": "ephemeral"}}, SEARCH]


def merge(request: dict[str, Any]) -> None:
    both = [{"type": "text", "text": "Hi"}, {"type": "text", "text": "Add it up."}]
    request["messages"][:2] = [{"role": "user", "content": both}]


def a_user_message_more(request: dict[str, Any]) -> None:
    request["messages"].append({"role": "user", "content": "Go on."})


def test_thinking_comes_back_as_it_was() -> None:
    change_cases: list[Change] = [unchanged, mark, merge, a_user_message_more]
    for change in change_cases:
        for model in (BINDS, LOOSE):
            with FakeMessagesAPI(script()) as api:
                client, request = second_request(api, model)
                change(request)
                assert client.messages.create(**request).to_dict()["content"] == [{"type": "text", "text": "Four."}]
                assert api.refused == []


def other_text(request: dict[str, Any]) -> None:
    thinking(request)["thinking"] += " Or not."


def other_signature(request: dict[str, Any]) -> None:
    thinking(request)["signature"] = "EqEECkYICxgCKkAo3UA4"


def no_signature(request: dict[str, Any]) -> None:
    thinking(request)["signature"] = ""


def not_even_ascii(request: dict[str, Any]) -> None:
    thinking(request)["signature"] = "żółw"


def test_a_changed_thinking_block_is_refused_on_every_model() -> None:
    change_cases: list[Change] = [other_text, other_signature, no_signature, not_even_ascii]
    for change in change_cases:
        for model in (BINDS, LOOSE):
            with FakeMessagesAPI(script()) as api:
                client, request = second_request(api, model)
                change(request)
                with pytest.raises(anthropic.BadRequestError) as caught:
                    client.messages.create(**request)
                assert caught.value.type == "invalid_request_error"
                assert "messages.2.content.0: Invalid `signature` in `thinking` block" in str(caught.value)
                assert "different conversation" not in str(caught.value)
                assert [request.status for request in api.refused] == [400]


def other_system(request: dict[str, Any]) -> None:
    request["system"] = "Be verbose."


def other_tools(request: dict[str, Any]) -> None:
    request["tools"] = [ADD]


def other_message(request: dict[str, Any]) -> None:
    request["messages"][0] = {"role": "user", "content": "Ho"}


def a_message_less(request: dict[str, Any]) -> None:
    del request["messages"][0]


def a_message_more(request: dict[str, Any]) -> None:
    request["messages"].insert(0, {"role": "user", "content": "Listen."})


PREFIX_CHANGES = [other_system, other_tools, other_message, a_message_less, a_message_more]


def test_where_the_model_binds_all_that_came_before_must_be_the_same() -> None:
    """An older model does not mind, and the caller may ask to have such blocks dropped."""
    for change in PREFIX_CHANGES:
        with FakeMessagesAPI(script()) as api:
            client, request = second_request(api, BINDS)
            change(request)
            with pytest.raises(anthropic.BadRequestError) as caught:
                client.messages.create(**request)
            text = str(caught.value)
            assert "Invalid `signature` in `thinking` block. The block is bound to a different conversation." in text
            assert "thinking-binding-controls-2026-08-01" in text
            request["thinking"] = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
            client.beta.messages.create(**request, betas=["thinking-binding-controls-2026-08-01"])
        with FakeMessagesAPI(script()) as api:
            client, request = second_request(api, LOOSE)
            change(request)
            client.messages.create(**request)
            assert api.refused == []


def test_thinking_dropped_by_the_caller_changes_what_later_thinking_is_bound_to() -> None:
    answers = [*script()[:1], reply("Five.", thinking="Again."), reply("Six.")]
    for drop, refusals in ((False, 0), (True, 1)):
        with FakeMessagesAPI(answers) as api:
            client, request = second_request(api, BINDS)
            second = client.messages.create(**request).to_dict(mode="json")
            request["messages"] += [
                {"role": "assistant", "content": second["content"]},
                {"role": "user", "content": "And?"},
            ]
            if drop:
                del request["messages"][2]["content"][0]
                with pytest.raises(anthropic.BadRequestError, match="different conversation"):
                    client.messages.create(**request)
            else:
                client.messages.create(**request)
            assert len(api.refused) == refusals


@pytest.mark.parametrize("merged", [False, True])
def test_thinking_after_a_pause_is_bound_to_the_paused_reply(merged: bool) -> None:
    pause = reply(thinking="Search.", content=[server_call("web_search", {"query": "q"})], stop_reason="pause_turn")
    found = [server_result("web_search"), {"type": "thinking", "thinking": "Good."}, {"type": "text", "text": "Found."}]
    rest = reply(content=found)
    with FakeMessagesAPI([pause, rest, reply("Bye.")]) as api:
        client = api.client()
        request = {**START, "model": BINDS}
        parts = []
        for _ in range(2):
            parts.append(client.messages.create(**request).to_dict(mode="json")["content"])
            request["messages"] = [*request["messages"], {"role": "assistant", "content": parts[-1]}]
        if merged:
            request["messages"][2:] = [{"role": "assistant", "content": parts[0] + parts[1]}]
        request["messages"].append({"role": "user", "content": "Thanks."})
        client.messages.create(**request)
        assert api.refused == []


def test_recorded_thinking_passes_when_signatures_are_not_verified() -> None:
    with FakeMessagesAPI(script(), verify_signatures=False) as api:
        client, request = second_request(api, BINDS)
        assert thinking(request)["signature"] == "unsigned"
        other_signature(request)
        other_message(request)
        client.messages.create(**request)
        assert api.refused == []
