"""`ToolRegistry`: tools by name, in order."""

from __future__ import annotations

from typing import Any

import pytest

from toolloop.errors import BadTool
from toolloop.responses import AnthropicMessagesToolResponseAdapter
from toolloop.tools import ToolRegistry, tool


@tool
def zebra() -> None:
    """Look at zebras."""


@tool
def apple() -> None:
    """Look at apples."""


@tool
def mango() -> None:
    """Look at mangos."""


def plain_function() -> None:
    """Do nothing."""


REGISTRY = ToolRegistry(iter([zebra, apple, mango]))


def test_the_order_is_kept_and_tools_are_found_by_name() -> None:
    assert REGISTRY.names == ("zebra", "apple", "mango")
    assert list(REGISTRY) == [zebra, apple, mango]
    assert [each["name"] for each in REGISTRY.definitions()] == ["zebra", "apple", "mango"]
    assert REGISTRY.get("apple") is apple
    assert REGISTRY.get("pear") is None
    assert (len(REGISTRY), "apple" in REGISTRY, "pear" in REGISTRY) == (3, True, False)
    assert repr(REGISTRY) == "<ToolRegistry: zebra, apple, mango>"
    assert repr(ToolRegistry()) == "<ToolRegistry: no tools>"


def test_a_subset_keeps_the_order_and_leaves_the_whole_alone() -> None:
    assert REGISTRY.only("mango", "zebra").names == ("zebra", "mango")
    assert REGISTRY.without("apple").names == ("zebra", "mango")
    assert REGISTRY.only().names == ()
    assert len(REGISTRY) == 3


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    for subset in (REGISTRY.only, REGISTRY.without):
        with pytest.raises(BadTool, match="'pear'; available: zebra, apple, mango"):
            subset("apple", "pear")
    with pytest.raises(BadTool, match="available: none"):
        ToolRegistry().only("pear")


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(BadTool, match="two tools are named 'apple'"):
        ToolRegistry([apple, tool(plain_function, name="apple")])


class WithCall:
    def call(self) -> None: ...
    def to_dict(self) -> dict[str, Any]:
        return {}


def test_a_value_that_is_not_a_tool_is_refused_with_the_remedy() -> None:
    cases: list[tuple[Any, str]] = [
        (plain_function, r"Decorate it with @tool, or pass tool\(plain_function\)"),
        (3, "int is not a tool. Pass a function made with @tool"),
        ({"name": "web_search"}, r"web_search is a definition without a function. .* params\['tools'\]"),
        (WithCall, "WithCall is not a tool"),
        (WithCall(), "None is not a valid tool name"),
    ]
    for thing, says in cases:
        with pytest.raises(BadTool, match=says):
            ToolRegistry([thing])


class Own:
    """An adapter without a base class."""

    def to_plain_text(self, response: Any) -> str:
        return "own"

    def create_messages(self, call: Any, response: Any) -> list[dict[str, Any]]:
        return []


def test_an_own_adapter_goes_along_into_every_subset() -> None:
    cases: list[Any] = [Own(), AnthropicMessagesToolResponseAdapter(max_chars=5)]
    for adapter in cases:
        registry = ToolRegistry([apple, mango], adapter=adapter)
        assert registry.adapter is registry.only("apple").adapter is registry.without("apple").adapter is adapter


def test_a_wrong_adapter_is_refused_with_what_to_give() -> None:
    cases: list[tuple[Any, str]] = [
        (Own, "got the class Own"),
        (5, "adapter: expected an object with create_messages and to_plain_text, .*, got an int"),
        (lambda value: value, "got a function"),
    ]
    for adapter, says in cases:
        with pytest.raises(TypeError, match=says) as raised:
            ToolRegistry([apple], adapter=adapter)
        assert "AnthropicMessagesToolResponseAdapter()" in str(raised.value)
