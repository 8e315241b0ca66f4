"""The short way of a text to its result: it comes to what the long way comes to."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolloop.responses import AnthropicMessagesToolResponseAdapter
from toolloop.tools import content_of

TEXTS = st.text() | st.text("aé \n\ud83d\ude00") | st.text(min_size=200, max_size=400)
CALL: dict[str, Any] = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}


class Own(AnthropicMessagesToolResponseAdapter):
    """One that says the same, but might not."""


@given(TEXTS, st.none() | st.integers(1, 300))
def test_a_text_is_the_content_of_its_result(text: str, most: int | None) -> None:
    """Cut, mended or blank."""
    adapter = AnthropicMessagesToolResponseAdapter(max_chars=most)
    ((message),) = adapter.create_messages(CALL, text)
    (block,) = message["content"]
    content = block["content"] and block["content"][0]["text"]
    assert block.keys() == {"type", "tool_use_id", "content"}
    assert adapter.text_of("toolu_1", text) == content == content_of(content)


@pytest.mark.parametrize("call_id", ["", " ", "a b", "srvtoolu_1", "mcptoolu_1"])
def test_a_call_that_no_result_answers_goes_the_long_way(call_id: str) -> None:
    """Which refuses it."""
    adapter = AnthropicMessagesToolResponseAdapter()
    assert adapter.text_of(call_id, "text") is None
    with pytest.raises(ValueError, match=r"id|server"):
        adapter.create_messages({**CALL, "id": call_id}, "text")


def test_a_subclass_and_a_log_that_is_read_go_the_long_way(caplog: pytest.LogCaptureFixture) -> None:
    """Where there are words of somebody's own to be asked for, or something is to be told."""
    assert Own().text_of("toolu_1", "text") is None
    with caplog.at_level(logging.INFO, "toolloop.tools"):
        assert AnthropicMessagesToolResponseAdapter().text_of("toolu_1", "text") is None
