"""What a schema says is so: names of fields, defaults, closed objects; or the parameter is refused by name."""

from __future__ import annotations

import dataclasses
import enum
import re
import threading
from collections.abc import Hashable, Mapping
from typing import Annotated, Any, Literal, TypedDict

import attrs
import pytest
from pydantic import BaseModel, ConfigDict, Field, Json, WithJsonSchema
from pydantic.dataclasses import dataclass as pydantic_dataclass

from toolloop.core.errors import BadTool
from toolloop.tools import InvalidInput, Tool, ToolContext, tool

# A set where pydantic wants JSON, as a careless author has it.
EXTRA: dict[str, Any] = {"x": {"enum": frozenset("ab")}}


class Size(enum.Enum):
    SMALL = 1
    TEXT = "text"


class Nothing(enum.Enum):
    """Not a member."""


def taking(annotation: Any, **options: Any) -> Tool[..., Any]:
    """A tool with the parameters `first` and `it`."""

    def take(it: Any, first: int = 0) -> Any:
        return it

    take.__annotations__["it"] = annotation
    return tool(take, **options)


def described(annotation: Any) -> Any:
    return taking(annotation).input_schema["properties"]["it"]


def prepared(annotation: Any, given: Any) -> Any:
    return taking(annotation).prepare({"it": given})["it"]


def problems(annotation: Any, given: Any) -> tuple[str, ...]:
    with pytest.raises(InvalidInput) as caught:
        taking(annotation).prepare({"it": given})
    told: tuple[str, ...] = caught.value.problems
    return told


def test_an_enum_or_a_literal_names_fields_by_the_text_of_its_values() -> None:
    by_size, by_choice = dict[Size, int], Mapping[Literal[2, True, "a"], int]
    assert described(by_size)["propertyNames"] == {"enum": ["1", "text"]}
    assert prepared(by_size, {"1": 1, "text": 2.0}) == {Size.SMALL: 1, Size.TEXT: 2}
    assert problems(by_size, {"2": "x"}) == (
        'it["2"] (the name): expected "1" or "text", got "2"',
        'it["2"]: expected an integer, got "x"',
    )
    given = {"2": 1, "true": 2, "a": 3}
    assert prepared(by_choice, given) == {2: 1, True: 2, "a": 3}


def test_an_integer_names_a_field_as_json_writes_it() -> None:
    natural = dict[Annotated[int, Field(ge=0)], str]
    assert described(natural)["patternProperties"] == {"^(0|-?[1-9][0-9]*)$": {"type": "string"}}
    assert prepared(natural, {"0": "a", "12": "b"}) == {0: "a", 12: "b"}
    assert problems(natural, {"-1": "a"}) == ('it["-1"] (the name): expected at least 0, got "-1"',)
    (problem,) = problems(dict[int, int], {"1" * 5000: 1})
    assert "expected a value that its validator accepts" in problem


class ByFloat(BaseModel):
    it: dict[float, int]


@pytest.mark.parametrize(
    ("annotation", "says"),
    [
        *((dict[key, int], "the names of the fields of an object are texts") for key in (float, bool, None)),  # type: ignore[valid-type] # made at run time
        (Mapping[tuple[int, int], int], "the names of the fields of an object are texts"),
        (ByFloat, "the names of the fields of an object are texts"),
        (Nothing, "Nothing has no members"),
        (complex, "complex.* is not JSON: give two numbers"),
        (type[int], "is not JSON: give its name"),
        (list[type], "is not JSON: give its name"),
        (Hashable, "is not JSON: say which values it takes"),
        (list[ToolContext], r"annotated ToolContext itself, or ToolContext \| None"),
        (Annotated[str, Field(examples=[{"a"}])], "examples or json_schema_extra hold a set"),
        (Annotated[str, Field(json_schema_extra=EXTRA)], "hold a set"),
    ],
)
def test_what_no_call_could_give_is_refused(annotation: Any, says: str) -> None:
    with pytest.raises(BadTool, match=f"its parameter 'it': .*{says}"):
        taking(annotation).definition()


def test_a_set_in_the_description_of_a_model_is_refused() -> None:
    class ByField(BaseModel):
        it: Annotated[str, Field(examples=[["a", {"b"}]])]

    class ByConfig(BaseModel):
        model_config = ConfigDict(json_schema_extra=EXTRA)

    @pydantic_dataclass
    class ByDataclass:
        it: str = Field(json_schema_extra=EXTRA)

    for kind in (ByField, ByConfig, ByDataclass):
        with pytest.raises(BadTool, match=r"its parameter 'it': .*hold a set, which has no order"):
            taking(kind).definition()

    @tool
    def by_default(it: str = Field(examples=[{"a"}])) -> None: ...

    with pytest.raises(BadTool, match=r"its parameter 'it': .*hold a set, which has no order"):
        by_default.definition()


def test_a_set_of_anything_takes_what_can_be_in_one() -> None:
    assert described(set) == {"type": "array", "items": {"type": ["string", "number", "boolean", "null"]}}
    assert prepared(frozenset, [1, "a", None, 1]) == {1, "a", None}
    assert problems(set[Any], [1, [2]]) == ("it[1]: expected a string, a number, true, false or null, got [2]",)


def test_a_default_that_the_schema_refuses_is_not_in_it() -> None:
    @attrs.define
    class Converted:
        n: int = attrs.field(default="7", converter=int)  # type: ignore[assignment] # the converter takes it

    class Model(BaseModel):
        n: int = None  # type: ignore[assignment] # as many write it

    def take(
        a: int = None,  # type: ignore[assignment]  # noqa: RUF013 - as many write it
        b: bool = 1,  # type: ignore[assignment] # likewise
        c: int = True,
        d: int | None = None,
        e: float = 1,
    ) -> None: ...

    properties = tool(take).input_schema["properties"]
    assert [properties[name].get("default", "none") for name in "abcde"] == ["none", "none", "none", None, 1]
    for kind in (Converted, Model):
        assert "default" not in taking(kind).input_schema["$defs"][kind.__name__]["properties"]["n"]
    assert tool(take).prepare({}) == {"a": None, "b": 1, "c": True, "d": None, "e": 1}


def test_the_default_of_a_dataclass_is_what_its_constructor_takes() -> None:
    @dataclasses.dataclass
    class Plain:
        words: frozenset[str] = frozenset("ba")
        made: int = dataclasses.field(init=False, default=9)

    @dataclasses.dataclass
    class Lossy:
        kept: int
        lost: dataclasses.InitVar[int]

    @tool
    def take(plain: Plain = Plain(), lossy: Lossy = Lossy(1, 2)) -> None: ...  # noqa: B008 - never changed

    properties = take.input_schema["properties"]
    assert properties["plain"]["default"] == {"words": ["a", "b"]}
    assert "default" not in properties["lossy"]


def test_a_default_that_cannot_be_copied_is_refused() -> None:
    lock = threading.Lock()

    @tool
    def take(first: int, it: list[Any] = [lock]) -> None: ...  # noqa: B006 - the point

    for use in (take.definition, lambda: take.prepare({"first": 1})):
        with pytest.raises(BadTool, match="parameter 'it' of take has a default that cannot be copied"):
            use()


def test_a_parameter_whose_name_the_api_refuses_is_named() -> None:
    def plain(ünï: int) -> None: ...  # noqa: PLC2401 - the point

    def aliased(it: Annotated[int, Field(alias="two words")], ok: Annotated[int, Field(alias="a.b-c")]) -> None: ...

    within = TypedDict("within", {"two words": int})  # the API looks at the outermost names only
    for function, name in ((plain, "ünï"), (aliased, "two words")):
        with pytest.raises(BadTool, match=f"parameter '{name}' of {function.__name__} cannot be sent"):
            tool(function).definition()
    assert taking(within).definition()


class Conditional(BaseModel):
    model_config = ConfigDict(json_schema_extra={"if": {"properties": {"x": {"type": "object"}}}})
    x: int = 0


@pytest.mark.parametrize(
    "annotation",
    [
        *(Any, object, list, tuple, list[Any], dict[str, list[int]], Conditional, int | Any),
        Annotated[Any, WithJsonSchema({"type": ["object", "null"]})],
        Annotated[Any, WithJsonSchema({"type": ["array", "null"]})],
        Annotated[Any, WithJsonSchema({"type": "array", "contains": {}, "items": {"type": "string"}})],
        Annotated[Any, WithJsonSchema({"not": {"type": "string"}})],
    ],
)
def test_strict_is_refused_for_what_cannot_be_closed(annotation: Any) -> None:
    assert taking(annotation).definition()
    with pytest.raises(BadTool, match=re.escape("parameter 'it' of take takes an")):
        taking(annotation, strict=True).definition()


@pytest.mark.parametrize("annotation", [tuple[()], tuple[int, str], set, Json, Size, Literal[1, "a"], int | None])
def test_strict_takes_what_holds_no_object(annotation: Any) -> None:
    assert taking(annotation, strict=True).definition()["strict"] is True
