"""Type aliases: generic ones, and ones that refer to themselves, mean what they stand for at every depth."""

from __future__ import annotations

import datetime as dt
import enum
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import attrs
import pytest
from typing_extensions import TypeAliasType

from toolloop.core.errors import BadTool
from toolloop.tools import InvalidInput, Tool, tool

T = TypeVar("T")


class Size(enum.Enum):
    SMALL = 1
    TEXT = "text"


@attrs.frozen
class Line:
    qty: int


class Pair(NamedTuple):
    x: int


@attrs.frozen
class Node:
    kids: Tree


# In the way of Python 3.11; a `type` statement makes the same.
Tree = TypeAliasType("Tree", "list[Node]")
Many = TypeAliasType("Many", list[T], type_params=(T,))
Nested = TypeAliasType("Nested", "T | list[Nested[T]]", type_params=(T,))
Deep = TypeAliasType("Deep", "list[Deep] | dict[int, Deep] | Pair | Size | dt.date")
One = TypeAliasType("One", "dict[str, Other] | int")
Other = TypeAliasType("Other", "list[One]")
Direct = TypeAliasType("Direct", "Holder")
Told = TypeAliasType("Told", Annotated[Literal[1, 2], "told"])
Lost = TypeAliasType("Lost", "list[Nowhere]")  # type: ignore[name-defined]  # noqa: F821 - that is the point


@attrs.frozen
class Holder:
    it: Direct | None = None


def taking(annotation: Any) -> Tool[..., Any]:
    """A tool with the one parameter `it`."""

    def take(it: Any) -> Any:
        return it

    take.__annotations__["it"] = annotation
    return tool(take)


def problems(made: Tool[..., Any], given: Any) -> tuple[str, ...]:
    with pytest.raises(InvalidInput) as caught:
        made.prepare({"it": given})
    told: tuple[str, ...] = caught.value.problems
    return told


@pytest.mark.parametrize(
    ("annotation", "given", "expected"),
    [
        (Many[Literal[1, "a"]], [1, "a"], [1, "a"]),
        (Many[Line], [{"qty": 1.0}], [Line(1)]),
        (list[Many[Size]], [[1]], [[Size.SMALL]]),
        (Nested[Size], [[1], "text"], [[Size.SMALL], Size.TEXT]),
        (Tree, [{"kids": [{"kids": []}]}], [Node([Node([])])]),
        (Node, {"kids": [{"kids": []}]}, Node([Node([])])),
        (Deep, [{"1": [1, {"x": 2}]}, "2026-01-31"], [{1: [Size.SMALL, Pair(2)]}, dt.date(2026, 1, 31)]),
        (One, {"a": [1.0, {"b": []}]}, {"a": [1, {"b": []}]}),
        (Direct, {"it": {"it": None}}, Holder(Holder())),
        (Told, 2, 2),
    ],
)
def test_what_fits_an_alias_becomes_what_it_stands_for(annotation: Any, given: Any, expected: Any) -> None:
    assert taking(annotation).prepare({"it": given}) == {"it": expected}


@pytest.mark.parametrize(
    ("annotation", "given", "says"),
    [
        (Many[Literal[1, "a"]], [True], 'it[0]: expected 1 or "a", got true'),
        (Many[Line], [{"qty": 1, "more": 2}], "it[0].more: no such field, got 2"),
        (Tree, [{"kids": [{"kids": [], "more": 1}]}], "it[0].kids[0].more: no such field, got 1"),
        (Direct, {"it": {"it": 3}}, "it.it.it: expected an object, got 3"),
        (Told, True, "it: expected 1 or 2, got true"),
    ],
)
def test_what_does_not_is_told_as_if_there_were_none(annotation: Any, given: Any, says: str) -> None:
    assert problems(taking(annotation), given) == (says,)


@pytest.mark.parametrize("wrong", [True, "86400", {" 1": 1}])
def test_an_alias_of_itself_is_as_strict_below_as_above(wrong: Any) -> None:
    for given in (wrong, [wrong], [[wrong]], {"1": wrong}):
        assert problems(taking(Deep), given)


def test_the_branches_of_a_union_that_take_the_whole_are_told_as_what_else_would_do() -> None:
    assert problems(taking(Nested[int]), [["x"]]) == (
        'it: or else expected an integer, got [["x"]]',
        'it[0]: or else expected an integer, got ["x"]',
        'it[0][0]: expected an integer or an array, got "x"',
    )


def test_only_an_alias_of_itself_is_in_the_schema_by_name() -> None:
    @tool
    def take(a: Many[int], b: Tree, c: Nested[int], d: Nested[str]) -> None: ...

    schema = take.input_schema
    assert set(schema["$defs"]) == {"Tree", "Node", "Nested__1", "Nested__2"}
    assert schema["$defs"]["Nested__1"] == {
        "anyOf": [{"type": "integer"}, {"type": "array", "items": {"$ref": "#/$defs/Nested__1"}}]
    }


def test_an_alias_local_to_a_function_is_found() -> None:
    @attrs.frozen
    class Leaf:
        n: int

    Local = TypeAliasType("Local", "list[Local] | Leaf")  # type: ignore[misc]  # noqa: N806 - a type that mypy refuses

    @tool
    def take(it: Local) -> Any:
        return it

    assert take.prepare({"it": [[{"n": 1}]]}) == {"it": [[Leaf(1)]]}


def test_an_alias_of_what_nobody_defines_is_refused() -> None:
    with pytest.raises(BadTool, match="its parameter 'it': name 'Nowhere' is not defined"):
        taking(Lost).definition()
