"""A JSON Schema that the caller wrote: what is wrong with it is said at once, and all of it applies to an input."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tools.mcp_support import OBJECT, of
from toolloop.errors import BadTool
from toolloop.tools import InvalidInput
from toolloop.tools.schema.given import GivenIntake


def told(schema: dict[str, Any], value: Any) -> list[str]:
    """What the model is told, a text for each field."""
    with pytest.raises(InvalidInput) as caught:
        GivenIntake.of("ask", "Ask.", schema).fit(value)
    assert caught.value.tool == "ask"
    return list(caught.value.problems)


def test_the_schema_goes_out_as_it_is() -> None:
    """The definition has name, description and the schema; without a description it has none."""
    schema = of("a", type="string", pattern="x")
    assert GivenIntake.of("ask", "Ask.", schema).definition() == {
        "name": "ask",
        "description": "Ask.",
        "input_schema": schema,
    }
    assert GivenIntake.of("ask", "", schema).definition() == {"name": "ask", "input_schema": schema}


def test_a_later_change_of_the_schema_changes_nothing() -> None:
    """The intake keeps a copy."""
    schema = of("a", type="string")
    intake = GivenIntake.of("ask", "Ask.", schema)
    schema["properties"]["a"]["type"] = "integer"
    assert intake.fit({"a": "x"}) == {"a": "x"}


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        (OBJECT, 3, ["input: expected an object, got 3"]),
        (of("a", type="integer"), {"a": "x"}, ['a: expected an integer, got "x"']),
        ({**OBJECT, "required": ["a", "b"]}, {}, [f"{name}: required, but it is missing" for name in "ab"]),
        (of("a", pattern="^[a-c]+$"), {"a": "abd"}, ['a: expected pattern "^[a-c]+$", got "abd"']),
        (
            {**OBJECT, "patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": False},
            {"x1": "one", "y": 2},
            ['x1: expected an integer, got "one"', "y: no such field, got 2"],
        ),
        (
            {**of("a", **{"$ref": "#/$defs/word"}), "$defs": {"word": {"type": "string"}}},
            {"a": 1},
            ["a: expected a string, got 1"],
        ),
        (
            of("a", type="string"),
            {"a": "\ud800"},
            ["a: expected a text without half a surrogate pair (\\ud800 to \\udfff)"],
        ),
    ],
)
def test_each_field_that_is_wrong_is_told(schema: dict[str, Any], value: Any, expected: list[str]) -> None:
    """One text a field; patterns and names by pattern count, for nobody else would apply them."""
    assert told(schema, value) == expected


def test_an_input_that_fits_is_handed_on() -> None:
    """As a dict of its own."""
    given = {"a": [1, {"b": None}]}
    fitted = GivenIntake.of("ask", "", of("a", type="array")).fit(given)
    assert fitted == given
    assert fitted is not given


@pytest.mark.parametrize("reference", ["#/$defs/nothing", "https://127.0.0.1:1/schema.json", "#"])
def test_a_schema_that_cannot_be_applied_fits_nothing(reference: str, caplog: pytest.LogCaptureFixture) -> None:
    """A reference to nowhere, to the network, or in a circle: the model is told, and the caller's log says why."""
    circle = {**OBJECT, "$ref": "#"} if reference == "#" else of("a", **{"$ref": reference})
    assert told(circle, {"a": 1}) == ["input: the schema of this tool is broken, so no input fits it"]
    assert "the input_schema of the tool ask cannot be applied" in caplog.text


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (3, "JSON Schema of an object"),
        ({}, "JSON Schema of an object"),
        ({"type": "string"}, "JSON Schema of an object"),
        ({"type": "object", "properties": {"a": object()}}, "input_schema.properties.a is a object"),
        ({"type": "object", "oneOf": [{}]}, "the API takes no oneOf at the top"),
        (of("a", type="text"), "no JSON Schema, at $.properties.a.type: 'text' is not"),
        (of("a b"), "does not take the property 'a b'"),
    ],
)
def test_what_is_no_schema_of_a_tool_is_refused_at_once(schema: Any, words: str) -> None:
    """The error says what is wrong, and of which tool."""
    with pytest.raises(BadTool, match="ask cannot be a tool") as caught:
        GivenIntake.of("ask", "Ask.", schema)
    assert words in str(caught.value)
    assert caught.value.tool == "ask"
