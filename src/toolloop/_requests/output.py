"""A typed result: the schema of a class for `output_config.format`, and the object that a reply holds."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

from attrs import field, frozen

from toolloop.errors import BadTool
from toolloop.machine.values.jsontext import JSON, decode, encode
from toolloop.tools.arguments import Arguments
from toolloop.tools.tool_errors import InvalidInput

_NAME: Final = "output"
# What the API takes of a schema (source: `transform_schema` of anthropic 2.14, which also moves the rest to the text).
_FORMATS: Final = frozenset(
    ("date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid")
)
_TYPES: Final = ("object", "array", "string", "integer", "number", "boolean", "null")


class MisfitError(ValueError):
    """A text does not fit the class. `problems`: a text for each field, with its path."""

    def __init__(self, problems: list[str]) -> None:
        """Join the problems."""
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


@frozen(eq=False)
class Output:
    """The class of a typed result.

    Attributes:
        kind: the class.
        format: the value of `output_config.format`, as JSON text.

    """

    kind: Any
    format: str
    _fields: Arguments = field(repr=False)

    @classmethod
    def of(cls, kind: Any) -> Output:
        """Read a class.

        Raises:
            ValueError: it has no JSON Schema, or the API cannot constrain a reply to it. The error names the path.

        """
        names = vars(sys.modules.get(getattr(kind, "__module__", ""), inspect))
        parameter = inspect.Parameter(_NAME, inspect.Parameter.KEYWORD_ONLY, annotation=kind)
        fields = Arguments(_NAME, (parameter,), {}, (dict(names), {}), closed=True)
        try:
            schema = fields.make_schema()
        except BadTool as error:
            why = str(error).rpartition(f"{_NAME!r}: ")[2]
            raise ValueError(f"{_NAME} is {kind!r}, which has no JSON Schema: {why}") from error
        known: dict[str, JSON] = schema.get("$defs", {})
        made = _constrain(schema["properties"][_NAME], _NAME, known, ())
        if defs := {name: _constrain(each, name, known, (name,)) for name, each in known.items()}:
            made["$defs"] = defs
        return cls(kind, encode({"type": "json_schema", "schema": made}), fields)

    def read(self, text: str | None) -> Any:
        """Return the object in the text of a reply.

        Raises:
            MisfitError: the text is not JSON, or does not fit the class.

        """
        try:
            return self._fields.fit({_NAME: read_json(text)})[_NAME]
        except InvalidInput as error:
            raise MisfitError([each.removeprefix(f"{_NAME}.") for each in error.problems]) from error


def read_json(text: str | None) -> JSON:
    """Return the value of a text.

    Raises:
        MisfitError: it is not JSON.

    """
    if text is None:
        raise MisfitError(["the reply has no text"])
    try:
        return decode(text)
    except (ValueError, RecursionError) as error:
        raise MisfitError([f"the text is not JSON: {error}"]) from error


def find_answer_text(response: Mapping[str, JSON]) -> str | None:
    """Return the text of the last text block of a reply, or None."""
    texts = [block["text"] for block in response["content"] if block["type"] == "text"]
    return texts[-1] if texts else None


# --- parameters ------------------------------------------------------------------------------------------------------


def add_format(params: Mapping[str, JSON], wanted: str | None, asked: str) -> dict[str, JSON]:
    """Return request parameters with the format of a typed result. `wanted`: its JSON text; None adds nothing.

    Raises:
        ValueError: the parameters have a format of their own.

    """
    if wanted is None:
        return dict(params)
    given = params.get("output_config") or {}
    if "output_format" in params or given.get("format") is not None:
        raise ValueError(
            f"{asked}: the loop has LoopConfig(output=...), which sets output_config.format. Leave out your own format"
        )
    return {**params, "output_config": {**given, "format": decode(wanted)}}


def find_format(params: Mapping[str, JSON]) -> str | None:
    """Return the format in request parameters, as JSON text."""
    found = (params.get("output_config") or {}).get("format")
    return None if found is None else encode(found)


def drop_format(params: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return request parameters without a format."""
    rest = {name: value for name, value in (params.get("output_config") or {}).items() if name != "format"}
    kept = {name: value for name, value in params.items() if name != "output_config"}
    return {**kept, "output_config": rest} if rest else kept


# --- schemas ---------------------------------------------------------------------------------------------------------


def _constrain(given: JSON, path: str, known: Mapping[str, JSON], above: tuple[str, ...]) -> dict[str, JSON]:
    """Return a schema that the API accepts. What it does not constrain goes to the description, for the model.

    Args:
        given: the schema of pydantic.
        path: where it is, for errors.
        known: the schemas that references name.
        above: the references that lead here.

    Raises:
        ValueError: the API cannot constrain it.

    """
    schema = dict(given) if isinstance(given, Mapping) else {}
    schema.pop("$defs", None)
    if (ref := schema.pop("$ref", None)) is not None:
        name = str(ref).removeprefix("#/$defs/")
        if name in above:
            raise _make_refusal(path, f"{name} contains itself")
        _constrain(known[name], path, known, (*above, name))
        return {"$ref": ref}
    made = {key: schema.pop(key) for key in ("enum", "const") if key in schema}
    kind = schema.pop("type", None)
    if branches := schema.pop("anyOf", None) or schema.pop("oneOf", None):
        schema.pop("discriminator", None)
        made["anyOf"] = [_constrain(each, path, known, above) for each in branches]
    elif not made:
        if kind not in _TYPES:
            raise _make_refusal(path, "it may be any value")
        made |= {"type": kind, **dict(_constrain_inside(kind, schema, path, known, above))}
    rest = {key: value for key, value in schema.items() if key not in ("description", "title")}
    notes = [schema["description"]] if "description" in schema else []
    notes += [f"{{{', '.join(f'{key}: {json.dumps(value)}' for key, value in rest.items())}}}"] if rest else []
    return {**made, "description": "\n\n".join(notes)} if notes else made


def _constrain_inside(
    kind: str, schema: dict[str, JSON], path: str, known: Mapping[str, JSON], above: tuple[str, ...]
) -> Iterator[tuple[str, JSON]]:
    """Yield the members of a schema that the API takes, and remove them from it."""
    if kind == "object":
        if schema.pop("additionalProperties", True) is not False or "patternProperties" in schema:
            raise _make_refusal(path, "it may have any keys. Use a class with named fields instead")
        fields = schema.pop("properties", {})
        yield "properties", {key: _constrain(each, f"{path}.{key}", known, above) for key, each in fields.items()}
        yield "additionalProperties", False
        yield from (("required", schema.pop(key)) for key in ("required",) if key in schema)
    elif kind == "array":
        if "prefixItems" in schema:
            raise _make_refusal(path, "it is a tuple of several types. Use a class with named fields instead")
        yield "items", _constrain(schema.pop("items", None), f"{path}[]", known, above)
        yield from (("minItems", schema.pop(key)) for key in ("minItems",) if schema.get(key) in (0, 1))
    elif kind == "string" and schema.get("format") in _FORMATS:
        yield "format", schema.pop("format")


def _make_refusal(path: str, why: str) -> ValueError:
    return ValueError(f"{path}: the API cannot constrain a reply to it, because {why}")
