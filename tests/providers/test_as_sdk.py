"""Replies as the SDK's objects."""

from __future__ import annotations

from toolloop.providers import as_sdk
from toolloop.testing import call, reply


def test_a_reply_is_had_with_attributes() -> None:
    """A block that the SDK does not know keeps its type."""
    said = reply("Hi", calls=[call("add", {"a": 2**70}, id="toolu_1")], content=[{"type": "tea", "leaves": 3}])
    message = as_sdk(said)
    assert [block.type for block in message.content] == [block["type"] for block in said["content"]]
    assert message.content[0].to_dict()["text"] == "Hi"
    assert message.content[-1].to_dict()["input"] == {"a": 2**70}
    assert message.stop_reason == "tool_use"
