"""attrs classes, dataclasses, `TypedDict` and named tuples as parameters: their schema, and what the function gets."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from typing import (
    Annotated,
    Any,
    ClassVar,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Required,
    TypedDict,
    TypeVar,
)

import attrs
import pytest
from pydantic import BaseModel, ConfigDict, Field

from toolloop.core.errors import BadTool
from toolloop.tools import InvalidInput, Tool, tool

Thing = TypeVar("Thing")
Grams = NewType("Grams", int)


def collected(words: Iterable[str]) -> frozenset[str]:
    return frozenset(words)


@attrs.define
class Node:
    """A node of a tree.

    Attributes:
        name: what it is called
        nobody: not a field
    """

    name: str
    _size: int = attrs.field(default=3, validator=attrs.validators.ge(0), metadata={"description": "how big"})
    kids: list[Node] = attrs.field(factory=list, kw_only=True)
    tags: frozenset[str] = attrs.field(default=(), converter=collected)
    above: Annotated[Node | None, "its parent"] = None
    made: int = attrs.field(init=False, default=7)


@attrs.frozen
class Box(Generic[Thing]):
    it: Thing
    by_name: dict[str, Thing | None] = attrs.field(factory=dict)


@dataclasses.dataclass
class Row:
    """A row.

    Args:
        cells: what is in it
    """

    cells: list[Node]
    width: dataclasses.InitVar[int] = 1
    known: ClassVar[int] = 3
    total: int = dataclasses.field(init=False, default=0)
    weight: Grams = dataclasses.field(default=Grams(1), kw_only=True)

    def __post_init__(self, width: int) -> None:
        if width == 13:
            raise RuntimeError("sk-secret")
        self.total = width


class Page(TypedDict, total=False):
    number: Required[int]
    row: Row
    following: Page


class Sized(TypedDict):
    size: int
    note: NotRequired[Annotated[str, Field(max_length=3), "a word"]]


class Pair(NamedTuple):
    x: int
    node: Node | None = None


class Model(BaseModel):
    x: int = 1


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    x: int = 1


@attrs.frozen
class Cat:
    kind: Literal["cat"]
    lives: int = 9


@attrs.frozen
class Dog:
    kind: Literal["dog"]
    tricks: tuple[str, ...] = ()


def problems(made: Tool[..., Any], given: Any) -> tuple[str, ...]:
    with pytest.raises(InvalidInput) as caught:
        made.prepare(given)
    told: tuple[str, ...] = caught.value.problems
    return told


@tool
def plant(node: Node) -> Any:
    return node


def test_an_attrs_class_is_described_by_what_its_constructor_takes() -> None:
    assert plant.input_schema == {
        "type": "object",
        "properties": {"node": {"$ref": "#/$defs/Node"}},
        "required": ["node"],
        "additionalProperties": False,
        "$defs": {
            "Node": {
                "title": "Node",
                "description": "A node of a tree.",
                "type": "object",
                "properties": {
                    "name": {"type": "string", "description": "what it is called"},
                    "size": {"type": "integer", "default": 3, "description": "how big"},
                    "kids": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
                    "tags": {"type": "array", "items": {"type": "string"}, "default": []},
                    "above": {
                        "anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}],
                        "default": None,
                        "description": "its parent",
                    },
                },
                "required": ["name"],
                "additionalProperties": False,
            }
        },
    }


def test_an_attrs_class_is_made_by_its_own_constructor() -> None:
    given = {"name": "a", "size": 1, "kids": [{"name": "b", "tags": ["x", "x"]}], "above": {"name": "c"}}
    expected = Node("a", 1, kids=[Node("b", tags=frozenset(["x"]))], above=Node("c"))
    assert plant.prepare({"node": given}) == {"node": expected}


def test_a_validator_or_converter_that_raises_is_a_problem_of_its_field_and_its_text_is_not_told() -> None:
    def refuse(value: object) -> object:
        raise LookupError("sk-secret")

    def judge(instance: Any, attribute: Any, value: int) -> None:
        if value > instance.first:
            raise RuntimeError("sk-secret")

    def with_self(value: int, instance: Any, field: Any) -> int:
        return 10 // (value - int(instance.first))

    @attrs.define
    class Checked:
        first: int = 1
        second: int = attrs.field(default=0, validator=judge)
        third: Any = attrs.field(default=0, converter=attrs.converters.optional(int))
        fourth: int = attrs.field(default=5, converter=attrs.Converter(with_self, takes_self=True, takes_field=True))  # type: ignore[misc]
        fifth: Any = attrs.field(default=None, converter=attrs.converters.optional(refuse))

    @tool
    def check(it: Checked) -> None: ...

    refused = "expected a value that its validator accepts, got"
    for field, value in (("second", "2"), ("third", '"x"'), ("fourth", "1"), ("fifth", "3")):
        given = {"it": {field: {"2": 2, '"x"': "x", "1": 1, "3": 3}[value]}}
        assert problems(check, given) == (f"it.{field}: {refused} {value}",)
    assert problems(plant, {"node": {"name": "a", "kids": [{"name": "b", "size": -1}]}}) == (
        f"node.kids[0].size: {refused} -1",
    )


def test_a_class_that_refuses_all_its_fields_together_is_told_as_one_problem() -> None:
    @attrs.define
    class Span:
        low: int
        high: int

        def __attrs_post_init__(self) -> None:
            if self.low > self.high:
                raise ValueError("sk-secret")

    @tool
    def both(row: Row, span: Span) -> None: ...

    assert problems(both, {"row": {"cells": [], "width": 13}, "span": {"low": 2, "high": 1}}) == (
        'row: expected a value that its validator accepts, got {"cells":[],"width":13}',
        'span: expected a value that its validator accepts, got {"low":2,"high":1}',
    )


def test_a_generic_attrs_class_is_one_for_each_of_its_meanings() -> None:
    @tool
    def unpack(number: Box[int], node: Box[Node], anything: Box[Any]) -> None: ...

    given = {"number": {"it": 1, "by_name": {"a": None}}, "node": {"it": {"name": "a"}}, "anything": {"it": [1]}}
    number: Box[int] = Box(1, {"a": None})
    assert unpack.prepare(given) == {"number": number, "node": Box(Node("a")), "anything": Box(it=[1])}
    assert problems(unpack, {**given, "number": {"it": "x"}}) == ('number.it: expected an integer, got "x"',)
    assert set(unpack.input_schema["$defs"]) == {"Node", "Box_int_", "Box_Node_", "Box_Any_"}


def test_dataclasses_typed_dicts_and_named_tuples_nest_in_each_other_and_in_themselves() -> None:
    @tool
    def print_(page: Page, pair: Pair, sized: Sized) -> None: ...

    node = {"name": "a"}
    given = {
        "page": {"number": 1, "row": {"cells": [node], "width": 4, "weight": 2}, "following": {"number": 2.0}},
        "pair": {"x": 1, "node": node},
        "sized": {"size": 1, "note": "abc"},
    }
    prepared = print_.prepare(given)
    row = Row([Node("a")], 4, weight=Grams(2))
    assert prepared == {
        "page": {"number": 1, "row": row, "following": {"number": 2}},
        "pair": Pair(1, Node("a")),
        "sized": {"size": 1, "note": "abc"},
    }
    assert type(prepared["pair"]) is Pair
    assert prepared["page"]["row"].total == 4
    definitions = print_.input_schema["$defs"]
    assert definitions["Row"]["description"] == "A row."
    assert definitions["Row"]["properties"]["cells"]["description"] == "what is in it"
    assert definitions["Row"]["properties"]["weight"] == {"type": "integer", "default": 1}
    assert definitions["Page"]["required"] == ["number"]
    assert definitions["Pair"]["required"] == ["x"]
    assert definitions["Sized"]["required"] == ["size"]
    assert definitions["Sized"]["properties"]["note"] == {"type": "string", "maxLength": 3, "description": "a word"}
    given["page"]["following"]["other"] = 1  # type: ignore[index]
    given["sized"]["note"] = "abcd"
    assert problems(print_, given) == (
        "page.following.other: no such field, got 1",
        'sized.note: expected at most 3 characters, got "abcd"',
    )


def test_classes_are_told_apart_by_a_literal() -> None:
    @tool
    def feed(pet: Annotated[Cat | Dog, Field(discriminator="kind")], other: Cat | Dog | None = None) -> None: ...

    assert feed.prepare({"pet": {"kind": "dog", "tricks": ["sit"]}, "other": {"kind": "cat"}}) == {
        "pet": Dog("dog", ("sit",)),
        "other": Cat("cat"),
    }
    assert problems(feed, {"pet": {"kind": "cow"}}) == ("pet.kind: expected one of 'cat', 'dog', got \"cow\"",)
    assert problems(feed, {"pet": {}}) == ("pet.kind: required, but it is missing",)


def test_a_pydantic_model_keeps_its_own_rules_unless_every_object_must_be_closed() -> None:
    def look(model: Model, closed: Closed) -> None: ...

    loose, strict = tool(look), tool(look, strict=True)
    given = {"model": {"x": 2, "more": 1}, "closed": {}}
    assert loose.prepare(given) == {"model": Model(x=2), "closed": Closed()}
    assert problems(strict, given) == ("model.more: no such field, got 1",)
    assert "additionalProperties" not in loose.input_schema["$defs"]["Model"]
    assert strict.input_schema["$defs"]["Model"]["additionalProperties"] is False


@pytest.mark.parametrize(
    "annotation", [dict[str, int], dict[int, str], dict, list[dict[str, Any]], Box[dict[str, int]], Box[Node]]
)
def test_strict_is_refused_for_a_parameter_that_takes_any_fields(annotation: Any) -> None:
    def take(first: int, second: Any) -> None: ...

    take.__annotations__["second"] = annotation
    assert tool(take).definition()
    with pytest.raises(BadTool, match=re.escape("parameter 'second' of take takes an object with any fields")):
        tool(take, strict=True).definition()
    take.__annotations__["second"] = Node
    assert tool(take, strict=True).definition()["strict"] is True
