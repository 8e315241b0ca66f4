"""What the fake API takes as `context_management`: each refusal beside the nearest request that is taken."""

from __future__ import annotations

from typing import Any

import pytest

from tests.testing.asking import Said, judged
from toolloop.testing import FakeMessagesAPI, reply

NEW = "claude-opus-5-5"
OLD = "claude-sonnet-4-5"
MANAGING = "context-management-2025-06-27"
COMPACTING = "compact-2026-01-12"
EXTRA = "Extra inputs are not permitted"
USES: dict[str, Any] = {"type": "clear_tool_uses_20250919"}
THINKING: dict[str, Any] = {"type": "clear_thinking_20251015"}
COMPACT: dict[str, Any] = {"type": "compact_20260112"}


def body(*edits: Any, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Hi"}]
    return {"model": NEW, "max_tokens": 4096, "messages": messages, "context_management": {"edits": edits}, **fields}


def tokens(value: Any) -> dict[str, Any]:
    return {"type": "input_tokens", "value": value}


def uses(value: Any) -> dict[str, Any]:
    return {"type": "tool_uses", "value": value}


def turns(value: Any) -> dict[str, Any]:
    return {"type": "thinking_turns", "value": value}


def managed(request: dict[str, Any], *betas: str) -> Said:
    return judged(request, anthropic_beta=",".join(betas or (MANAGING, COMPACTING)))


TAKEN = [
    *(USES, {**USES, "trigger": tokens(1000)}, {**USES, "trigger": uses(3)}, {**USES, "keep": uses(0)}),
    *({**USES, "clear_at_least": tokens(500)}, {**USES, "clear_at_least": None}, {**USES, "exclude_tools": ["add"]}),
    *({**USES, "clear_tool_inputs": True}, {**USES, "clear_tool_inputs": ["add"]}, {**USES, "clear_tool_inputs": None}),
    *(THINKING, {**THINKING, "keep": "all"}, {**THINKING, "keep": {"type": "all"}}, {**THINKING, "keep": turns(1)}),
    *(COMPACT, {**COMPACT, "trigger": tokens(50_000)}, {**COMPACT, "trigger": None}),
    *({**COMPACT, "instructions": "Short."}, {**COMPACT, "pause_after_compaction": True}),
]


@pytest.mark.parametrize("edit", TAKEN)
def test_an_edit_of_the_shape_of_the_sdk_is_taken(edit: dict[str, Any]) -> None:
    assert managed(body(edit)) == Said(200)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({**USES, "glow": 1}, f"clear_tool_uses_20250919.glow: {EXTRA}"),
    ({**USES, "keep": turns(1)}, "clear_tool_uses_20250919.keep.type: Input should be 'tool_uses'"),
    ({**USES, "keep": None}, "clear_tool_uses_20250919.keep: Input should be an object"),
    ({**USES, "keep": uses(-1)}, "keep.value: Input should be greater than or equal to 0"),
    ({**USES, "trigger": turns(1)}, "trigger: Input tag 'thinking_turns' found using 'type' does not match"),
    ({**USES, "trigger": {"type": "tool_uses"}}, "trigger.tool_uses.value: Field required"),
    ({**USES, "clear_at_least": uses(1)}, "clear_at_least.type: Input should be 'input_tokens'"),
    ({**USES, "clear_tool_inputs": "add"}, "clear_tool_inputs: Input should be a valid boolean"),
    ({**USES, "exclude_tools": "add"}, "exclude_tools: Input should be a valid array"),
    ({**THINKING, "keep": "none"}, "clear_thinking_20251015.keep: Input should be 'all'"),
    ({**THINKING, "keep": turns(0)}, "keep.thinking_turns.value: Input should be greater than or equal to 1"),
    ({**THINKING, "trigger": tokens(1)}, f"clear_thinking_20251015.trigger: {EXTRA}"),
    ({**COMPACT, "trigger": tokens(49_999)}, "trigger.value: Input should be greater than or equal to 50000"),
    ({**COMPACT, "trigger": uses(50_000)}, "compact_20260112.trigger.type: Input should be 'input_tokens'"),
    ({**COMPACT, "pause_after_compaction": None}, "pause_after_compaction: Input should be a valid boolean"),
    ({**COMPACT, "instructions": 7}, "compact_20260112.instructions: Input should be a valid string"),
    ({"type": "compact"}, "edits.0: Input tag 'compact' found using 'type' does not match any of the expected tags"),
    ({}, "context_management.edits.0.type: Field required"),
]


@pytest.mark.parametrize(("edit", "message"), REFUSED)
def test_an_edit_of_another_shape_is_refused(edit: dict[str, Any], message: str) -> None:
    said = managed(body(edit))
    assert (said.status, said.type) == (400, "invalid_request_error")
    assert said.message.startswith("context_management.edits.0")
    assert message in said.message


@pytest.mark.parametrize("value", [{}, None, {"edits": []}])
def test_no_edits_at_all_are_taken(value: Any) -> None:
    assert managed(body(context_management=value)) == Said(200)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "context_management: Input should be an object"),
        ({"edits": None}, "context_management.edits: Input should be a valid array"),
        ({"edits": [], "glow": 1}, f"context_management.glow: {EXTRA}"),
    ],
)
def test_anything_else_than_edits_is_refused(value: Any, message: str) -> None:
    assert managed(body(context_management=value)).message == message


BETAS: list[tuple[str, dict[str, Any], str]] = [
    (MANAGING, USES, ""),
    (COMPACTING, COMPACT, ""),
    ("files-api-2025-04-14", USES, f"context_management: {EXTRA}"),
    ("compact-2026-09-04", COMPACT, f"context_management: {EXTRA}"),
    (MANAGING, COMPACT, "context_management.edits.0: Input tag 'compact_20260112' found using 'type' does not match"),
    (COMPACTING, USES, "context_management.edits.0: Input tag 'clear_tool_uses_20250919' found using 'type' does not"),
]


@pytest.mark.parametrize(("beta", "edit", "message"), BETAS)
def test_each_edit_wants_its_beta(beta: str, edit: dict[str, Any], message: str) -> None:
    """The edit that compacts came with a beta of its own, which is enough for it."""
    said = managed(body(edit), beta)
    assert said.status == (400 if message else 200)
    assert said.message.startswith(message)


def test_thinking_is_cleared_first() -> None:
    """`clear_thinking_20251015` stands before the other edits, and once."""
    assert managed(body(THINKING, USES, COMPACT)) == Said(200)
    for edits in ((USES, THINKING), (THINKING, THINKING)):
        assert "`clear_thinking_20251015` strategy must be listed first" in managed(body(*edits)).message


@pytest.mark.parametrize(
    ("model", "thinking", "status"),
    [
        (NEW, None, 200),
        (NEW, {"type": "adaptive"}, 200),
        (NEW, {"type": "disabled"}, 400),
        (OLD, {"type": "enabled", "budget_tokens": 1024}, 200),
        (OLD, None, 400),
    ],
)
def test_thinking_is_cleared_only_where_there_is_any(model: str, thinking: Any, status: int) -> None:
    said = managed(body(THINKING, model=model, thinking=thinking))
    assert said.status == status
    assert ("requires `thinking` to be enabled or adaptive" in said.message) == (status == 400)
    assert managed(body(USES, model=model, thinking=thinking)).status == 200


CLEARED = {"type": "clear_tool_uses_20250919", "cleared_tool_uses": 3, "cleared_input_tokens": 900}
ASK: dict[str, Any] = {**body(USES), "betas": [MANAGING]}


def test_a_reply_says_which_edits_were_applied_streamed_and_not() -> None:
    """The script says which, and without a word of it none was; a stream tells it beside its end."""
    script = [
        reply("a", context_management={"applied_edits": [CLEARED]}),
        reply("b", context_management={"applied_edits": [CLEARED]}),
        reply("c"),
    ]
    with FakeMessagesAPI(script) as api:
        client = api.client()
        first = client.beta.messages.create(**ASK)
        with client.beta.messages.stream(**ASK) as stream:
            events = [event.to_dict() for event in stream if event.type in {"message_start", "message_delta"}]
            second = stream.get_final_message()
        for message in (first, second):
            assert message.context_management is not None
            assert message.context_management.to_dict() == {"applied_edits": [CLEARED]}
        start, end = events
        assert "context_management" not in start["message"]  # type: ignore[operator]
        assert end["context_management"] == {"applied_edits": [CLEARED]}
        third = client.beta.messages.create(**ASK)
        assert third.context_management is not None
        assert third.context_management.applied_edits == []


def test_a_reply_to_a_request_without_edits_says_nothing_of_them() -> None:
    with FakeMessagesAPI([reply("a")]) as api:
        assert (
            "context_management"
            not in api.client().beta.messages.create(**{**ASK, "context_management": None}).to_dict()
        )
