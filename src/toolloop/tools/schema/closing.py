"""What `strict=True` asks of a schema: every object in it is closed (source: messages-api, rule 35)."""

from __future__ import annotations

from typing import Any

from toolloop.core.errors import BadTool
from toolloop.core.jsontext import JSON

# Where a schema holds other schemas beside `properties`: in a list, or one.
_LISTED = ("anyOf", "oneOf", "allOf", "prefixItems")
_ONE = ("items", "additionalProperties")
# Without one of these a schema takes anything.
_SAYS = {"type", "enum", "const", "$ref", *_LISTED}
# What is in these cannot be closed without changing what they mean.
_CONDITIONS = {"not", "if", "then", "else", "contains", "propertyNames", "dependentSchemas", "patternProperties"}


def close(schema: JSON, tool: str) -> None:
    """Say of every object in the schema of an input that it has no other fields, in place.

    Raises:
        BadTool: one has any, or cannot be seen to have none: the message names the parameter.

    """
    for name, described in schema.get("properties", {}).items():
        if why := _close(described, schema.get("$defs", {}), set()):
            raise BadTool(
                f"parameter {name!r} of {tool} takes {why}, and strict=True is only for objects whose fields are all "
                "named: take a class with fields, or leave strict out",
                tool=tool,
            )


def _close(schema: Any, shared: JSON, seen: set[int]) -> str | None:
    """Close what is in it; or tell what cannot be closed."""
    if not isinstance(schema, dict) or id(schema) in seen:
        return None
    seen.add(id(schema))
    if "properties" in schema:
        schema.setdefault("additionalProperties", False)
    if not _SAYS & schema.keys() or (_is("array", schema) and not _names_items(schema)):
        return "anything, objects with any fields too"
    if condition := sorted(_CONDITIONS & schema.keys()):
        return f"an object with any fields, or one on the condition {condition[0]!r}"
    if _is("object", schema) and schema.get("additionalProperties") is not False:
        return "an object with any fields"
    inner = (
        *schema.get("properties", {}).values(),
        *(each for key in _LISTED for each in schema.get(key, [])),
        *(schema.get(key) for key in _ONE),
        shared.get(schema.get("$ref", "").rpartition("/")[2]),
    )
    return next(filter(None, (_close(each, shared, seen) for each in inner)), None)


def _is(kind: str, schema: JSON) -> bool:
    return kind in (schema.get("type"), *(schema["type"] if isinstance(schema.get("type"), list) else ()))


def _names_items(schema: JSON) -> bool:
    return isinstance(schema.get("items"), dict) or "maxItems" in schema
