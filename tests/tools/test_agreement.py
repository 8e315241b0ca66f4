"""Schema and validation agree, for annotations of every kind."""

from __future__ import annotations

import copy
import datetime as dt
import inspect
import re
import uuid
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from enum import Enum
from typing import Annotated, Any, ClassVar, Final, ForwardRef, Literal, Never, Optional, Required, Self, TypeVar, Union

import jsonschema  # type: ignore[import-untyped] # it has no types of its own
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.tools.kinds import Kind, classes, json_values, kinds
from toolloop.machine.errors import BadTool
from toolloop.machine.jsontext import canonical, decode, encode
from toolloop.tools import InvalidInput, Tool, ToolContext, tool

CONTEXT = ToolContext(call_id="c", loop_id="l", iteration=1, depth=0, idempotency_key="k")
# A failure is shrunk for minutes, and reads well without.
NO_SHRINKING = [phase for phase in Phase if phase is not Phase.shrink and phase is not Phase.explain]
FORMATS = jsonschema.FormatChecker(formats=())


@FORMATS.checks("date", raises=ValueError)  # type: ignore[untyped-decorator] # likewise
def is_date(value: object) -> bool:
    if isinstance(value, str):
        dt.date.fromisoformat(value)
    return not isinstance(value, str) or re.fullmatch(r"\d{4}-\d\d-\d\d", value) is not None


@FORMATS.checks("uuid", raises=ValueError)  # type: ignore[untyped-decorator] # likewise
def is_uuid(value: object) -> bool:
    return not isinstance(value, str) or bool(uuid.UUID(value))


def function_of(named: dict[str, tuple[Kind, bool]], seen: list[dict[str, Any]]) -> Any:
    """Make a function with these parameters; those that are not required have the default None."""

    def function(**arguments: Any) -> None:
        seen.append(arguments)

    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if needed else None,
            annotation=kind.annotation if needed else kind.annotation | None if kind.annotation else None,
        )
        for name, (kind, needed) in named.items()
    ]
    function.__dict__["__signature__"] = inspect.Signature(parameters)
    return function


@st.composite
def changed(draw: Any, value: Any) -> Any:
    """Generate JSON that may differ from another in one place."""
    places = sorted(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    if places and draw(st.integers(0, 3)):
        place: Any = draw(st.sampled_from(places))
        within: Any = copy.copy(value)
        within[place] = draw(changed(value[place]))
        return within
    ways: list[st.SearchStrategy[Any]] = [json_values()]
    if isinstance(value, dict):
        ways += [st.just({name: value[name] for name in places if name != gone}) for gone in places]
        ways.append(st.builds(lambda name, more: {**value, name: more}, st.sampled_from(["f0", "f9"]), json_values()))
    if isinstance(value, list):
        ways += [st.just(value[:-1]), json_values().map(lambda more: [*value, more])]
    way: Any = draw(st.one_of(ways))
    return way


def mutated(value: Any) -> st.SearchStrategy[Any]:
    """Generate JSON that differs from another in one place."""
    return changed(value).filter(lambda mutant: canonical(mutant) != canonical(value))


@settings(suppress_health_check=list(HealthCheck), deadline=None, max_examples=40, phases=NO_SHRINKING)
@given(st.data(), classes(kinds()), st.lists(st.tuples(kinds(), st.booleans()), max_size=2))
def test_an_input_that_the_schema_accepts_reaches_the_function_as_its_annotations_say(
    data: st.DataObject, first: Kind, others: list[tuple[Kind, bool]]
) -> None:
    """A refused input does not fit the schema."""
    named = {f"f{index}": one for index, one in enumerate([(first, True), *others])}
    seen: list[dict[str, Any]] = []
    made = tool(function_of(named, seen), name="made")
    schema = made.input_schema
    jsonschema.Draft202012Validator.check_schema(schema)
    judge = jsonschema.Draft202012Validator(schema, format_checker=FORMATS)
    fitting = st.fixed_dictionaries(
        {name: kind.fitting for name, (kind, needed) in named.items() if needed},
        optional={name: kind.fitting for name, (kind, needed) in named.items() if not needed},
    )
    right = data.draw(fitting, "right")
    for proposed in (right, data.draw(mutated(right), "mutated"), data.draw(json_values(), "any")):
        seen.clear()
        error = refusal(made, proposed)
        if error is None:
            assert all(became(kind, name, seen[0], proposed) for name, (kind, _) in named.items())
        else:
            assert proposed is not right, error
            assert not judge.is_valid(proposed), error
            assert not seen
            assert str(error).encode()


class Unknown:
    def __repr__(self) -> str:
        raise RuntimeError("nobody asked")


T = TypeVar("T")
ODD: list[Any] = [
    *(3, "int", "list[", "Nowhere", object(), Unknown(), Unknown, ..., (), [int], {}, type, type[int], T, super),
    *(Callable, Callable[[int], str], Iterator[int], Generator[int, int, int], AsyncIterator[int], ClassVar[int]),
    *(Literal, Literal[b"x"], Enum, Union, Optional, Annotated, tuple, tuple[()], dict[Unknown, int], set[list[int]]),
    *(Required[int], Final[int], list[Unknown], dict[str, T], dt.tzinfo, BaseException, complex, bytes, range, slice),  # type: ignore[valid-type] # odd on purpose
    *(type(None), NotImplemented, inspect, len, re.compile("x"), ForwardRef("int"), ForwardRef("Nowhere"), Self, Never),
]


WRAPS: list[Callable[[Any], Any]] = [lambda it: it, list.__class_getitem__, lambda it: Annotated[it, "told"]]


@given(st.sampled_from(ODD), st.sampled_from(WRAPS))
def test_any_annotation_makes_a_schema_or_is_refused_by_name(odd: Any, wrap: Callable[[Any], Any]) -> None:
    def function(first: int, second: Any) -> None: ...

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
        jsonschema.Draft202012Validator.check_schema(schema)
    assert named


def refusal(made: Tool[..., Any], proposed: Any) -> InvalidInput | None:
    """Call the tool as a loop does, with input that came as JSON."""
    try:
        made.run(made.prepare(decode(encode(proposed))), CONTEXT)
    except InvalidInput as error:
        return error
    return None


def became(kind: Kind, name: str, got: dict[str, Any], proposed: dict[str, Any]) -> bool:
    """The parameter is the converted input, or its default."""
    given = proposed.get(name)
    return (given is None and got[name] is None) or kind.became(got[name], given)
