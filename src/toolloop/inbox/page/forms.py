"""Forms for inputs: make fields from a JSON Schema, and read the input that a person typed into them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from attrs import field, frozen

from toolloop.inbox.shown.schemas import as_mapping, schema_parts
from toolloop.machine.values import jsontext
from toolloop.machine.values.jsontext import JSON

_KINDS: dict[str, Literal["text", "number"]] = {"string": "text", "integer": "number", "number": "number"}
_ABSENT = ""


class BadForm(ValueError):
    """The submitted form is incomplete."""


class BadInput(BadForm):
    """The submitted form does not contain a valid input. `problems`: the number of each wrong field, and why."""

    def __init__(self, problems: dict[int, str]) -> None:
        """Keep the problems."""
        super().__init__("; ".join(problems.values()))
        self.problems: dict[int, str] = problems


@frozen
class FormField:
    """A field of a form.

    Attributes:
        name: the name of the property.
        kind: `text`, `number`, `choice`, or `json` for anything else.
        text: the initial text.
        choices: the JSON texts of a choice.
        required: whether the property is required.
        description: the description of the property.

    """

    name: str
    kind: Literal["text", "number", "choice", "json"]
    text: str
    choices: tuple[str, ...] = ()
    required: bool = False
    description: str = ""
    value: JSON = field(default=None, repr=False)
    is_given: bool = False

    def typed(self, text: str) -> tuple[bool, JSON]:
        """Return whether the property is given, and its value. An unchanged value is kept exactly, to the digit.

        Raises:
            BadForm: the text is not a value of this kind.

        """
        text = line_ends(text)
        if text == line_ends(self.text):
            return self.is_given, self.value
        if self.kind == "text":
            return True, text
        if text.strip() == _ABSENT:
            return False, None
        try:
            return True, jsontext.read_typed(text)
        except ValueError as error:
            kind = "a number" if self.kind == "number" else "JSON"
            raise BadForm(f"{self.name}: expected {kind}, got {text!r}") from error


def line_ends(text: str) -> str:
    """Return a text with Unix line ends, because browsers send CRLF."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def form_fields(schema: Mapping[str, Any], given: Mapping[str, JSON]) -> list[FormField]:
    """Return the fields for an input: the properties of its schema, then its other properties."""
    known = as_mapping(schema.get("properties"))
    required = schema.get("required")
    is_required = required.__contains__ if isinstance(required, list) else lambda _: False
    rules = {**known, **{name: {} for name in given if name not in known}}
    return [
        _field(name, [*schema_parts(rule, schema)], given, is_required=is_required(name))
        for name, rule in rules.items()
    ]


def typed_input(fields: list[FormField], typed: Mapping[str, str]) -> dict[str, JSON]:
    """Return the input that a person typed.

    Args:
        fields: the fields, in order.
        typed: the submitted texts, by `field.N`; N counts from 1. Names are not used, because browsers change line
            ends in them.

    Raises:
        BadInput: the input is invalid.

    """
    result: dict[str, JSON] = {}
    problems = {}
    for number, each in enumerate(fields, 1):
        try:
            is_given, value = each.typed(typed.get(f"field.{number}", each.text))
        except BadForm as error:
            problems[number] = str(error)
            continue
        if is_given:
            result[each.name] = value
    if problems:
        raise BadInput(problems)
    return result


def _field(name: str, parts: list[Mapping[str, Any]], given: Mapping[str, JSON], *, is_required: bool) -> FormField:
    value, is_given = given.get(name), name in given
    choices: tuple[str, ...] = ()
    kind: Literal["text", "number", "choice", "json"] = "json"
    match [part for part in parts if ("type" in part or "enum" in part) and part != {"type": "null"}]:
        case [{"enum": [*values]}]:
            choices = tuple(json.dumps(each, ensure_ascii=False) for each in values)
        case [{"type": "boolean"}]:
            choices = ("true", "false")
        case [{"type": str(type_)}] if type_ in _KINDS:
            kind = _KINDS[type_]
    as_json = json.dumps(value, ensure_ascii=False, indent=2)
    if choices and (not is_given or as_json in choices):
        kind = "choice"
    if kind == "text" and is_given and not isinstance(value, str):
        kind = "json"
    shown = _ABSENT if not is_given else value if kind == "text" else as_json
    text = next((str(part["description"]) for part in parts if "description" in part), "")
    return FormField(name, kind, str(shown), choices, is_required, text, value, is_given)
