"""The parameters of a function: their schema, the values that the function gets, and the errors for the model."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, ClassVar, Generic, Literal, NewType, NotRequired, Required, TypeVar

import attrs
import pytest
from hypothesis import given, strategies as st
from pydantic import AfterValidator, BaseModel, Field, ValidationError, field_validator
from typing_extensions import TypeAliasType, TypedDict

from toolloop.errors import BadTool
from toolloop.tools import InvalidInput, Tool, ToolContext, tool

CONTEXT = ToolContext(call_id="c", loop_id="l", iteration=1, depth=0, idempotency_key="k")
Thing = TypeVar("Thing")
Grams = NewType("Grams", int)


class Unknown:
    """A class that no JSON value fits."""


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Person(BaseModel):
    name: str
    friends: list[Person] = []

    @field_validator("name")
    @classmethod
    def has_letters(cls, name: str) -> str:
        if not name.strip():
            raise ValueError("give at least one letter")
        return name


@attrs.define
class Node:
    """A node of a tree.

    Attributes:
        name: what it is called
        absent: not a field
    """

    name: str
    _size: int = attrs.field(default=3, validator=attrs.validators.ge(0), metadata={"description": "how big"})
    kids: list[Node] = attrs.field(factory=list, kw_only=True)
    above: Annotated[Node | None, "its parent"] = None
    made: int = attrs.field(init=False, default=7)


@attrs.frozen
class Box(Generic[Thing]):
    it: Thing
    by_name: dict[str, Thing | None] = attrs.field(factory=dict)


@dataclass
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
            raise LookupError("13 is not a width")
        self.total = width


class Page(TypedDict, total=False):
    number: Required[int]
    row: Row
    following: Page


class Sized(TypedDict):
    size: int
    note: NotRequired[Annotated[str, Field(max_length=3), "a word"]]


@attrs.frozen
class Branch:
    parts: Tree


# In the way of Python 3.11; a `type` statement makes the same.
Tree = TypeAliasType("Tree", "list[Branch]")
Many = TypeAliasType("Many", list[Thing], type_params=(Thing,))
Data = TypeAliasType("Data", "dict[str, Data] | list[Data] | str | int | None")


def make_taking(annotation: Any, **options: Any) -> Tool[..., Any]:
    """A tool with the parameters `first` and `it`."""

    def take(it: Any, first: int = 0) -> Any:
        """Take numbers."""
        return it

    take.__annotations__["it"] = annotation
    return tool(take, **options)


def prepare(annotation: Any, value: Any) -> Any:
    return make_taking(annotation).prepare({"it": value})["it"]


def problems(made: Tool[..., Any] | Any, value: Any) -> tuple[str, ...]:
    if not isinstance(made, Tool):
        made, value = make_taking(made), {"it": value}
    with pytest.raises(InvalidInput) as caught:
        made.prepare(value)
    found: tuple[str, ...] = caught.value.problems
    return found


# --- schema ----------------------------------------------------------------------------------------------------------


def test_an_attrs_class_is_described_by_the_arguments_of_its_constructor() -> None:
    """Descriptions come from the docstring, the metadata or the annotation; `init=False` is left out."""
    assert make_taking(Node).input_schema["properties"]["it"] == {"$ref": "#/$defs/Node"}
    assert make_taking(Node).input_schema["$defs"]["Node"] == {
        "title": "Node",
        "description": "A node of a tree.",
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "what it is called"},
            "size": {"type": "integer", "default": 3, "description": "how big"},
            "kids": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
            "above": {
                "anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}],
                "default": None,
                "description": "its parent",
            },
        },
        "required": ["name"],
        "additionalProperties": False,
    }


def test_dataclasses_and_typed_dicts_are_described_and_closed() -> None:
    """With their descriptions, bounds, defaults and required fields."""

    @tool
    def print_(page: Page, sized: Sized, colour: Colour = Colour.RED) -> None:
        """Print a page."""

    assert print_.input_schema["required"] == ["page", "sized"]
    assert print_.input_schema["properties"]["colour"]["default"] == "red"
    definitions = print_.input_schema["$defs"]
    assert definitions["Row"]["description"] == "A row."
    assert definitions["Row"]["properties"]["cells"]["description"] == "what is in it"
    assert definitions["Row"]["properties"]["weight"] == {"type": "integer", "default": 1}
    assert definitions["Page"]["required"] == ["number"]
    assert definitions["Sized"]["required"] == ["size"]
    assert definitions["Sized"]["properties"]["note"] == {"type": "string", "maxLength": 3, "description": "a word"}
    assert {name for name, each in definitions.items() if each.get("additionalProperties") is False} == {
        *("Node", "Page", "Row", "Sized")
    }


def test_a_default_that_is_not_json_stays_out_of_the_schema() -> None:
    """The function still gets it."""
    cases: list[Any] = [object(), math.inf, math.nan, Node("a"), {"a": {Unknown()}}]
    for default in cases:

        @tool
        def marked(n: Any = default) -> Any:
            """Take a default."""
            return n

        assert marked.input_schema["properties"] == {"n": {}}
        assert type(marked.prepare({})["n"]) is type(default)


def test_strict_closes_every_object() -> None:
    cases: list[Any] = [tuple[int, str], Colour, Literal[1, "a"], int | None, Node, Person, Page]
    for annotation in cases:
        schema = make_taking(annotation, strict=True).input_schema
        assert schema["additionalProperties"] is False
        objects = [each for each in schema.get("$defs", {}).values() if each["type"] == "object"]
        assert all(each["additionalProperties"] is False for each in objects)


def test_a_parameter_whose_name_the_api_refuses_is_named() -> None:
    """The API checks only the outermost names."""

    def plain(ünï: int) -> None:  # noqa: PLC2401 - the point
        """Take a name."""

    def aliased(it: Annotated[int, Field(alias="two words")], ok: Annotated[int, Field(alias="a.b-c")]) -> None:
        """Take aliases."""

    for function, name in ((plain, "ünï"), (aliased, "two words")):
        with pytest.raises(BadTool, match=f"{function.__name__} cannot be a tool: '{name}' is not a valid parameter"):
            tool(function).definition()
    within = TypedDict("within", {"two words": int})
    assert make_taking(within).definition()


def test_an_undefined_name_is_refused_when_the_schema_is_used() -> None:
    @tool
    def lost(thing: Nowhere) -> None:  # type: ignore[name-defined]  # noqa: F821 - that is the point
        """Take something."""

    for use in (lost.definition, lambda: lost.prepare({"thing": 1})):
        with pytest.raises(BadTool, match=r"JSON Schema for its parameter 'thing': name 'Nowhere' is not defined"):
            use()


def test_a_type_without_a_schema_is_refused_when_the_schema_is_used() -> None:
    """The message names the parameter and says what to take."""
    cases: list[Any] = [Unknown, st.SearchStrategy[int], Iterator[int], Callable[[], int]]
    for annotation in cases:
        with pytest.raises(BadTool, match=r"JSON Schema for its parameter 'it': .*attrs classes, dataclasses"):
            make_taking(annotation).definition()


# --- values ----------------------------------------------------------------------------------------------------------


def test_classes_nest_in_each_other_and_in_themselves() -> None:
    """Each instance is made by its class."""
    node = {"name": "a", "size": 1, "kids": [{"name": "b"}], "above": {"name": "c"}}
    row = {"cells": [node], "width": 4, "weight": 2.0}
    page = prepare(Page, {"number": 1, "row": row, "following": {"number": 2}})
    made = Row([Node("a", 1, kids=[Node("b")], above=Node("c"))], 4, weight=Grams(2))
    assert page == {"number": 1, "row": made, "following": {"number": 2}}
    assert page["row"].total == 4


def test_a_generic_attrs_class_is_one_for_each_of_its_meanings() -> None:
    @tool
    def unpack(number: Box[int], node: Box[Node], anything: Box[Any]) -> None:
        """Unpack boxes."""

    values = {"number": {"it": 1, "by_name": {"a": None}}, "node": {"it": {"name": "a"}}, "anything": {"it": [1]}}
    number: Box[int] = Box(1, {"a": None})
    assert unpack.prepare(values) == {"number": number, "node": Box(Node("a")), "anything": Box(it=[1])}
    assert problems(unpack, {**values, "number": {"it": "x"}}) == (
        'number.it: Input should be a valid integer, got "x"',
    )


def test_an_alias_means_what_it_stands_for() -> None:
    """Also a generic one, and one that refers to itself."""
    cases: list[tuple[Any, Any, Any]] = [
        (Many[Node], [{"name": "a"}], [Node("a")]),
        (Tree, [{"parts": [{"parts": []}]}], [Branch([Branch([])])]),
        (Branch, {"parts": [{"parts": []}]}, Branch([Branch([])])),
        (Data, {"a": [1, "b", {"c": None}]}, {"a": [1, "b", {"c": None}]}),
    ]
    for alias, value, expected in cases:
        assert prepare(alias, value) == expected


def test_classes_local_to_a_function_resolve() -> None:
    @attrs.frozen
    class Inner:
        n: int

    @dataclass
    class Outer:
        inner: Inner

    Level = Literal[1, 2]  # noqa: N806 - a type

    @tool
    def local(outer: Outer, level: Level) -> None:
        """Take local types."""

    assert local.prepare({"outer": {"inner": {"n": 3}}, "level": 2}) == {"outer": Outer(Inner(3)), "level": 2}


# --- errors ----------------------------------------------------------------------------------------------------------


@tool
def paint(
    at: Node,
    colour: Colour = Colour.RED,
    mode: Literal["fast", "slow"] = "fast",
    who: Person | None = None,
    size: int | str = 1,
) -> None:
    """Paint a node."""


def test_each_problem_is_one_line_with_path_message_and_value() -> None:
    """The messages are pydantic's own; those of the branches of a union are joined."""
    wrong = {
        "at": {"size": "q"},
        "colour": "green",
        "who": {"name": "Ana", "friends": [{"name": "Bo"}, {"name": 3}]},
        "size": [1],
        "zoom": "x" * 200,
    }
    assert problems(paint, wrong) == (
        "at.name: Field required",
        'at.size: Input should be a valid integer, got "q"',
        "colour: Input should be 'red' or 'blue', got \"green\"",
        "who.friends[1].name: Input should be a valid string, got 3",
        "size: Input should be a valid integer or Input should be a valid string, got [1]",
        f'zoom: Unexpected keyword argument, got "{"x" * 78}…',
    )
    assert problems(paint, {}) == ("at: Missing required keyword only argument",)
    (problem,) = problems(dict[int, str], {"one": "a"})
    assert problem.startswith("it.one: Input should be a valid integer")
    assert problem.endswith('got "one"')


def test_the_text_for_the_model_is_short_and_holds_no_traceback_and_no_links() -> None:
    with pytest.raises(InvalidInput) as caught:
        make_taking(list[Node]).prepare({"it": [{"name": 1}] * 1000})
    text = str(caught.value)
    assert text.startswith("Invalid input for take; the tool did not run:\n- it[0].name: ")
    assert len(caught.value.problems) == 1000
    assert len(text) == 4096
    assert "http" not in text
    assert "Traceback" not in text


def even(value: int) -> int:
    if value % 2:
        raise ValueError(f"{value} is odd; give an even number")
    return value


def verbose(value: int) -> int:
    raise ValueError("too large,\n- and too odd")


def looked_up(value: str) -> str:
    return {"known": value}[value]


def test_the_message_of_a_validator_reaches_the_model() -> None:
    """Validators of pydantic and attrs, and constructors; an exception that is not a ValueError loses its path."""
    cases: list[tuple[Any, Any, str]] = [
        (Annotated[int, AfterValidator(even)], 3, "it: Value error, 3 is odd; give an even number, got 3"),
        (Annotated[int, AfterValidator(verbose)], 3, "it: Value error, too large, - and too odd, got 3"),
        (list[Annotated[int, AfterValidator(even)]], [2, 5], "it[1]: Value error, 5 is odd; give an even number"),
        (Person, {"name": " "}, "it.name: Value error, give at least one letter"),
        (Node, {"name": "a", "kids": [{"name": "b", "size": -1}]}, "it.kids[0]: 'size' must be >= 0: -1"),
        (Row, {"cells": [], "width": 13}, "it: 13 is not a width"),
        (Annotated[str, AfterValidator(looked_up)], "x", "input: KeyError: 'x'"),
    ]
    for annotation, value, expected in cases:
        (problem,) = problems(annotation, value)
        assert problem.replace("'_size'", "'size'").startswith(expected)


def test_a_function_s_own_errors_are_not_invalid_input() -> None:
    @tool
    def fails(kind: str) -> None:
        """Fail."""
        if kind == "value":
            raise ValueError(kind)
        Person.model_validate({})

    for kind, error in (("value", ValueError), ("validation", ValidationError)):
        with pytest.raises(error):
            fails.run(fails.prepare({"kind": kind}), CONTEXT)


def nest(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


def test_an_input_that_is_not_a_json_object_is_invalid() -> None:
    cases: list[tuple[Any, str]] = [
        ({"it": "\ud800"}, "input: Invalid JSON: .*hex escape"),
        ({"it": object()}, "input: not JSON: .*object"),
        ({"it": math.nan}, "input: not JSON: "),
        ({"it": 10**5000}, "input: not JSON: "),
        ({"it": nest(300)}, "input: Invalid JSON: recursion limit"),
        ([1], r"input: expected an object, got \[1\]"),
        (None, "input: expected an object, got null"),
    ]
    for value, expected in cases:
        (problem,) = problems(make_taking(Any), value)
        assert re.match(expected, problem)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(value=st.dictionaries(st.sampled_from(["n", "names", "other"]), JSON) | JSON)
def test_an_input_that_does_not_fit_never_reaches_the_function(value: Any) -> None:
    """Any JSON value in the error text can be sent."""
    seen: list[Any] = []

    @tool
    def take(n: int, names: list[str]) -> None:
        """Take numbers."""
        seen.append((n, names))

    fits = (
        isinstance(value, dict)
        and value.keys() == {"n", "names"}
        and (type(value["n"]) is int or (type(value["n"]) is float and value["n"].is_integer()))
        and type(value["names"]) is list
        and all(isinstance(name, str) and not re.search("[\ud800-\udfff]", name) for name in value["names"])
    )
    if fits:
        take.run(take.prepare(value), CONTEXT)
    else:
        with pytest.raises(InvalidInput) as caught:
            take.run(take.prepare(value), CONTEXT)
        assert caught.value.problems
        assert str(caught.value).encode()
    assert seen == ([(value["n"], value["names"])] if fits else [])


# --- any annotation --------------------------------------------------------------------------------------------------

ODD: list[Any] = [
    *(3, "int", "list[", "Nowhere", object(), Unknown(), Unknown, ..., (), [int], {}, type, type[int], Thing, super),
    *(Callable, Callable[[int], str], Iterator[int], ClassVar[int], Literal, Literal[b"x"], Enum, Annotated, tuple),
    *(tuple[()], dict[Unknown, int], set[list[int]], Required[int], list[Unknown], BaseException, complex, bytes),
    *(type(None), NotImplemented, math, len, re.compile("x")),
]
WRAPS: list[Callable[[Any], Any]] = [lambda it: it, list.__class_getitem__, lambda it: Annotated[it, "told"]]


@given(st.sampled_from(ODD), st.sampled_from(WRAPS))
def test_any_annotation_makes_a_schema_or_is_refused_by_name(odd: Any, wrap: Callable[[Any], Any]) -> None:
    def function(first: int, second: Any) -> None:
        """Take anything."""

    try:
        function.__annotations__["second"] = wrap(odd)
    except Exception:  # noqa: BLE001 - Python itself does not take it
        return
    try:
        schema = tool(function).input_schema
    except BadTool as error:
        named = "'second'" in str(error)
    else:
        named = "second" in schema["properties"]
    assert named


def test_an_iterable_is_a_list_that_is_validated_before_the_function_runs() -> None:
    assert prepare(Iterable[int], [1, 2]) == [1, 2]
    assert problems(Iterable[int], [1, "x"]) == ('it[1]: Input should be a valid integer, got "x"',)
