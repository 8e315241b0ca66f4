"""What the schema tells beside types: descriptions and defaults, the same bytes from run to run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import attrs
from attrs import frozen

from toolloop.core.jsontext import JSON, canonical, encode

# No default. That of attrs would not do: given as a default it means that there is none.
NOTHING: Any = object()


@frozen(eq=False)
class Telling:
    """What is said about a field; in `Annotated[..., Telling(...)]`. What the annotation itself says comes first."""

    description: str | None
    default: Any = NOTHING

    def __get_pydantic_json_schema__(self, schema: Any, handler: Callable[..., Any]) -> JSON:
        """What pydantic says of the field, and this."""
        described = handler(schema)
        if self.description:
            described.setdefault("description", self.description)
        if self.default is not NOTHING:
            with suppress(TypeError, ValueError):  # not JSON: it is the class's own affair
                described.setdefault("default", told(self.default))
        return described


def told(default: object) -> JSON:
    """A default as JSON.

    Raises:
        TypeError: it is not JSON.
        ValueError: it holds NaN or an infinity.

    """
    from pydantic_core import PydanticSerializationError  # noqa: PLC0415 - pydantic is slow to import

    try:
        value = _plain(default)
    except PydanticSerializationError as error:
        raise TypeError(str(error)) from error
    encode(value)
    return value


def _plain(value: Any) -> JSON:
    from pydantic_core import to_jsonable_python  # noqa: PLC0415 - pydantic is slow to import

    if isinstance(value, dict):
        return {str(_plain(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return _plain(value._asdict())
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, set | frozenset):
        # The order of a set differs from run to run.
        return sorted((_plain(item) for item in value), key=canonical)
    if attrs.has(type(value)):
        return {str(each.alias): _plain(getattr(value, each.name)) for each in attrs.fields(type(value)) if each.init}
    return to_jsonable_python(value, inf_nan_mode="constants", by_alias=True)


def generator() -> Any:
    """How pydantic writes the schema of a tool."""
    from pydantic.json_schema import GenerateJsonSchema  # noqa: PLC0415 - pydantic is slow to import
    from pydantic_core import PydanticSerializationError  # noqa: PLC0415 - likewise

    class Generator(GenerateJsonSchema):
        # A default that is not JSON is the function's own affair; it stays out of the schema.
        ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - pydantic declares it so

        def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic calls it so
            # A title made of the name tells the model nothing, in every request.
            return False

        def get_default_value(self, schema: Any) -> Any:
            # pydantic sorts the items of a set by `<`, which puts sets of sets into no order.
            default = super().get_default_value(schema)
            return told(default) if isinstance(default, set | frozenset) else default

        def encode_default(self, dft: Any) -> Any:
            try:
                return told(dft)
            except (TypeError, ValueError) as error:
                raise PydanticSerializationError(str(error)) from error

        # A set takes an item that is given twice, so its schema does too.
        def set_schema(self, schema: Any) -> Any:
            described = super().set_schema(schema)
            described.pop("uniqueItems", None)
            return described

        def frozenset_schema(self, schema: Any) -> Any:
            described = super().frozenset_schema(schema)
            described.pop("uniqueItems", None)
            return described

        def dict_schema(self, schema: Any) -> Any:
            described = super().dict_schema(schema)
            # pydantic leaves open what names that do not match stand for; it takes none of them.
            if "patternProperties" in described:
                described.setdefault("additionalProperties", False)
            return described

    return Generator
