"""A tool that returns a text: its result comes about without a message around it, and is the same as with one."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.handle.support import params
from toolloop import ToolLoopHandle, ToolRegistry, tool
from toolloop.responses import AnthropicMessagesToolResponseAdapter
from toolloop.testing import ScriptedProvider, call, reply

LOG = logging.getLogger("toolloop.tools")
TEXTS = st.text(alphabet=st.characters(exclude_categories=()), max_size=40) | st.sampled_from(
    ["", " \n", "\ud800", "ok"]
)


def history(text: Any, call_id: str, most: int | None) -> list[Any]:
    """The history after a call whose tool returns this."""

    @tool
    def say() -> Any:
        """Say it."""
        return text

    tools = ToolRegistry([say], adapter=AnthropicMessagesToolResponseAdapter(max_chars=most))
    script = [reply(calls=[call("say", {}, id=call_id)]), reply("done")]
    handle = ToolLoopHandle(ScriptedProvider(script), params=params(), tools=tools)
    handle.run()
    return list(handle.messages)


@given(TEXTS, st.sampled_from(["c1", "toolu_01", "a b", "srvtoolu_1", "mcptoolu_1"]), st.none() | st.integers(1, 60))
@example("\ud800", "c1", 1)
def test_a_text_gives_the_same_result_in_the_quick_way(text: str, call_id: str, most: int | None) -> None:
    """Blank, cut or broken texts and odd ids among them. The log wants the whole way, for it says more."""
    level = LOG.level
    quick = history(text, call_id, most)
    try:
        LOG.setLevel(logging.INFO)
        assert history(text, call_id, most) == quick
    finally:
        LOG.setLevel(level)


class Loud(AnthropicMessagesToolResponseAdapter):
    """An adapter of the caller's own."""

    def create_messages(self, call: Any, response: Any) -> list[dict[str, Any]]:
        """Say it louder."""
        return super().create_messages(call, f"{response}!")


class Text(str):
    """A text of the caller's own kind."""

    __slots__ = ()


@pytest.mark.parametrize("given", [Text("hello"), "hello"])
def test_a_subclass_is_asked_all_the_same(given: str) -> None:
    """What a caller's own adapter does with a text is what counts."""

    @tool
    def say() -> str:
        """Say it."""
        return given

    script = [reply(calls=[call("say", {}, id="c1")]), reply("done")]
    handle = ToolLoopHandle(ScriptedProvider(script), params=params(), tools=ToolRegistry([say], adapter=Loud()))
    handle.run()
    assert handle.messages[2]["content"][0]["content"] == "hello!"
