"""How pydantic writes the schema of a tool. Importing this imports pydantic, which is slow."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticSerializationError

from toolloop.core.jsontext import JSON
from toolloop.tools.schema.describing import refuse_sets_in, told, with_fitting_default
from toolloop.tools.schema.guarding import INTEGER_KEY


class Generator(GenerateJsonSchema):
    """pydantic's generator, but for what would not be so, or differ from run to run."""

    # A default that is not JSON is the function's own affair; it stays out of the schema.
    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - pydantic declares it so

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic calls it so
        """Never: a title made of the name tells the model nothing, in every request."""
        return False

    def get_default_value(self, schema: Any) -> Any:
        """As it is; but a set in order, for pydantic sorts by `<`, which puts sets of sets into none."""
        default = super().get_default_value(schema)
        return told(default) if isinstance(default, set | frozenset) else default

    def encode_default(self, dft: Any) -> Any:
        """A default as JSON."""
        try:
            return told(dft)
        except (TypeError, ValueError) as error:
            raise PydanticSerializationError(str(error)) from error

    def default_schema(self, schema: Any) -> Any:
        """Without a default that does not fit."""
        return with_fitting_default(super().default_schema(schema))

    def model_schema(self, schema: Any) -> Any:
        """Of a model whose description has an order."""
        refuse_sets_in(schema["cls"])
        return super().model_schema(schema)

    def dataclass_schema(self, schema: Any) -> Any:
        """Likewise."""
        refuse_sets_in(schema["cls"])
        return super().dataclass_schema(schema)

    def set_schema(self, schema: Any) -> Any:
        """Of what can be in a set."""
        return _of_set(super().set_schema(schema))

    def frozenset_schema(self, schema: Any) -> Any:
        """Likewise."""
        return _of_set(super().frozenset_schema(schema))

    def dict_schema(self, schema: Any) -> Any:
        """Closed, if not every name fits: pydantic leaves open what the others stand for, and takes none of them."""
        described = super().dict_schema(schema)
        names = schema.get("keys_schema", {"type": "any"})
        if names["type"] == "int":
            values = described.pop("additionalProperties")
            described["patternProperties"] = {INTEGER_KEY: {} if values is True else values}
        elif self.generate_inner(names).get("type") in {"number", "boolean", "array", "object", "null"}:
            raise TypeError("the names of the fields of an object are texts: take dict[str, ...]")
        if "patternProperties" in described:
            described.setdefault("additionalProperties", False)
        return described


def _of_set(described: dict[str, JSON]) -> dict[str, JSON]:
    # It takes an item that is given twice, so its schema does too; but no array and no object.
    described.pop("uniqueItems", None)
    if described.get("items") == {}:
        described["items"] = {"type": ["string", "number", "boolean", "null"]}
    return described
