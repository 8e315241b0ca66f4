"""What the caller's own functions raise is never told, and inside pydantic models too an input is judged as JSON."""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Callable
from typing import Annotated, Any, Literal

import attrs
import pydantic_core
import pytest
from pydantic import (
    AfterValidator,
    AliasChoices,
    AliasPath,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainValidator,
    Tag,
    TypeAdapter,
    ValidationError,
    WrapValidator,
    field_validator,
    model_validator,
)

from toolloop.core.errors import BadTool
from toolloop.tools import InvalidInput, Tool, as_tool, tool

SECRET = "sk-secret"
REFUSED = "expected a value that its validator accepts, got"


def problems(made: Tool[..., Any], given: Any) -> tuple[str, ...]:
    with pytest.raises(InvalidInput) as caught:
        made.prepare(given)
    told: tuple[str, ...] = caught.value.problems
    assert SECRET not in str(caught.value)
    return told


def taking(annotation: Any) -> Tool[..., Any]:
    """A tool with the one parameter `it`."""

    def take(it: Any) -> Any:
        return it

    take.__annotations__["it"] = annotation
    return tool(take)


class Settings(BaseModel):
    """What the model must know nothing of."""

    db_sk_secret: str
    mode: Literal["sk-secret-a", "sk-secret-b"]


def validates_something_else(value: Any) -> Any:
    return Settings.model_validate({"mode": value})


def fails_in_pydantic_s_name(value: Any) -> Any:
    raise pydantic_core.PydanticKnownError("literal_error", {"expected": SECRET})


def fails_with_bounds(value: Any) -> Any:
    raise pydantic_core.PydanticCustomError("greater_than", "", {"gt": SECRET})


def misses(value: Any) -> Any:
    raise ValidationError.from_exception_data("", [{"type": "missing", "loc": (SECRET,), "input": {}}])


def fails_in_our_name(value: Any) -> Any:
    raise pydantic_core.PydanticCustomError("toolloop_refused", "", {"field": SECRET})


def refuses_input(value: Any) -> Any:
    raise InvalidInput(SECRET, [SECRET])


def cannot_be_read(value: Any) -> Any:
    raise pydantic_core.PydanticCustomError("json_invalid", SECRET)


FAILING = [
    *(validates_something_else, fails_in_pydantic_s_name, fails_with_bounds, misses, fails_in_our_name),
    *(refuses_input, cannot_be_read, TypeAdapter(Settings).validate_python, Settings.model_validate),
]


@pytest.mark.parametrize("function", FAILING)
@pytest.mark.parametrize("validator", [AfterValidator, BeforeValidator, PlainValidator])
def test_an_exception_of_a_validator_tells_its_field_and_nothing_else(
    function: Callable[[Any], Any], validator: Any
) -> None:
    made = taking(list[Annotated[str, validator(function)]])
    assert problems(made, {"it": ["a"]}) == (f'it[0]: {REFUSED} "a"',)


@pytest.mark.parametrize("function", FAILING)
def test_likewise_inside_a_model_and_after_it_is_made(function: Callable[[Any], Any]) -> None:
    class ByField(BaseModel):
        name: str

        @field_validator("name")
        @classmethod
        def check(cls, name: str) -> Any:
            return function(name)

    class ByModel(BaseModel):
        name: str

        @model_validator(mode="after")
        def check(self) -> Any:
            return function(self.name)

    class AfterInit(BaseModel):
        name: str
        _length: int = 0

        def model_post_init(self, context: Any) -> None:
            function(self.name)

    class ByInit(BaseModel):
        name: str

        def __init__(self, **given: Any) -> None:
            super().__init__(**given)
            function(self.name)

    @attrs.define
    class ByAttrs:
        name: str = attrs.field(converter=function)  # type: ignore[misc] # mypy cannot follow it

    assert problems(taking(ByField), {"it": {"name": "a"}}) == (f'it.name: {REFUSED} "a"',)
    assert problems(taking(ByAttrs), {"it": {"name": "a"}}) == (f'it.name: {REFUSED} "a"',)
    for kind in (ByModel, AfterInit, ByInit):
        assert problems(taking(kind), {"it": {"name": "a"}}) == (f'it: {REFUSED} {{"name":"a"}}',)


@pytest.mark.parametrize("function", FAILING)
def test_likewise_for_a_tool_of_the_sdk(function: Callable[[Any], Any]) -> None:
    class Made:
        name = "made"

        @staticmethod
        def func(it: Annotated[str, AfterValidator(function)]) -> None: ...

        def call(self, given: object) -> None: ...

        def to_dict(self) -> dict[str, Any]:
            return {"name": "made", "input_schema": {"type": "object"}}

    Made.func.__annotations__["it"] = Annotated[str, AfterValidator(function)]
    assert problems(as_tool(Made()), {"it": "a"}) == (f'it: {REFUSED} "a"',)


def test_what_a_function_that_wraps_a_validator_lets_pass_is_told_as_ever() -> None:
    def wrap(value: Any, handler: Any) -> Any:
        made = handler(value)
        return validates_something_else(made) if made == 3 else made

    made = taking(list[Annotated[int, Field(lt=9), WrapValidator(wrap)]])
    assert made.prepare({"it": [1]}) == {"it": [1]}
    assert problems(made, {"it": [10, "x", 3]}) == (
        "it[0]: expected less than 9, got 10",
        'it[1]: expected an integer, got "x"',
        f"it[2]: {REFUSED} 3",
    )


def test_a_model_is_made_as_pydantic_makes_it() -> None:
    class Counted(BaseModel):
        n: int
        _twice: int = 0

        def model_post_init(self, context: Any) -> None:
            self._twice = 2 * self.n

    def skip(value: Any) -> Any:
        raise pydantic_core.PydanticOmit

    made = taking(tuple[Counted, list[Annotated[int, AfterValidator(skip)]]])
    ((counted, rest),) = made.prepare({"it": [{"n": 2}, [1]]}).values()
    assert (counted, counted._twice, rest) == (Counted(n=2), 4, [])


def test_a_default_that_cannot_be_made_is_not_put_down_to_a_value() -> None:
    class Needs(BaseModel):
        settings: Settings = Field(default_factory=lambda: Settings.model_validate({}))

    assert problems(taking(Needs), {"it": {}}) == ("input: what it leaves out could not be filled in",)


def test_a_function_that_tells_kinds_apart_tells_the_model_nothing() -> None:
    class Cat(BaseModel):
        n: int

    class Dog(BaseModel):
        m: int

    def tell(value: Any) -> Any:
        return validates_something_else(value) if "m" in value else SECRET

    made = taking(Annotated[Annotated[Cat, Tag("a")] | Annotated[Dog, Tag("b")], Discriminator(tell)])
    for given in ('{"n":1}', '{"m":1}'):
        assert problems(made, {"it": pydantic_core.from_json(given)}) == (f"it: {REFUSED} {given}",)


class Size(enum.Enum):
    SMALL = 1
    TEXT = "text"


class Form(BaseModel):
    size: Size = Size.SMALL
    sizes: list[Size] = []
    choice: Literal[1, "a"] = 1
    when: dt.datetime | None = None
    day: dt.date | str = ""
    by_number: dict[int, int] = {}
    inner: Form | None = None


def test_inside_a_model_an_input_is_judged_as_json() -> None:
    made = taking(Form)
    given = {"size": 1.0, "choice": "a", "day": "2026-01-31", "by_number": {"-3": 1}, "sizes": ["text", 1]}
    expected = Form(choice="a", day=dt.date(2026, 1, 31), by_number={-3: 1}, sizes=[Size.TEXT, Size.SMALL])
    assert made.prepare({"it": {"inner": given}}) == {"it": Form(inner=expected)}
    assert made.prepare({"it": {"day": "5"}}) == {"it": Form(day="5")}
    wrong = {"size": True, "sizes": [1, True], "choice": True, "when": "5", "by_number": {" 1": 1, "1": "x"}}
    assert problems(made, {"it": {"inner": wrong}}) == (
        'it.inner.size: expected 1 or "text", got true',
        'it.inner.sizes[1]: expected 1 or "text", got true',
        'it.inner.choice: expected 1 or "a", got true',
        'it.inner.when: expected a date and time such as 2026-01-31T12:00:00Z, got "5"',
        'it.inner.by_number[" 1"] (the name): expected a text that matches ^(0|-?[1-9][0-9]*)$, got " 1"',
        'it.inner.by_number["1"]: expected an integer, got "x"',
    )


def test_a_field_is_given_by_the_name_that_the_schema_says() -> None:
    class ByEither(BaseModel):
        model_config = ConfigDict(populate_by_name=True)
        n: int = Field(alias="number")

    class ByName(BaseModel):
        model_config = ConfigDict(validate_by_alias=False, validate_by_name=True)
        n: int = Field(alias="number")

    for kind, right, wrong in ((ByEither, "number", "n"), (ByName, "n", "number")):
        made = taking(kind)
        assert list(made.input_schema["$defs"][kind.__name__]["properties"]) == [right]
        assert made.prepare({"it": {right: 1}})["it"].n == 1
        assert problems(made, {"it": {wrong: 1}}) == (f"it.{right}: required, but it is missing",)


@pytest.mark.parametrize("alias", [AliasChoices("p", "q"), AliasPath("p", 0), AliasChoices(AliasPath("p", 0), "q")])
def test_a_field_that_can_be_given_in_several_ways_is_refused(alias: Any) -> None:
    class Named(BaseModel):
        n: int = Field(validation_alias=alias)

    def parameter(first: int, it: Any) -> None: ...

    for annotation in (Named, Annotated[int, Field(validation_alias=alias)]):
        parameter.__annotations__["it"] = annotation
        with pytest.raises(BadTool, match="its parameter 'it': a field that can be given by several names"):
            tool(parameter).definition()


def test_two_parameters_of_one_name_are_refused() -> None:
    @tool
    def both(first: Annotated[int, Field(alias="second")], second: int) -> None: ...

    for use in (both.definition, lambda: both.prepare({"second": 1})):
        with pytest.raises(BadTool, match="its parameters: two of them are named 'second'"):
            use()
