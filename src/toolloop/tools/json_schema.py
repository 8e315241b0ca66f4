"""Validate input against a given JSON Schema. `jsonschema` is imported when it is used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from toolloop.errors import BadTool
from toolloop.machine.values.jsontext import JSON, encode, to_plain
from toolloop.tools.signature import check_properties
from toolloop.tools.tool_errors import InvalidInput, format_path, quote_value, shorten

# Keywords that the API does not accept at the top level of an input schema.
_COMBINED = ("anyOf", "oneOf", "allOf")
# Maximum length of the message for one field, because jsonschema repeats the value in it.
_LONGEST_MESSAGE = 400


@frozen(eq=False)
class JsonSchema:
    """The intake of a tool with a given JSON Schema.

    Attributes:
        tool: the tool's name.
        description: the description for the model.
        schema: the schema; draft 2020-12 unless it has another `$schema`.

    """

    tool: str
    description: str
    schema: dict[str, JSON]
    _validator: Any

    @classmethod
    def of(cls, tool: str, description: str, given: object) -> JsonSchema:
        """Read a schema.

        Raises:
            BadTool: it is not the JSON Schema of an object, or the API does not accept the name of a property.
            ImportError: `jsonschema` is not installed.

        """
        try:
            from jsonschema import (  # type: ignore[import-untyped] # noqa: PLC0415 - an extra, and without types
                Draft202012Validator,
                SchemaError,
            )
            from jsonschema.validators import validator_for  # type: ignore[import-untyped] # noqa: PLC0415 - likewise
            from referencing import Registry  # noqa: PLC0415 - jsonschema brings it
        except ImportError as missing:
            raise ImportError(
                f"the input_schema of {tool!r} needs jsonschema ({missing}): pip install 'toolloop[schema]'",
                name=missing.name,
            ) from missing
        try:
            schema: JSON = to_plain(given, "input_schema")
        except TypeError as error:
            raise _make_schema_error(tool, str(error)) from error
        if not isinstance(schema, dict) or schema.get("type") != "object":
            raise _make_schema_error(
                tool, 'its input_schema must be the JSON Schema of an object: {"type": "object", ...}'
            )
        try:
            kind = validator_for(schema, default=Draft202012Validator)
            kind.check_schema(schema)
        except SchemaError as error:
            why = f"its input_schema is not a valid JSON Schema, at {error.json_path}: {shorten(error.message)}"
            raise _make_schema_error(tool, why) from error
        except (TypeError, ValueError, AttributeError) as error:  # the `$schema` or `$id` is not a URI
            raise _make_schema_error(tool, f"its input_schema is not a valid JSON Schema: {error}") from error
        check_properties(schema, tool)
        # An empty registry keeps jsonschema from fetching references over the network.
        return cls(tool, description, schema, kind(schema, registry=Registry()))

    def definition(self) -> JSON:
        """Return the definition for `tools`, with its keys always in the same order.

        The API does not accept `anyOf`, `oneOf` or `allOf` at the top level of a schema. They go into the description.
        """
        combined = {key: self.schema[key] for key in _COMBINED if key in self.schema}
        also = f"The input must also fit this JSON Schema: {encode(combined)}" if combined else ""
        description = "\n\n".join(filter(None, (self.description, also)))
        described = {"description": description} if description else {}
        schema = {key: value for key, value in self.schema.items() if key not in combined}
        return {"name": self.tool, **described, "input_schema": schema}

    def fit(self, given: object) -> dict[str, Any]:
        """Return the input, or raise `InvalidInput`, which lists every invalid field."""
        from referencing.exceptions import Unresolvable  # noqa: PLC0415 - jsonschema brings it

        if not isinstance(given, Mapping):
            raise InvalidInput(self.tool, [f"input: expected an object, got {quote_value(given)}"])
        try:
            fields: dict[str, Any] = to_plain(given, "input")
        except TypeError as error:
            raise InvalidInput(self.tool, [f"input: {error}"]) from error
        try:
            errors = sorted(self._validator.iter_errors(fields), key=lambda error: list(map(str, error.absolute_path)))
        except (Unresolvable, RecursionError) as error:
            raise InvalidInput(self.tool, [f"input: the schema of this tool cannot be used: {error}"]) from error
        if errors:
            raise InvalidInput(self.tool, [_describe_problem(error) for error in errors])
        return fields


def _describe_problem(error: Any) -> str:
    """Return the path and the message of an error; for a union, the messages of all branches."""
    message = " or ".join(dict.fromkeys(map(_describe_problem, error.context))) if error.context else error.message
    return f"{format_path(error.absolute_path)}: {shorten(message, _LONGEST_MESSAGE)}"


def _make_schema_error(tool: str, why: str) -> BadTool:
    return BadTool(f"{tool} cannot be a tool: {why}", tool=tool)
