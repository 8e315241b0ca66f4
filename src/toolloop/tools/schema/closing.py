"""What `strict=True` asks of a schema: every object in it is closed (source: messages-api, rule 35)."""

from __future__ import annotations

from typing import Any

from toolloop.core.errors import BadTool
from toolloop.core.jsontext import JSON

# Where a schema holds other schemas beside `properties`: in a list, or one.
_LISTED = ("anyOf", "oneOf", "allOf", "prefixItems")
_ONE = ("items", "additionalProperties", "not")


def close(schema: JSON, tool: str) -> None:
    """Say of every object in the schema of an input that it has no other fields, in place.

    Raises:
        BadTool: one has any: the message names the parameter.

    """
    for name, described in schema.get("properties", {}).items():
        _close(described, schema.get("$defs", {}), f"parameter {name!r} of {tool}", tool, set())


def _close(schema: Any, shared: JSON, where: str, tool: str, seen: set[int]) -> None:
    if not isinstance(schema, dict) or id(schema) in seen:
        return
    seen.add(id(schema))
    if "properties" in schema and "additionalProperties" not in schema:
        schema["additionalProperties"] = False
    if schema.get("type") == "object" and (
        schema.get("additionalProperties") is not False or "patternProperties" in schema
    ):
        raise BadTool(
            f"{where} takes an object with any fields, and strict=True is only for objects whose fields are all named: "
            "take a class with fields, or leave strict out",
            tool=tool,
        )
    for each in (
        *schema.get("properties", {}).values(),
        *(each for key in _LISTED for each in schema.get(key, [])),
        *(schema.get(key) for key in _ONE),
    ):
        _close(each, shared, where, tool, seen)
    if reference := schema.get("$ref"):
        _close(shared.get(reference.rpartition("/")[2]), shared, where, tool, seen)
