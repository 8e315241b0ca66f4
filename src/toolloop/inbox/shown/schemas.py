"""Look into JSON Schemas. Those of MCP servers may be invalid: what is not as it should be counts as absent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from toolloop.machine.values.jsontext import JSON


def schema_parts(schema: JSON, root: JSON, left: int = 8) -> Iterator[Mapping[str, Any]]:
    """Yield a schema, then the schemas that it is made of: references and alternatives.

    Args:
        schema: the schema.
        root: the schema that its references are in.
        left: how deep to look, which ends a reference to itself.

    """
    if not isinstance(schema, Mapping) or not left:
        return
    yield schema
    match str(schema.get("$ref")).split("/"):
        case ["#", group, name]:
            yield from schema_parts(as_mapping(as_mapping(root).get(group)).get(name), root, left - 1)
    for key in ("anyOf", "oneOf", "allOf"):
        alternatives = schema.get(key)
        for each in alternatives if isinstance(alternatives, list) else ():
            yield from schema_parts(each, root, left - 1)


def as_mapping(value: Any) -> Mapping[str, Any]:
    """Return a part of a schema if it is an object, else an empty one."""
    return value if isinstance(value, Mapping) else {}
