"""A given JSON Schema: it is checked when it is read, and validates each input."""

from __future__ import annotations

from typing import Any

import pytest

from toolloop.errors import BadTool
from toolloop.tools import InvalidInput
from toolloop.tools.json_schema import JsonSchema

OBJECT: dict[str, Any] = {"type": "object"}


def of(name: str, **rules: Any) -> dict[str, Any]:
    """A schema with one property."""
    return {"type": "object", "properties": {name: rules}}


def problems(schema: dict[str, Any], value: Any) -> list[str]:
    """Return the problems, one text for each field."""
    with pytest.raises(InvalidInput) as caught:
        JsonSchema.of("ask", "Ask.", schema).fit(value)
    assert caught.value.tool == "ask"
    return list(caught.value.problems)


def test_the_schema_is_sent_as_it_is() -> None:
    """With name and description; a description that is empty is left out."""
    schema = of("a", type="string", pattern="x")
    definition = {"name": "ask", "description": "Ask.", "input_schema": schema}
    assert JsonSchema.of("ask", "Ask.", schema).definition() == definition
    assert JsonSchema.of("ask", "", schema).definition() == {"name": "ask", "input_schema": schema}


def test_a_choice_at_the_top_goes_into_the_description() -> None:
    """The API does not accept it in a schema. It is still validated."""
    either = JsonSchema.of("ask", "Ask.", {**of("a"), "anyOf": [{"required": ["a"]}, {"required": ["b"]}]})
    assert either.definition() == {
        "name": "ask",
        "description": 'Ask.\n\nThe input must also fit this JSON Schema: {"anyOf":[{"required":["a"]},'
        '{"required":["b"]}]}',
        "input_schema": of("a"),
    }
    assert either.fit({"b": 1}) == {"b": 1}
    with pytest.raises(InvalidInput, match=r"'a' is a required property or .*'b' is a required property"):
        either.fit({})


def test_each_problem_has_its_path_and_a_message() -> None:
    """The messages are jsonschema's own, one a line, sorted by path."""
    cases: list[tuple[dict[str, Any], Any, list[str]]] = [
        (OBJECT, 3, ["input: expected an object, got 3"]),
        (of("a", type="integer"), {"a": "5"}, ["a: '5' is not of type 'integer'"]),
        (of("a", type="integer"), {"a": True}, ["a: True is not of type 'integer'"]),
        (of("a", type="array", items={"type": "boolean"}), {"a": [True, 0]}, ["a[1]: 0 is not of type 'boolean'"]),
        ({**OBJECT, "required": ["a", "b"]}, {}, [f"input: '{name}' is a required property" for name in "ab"]),
        (of("a", pattern="^[a-c]+$"), {"a": "abd"}, ["a: 'abd' does not match '^[a-c]+$'"]),
        (
            {**of("x1", type="integer"), "additionalProperties": False},
            {"x1": "one", "y": 2},
            ["input: Additional properties are not allowed ('y' was unexpected)", "x1: 'one' is not of type 'integer'"],
        ),
        (
            {**of("a", **{"$ref": "#/$defs/word"}), "$defs": {"word": {"type": "string"}}},
            {"a": 1},
            ["a: 1 is not of type 'string'"],
        ),
        (
            of("a", anyOf=[{"type": "string"}, {"type": "object", "required": ["b"]}]),
            {"a": {}},
            ["a: a: {} is not of type 'string' or a: 'b' is a required property"],
        ),
        (of("a"), {"a": "\ud800"}, ["input: input.a contains a lone surrogate, which cannot be sent as UTF-8"]),
    ]
    for schema, value, expected in cases:
        assert problems(schema, value) == expected


def test_a_schema_says_which_draft_it_is_written_in() -> None:
    """In draft 4 `exclusiveMinimum` is a switch; in 2020-12, the default, it is a bound."""
    draft_4 = {**of("a", minimum=1, exclusiveMinimum=True), "$schema": "http://json-schema.org/draft-04/schema#"}
    assert problems(draft_4, {"a": 1})
    assert problems(of("a", exclusiveMinimum=1), {"a": 1})


def test_a_schema_that_cannot_be_applied_fits_nothing() -> None:
    """A reference to nowhere, to the network, or in a circle."""
    for reference in ("#/$defs/nothing", "https://127.0.0.1:1/schema.json", "#"):
        circle = {**OBJECT, "$ref": "#"} if reference == "#" else of("a", **{"$ref": reference})
        (problem,) = problems(circle, {"a": 1})
        assert problem.startswith("input: the schema of this tool cannot be used: ")


def test_a_schema_that_cannot_be_that_of_a_tool_is_refused_at_once() -> None:
    """The error names the tool and the problem."""
    cases: list[tuple[Any, str]] = [
        (3, "JSON Schema of an object"),
        ({}, "JSON Schema of an object"),
        ({"type": "string"}, "JSON Schema of an object"),
        ({"type": "object", "properties": {"a": object()}}, "input_schema.properties.a is an object"),
        ({"type": "object", "$schema": 5}, "not a valid JSON Schema: "),
        (of("a", type="text"), "not a valid JSON Schema, at $.properties.a.type: 'text' is not"),
        (of("a b"), "'a b' is not a valid parameter name"),
    ]
    for schema, words in cases:
        with pytest.raises(BadTool, match="ask cannot be a tool") as caught:
            JsonSchema.of("ask", "Ask.", schema)
        assert words in str(caught.value)
        assert caught.value.tool == "ask"
