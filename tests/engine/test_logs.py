"""The log of calls: with the id of the loop, and above INFO only what needs attention, as `watching.md` says."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.kit.concurrency import Gate, either_kind, make, turn
from tests.kit.support import expect_completed, expect_yielded
from toolloop import ToolRegistry, tool
from toolloop.responses import AnthropicMessagesToolResponseAdapter
from toolloop.testing import reply


class Fragile(AnthropicMessagesToolResponseAdapter):
    """An adapter that fails for texts with an exclamation mark, and for exceptions."""

    def create_messages(self, tool_use: Any, response: Any) -> Any:
        """Make the message, or fail."""
        if isinstance(response, BaseException) or str(response).endswith("!"):
            raise OSError("no adapter")
        return super().create_messages(tool_use, response)


@tool
def say(text: str) -> str:
    """Say something."""
    return text


def broken_filter(_call: object, _content: object) -> None:
    """Fail."""
    raise LookupError("no filter")


def list_logged(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, Any]]:
    return [(record.levelname, record.message, vars(record).get("loop_id")) for record in caplog.records]


@either_kind
def test_each_record_about_a_call_has_the_loop(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """Also those of an adapter, which may be used without a loop."""
    caplog.set_level(logging.INFO, "toolloop")
    calls = [("say", {"text": "yes"}), ("say", {"text": "no!"})]
    tools = ToolRegistry([say], adapter=Fragile())
    handle = make(kind, [reply(calls=calls)], tools, result_filters=[broken_filter])
    expect_yielded(turn(kind, handle))
    assert {(level, message.partition(":")[0], loop) for level, message, loop in list_logged(caplog)} == {
        ("INFO", "tool call answered", "loop"),
        ("ERROR", "the response adapter failed", "loop"),
        ("ERROR", "a result filter failed", "loop"),
    }


@either_kind
def test_a_late_end_is_not_a_warning(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """The timeout is one, and the program may look for both by the loop and the call."""
    caplog.set_level(logging.INFO, "toolloop")
    gate = Gate()

    @tool(timeout=0.01)
    def slow() -> str:
        """Stand at a gate."""
        gate.stand()
        return "too late"

    handle = make(kind, [reply(calls=[("slow", {})]), reply("fine")], [slow])
    expect_yielded(turn(kind, handle)).continue_loop()
    gate.opened.set()
    assert expect_completed(turn(kind, handle)).text == "fine"
    found = list_logged(caplog)
    assert ("WARNING", "a tool exceeded its timeout", "loop") in found
    assert [level for level, _, _ in found if level != "INFO"] == ["WARNING"]
    assert {loop for _, _, loop in found} == {"loop"}
