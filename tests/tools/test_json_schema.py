"""Input judged by somebody else's JSON Schema: what is told, and what is beyond judgement."""

from __future__ import annotations

import json
import logging
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import jsonschema  # type: ignore[import-untyped] # it has no types of its own
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolloop.tools import InvalidInput
from toolloop.tools.mcp.json_schema import ForeignSchema

MISSING = "required, but it is missing"
OPEN: dict[str, Any] = {"type": "object"}


def problems(schema: dict[str, Any], value: Any) -> list[str]:
    """What the model is told, a text for each field."""
    with pytest.raises(InvalidInput) as caught:
        ForeignSchema("tool", schema).fit(value)
    return list(caught.value.problems)


def of(name: str, **rules: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {name: rules}}


@pytest.mark.parametrize(
    ("schema", "value", "told"),
    [
        (OPEN, 3, ["input: expected an object, got 3"]),
        (of("a", type="integer"), {"a": "x"}, ['a: expected an integer, got "x"']),
        (of("a", type=["string", "null"]), {"a": 1}, ["a: expected a string or null, got 1"]),
        (of("a", type="array", items={"type": "boolean"}), {"a": [True, 0]}, ["a[1]: expected true or false, got 0"]),
        (of("a", enum=["x", 1]), {"a": 2}, ['a: expected "x" or 1, got 2']),
        (of("a", const="x"), {"a": 2}, ['a: expected "x", got 2']),
        (of("a", minimum=3, multipleOf=2), {"a": 1}, ["a: expected at least 3 or a multiple of 2, got 1"]),
        (of("a", pattern="^b"), {"a": "c"}, ['a: expected a text that matches "^b", got "c"']),
        (of("a", maxItems=1), {"a": [1, 2]}, ["a: expected at most 1 items, got [1,2]"]),
        (of("a", uniqueItems=True), {"a": [1, 1]}, ["a: expected uniqueItems true, got [1,1]"]),
        ({**OPEN, "required": ["a", "b"]}, {"b": 1}, [f"a: {MISSING}"]),
        ({**OPEN, "required": ["b", "a"]}, {}, [f"a: {MISSING}", f"b: {MISSING}"]),
        (
            {**of("a"), "patternProperties": {"^x": {}}, "additionalProperties": False},
            {"a": 1, "x1": 2, "y": 3},
            ["y: no such field, got 3"],
        ),
        (
            of("a", anyOf=[{"type": "string"}, {"type": "integer", "minimum": 5}]),
            {"a": 2},
            ["a: expected a string or at least 5, got 2"],
        ),
        (of("a", anyOf=[False, {"type": "string"}]), {"a": 2}, ["a: expected nothing or a string, got 2"]),
        (
            {**OPEN, "anyOf": [{"required": ["path"]}, {"required": ["url"]}]},
            {},
            [f"input: expected what one of these asks for: (path: {MISSING}) or (url: {MISSING}), got {{}}"],
        ),
        (
            {**OPEN, "properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"type": "object", "required": ["c"]}}},
            {"a": {}},
            [f"a.c: {MISSING}"],
        ),
    ],
)
def test_each_field_is_told_with_path_expected_and_got(schema: dict[str, Any], value: Any, told: list[str]) -> None:
    """One text a field, sorted by path."""
    assert problems(schema, value) == told


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nothing"},
        {"properties": 3},
        of("a", **{"$ref": "https://example.com/schema"}),
        of("a", **{"$ref": "#/$defs/none"}),
        of("a", pattern=r"\p{L}"),
        {**OPEN, "properties": {"a": {"$ref": "#/$defs/loop"}}, "$defs": {"loop": {"$ref": "#/$defs/loop"}}},
        {"$schema": 3},
    ],
)
def test_a_schema_beyond_us_judges_nothing(schema: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    """No crash, nothing is fetched, and the log says so."""
    with caplog.at_level(logging.WARNING, "toolloop.tools"):
        assert ForeignSchema("tool", schema).fit({"a": "x"}) == {"a": "x"}
    assert "the schema of the tool tool cannot be used here" in caplog.text


def test_what_a_schema_refers_to_elsewhere_is_never_fetched() -> None:
    """A server could have anything asked of anybody, from inside the caller's network."""
    asked: list[str] = []

    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

        def log_message(self, *arguments: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        there = f"http://127.0.0.1:{server.server_port}/schema"
        assert ForeignSchema("tool", of("a", **{"$ref": there})).fit({"a": 1}) == {"a": 1}
        server.shutdown()
        thread.join()
    assert asked == []


def test_a_schema_says_which_draft_it_is_written_in() -> None:
    """In draft 4 `exclusiveMinimum` is a switch; in 2020-12, which is meant if nothing is said, it is a bound."""
    draft_4 = {**of("a", minimum=1, exclusiveMinimum=True), "$schema": "http://json-schema.org/draft-04/schema#"}
    assert problems(draft_4, {"a": 1})
    assert problems(of("a", exclusiveMinimum=1), {"a": 1}) == ["a: expected more than 1, got 1"]


def test_an_older_way_to_say_required_is_understood() -> None:
    """In draft 3 it is a switch of the field."""
    draft_3 = {**of("a", required=True), "$schema": "http://json-schema.org/draft-03/schema#"}
    assert len(problems(draft_3, {})) == 1


@pytest.mark.parametrize("schema", [OPEN, {"type": "nothing"}])
def test_what_no_message_can_carry_is_refused_whatever_the_schema_says(schema: dict[str, Any]) -> None:
    """Half a surrogate pair, or an endless nest, would cost the whole connection."""
    deep: dict[str, Any] = {}
    for _ in range(300):
        deep = {"a": deep}
    assert "surrogate" in problems(schema, {"a": "\ud800"})[0]
    assert "deep" in problems(schema, deep)[0]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-3, 3) | st.sampled_from(["", "a", "b", "long text"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcx"), inner, max_size=3),
    max_leaves=8,
)
RULES: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from(
        [
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
            {"contains": {"type": "integer"}},
            True,
            False,
        ]
    ),
    lambda inner: st.one_of(
        st.fixed_dictionaries({"properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=2)}),
        st.fixed_dictionaries({"additionalProperties": inner, "patternProperties": st.just({"^x": {}})}),
        st.fixed_dictionaries({"items": inner}),
        st.fixed_dictionaries({"if": inner, "then": inner, "else": inner}),
        *(st.fixed_dictionaries({key: st.lists(inner, min_size=1, max_size=3)}) for key in ("anyOf", "oneOf", "allOf")),
    ),
    max_leaves=6,
)


@given(schema=RULES, value=st.dictionaries(st.sampled_from("abcx"), VALUES, max_size=3))
@settings(deadline=None)
def test_what_fits_is_what_jsonschema_says(schema: Any, value: dict[str, Any]) -> None:
    """Whatever does not is told in some text, for every rule there is."""
    whole = {"type": "object", "allOf": [schema]}
    if jsonschema.Draft202012Validator(whole).is_valid(value):
        assert ForeignSchema("tool", whole).fit(value) == value
    else:
        told = problems(whole, value)
        assert told
        assert all(": " in text for text in told)
        assert "Traceback" not in json.dumps(told)
