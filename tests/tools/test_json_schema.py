"""Input judged by somebody else's JSON Schema: what is told, and what is beyond judgement."""

from __future__ import annotations

import logging
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from tests.tools.mcp_support import OBJECT, of, problems
from toolloop.tools.schema.json_schema import ForeignSchema

MISSING = "required, but it is missing"


@pytest.mark.parametrize(
    ("schema", "value", "told"),
    [
        (OBJECT, 3, ["input: expected an object, got 3"]),
        (of("a", type="integer"), {"a": "x"}, ['a: expected an integer, got "x"']),
        (of("a", type=["string", "null"]), {"a": 1}, ["a: expected a string or null, got 1"]),
        (of("a", type="array", items={"type": "boolean"}), {"a": [True, 0]}, ["a[1]: expected true or false, got 0"]),
        (of("a", enum=["x", 1]), {"a": 2}, ['a: expected "x" or 1, got 2']),
        (of("a", const="x"), {"a": 2}, ['a: expected "x", got 2']),
        (of("a", minimum=3, multipleOf=2), {"a": 1}, ["a: expected at least 3 or a multiple of 2, got 1"]),
        (of("a", maxItems=1), {"a": [1, 2]}, ["a: expected at most 1 items, got [1,2]"]),
        (of("a", uniqueItems=True), {"a": [1, 1]}, ["a: expected uniqueItems true, got [1,1]"]),
        ({**OBJECT, "required": ["a", "b"]}, {"b": 1}, [f"a: {MISSING}"]),
        ({**OBJECT, "required": ["b", "a"]}, {}, [f"a: {MISSING}", f"b: {MISSING}"]),
        ({**of("a"), "additionalProperties": False}, {"a": 1, "y": 3}, ["y: no such field, got 3"]),
        (
            of("a", anyOf=[{"type": "string"}, {"type": "integer", "minimum": 5}]),
            {"a": 2},
            ["a: expected a string or at least 5, got 2"],
        ),
        (of("a", anyOf=[False, {"type": "string"}]), {"a": 2}, ["a: expected nothing or a string, got 2"]),
        (
            {**OBJECT, "anyOf": [{"required": ["path"]}, {"required": ["url"]}]},
            {},
            [f"input: expected what one of these asks for: (path: {MISSING}) or (url: {MISSING}), got {{}}"],
        ),
        (
            {
                **OBJECT,
                "properties": {"a": {"$ref": "#/$defs/b"}},
                "$defs": {"b": {"type": "object", "required": ["c"]}},
            },
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
        of("a", **{"$ref": "http://json-schema.org/draft-07/schema#"}),
        of("a", **{"$dynamicRef": "#x"}),
        of("a", **{"$schema": "http://json-schema.org/draft-07/schema#", "type": "integer"}),
        of("a", **{"$id": "http://json-schema.org/draft-07/schema", "type": "integer"}),
        # What "fits" here may be wrong for the server.
        of("a", **{"not": {"pattern": "x"}}),
        of("a", oneOf=[{"pattern": "x"}, {"pattern": "y"}]),
        of("a", **{"if": {"pattern": "y"}, "then": False}),
        {**OBJECT, "properties": {"a": {"$ref": "#/$defs/loop"}}, "$defs": {"loop": {"$ref": "#/$defs/loop"}}},
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


@pytest.mark.parametrize("schema", [OBJECT, {"type": "nothing"}])
def test_what_no_message_can_carry_is_refused_whatever_the_schema_says(schema: dict[str, Any]) -> None:
    """Half a surrogate pair, or an endless nest, would cost the whole connection."""
    deep: dict[str, Any] = {}
    for _ in range(300):
        deep = {"a": deep}
    assert "surrogate" in problems(schema, {"a": "\ud800"})[0]
    assert "deep" in problems(schema, deep)[0]
