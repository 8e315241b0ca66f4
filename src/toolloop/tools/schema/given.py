"""The input of a tool whose JSON Schema the caller wrote: all of it applies, and one that is wrong is refused at once.

Imported where such a schema is given, for it needs `jsonschema`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from jsonschema import Draft202012Validator, SchemaError  # type: ignore[import-untyped] # it has no types of its own
from jsonschema.validators import validator_for  # type: ignore[import-untyped] # likewise
from referencing import Registry

from toolloop.core.errors import BadTool
from toolloop.core.freezing import frozen
from toolloop.core.jsontext import JSON, plain
from toolloop.tools.failures import InvalidInput
from toolloop.tools.schema.arguments import PROPERTY
from toolloop.tools.schema.json_schema import told
from toolloop.tools.schema.words import is_readable, shown, unreadable

LOG = logging.getLogger("toolloop.tools")
# What the API does not take at the top of an input schema.
COMBINED = ("anyOf", "oneOf", "allOf")


@frozen(eq=False)
class GivenIntake:
    """The intake of a tool whose schema was given.

    Attributes:
        name: the tool's name.
        description: what the model is told about it.
        schema: the JSON Schema of the input; draft 2020-12 unless its `$schema` says otherwise.

    """

    name: str
    description: str
    schema: dict[str, JSON]
    _validator: Any

    @classmethod
    def of(cls, name: str, description: str, schema: object) -> GivenIntake:
        """The intake for a schema.

        Raises:
            BadTool: it is no JSON Schema of an object, or none that the API takes.

        """
        try:
            given: JSON = plain(schema, "input_schema")
        except TypeError as error:
            raise _refusal(name, str(error)) from error
        if not isinstance(given, dict) or given.get("type") != "object":
            raise _refusal(name, 'input_schema is to be the JSON Schema of an object: {"type": "object", ...}')
        if combined := [key for key in COMBINED if key in given]:
            raise _refusal(name, f"the API takes no {combined[0]} at the top of an input_schema")
        kind = validator_for(given, default=Draft202012Validator)
        try:
            kind.check_schema(given)
        except SchemaError as error:
            raise _refusal(name, f"input_schema is no JSON Schema, at {error.json_path}: {error.message}") from error
        for field in given.get("properties", ()):
            if not PROPERTY.fullmatch(field):
                raise _refusal(
                    name,
                    f"the API does not take the property {field!r}; it takes names of 1 to 64 letters of ASCII, "
                    "digits, underscores, dots and hyphens",
                )
        # A registry of its own, so that no reference is ever looked up on the network.
        return cls(name, description, given, kind(given, registry=Registry()))

    def definition(self) -> JSON:
        """What goes into `tools`, keys always in this order."""
        described = {"description": self.description} if self.description else {}
        return {"name": self.name, **described, "input_schema": self.schema}

    def fit(self, given: Mapping[str, JSON]) -> dict[str, Any]:
        """The input, or `InvalidInput`."""
        if not isinstance(given, Mapping):
            raise InvalidInput(self.name, [f"input: expected an object, got {shown(given)}"])
        fields = dict(given)
        if not is_readable(fields):
            raise InvalidInput(self.name, [unreadable(fields)])
        try:
            problems = told(self._validator.iter_errors(fields))
        except Exception as error:  # a reference to nowhere, or in a circle: nothing is known to fit then
            LOG.exception("the input_schema of the tool %s cannot be applied", self.name)
            raise InvalidInput(self.name, ["input: the schema of this tool is broken, so no input fits it"]) from error
        if problems:
            raise InvalidInput(self.name, problems)
        return fields


def _refusal(name: str, why: str) -> BadTool:
    return BadTool(f"{name} cannot be a tool: {why}", tool=name)
