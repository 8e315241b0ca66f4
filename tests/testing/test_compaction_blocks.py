"""Compaction blocks that come back: those that the server signed, and those of threshold mode."""

from __future__ import annotations

from typing import Any

import pytest

from tests.testing.compacting import BETA, CALL, EDIT_BETA, EDITS, HI, RESULT, claude, refused, send, summary
from toolloop.testing import FakeMessagesAPI, compacted, reply, server_call, server_result


def test_it_stands_for_the_conversation() -> None:
    """Alone, before the user's words, and before more of its own message."""
    with FakeMessagesAPI([compacted("Hi."), *[reply("fine")] * 4]) as api:
        block = summary(api)
        for messages in (
            [claude(block)],
            [claude(block), HI],
            [claude(block, "So."), HI],
            [claude(block), claude("a"), HI],
        ):
            send(api, messages=messages)


def test_it_can_be_marked_for_the_cache() -> None:
    with FakeMessagesAPI([compacted("Hi."), reply("fine")]) as api:
        send(api, messages=[claude({**summary(api), "cache_control": {"type": "ephemeral"}}), HI])


CHANGES = [
    ({"content": "Ho."}, "CompactionContentMismatchError", "compaction_content_mismatch"),
    ({"tool_changes": []}, "CompactionToolChangesMismatchError", "compaction_tool_changes_mismatch"),
    ({"signature": "c2ln"}, "CompactionSignatureInvalidError", "compaction_signature_invalid"),
    ({"signature": ""}, "CompactionSignatureInvalidError", "compaction_signature_invalid"),
]


@pytest.mark.parametrize(("change", "kind", "code"), CHANGES)
def test_a_changed_block_is_refused(change: dict[str, Any], kind: str, code: str) -> None:
    """Each change has an error class of the SDK; a server that verifies no signature takes them all."""
    with FakeMessagesAPI([compacted("Hi.")]) as api:
        error = refused(api, messages=[claude({**summary(api), **change}), HI])
        assert (type(error).__name__, error.error_code) == (kind, code)
    with FakeMessagesAPI([compacted("Hi."), reply("fine")], verify_signatures=False) as api:
        send(api, messages=[claude({**summary(api), **change}), HI])


def test_the_tool_changes_of_a_block_are_signed_with_it() -> None:
    change = {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "add"}}
    with FakeMessagesAPI([compacted("Hi.", tool_changes=[change]), reply("fine")]) as api:
        block = summary(api)
        assert block["tool_changes"] == [change]
        send(api, messages=[claude(block), HI])
        assert "tool_changes" in str(refused(api, messages=[claude({**block, "tool_changes": None}), HI]))


def test_it_stands_first_or_not_at_all() -> None:
    for before in ([HI], [claude("So.")], [claude(FAILED)]):
        with FakeMessagesAPI([compacted("Hi.")]) as api:
            error = refused(api, messages=[*before, claude(summary(api)), HI])
            assert error.error_code == "compaction_block_misplaced"


def test_it_does_not_stand_in_a_system_message() -> None:
    with FakeMessagesAPI([compacted("Hi.")]) as api:
        misplaced = {"role": "system", "content": [summary(api)]}
        assert refused(api, messages=[HI, misplaced]).error_code == "compaction_block_misplaced"


def test_only_the_last_one_is_sent() -> None:
    with FakeMessagesAPI([compacted("Hi."), compacted("Hi, twice."), reply("fine")]) as api:
        first = summary(api)
        second = summary(api, messages=[claude(first), HI])
        error = refused(api, messages=[claude(second), claude(first), HI])
        assert error.error_code == "compaction_block_ambiguous"
        send(api, messages=[claude(second), HI])


def test_it_does_not_go_with_an_edit_that_compacts() -> None:
    """With the other edits it does, and a block of threshold mode goes with all."""
    betas = (BETA, EDIT_BETA, "context-management-2025-06-27")
    compacting = {"edits": [{"type": "compact_20260112"}]}
    with FakeMessagesAPI([compacted("Hi."), reply("a"), reply("b")]) as api:
        messages = [claude(summary(api)), HI]
        send(api, *betas, messages=messages, context_management=EDITS)
        send(
            api,
            *betas,
            messages=[HI, claude({"type": "compaction", "content": "x"}), HI],
            context_management=compacting,
        )
        assert "compaction edit" in str(refused(api, *betas, messages=messages, context_management=compacting))


# --- threshold mode ---

THRESHOLD: dict[str, Any] = {"context_management": {"edits": [{"type": "compact_20260112"}]}}


def test_a_compaction_leads_a_reply_and_is_an_iteration_before_it() -> None:
    """It is not signed, and the totals are those of the reply."""
    said = reply("Four.", thinking="2 + 2", usage={"input_tokens": 30, "output_tokens": 9})
    with FakeMessagesAPI([compacted("So far.", said)]) as api:
        message = send(api, EDIT_BETA, **THRESHOLD)
    assert [block["type"] for block in message["content"]] == ["compaction", "thinking", "text"]
    assert message["content"][0] == {"type": "compaction", "content": "So far."}
    assert message["stop_reason"] == "end_turn"
    usage = message["usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == (30, 9)
    assert [(part["type"], part["input_tokens"]) for part in usage["iterations"]] == [
        ("compaction", 100),
        ("message", 30),
    ]


def test_a_pause_after_a_compaction_is_resumed_by_sending_it_back() -> None:
    with FakeMessagesAPI([compacted("So far."), reply("Four.")]) as api:
        paused = send(api, EDIT_BETA, **THRESHOLD)
        assert (paused["stop_reason"], len(paused["content"])) == ("compaction", 1)
        send(api, EDIT_BETA, messages=[HI, claude(*paused["content"])], **THRESHOLD)


COMPACTED = {"type": "compaction", "content": "So far."}
FAILED = {"type": "compaction", "content": None}
OPEN_CALLS = [claude(CALL), claude(server_call("web_search", id="srvtoolu_1"))]


@pytest.mark.parametrize("before", OPEN_CALLS, ids=["client", "server"])
def test_what_stands_before_the_last_compaction_is_not_paired(before: dict[str, Any]) -> None:
    """It is ignored; after a compaction that failed nothing is."""
    with FakeMessagesAPI([reply("a"), reply("b")]) as api:
        send(api, messages=[HI, before, HI, claude(COMPACTED), HI])
        send(api, messages=[HI, claude(COMPACTED), HI, before, claude(COMPACTED, "Go."), HI])
        assert "without" in str(refused(api, messages=[HI, before, claude(FAILED), HI]))


def test_a_result_does_not_reach_over_a_compaction() -> None:
    with FakeMessagesAPI([reply("a")]) as api:
        result = {"role": "user", "content": [RESULT]}
        send(api, messages=[HI, claude(COMPACTED, CALL), result])
        error = refused(api, messages=[HI, claude(CALL, COMPACTED), result])
        assert "messages.2.content.0: unexpected `tool_use_id`" in str(error)


def test_a_server_result_does_not_reach_over_a_compaction() -> None:
    found = claude(server_call("web_search", id="srvtoolu_1"), server_result("web_search", id="srvtoolu_1"), "So.")
    with FakeMessagesAPI([reply("a")]) as api:
        send(api, messages=[HI, claude(COMPACTED), found, HI])


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({**COMPACTED, "content": ""}, "compaction.content: String should have at least 1 character"),
        ({**COMPACTED, "content": 7}, "compaction.content: Input should be a valid string"),
        ({**COMPACTED, "signature": 7}, "compaction.signature: Input should be a valid string"),
        ({**COMPACTED, "tool_changes": {}}, "compaction.tool_changes: Input should be a valid array"),
        ({**COMPACTED, "glow": 1}, "compaction.glow: Extra inputs are not permitted"),
    ],
)
def test_a_block_has_the_shape_of_the_sdk(block: dict[str, Any], message: str) -> None:
    with FakeMessagesAPI([reply("a"), reply("b")]) as api:
        send(api, messages=[HI, claude(COMPACTED), HI])
        send(api, messages=[HI, claude(FAILED), HI])
        assert message in str(refused(api, messages=[HI, claude(block), HI]))


def test_manual_thinking_begins_a_turn_after_its_compaction() -> None:
    """The block leads the reply, so thinking cannot."""
    manual: dict[str, Any] = {"model": "claude-sonnet-4-6", "thinking": {"type": "enabled", "budget_tokens": 1024}}
    said = compacted("So far.", reply(thinking="2 + 2", calls=[("add", {})]))
    with FakeMessagesAPI([said, reply("Four.")]) as api:
        content = send(api, **manual)["content"]
        answered = {"role": "user", "content": [{**RESULT, "tool_use_id": content[-1]["id"]}]}
        send(api, messages=[HI, claude(*content), answered], **manual)
        thoughtless = [block for block in content if block["type"] != "thinking"]
        assert "found `tool_use`" in str(refused(api, messages=[HI, claude(*thoughtless), answered], **manual))
