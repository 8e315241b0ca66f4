"""Schemas that need not be trusted: what fits is never refused, and nothing takes long."""

from __future__ import annotations

import json
from typing import Any

import jsonschema  # type: ignore[import-untyped] # it has no types of its own
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tools.mcp_support import OBJECT, of, problems
from toolloop.tools.schema.json_schema import ForeignSchema

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-3, 3) | st.sampled_from(["", "a", "b", "long text"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcx"), inner, max_size=3),
    max_leaves=8,
)
RULES: list[Any] = [
    {"type": "string"},
    {"type": ["integer", "null"]},
    {"minimum": 1},
    {"enum": ["a", 1, None]},
    {"const": [1]},
    {"maxLength": 2, "minItems": 1},
    {"not": {"type": "string"}},
    {"required": ["a", "b"]},
    {"dependentRequired": {"a": ["b"]}},
    {"propertyNames": {"maxLength": 0}},
    {"$ref": "#/$defs/a~1b/anyOf/1"},
    True,
    False,
]
# What is left to the server, at least in part.
LEFT: list[Any] = [
    {"pattern": "a"},
    {"propertyNames": {"pattern": "a"}},
    {"uniqueItems": True},
    {"patternProperties": {"a|x": {"type": "string"}}},
    {"unevaluatedProperties": False},
    {"unevaluatedItems": {"type": "string"}},
]


def schemas(rules: list[Any]) -> st.SearchStrategy[Any]:
    """Schemas of such rules."""
    part: st.SearchStrategy[Any] = st.recursive(
        st.sampled_from(rules),
        lambda inner: st.one_of(
            st.fixed_dictionaries({"properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=2)}),
            st.fixed_dictionaries({"additionalProperties": inner}),
            st.fixed_dictionaries({"items": inner}),
            st.fixed_dictionaries({"contains": inner}),
            st.fixed_dictionaries({"not": inner}),
            st.fixed_dictionaries({"if": inner, "then": inner, "else": inner}),
            *(
                st.fixed_dictionaries({key: st.lists(inner, min_size=1, max_size=3)})
                for key in ("anyOf", "oneOf", "allOf")
            ),
            st.builds(lambda one, two: {**one, **two}, st.sampled_from(rules[:-2]), st.sampled_from(rules[:-2])),
        ),
        max_leaves=6,
    )
    return part.map(
        lambda part: {"type": "object", "allOf": [part], "$defs": {"a/b": {"anyOf": [False, {"type": ["integer"]}]}}}
    )


INPUTS = st.dictionaries(st.sampled_from("abcx"), VALUES, max_size=3)


@given(schema=schemas(RULES), value=INPUTS)
@settings(deadline=None)
def test_what_fits_is_what_jsonschema_says(schema: Any, value: dict[str, Any]) -> None:
    """Whatever does not is told in some text, for every rule there is."""
    if jsonschema.Draft202012Validator(schema).is_valid(value):
        assert ForeignSchema("tool", schema).fit(value) == value
    else:
        told = problems(schema, value)
        assert told
        assert all(": " in text for text in told)
        assert "Traceback" not in json.dumps(told)


@given(schema=schemas(LEFT + RULES), value=INPUTS)
@settings(deadline=None)
def test_what_would_fit_is_never_refused_for_what_is_left_to_the_server(schema: Any, value: dict[str, Any]) -> None:
    """A pattern that is not looked at decides nothing, wherever it stands."""
    if jsonschema.Draft202012Validator(schema).is_valid(value):
        assert ForeignSchema("tool", schema).fit(value) == value


SLOW = "(a+)+$"  # Python's `re` takes years for the text
TEXT = "a" * 60 + "!"
DOUBLED = {str(n): {"anyOf": [{"$ref": f"#/$defs/{n + 1}"}] * 2} for n in range(60)} | {"60": {"type": "string"}}
MANY: list[Any] = [{"x": number} for number in range(20_000)]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (of("a", pattern=SLOW), {"a": TEXT}),
        (of("a", anyOf=[{"$ref": "#"}, {"type": "string", "pattern": SLOW}]), {"a": TEXT}),
        ({**OBJECT, "patternProperties": {SLOW: {}}, "additionalProperties": False}, {TEXT: 1}),
        ({**OBJECT, "patternProperties": {SLOW: {}}, "unevaluatedProperties": False}, {TEXT: 1}),
        ({**OBJECT, "propertyNames": {"pattern": SLOW}}, {TEXT: 1}),
        (of("a", **{"$schema": "https://json-schema.org/draft/2020-12/schema", "pattern": SLOW}), {"a": TEXT}),
        ({"$schema": "http://json-schema.org/draft-04/schema#", **of("a", pattern=SLOW)}, {"a": TEXT}),
        ({**of("a", **{"$ref": "#/$defs/0"}), "$defs": DOUBLED}, {"a": 1}),
        (of("a", uniqueItems=True), {"a": MANY}),
        ({**OBJECT, "required": MANY}, {}),
        (of("a", anyOf=[False] * 50_000), {"a": MANY}),
        (of("a", allOf=[{"$ref": "#/properties/a"}] * 2), {"a": 1}),
    ],
)
def test_nothing_in_a_schema_takes_long(schema: dict[str, Any], value: dict[str, Any]) -> None:
    """What would is left to the server. Each of these would take minutes, if not for ever."""
    assert ForeignSchema("tool", schema).fit(value) == value


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({**OBJECT, "required": [f"p{number}" for number in range(20_000)]}, {}),
        (of("a", items={"enum": list(range(5_000))}), {"a": ["x"] * 20_000}),
        (of("a", uniqueItems=True), {"a": [*MANY, MANY[0]]}),
    ],
)
def test_nor_does_telling_what_is_wrong(schema: dict[str, Any], value: dict[str, Any]) -> None:
    """No more of it is told than anybody would read."""
    assert 1 <= len(problems(schema, value)) <= 100
