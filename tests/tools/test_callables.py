"""The callables that can be tools."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any, Final, NamedTuple, NewType, Optional, Union

import pytest
import tenacity
from pydantic import Field
from typing_extensions import TypeAliasType

from toolloop import tools  # noqa: F401 - named in annotations that are strings
from toolloop.errors import BadTool
from toolloop.tools import Tool, ToolContext, tool

CONTEXT = ToolContext(call_id="c", loop_id="l", iteration=1, depth=0, idempotency_key="k")


class Box:
    """A box."""

    @classmethod
    def made(cls, n: int) -> str:
        return f"{cls.__name__} {n}"

    @staticmethod
    def plain(n: int) -> str:
        return f"plain {n}"

    def put(self, n: int, *, times: int = 1) -> str:
        return f"put {n * times}"

    twice = functools.partialmethod(put, times=2)

    async def later(self, n: int) -> str:
        return f"later {n}"

    def __call__(self, n: int) -> str:
        """Open it.

        Args:
            n: how often
        """
        return f"called {n}"


class Async:
    """Wait."""

    async def __call__(self, n: int, m: int = 0) -> str:
        return f"waited {n}"


def outcome(made: Tool[..., Any], **given: Any) -> Any:
    value = made.run(made.prepare(given), CONTEXT)
    assert made.is_async is inspect.isawaitable(value)
    if not inspect.isawaitable(value):
        return value
    with pytest.raises(StopIteration) as caught:
        value.__await__().send(None)
    return caught.value.value


@tenacity.retry(stop=tenacity.stop_after_attempt(2))
def retried(n: int) -> str:
    """Try."""
    return f"retried {n}"


@tenacity.retry(stop=tenacity.stop_after_attempt(2))
async def retried_later(n: int) -> str:
    """Try."""
    return f"retried {n}"


def add(left: int, n: int, *, right: int = 0) -> str:
    """Add."""
    return f"{left} {n} {right}"


async def add_later(left: int, n: int) -> str:
    return f"{left} {n}"


def test_whatever_is_called_like_a_function_runs_with_what_the_model_gives() -> None:
    cases: list[tuple[Callable[..., Any], str]] = [
        (Box.made, "Box 3"),
        (Box().made, "Box 3"),
        (Box.plain, "plain 3"),
        (Box().put, "put 3"),
        (Box().twice, "put 6"),
        (Box().later, "later 3"),
        (Box(), "called 3"),
        (Async(), "waited 3"),
        (retried, "retried 3"),
        (retried_later, "retried 3"),
        (functools.partial(add, 1), "1 3 0"),
        (functools.partial(add, 1, right=2), "1 3 2"),
        (functools.partial(functools.partial(add, 1), right=2), "1 3 2"),
        (functools.partial(add_later, 1), "1 3"),
        (functools.partial(Async(), m=1), "waited 3"),
        (functools.partial(Box().put), "put 3"),
    ]
    for function, expected in cases:
        made = tool(function, name="made", description="Make it.")
        assert made.input_schema["properties"]["n"]["type"] == "integer"
        assert made.input_schema["required"] == ["n"]
        assert outcome(made, n=3) == expected


class Yields:
    def __call__(self, n: int) -> Iterator[int]:
        yield n


async def yields_later(n: int) -> AsyncIterator[int]:
    yield n


def test_what_yields_cannot_be_a_tool() -> None:
    cases: list[Callable[..., Any]] = [Yields(), yields_later, functools.partial(yields_later, 1)]
    for function in cases:
        with pytest.raises(BadTool, match="is a generator, but a tool has one result"):
            tool(function)


def test_a_tool_has_the_name_the_docstring_and_the_signature_of_its_function() -> None:
    made: Any = tool(add, name="other")
    assert (made.__name__, made.__wrapped__, made.__doc__) == ("other", add, add.__doc__)
    assert inspect.signature(made) == inspect.signature(add)
    assert list(inspect.signature(Tool).parameters)[:3] == ["name", "description", "function"]
    bound = tool(functools.partial(made, 1))
    assert list(bound.input_schema["properties"]) == ["n", "right"]
    assert outcome(bound, n=2) == "1 2 0"


def test_a_tool_is_not_made_a_tool_again() -> None:
    made = tool(add)
    with pytest.raises(BadTool, match=r"add is already a tool\. .*tool\(add.function, ...\)"):
        tool(made)
    with pytest.raises(BadTool, match="add is already a tool"):
        tool(name="other")(made)
    assert tool(made.function, name="other").name == "other"


Alias = TypeAliasType("Alias", ToolContext)
New = NewType("New", ToolContext)
Stateful = TypeAliasType("Stateful", ToolContext[dict[str, int]])
StatefulNew = NewType("StatefulNew", ToolContext[int])


def test_the_context_is_given_however_it_is_asked_for() -> None:
    cases: list[Any] = [
        *(ToolContext, ToolContext | None, Union[None, ToolContext], Annotated[ToolContext, "told"], Alias, New),  # noqa: UP007 - the old way
        *(Annotated[ToolContext | None, "told"], Annotated[Optional[ToolContext], Field(description="told")]),  # noqa: UP045 - likewise
        *(Final[ToolContext], New | None, Annotated[Alias, "told"]),
        *(ToolContext[int], ToolContext[list[int]] | None, Annotated[ToolContext[Any], "told"], Stateful, StatefulNew),
        *("ToolContext[int]", "ToolContext[int] | None", "tools.ToolContext[int]"),
        # A class that only type checkers import, or that is defined later.
        *("ToolContext[Unknown]", "ToolContext[list[unknown.State]] | None", "tools.ToolContext[Unknown]"),
    ]
    for annotation in cases:

        def take(n: int, context: Any = None) -> Any:
            """Return the context."""
            return context

        take.__annotations__["context"] = annotation
        made = tool(take)
        assert list(made.input_schema["properties"]) == ["n"]
        assert made.run(made.prepare({"n": 1}), CONTEXT) is CONTEXT


@dataclasses.dataclass
class Point:
    x: int


class Pair(NamedTuple):
    x: int


class Said(NamedTuple):
    """A pair."""

    x: int


def test_the_docstring_that_python_gives_a_class_is_none() -> None:
    assert tool(Said).description == "A pair."
    for kind in (Point, Pair):
        with pytest.raises(BadTool, match=f"{kind.__name__} has no description"):
            tool(kind)


class Context(ToolContext):
    """Not the one that is given."""


def test_a_parameter_that_is_not_a_context_does_not_get_one() -> None:
    cases: list[Any] = [list[ToolContext], dict[str, ToolContext], Context, Context | None, list[ToolContext[int]]]
    cases += ["list[ToolContext[Unknown]]", "Unknown[ToolContext]"]
    for annotation in cases:

        def take(n: int, context: Any) -> None:
            """Return the context."""

        take.__annotations__["context"] = annotation
        with pytest.raises(BadTool, match="JSON Schema for its parameter 'context'"):
            tool(take).definition()
