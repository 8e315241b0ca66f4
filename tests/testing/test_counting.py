"""The fake API counts tokens: the same judge, another list of parameters, and no answer of the script."""

from __future__ import annotations

from typing import Any

import anthropic
import pytest

from toolloop.testing import FakeMessagesAPI, reply

HI: dict[str, Any] = {"role": "user", "content": "Hi"}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "4"}
ADD: Any = {"name": "add", "input_schema": {"type": "object"}}
CODE: Any = {"type": "code_execution_20250825", "name": "code_execution"}
ASK: dict[str, Any] = {"model": "claude-opus-5-5", "messages": [HI]}


def test_tokens_are_counted_and_the_script_stays_whole() -> None:
    """Longer conversations have more tokens, so have more tools and a system prompt; the next answer is the first."""
    with FakeMessagesAPI([reply("one")]) as api:
        client = api.client()
        few = client.messages.count_tokens(**ASK).input_tokens
        more = client.messages.count_tokens(**{**ASK, "messages": [HI, {"role": "user", "content": "x" * 400}]})
        assert few > 0
        assert more.input_tokens - few >= 100
        assert client.messages.count_tokens(**ASK, system="Be brief, please.").input_tokens > few
        assert client.messages.count_tokens(**ASK, tools=[ADD]).input_tokens > few
        assert client.beta.messages.count_tokens(**ASK).input_tokens == few
        assert client.messages.create(**ASK, max_tokens=9).to_dict()["content"] == [{"type": "text", "text": "one"}]
        paths = [request.path for request in api.requests]
        assert paths == [*["/v1/messages/count_tokens"] * 5, "/v1/messages"]
        assert [request.status for request in api.requests] == [200] * 6


def refused(request: dict[str, Any], **more: Any) -> str | None:
    """What the server says against a request to count, or None; it is recorded like any other."""
    betas = ["context-management-2025-06-27", "compact-2026-01-12", "compact-2026-09-04"]
    with FakeMessagesAPI([]) as api:
        try:
            api.client().beta.messages.count_tokens(**request, betas=betas, extra_body=more)
        except anthropic.BadRequestError as error:
            told: Any = error.body
            assert [request.status for request in api.refused] == [400]
            return str(told["error"]["message"])
        assert api.refused == []
        return None


@pytest.mark.parametrize(
    "name", ["max_tokens", "stream", "stop_sequences", "metadata", "container", "service_tier", "inference_geo", "mood"]
)
def test_what_only_shapes_a_reply_is_refused(name: str) -> None:
    assert refused(ASK) is None
    assert refused(ASK, **{name: None}) == f"{name}: Extra inputs are not permitted"


def test_the_conversation_is_judged_as_where_a_reply_is_asked_for() -> None:
    called = {**ASK, "tools": [ADD], "messages": [HI, {"role": "assistant", "content": [CALL]}]}
    assert "`tool_use` ids were found without" in (refused(called) or "")
    called["messages"].append({"role": "user", "content": [RESULT]})
    assert refused(called) is None
    assert "does not support assistant message prefill" in (
        refused({**ASK, "messages": [HI, {"role": "assistant", "content": "I"}]}) or ""
    )


def test_nothing_is_asked_of_the_reply_that_there_is_not() -> None:
    """Neither how long it may be, nor where the code goes on."""
    manual: Any = {"type": "enabled", "budget_tokens": 30_000}
    assert refused({**ASK, "model": "claude-sonnet-4-5", "thinking": manual}) is None
    by_code = {**CALL, "caller": {"type": "code_execution_20250825", "tool_id": "srvtoolu_1"}}
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "code_execution", "input": {}}
    messages = [HI, {"role": "assistant", "content": [search, by_code]}, {"role": "user", "content": [RESULT]}]
    assert refused({**ASK, "tools": [ADD, CODE], "messages": messages}) is None


def test_context_management_is_told_of() -> None:
    """The count before any edit is given beside it; the fake API edits nothing."""
    edits: Any = {"edits": [{"type": "clear_tool_uses_20250919"}]}
    with FakeMessagesAPI([]) as api:
        counted = api.client().beta.messages.count_tokens(
            **ASK, context_management=edits, betas=["context-management-2025-06-27"]
        )
        assert counted.context_management is not None
        assert counted.context_management.original_input_tokens == counted.input_tokens
    with pytest.raises(anthropic.BadRequestError, match="context_management: Extra inputs"), FakeMessagesAPI([]) as api:
        api.client().beta.messages.count_tokens(**ASK, context_management=edits)


def test_a_compaction_that_is_asked_for_is_passed_over() -> None:
    """The tokens of the conversation are counted as it was sent; only context management cannot be asked for too."""
    summarize: Any = {"type": "summarize"}
    choice: Any = {"type": "any"}
    assert refused({**ASK, "tools": [ADD], "compaction": summarize, "tool_choice": choice}) is None
    edits: Any = {"edits": [{"type": "clear_tool_uses_20250919"}]}
    both = refused({**ASK, "compaction": summarize, "context_management": edits})
    assert both == "compaction: cannot be combined with `context_management`"


def test_a_server_that_enforces_nothing_counts_anything() -> None:
    with FakeMessagesAPI([], enforce=False) as api:
        assert api.client().messages.count_tokens(model="nobody", messages=[]).input_tokens > 0
