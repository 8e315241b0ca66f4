"""Compaction by the server: requests for it, the blocks that come back, and the edits of context management."""

from __future__ import annotations

from typing import Any

import anthropic
import pytest

from toolloop.testing import FakeMessagesAPI, compacted, reply, server_call

BETA = "compact-2026-09-04"
EDIT_BETA = "compact-2026-01-12"
SUMMARIZE: Any = {"type": "summarize"}
COMPACTING: Any = {"edits": [{"type": "compact_20260112"}]}
HI: dict[str, Any] = {"role": "user", "content": "Hi"}
ADD: dict[str, Any] = {"name": "add", "input_schema": {"type": "object"}}
SEARCH: dict[str, Any] = {"type": "web_search_20250305", "name": "web_search"}
CALL: dict[str, Any] = {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {}}
RESULTS = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "4"}]}
COMPACTED = {"type": "compaction", "content": "So far."}
ASK: dict[str, Any] = {"model": "claude-opus-5-5", "max_tokens": 4096, "messages": [HI], "tools": [ADD, SEARCH]}


def claude(*blocks: Any) -> dict[str, Any]:
    """Return a message of the assistant; a string is a text block."""
    texts = ({"type": "text", "text": block} if isinstance(block, str) else block for block in blocks)
    return {"role": "assistant", "content": list(texts)}


def send(api: FakeMessagesAPI, *betas: str, **fields: Any) -> dict[str, Any]:
    """Send a request with some fields changed, by the beta client."""
    message: anthropic.types.beta.BetaMessage
    message = api.client().beta.messages.create(**{**ASK, **fields}, betas=list(betas or (BETA,)))
    return message.to_dict(mode="json", warnings=False)


def refused(*betas: str, answers: Any = (), **fields: Any) -> anthropic.BadRequestError:
    with FakeMessagesAPI(answers) as api, pytest.raises(anthropic.BadRequestError) as caught:
        send(api, *betas, **fields)
    return caught.value


def summary(api: FakeMessagesAPI, **fields: Any) -> dict[str, Any]:
    """Return the block that answers a request for a compaction."""
    (block,) = send(api, compaction=SUMMARIZE, **fields)["content"]
    return dict(block)


def test_a_request_for_a_compaction_gets_a_signed_block_alone_and_an_iteration_for_it() -> None:
    used = {"input_tokens": 900, "output_tokens": 50, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
    with FakeMessagesAPI([compacted("They said hi.", usage=used)]) as api:
        message = send(api, compaction=SUMMARIZE)
    (block,) = message["content"]
    assert block.pop("signature")
    assert (block, message["stop_reason"]) == ({"type": "compaction", "content": "They said hi."}, "compaction")
    assert (message["usage"]["input_tokens"], message["usage"]["output_tokens"]) == (0, 0)
    assert message["usage"]["iterations"] == [{"type": "compaction", **used}]


def test_a_stream_carries_the_same() -> None:
    with FakeMessagesAPI([compacted("Hi.", encrypted_content="E"), compacted("Hi.", encrypted_content="E")]) as api:
        whole = send(api, compaction=SUMMARIZE)
        with api.client().beta.messages.stream(**ASK, compaction=SUMMARIZE, betas=[BETA]) as stream:
            deltas = [event.delta.to_dict() for event in stream if event.type == "content_block_delta"]
            streamed = stream.get_final_message().to_dict(mode="json", warnings=False)
    assert deltas == [{"type": "compaction_delta", "content": "Hi.", "encrypted_content": "E"}]
    assert (streamed["content"], streamed["stop_reason"]) == (whole["content"], "compaction")


OPEN_SEARCH = server_call("web_search", id="srvtoolu_1")


def test_an_open_turn_or_an_empty_conversation_is_not_summarized() -> None:
    cases: list[tuple[list[Any], str]] = [
        ([HI, claude(OPEN_SEARCH)], "compaction_incomplete_turn"),
        ([HI, claude(OPEN_SEARCH, CALL), RESULTS], "compaction_incomplete_turn"),
        ([claude(COMPACTED)], "compaction_nothing_to_summarize"),
    ]
    for messages, code in cases:
        assert refused(compaction=SUMMARIZE, messages=messages).error_code == code


def test_a_changed_block_is_refused() -> None:
    cases: list[dict[str, Any]] = [{"content": "Ho."}, {"tool_changes": []}, {"signature": "c2ln"}, {"signature": ""}]
    for change in cases:
        for verify in (True, False):
            with FakeMessagesAPI([compacted("Hi."), reply("fine")], verify_signatures=verify) as api:
                messages = [claude({"signature": "s", **summary(api), **change}), HI]
                if not verify:
                    send(api, messages=messages)
                    continue
                with pytest.raises(anthropic.BadRequestError) as caught:
                    send(api, messages=messages)
                assert caught.value.error_code == "compaction_signature_invalid"


def test_a_signed_block_stands_for_the_conversation_and_comes_first() -> None:
    with FakeMessagesAPI([compacted("Hi."), *[reply("fine")] * 3]) as api:
        block = summary(api)
        for messages in ([claude(block)], [claude({**block, "cache_control": {"type": "ephemeral"}}), HI]):
            send(api, messages=messages)
        with pytest.raises(anthropic.BadRequestError) as caught:
            send(api, messages=[HI, claude(block), HI])
        assert caught.value.error_code == "compaction_block_misplaced"


def test_an_edit_that_compacts_leads_a_reply_with_an_unsigned_block() -> None:
    said = reply("Four.", thinking="2 + 2", usage={"input_tokens": 30, "output_tokens": 9})
    with FakeMessagesAPI([compacted("So far.", said)]) as api:
        message = send(api, EDIT_BETA, context_management=COMPACTING)
    assert [block["type"] for block in message["content"]] == ["compaction", "thinking", "text"]
    assert message["content"][0] == {"type": "compaction", "content": "So far."}
    assert message["context_management"] == {"applied_edits": []}
    usage = message["usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == (30, 9)
    assert [part["type"] for part in usage["iterations"]] == ["compaction", "message"]


def test_thinking_before_a_compaction_is_not_verified_and_thinking_after_it_is() -> None:
    answers = [compacted("So far.", reply(thinking="Hm?", calls=[("add", {})])), reply("fine")]
    with FakeMessagesAPI(answers) as api:
        led = send(api)["content"]
        results = {"role": "user", "content": [{**RESULTS["content"][0], "tool_use_id": led[-1]["id"]}]}  # type: ignore[dict-item]
        after = [claude(*led), results]
        forged = [HI, claude({"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}, "So."), HI]
        send(api, messages=[HI, *after])
        with pytest.raises(anthropic.BadRequestError, match="bound to a different conversation"):
            send(api, messages=[*forged, *after])
