"""What an MCP server returned, as what a tool returns: the odd cases. The usual ones come over a real connection."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tools.mcp_server import CONTENTS
from toolloop import ToolError
from toolloop.history import check
from toolloop.responses import AnthropicMessagesToolResponseAdapter, FileResponse
from toolloop.tools.mcp.contents import value_of


def test_an_error_with_structured_content_alone_says_that() -> None:
    """Better than nothing."""
    with pytest.raises(ToolError, match=r'{"code":7}'):
        value_of({"content": [], "structuredContent": {"code": 7}, "isError": True})


@pytest.mark.parametrize("content", [{"type": "hologram"}, {"type": "resource_link", "name": "x", "uri": " "}])
def test_what_nobody_knows_is_named(content: dict[str, Any]) -> None:
    """A later MCP may have more kinds; a link to nowhere is none."""
    said = value_of({"content": [content]})
    assert isinstance(said, str)
    assert content["type"] in said


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        ("file:///a/the%20report.pdf", "the report.pdf"),
        ("https://example.com/x/y.zip?z=1#w", "y.zip"),
        ("https://example.com/", "example.com"),
        ("urn:isbn:123", "urn:isbn:123"),
        ("/%20/", "resource"),
    ],
)
def test_a_file_is_called_by_the_end_of_its_uri(uri: str, name: str) -> None:
    """Whatever is a URI to the server."""
    found = value_of({"content": [{"type": "resource", "resource": {"uri": uri, "blob": "AAAA", "mimeType": None}}]})
    assert found == FileResponse(name, "application/octet-stream", b"\0\0\0")


def test_base64_may_have_line_breaks() -> None:
    """As in mail."""
    found = value_of({"content": [{"type": "audio", "data": "AAAA\r\nAAAA\n", "mimeType": "audio/wav"}]})
    assert found == FileResponse("audio", "audio/wav", b"\0" * 6)


PART = st.sampled_from([*CONTENTS.values(), {"type": "text", "text": " "}, {"type": "text", "text": "\ud800"}])
ODD = st.none() | st.integers() | st.text(max_size=3) | st.just([{"uri": 1}]) | st.just({"uri": " ", "blob": "AAAA"})
# Content with anything at all in one place.
BROKEN = st.builds(
    lambda part, key, odd: {**part, key: odd},
    PART,
    st.sampled_from(["type", "text", "data", "mimeType", "resource", "uri", "name"]),
    ODD,
)


@given(contents=st.lists(PART | BROKEN | ODD, max_size=4))
def test_whatever_comes_can_be_sent(contents: list[Any]) -> None:
    """As a result that breaks no rule; a tool that failed always says something."""
    call = {"type": "tool_use", "id": "toolu_1", "name": "x", "input": {}}
    answer = AnthropicMessagesToolResponseAdapter().create_messages(call, value_of({"content": contents}))
    history = [{"role": "user", "content": "go"}, {"role": "assistant", "content": [call]}, *answer]
    assert [problem for problem in check(history) if problem.level == "error"] == []
    with pytest.raises(ToolError) as caught:
        value_of({"content": contents, "isError": True})
    assert str(caught.value).strip()
