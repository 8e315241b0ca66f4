"""Thinking whose conversation changed: what a reply says was dropped, and what a compaction means for it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.testing.compacting import EDIT_BETA, HI, RESULT, claude, refused, send, summary
from toolloop.testing import FakeMessagesAPI, compacted, reply

CONTROLS = "thinking-binding-controls-2026-08-01"
LOOSE = "claude-opus-4-8"
DROP: dict[str, Any] = {
    "thinking": {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}},
}
HO = {"role": "user", "content": "Ho"}
HIDDEN = {"type": "redacted_thinking", "data": "a secret"}
SECOND = {"type": "thinking", "thinking": "Again."}
TEXT = {"type": "text", "text": "So."}


def dropped(*paths: str) -> list[dict[str, str]]:
    return [{"type": "thinking_dropped", "path": path, "reason": "prefix_binding_mismatch"} for path in paths]


def conversation(api: FakeMessagesAPI, **fields: Any) -> list[dict[str, Any]]:
    """Two user messages, two replies of the script, and a user message after each."""
    messages = [HI, HI]
    for _ in range(2):
        messages = [*messages, claude(*send(api, CONTROLS, messages=messages, **fields)["content"]), HI]
    return messages


def script() -> list[dict[str, Any]]:
    first = reply(content=[{"type": "thinking", "thinking": "Hm."}, HIDDEN, TEXT, SECOND, TEXT])
    return [first, reply("Well.", thinking="Later."), reply("a"), reply("b")]


def test_a_reply_names_the_thinking_that_was_dropped_as_the_client_counts() -> None:
    """In the order of the request; what was born under what is sent stays, and nothing at all is told as nothing."""
    with FakeMessagesAPI(script()) as api:
        messages = conversation(api, **DROP)
        assert send(api, CONTROLS, messages=messages, **DROP)["input_transformations"] == []
        # The last thinking was born under the first: leaving that out changes what is before the last alone.
        changed = [*messages[:2], claude(*messages[2]["content"][2:]), *messages[3:]]
        told = send(api, CONTROLS, messages=changed, **DROP)["input_transformations"]
        assert told == dropped("messages.4.content.0")


def test_all_thinking_after_a_change_is_dropped() -> None:
    with FakeMessagesAPI(script()) as api:
        messages = conversation(api, **DROP)
        told = send(api, CONTROLS, messages=[HO, *messages[1:]], **DROP)["input_transformations"]
        places = [(2, 0), (2, 1), (2, 3), (4, 0)]
        assert told == dropped(*(f"messages.{number}.content.{place}" for number, place in places))


def test_thinking_goes_with_the_thinking_before_it() -> None:
    """Of blocks that follow each other, those after the first that fails are dropped too; words end that."""
    with FakeMessagesAPI([reply(thinking="Old.", calls=[("add", {})]), reply("a", thinking="New."), reply("b")]) as api:
        old = send(api, CONTROLS, messages=[HI], **DROP)["content"][0]
        new = send(api, CONTROLS, messages=[HO], **DROP)["content"][0]
        for between, paths in (((), (0, 1)), ((TEXT,), (0,))):
            messages = [HO, claude(old, *between, new, "So."), HI]
            with FakeMessagesAPI([reply("c")]) as other:
                told = send(other, CONTROLS, messages=messages, **DROP)["input_transformations"]
                assert told == dropped(*(f"messages.1.content.{place}" for place in paths))


@pytest.mark.parametrize("fields", [{"model": LOOSE}, {"model": LOOSE, **DROP}, {}])
def test_a_reply_tells_it_of_every_model_as_soon_as_the_beta_is_on(fields: dict[str, Any]) -> None:
    """A model that does not bind drops nothing."""
    with FakeMessagesAPI(script()) as api:
        messages = conversation(api, **fields)
        changed = [HO, *messages[1:]] if "model" in fields else messages
        assert send(api, CONTROLS, messages=changed, **fields)["input_transformations"] == []
        plain = {name: value for name, value in fields.items() if name != "thinking"}
        assert "input_transformations" not in send(api, EDIT_BETA, messages=messages, **plain)


def test_a_stream_tells_it_at_its_start() -> None:
    with FakeMessagesAPI(script()) as api:
        messages = [HO, *conversation(api, **DROP)[1:]]
        whole = send(api, CONTROLS, messages=messages, **DROP)["input_transformations"]
        asked: Any = {"model": "claude-opus-5-5", "max_tokens": 9, "messages": messages, **DROP, "betas": [CONTROLS]}
        tools: Any = [{"name": "add", "input_schema": {"type": "object"}}]
        tools.append({"type": "web_search_20250305", "name": "web_search"})
        with api.client().beta.messages.stream(**asked, tools=tools) as stream:
            events = {event.type: event.to_dict() for event in stream}
        start: Any = events["message_start"]["message"]
        assert start["input_transformations"] == whole != []
        assert "input_transformations" not in events["message_delta"]


# --- with a compaction ---


def test_thinking_before_a_compaction_is_not_looked_at() -> None:
    """Nobody is shown it; what comes after is bound to all that was sent, what was before the compaction included."""
    answers = [reply("So.", thinking="Hm."), compacted("So far.", reply(thinking="Hm?", calls=[("add", {})]))]
    with FakeMessagesAPI([*answers, reply("fine")]) as api:
        before = [HI, claude(*send(api)["content"]), HI]
        led = send(api, messages=before)["content"]
        after = [claude(*led), {"role": "user", "content": [{**RESULT, "tool_use_id": led[-1]["id"]}]}]
        send(api, messages=[*before, *after])
        forged = [HI, claude({"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}, "So."), HI]
        # The compaction takes the blame away from what is forged, not from what was born under something else.
        error = refused(api, messages=[*forged, *after])
        assert "messages.3.content.1: Invalid `signature` in `thinking` block. The block is bound to" in str(error)


def test_what_stood_before_a_compaction_cannot_be_left_out() -> None:
    """As careful as can be: it was there when the thinking was born."""
    with FakeMessagesAPI([compacted("So far.", reply("So.", thinking="Hm.")), reply("a")]) as api:
        led = send(api, messages=[HI, HO])["content"]
        send(api, messages=[HI, HO, claude(*led), HI])
        assert "different conversation" in str(refused(api, messages=[claude(*led), HI]))


def test_thinking_after_a_compaction_that_was_asked_for_is_bound_to_its_block() -> None:
    with FakeMessagesAPI([compacted("Hi."), reply("So.", thinking="Hm."), reply("a"), compacted("Ho.")]) as api:
        block = summary(api)
        said = claude(*send(api, messages=[claude(block), HI])["content"])
        send(api, messages=[claude(block), HI, said, HO])
        other = summary(api, messages=[HO])
        assert "different conversation" in str(refused(api, messages=[claude(other), HI, said, HO]))
