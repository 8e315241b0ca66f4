"""JSON Schema and validation of a function's parameters. pydantic is imported when a schema is first used.

Validation is strict, as for JSON: `"5"` and `true` are not integers; 5.0 is one, as in JSON Schema. Extra fields are
refused, unless a pydantic model allows them.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from attrs import frozen

from toolloop.errors import BadTool
from toolloop.machine.values.jsontext import JSON, encode, unify_numbers
from toolloop.tools.annotations import resolve
from toolloop.tools.class_fields import FieldTypes, to_default_json
from toolloop.tools.signature import check_properties
from toolloop.tools.tool_errors import InvalidInput, format_path, quote_value

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

_ABSENT: Any = object()


@frozen(eq=False, repr=False, slots=False)
class Arguments:
    """Generate the schema of a function's parameters, and validate the input of calls.

    Args:
        tool: the tool's name, for errors.
        parameters: the parameters that the model fills in.
        texts: descriptions of parameters; the text in an annotation takes precedence.
        names: globals and locals, for annotations that are still strings.
        closed: whether objects with named fields refuse other fields, as `strict` requires.

    """

    tool: str
    parameters: Sequence[inspect.Parameter]
    texts: Mapping[str, str]
    names: tuple[dict[str, Any], Mapping[str, Any]]
    closed: bool = False

    def make_schema(self) -> JSON:
        """Return the JSON Schema of the input, the same text in each run.

        Raises:
            BadTool: an annotation has no schema; the message names the parameter.

        """
        schema = self._generate_schema(self._adapter)
        check_properties(schema, self.tool)
        for name, described in schema.get("properties", {}).items():
            if name in self.texts:
                described.setdefault("description", self.texts[name])
        if self.closed:
            _close(schema)
        return schema

    def fit(self, given: Mapping[str, JSON]) -> dict[str, Any]:
        """Return the arguments for a call's input, with the defaults.

        Raises:
            InvalidInput: the input is invalid; `problems` lists every invalid field.
            BadTool: as for `make_schema`.

        """
        from pydantic import ValidationError  # noqa: PLC0415 - pydantic is slow to import

        if not isinstance(given, Mapping):
            raise InvalidInput(self.tool, [f"input: expected an object, got {quote_value(given)}"])
        adapter = self._adapter
        try:
            text = encode(unify_numbers(dict(given)))
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(self.tool, [f"input: not JSON: {error}"]) from error
        try:
            # As JSON: only then does a strict pydantic accept an array for a set, and a text for a date.
            fields: dict[str, Any] = adapter.validate_json(text, strict=True, extra="forbid" if self.closed else None)
        except ValidationError as error:
            raise InvalidInput(self.tool, find_problems(error, dict(given))) from error
        except Exception as error:  # raised by a validator or a default factory
            raise InvalidInput(self.tool, [f"input: {type(error).__name__}: {error}"]) from error
        return fields

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        try:
            return self._make_adapter(self.parameters)
        except Exception as error:
            raise self._make_refusal(error) from error

    def _make_adapter(self, parameters: Sequence[inspect.Parameter]) -> TypeAdapter[Any]:
        from pydantic import TypeAdapter  # noqa: PLC0415 - pydantic is slow to import

        # pydantic reads and validates the parameters of a function. The tool's function must not run yet, so this
        # function replaces it.
        def arguments(**given: Any) -> dict[str, Any]:
            return given

        types = FieldTypes(self.names[1])
        known = [
            each.replace(
                annotation=types.map(resolve(each.annotation, *self.names)),
                kind=each.kind if each.kind is each.VAR_KEYWORD else each.KEYWORD_ONLY,
            )
            for each in parameters
        ]
        arguments.__dict__["__signature__"] = inspect.Signature(known)
        arguments.__annotations__ = {each.name: each.annotation for each in known}
        adapter: TypeAdapter[Any] = TypeAdapter(
            cast("Any", arguments), config={"allow_inf_nan": False, "defer_build": True}
        )
        adapter.rebuild(_types_namespace={**self.names[0], **self.names[1]})
        return adapter

    def _generate_schema(self, adapter: TypeAdapter[Any]) -> JSON:
        try:
            schema = adapter.json_schema(schema_generator=_make_generator())
            encode(schema)
        except Exception as error:  # pydantic and the caller's own classes raise anything
            raise self._make_refusal(error) from error
        return schema

    def _make_refusal(self, error: Exception) -> BadTool:
        """Return the error for a missing schema. It names the first parameter without a schema of its own."""
        named = next((each.name for each in self.parameters if self._fails(each)), None)
        text = str(getattr(error, "message", error)).partition("\n")[0].rstrip(". ")
        return BadTool(
            f"{self.tool} cannot be a tool: cannot make a JSON Schema for "
            f"{'its parameters' if named is None else f'its parameter {named!r}'}: {text}. "
            "Use JSON types, attrs classes, dataclasses, TypedDict, enums or pydantic models. They must be defined or "
            "imported at run time, not only for type checking",
            tool=self.tool,
        )

    def _fails(self, parameter: inspect.Parameter) -> bool:
        try:
            self._make_adapter([parameter]).json_schema(schema_generator=_make_generator())
        except Exception:  # noqa: BLE001 - whatever pydantic raises, this is the parameter
            return True
        return False


def _make_generator() -> Any:
    from pydantic.json_schema import GenerateJsonSchema  # noqa: PLC0415 - pydantic is slow to import
    from pydantic_core import PydanticSerializationError  # noqa: PLC0415 - likewise

    class Generator(GenerateJsonSchema):
        """Omit titles, which repeat the names, and write defaults the same in each run."""

        ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - pydantic's own notation

        def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic calls it so
            return False

        def encode_default(self, dft: Any) -> Any:
            try:
                return to_default_json(dft)
            except ValueError as error:
                raise PydanticSerializationError(str(error)) from error

    return Generator


def _close(schema: JSON) -> None:
    """Close every object with named fields, in place."""
    if isinstance(schema, dict):
        if schema.get("type") == "object" and "properties" in schema:
            schema.setdefault("additionalProperties", False)
        schema = list(schema.values())
    if isinstance(schema, list):
        for each in schema:
            _close(each)


def find_problems(error: ValidationError, given: JSON) -> list[str]:
    """Return one text per field: its path, pydantic's message, and the value; messages of a union are joined."""
    found: dict[str, tuple[list[str], JSON]] = {}
    for each in error.errors(include_url=False, include_context=False, include_input=False):
        path, value = _find_in_input(each["loc"], given)
        if each["type"].startswith("missing"):
            path, value = [*path, each["loc"][-1]], _ABSENT
        if each["loc"][-1:] == ("[key]",):  # the name of a field is wrong, not its value
            value = path[-1]
        found.setdefault(format_path(path), ([], value))[0].append(each["msg"])
    return [
        f"{path}: {' or '.join(dict.fromkeys(messages))}" + ("" if value is _ABSENT else f", got {quote_value(value)}")
        for path, (messages, value) in found.items()
    ]


def _find_in_input(loc: Sequence[str | int], value: JSON) -> tuple[list[str | int], JSON]:
    """Return the part of a location that is in the input, and the value there. Union branches are left out."""
    path: list[str | int] = []
    for step in loc:
        if _has(value, step):
            path.append(step)
            value = value[step]
    return path, value


def _has(value: JSON, step: str | int) -> bool:
    return step in range(len(value)) if isinstance(value, list) else isinstance(value, dict) and step in value
