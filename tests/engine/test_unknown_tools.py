"""A call of an unknown tool gets the names that are near, and no more than the model can use."""

from __future__ import annotations

from typing import Any

from tests.kit.tools import look, params, send
from toolloop import ToolLoopHandle, tool
from toolloop.testing import ScriptedProvider, call, reply


def told(known: Any, **more: Any) -> str:
    """The result of a call of `lok`."""
    script = ScriptedProvider([reply(calls=[call("lok", {}, id="t1")]), reply("done")])
    handle = ToolLoopHandle(script, params=params(**more), tools=known)
    assert handle.run().unwrap().text == "done"
    return str(handle.messages[2]["content"][0]["content"])


def test_few_tools_are_all_named() -> None:
    """Also those that only the parameters define, but none that is deferred."""

    @tool(defer_loading=True)
    def lock() -> str:
        """Lock."""
        return ""

    raw: list[Any] = [{"name": name, "input_schema": {"type": "object"}} for name in ("ask", "look2")]
    raw[1]["defer_loading"] = True
    assert told([send, look, lock], tools=raw) == "There is no tool named 'lok'. The tools are: ask, look, send."


def test_of_many_the_nearest_ten_are_named() -> None:
    """The reply stays short."""
    many = [tool(lambda: "", name=f"tool_{number}", description="One of many.") for number in range(300)]
    text = told([*many, look])
    assert text.startswith("There is no tool named 'lok'. The tools are: look, ")
    assert text.endswith(", and 291 others.")
    assert len(text) < 250
