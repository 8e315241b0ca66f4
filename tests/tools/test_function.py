"""`@tool`: the attributes and the definition of a tool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import pytest
from attrs.exceptions import FrozenInstanceError
from hypothesis import given, strategies as st
from pydantic import Field

from toolloop.errors import BadTool
from toolloop.tools import Tool, ToolContext, tool

if TYPE_CHECKING:
    from collections.abc import Iterator

CONTEXT = ToolContext(
    call_id="c1", loop_id="l1", iteration=2, depth=1, idempotency_key="k1", state={"key": "sk-secret"}
)


@tool
def search(query: str, limit: Annotated[int, Field(description="how many", ge=1)] = 10) -> str:
    """Search the notes.

    Every word must match.

    Args:
        query (str): the words,
            separated by blanks: like this
        limit: not this text

    Returns:
        The notes.
    """
    return f"{query} {limit}"


def run(made: Tool[..., Any], **given: Any) -> Any:
    return made.run(made.prepare(given), CONTEXT)


def test_a_bare_decorator_takes_all_from_the_function() -> None:
    assert search.definition() == {
        "name": "search",
        "description": "Search the notes.\n\nEvery word must match.",
        "input_schema": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "the words, separated by blanks: like this"},
                "limit": {"type": "integer", "minimum": 1, "default": 10, "description": "how many"},
            },
            "required": ["query"],
            "additionalProperties": False,
        },
    }
    assert (search.needs_approval, search.effect, search.is_async) == (False, "once", False)


def test_options_are_sent_in_one_order_and_only_those_given() -> None:
    def judge(_: object) -> bool:
        return True

    @tool(
        eager_input_streaming=True,
        input_examples=[{"n": n} for n in (1, 2)],
        strict=True,
        name="other-name",
        description="Other.",
        needs_approval=judge,
        effect="keyed",
        cache_control={"type": "ephemeral"},
        defer_loading=False,
        allowed_callers=("direct",),
    )
    def function(n: int) -> int:
        """Not this."""
        return n

    definition = function.definition()
    assert list(definition) == [
        *("name", "description", "input_schema", "strict", "cache_control", "defer_loading"),
        *("allowed_callers", "input_examples", "eager_input_streaming"),
    ]
    assert definition["name"] == function.name == "other-name"
    assert definition["description"] == function.description == "Other."
    assert definition["input_examples"] == [{"n": 1}, {"n": 2}]
    assert definition["allowed_callers"] == ["direct"]
    assert (function.needs_approval, function.effect) == (judge, "keyed")


def test_a_tool_never_changes() -> None:
    with pytest.raises(FrozenInstanceError):
        search.name = "other"  # type: ignore[misc]
    search.definition()["input_schema"]["properties"].clear()
    search.input_schema["properties"].clear()
    assert set(search.input_schema["properties"]) == {"query", "limit"}
    assert repr(search) == "<Tool search>"


def test_the_context_is_filled_in_and_not_part_of_the_schema() -> None:
    @tool
    def who(context: ToolContext, n: int = 1, also: ToolContext | None = None) -> Any:
        """Return the contexts."""
        return context, n, also

    assert list(who.input_schema["properties"]) == ["n"]
    assert run(who) == (CONTEXT, 1, CONTEXT)


def test_the_context_shows_no_contents_and_asks_whether_it_is_cancelled() -> None:
    answers = iter([False, True])
    context = ToolContext(
        call_id="c",
        loop_id="l",
        iteration=1,
        depth=0,
        idempotency_key="k",
        state="sk-secret",
        cancelled=lambda: next(answers),
    )
    assert "sk-secret" not in repr(context)
    assert (context.cancelled, context.cancelled, CONTEXT.cancelled) == (False, True, False)
    with pytest.raises(FrozenInstanceError):
        context.depth = 3  # type: ignore[misc]


def unannotated(path):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 - that is the point
    return path


def many(*paths: str) -> None: ...
def named(**paths: str) -> None: ...
def positional(path: str, /) -> None: ...
def nonsense(path: int) -> None: ...
def yields(path: str) -> Iterator[str]:
    yield path


nonsense.__annotations__["path"] = "["


def test_what_cannot_be_a_tool_is_refused_at_decoration() -> None:
    cases: list[tuple[Any, str]] = [
        (unannotated, "'path' has no annotation"),
        (many, "'paths' takes any number of values"),
        (named, "'paths' takes any name"),
        (positional, "'path' is positional-only"),
        (nonsense, "'path' of nonsense has an annotation that is not a type"),
        (yields, "yields is a generator"),
        (lambda: None, "'<lambda>' is not a valid tool name"),
        (3, "its signature cannot be read"),
    ]
    for function, says in cases:
        with pytest.raises(BadTool, match=says):
            tool(function)


def test_a_method_that_is_not_bound_is_refused_with_the_remedy() -> None:
    class Box:
        def put(self, thing: str) -> None: ...

    with pytest.raises(BadTool, match=r"'self' .*tool\(object.method\)"):
        tool(Box.put)


def test_a_name_that_the_api_refuses_is_refused_at_decoration() -> None:
    for name in ("", "two words", "a" * 65, "ä", "a\n"):
        with pytest.raises(BadTool, match="1 to 64 letters"):
            tool(lambda: None, name=name or " ")


@given(st.none() | st.text(" \n", max_size=3))
def test_a_tool_without_a_description_is_refused_at_decoration(doc: str | None) -> None:
    """With the remedy. A docstring or a description is enough, and an empty description is the caller's decision."""

    def bare(path: str) -> str:
        return path

    bare.__doc__ = doc
    with pytest.raises(BadTool, match=r"bare has no description, .*Write a docstring .* or pass description="):
        tool(bare)
    assert "description" not in tool(bare, description="").definition()
    assert tool(bare, description="Read a file.").definition()["description"] == "Read a file."


def test_a_docstring_that_describes_only_parameters_is_refused_when_the_definition_is_used() -> None:
    def bare(path: str) -> str:
        return path

    bare.__doc__ = ":param path: the path."
    made = tool(bare)
    with pytest.raises(BadTool, match=r"the docstring of bare has only sections\. Write a docstring"):
        made.definition()
    assert tool(bare, description="").input_schema["properties"]["path"]["description"] == "the path."
