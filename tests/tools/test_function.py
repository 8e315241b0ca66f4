"""`@tool`: what a function becomes."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from attrs.exceptions import FrozenInstanceError
from pydantic import Field

from toolloop.core.errors import BadTool
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


def test_calling_a_tool_calls_the_function() -> None:
    assert search("a", limit=3) == "a 3"


def test_options_are_sent_in_one_order_and_only_those_given() -> None:
    def judge(_: object) -> bool:
        return True

    @tool(
        eager_input_streaming=True,
        input_examples=({"n": n} for n in (1, 2)),
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


def test_a_function_without_a_docstring_has_no_description() -> None:
    @tool
    def silent() -> None: ...

    assert list(silent.definition()) == ["name", "input_schema"]


def test_a_tool_never_changes() -> None:
    with pytest.raises(FrozenInstanceError):
        search.name = "other"  # type: ignore[misc]
    search.definition()["input_schema"]["properties"].clear()
    search.input_schema["properties"].clear()
    assert set(search.input_schema["properties"]) == {"query", "limit"}
    assert repr(search) == "<Tool search>"


def test_async_functions_give_an_awaitable() -> None:
    @tool
    async def slow(n: int) -> int:
        return n

    class Slow:
        async def __call__(self, n: int) -> int:
            return n

    running = run(slow, n=1)
    assert inspect.iscoroutine(running)
    running.close()
    assert slow.is_async
    assert tool(Slow(), name="slow").is_async
    assert tool(functools.partial(slow.function, n=1)).is_async


def test_a_bound_method_has_no_self() -> None:
    class Box:
        def __init__(self) -> None:
            self.things: list[str] = []

        def put(self, thing: str) -> int:
            """Put it in."""
            self.things.append(thing)
            return len(self.things)

    box = Box()
    put = tool(box.put)
    assert list(put.input_schema["properties"]) == ["thing"]
    assert (put.name, put.description) == ("put", "Put it in.")
    assert run(put, thing="a") == 1
    assert box.things == ["a"]


def test_what_a_partial_binds_is_hidden_from_the_model() -> None:
    bound = tool(functools.partial(search.function, limit=3))
    assert (bound.name, list(bound.input_schema["properties"])) == ("search", ["query"])
    assert run(bound, query="a") == "a 3"


def test_the_context_is_filled_in_and_not_part_of_the_schema() -> None:
    @tool
    def who(context: ToolContext, n: int = 1, also: ToolContext | None = None) -> Any:
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


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (unannotated, "'path' has no annotation"),
        (many, "'paths' takes any number of values"),
        (named, "'paths' takes any name"),
        (positional, "'path' is positional-only"),
        (nonsense, "'path' of nonsense has an annotation that is no type"),
        (yields, "yields yields"),
        (lambda: None, "'<lambda>' cannot be the name of a tool"),
        (3, "no function with a signature"),
    ],
)
def test_what_cannot_be_a_tool_is_refused_at_decoration(function: Any, says: str) -> None:
    with pytest.raises(BadTool, match=says):
        tool(function)


def test_a_method_that_is_not_bound_is_refused_with_the_remedy() -> None:
    class Box:
        def put(self, thing: str) -> None: ...

    with pytest.raises(BadTool, match=r"'self' .*tool\(object.method\)"):
        tool(Box.put)


@pytest.mark.parametrize("name", ["", "two words", "a" * 65, "ä", "a\n"])
def test_a_name_that_the_api_refuses_is_refused_at_decoration(name: str) -> None:
    with pytest.raises(BadTool, match="1 to 64 letters"):
        tool(lambda: None, name=name or " ")


def test_options_that_make_no_sense_are_refused_at_decoration() -> None:
    with pytest.raises(BadTool, match='"pure", "keyed" or "once"'):
        tool(search.function, effect="twice")  # type: ignore[call-overload]
    with pytest.raises(BadTool, match="cache_control is a object"):
        tool(search.function, cache_control=object())  # type: ignore[call-overload]
