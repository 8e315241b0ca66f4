"""Inputs as forms: the fields that a JSON Schema makes, and the input that a person typed into them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from attrs import field, frozen

from toolloop.machine import jsontext
from toolloop.machine.jsontext import JSON

_KINDS: dict[str, Literal["text", "number"]] = {"string": "text", "integer": "number", "number": "number"}
_ABSENT = ""


class BadForm(ValueError):
    """What a person typed is not an input."""


@frozen
class FormField:
    """A field of a form.

    Attributes:
        name: of the property.
        kind: `text`, `number`, `choice`, or `json` for anything else.
        text: what it holds before a person types.
        choices: JSON texts, of a choice.
        required: whether the property may not be left out.
        description: of the property.

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
        """Return whether the property is given, and its value. What was not changed stays as it was, to the digit.

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
            return True, jsontext.typed(text)
        except ValueError as error:
            what = "a number" if self.kind == "number" else "JSON"
            raise BadForm(f"{self.name}: {text!r} is not {what}") from error


def line_ends(text: str) -> str:
    """Return a text with the line ends of the model. Browsers send others."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def form_fields(schema: Mapping[str, Any], given: Mapping[str, JSON]) -> list[FormField]:
    """Return the fields for an input: the properties of its schema, then what else it holds."""
    known = _object(schema.get("properties"))
    properties: dict[str, Any] = {**known, **{name: {} for name in given if name not in known}}
    required = schema.get("required")
    required = required if isinstance(required, list) else []
    return [
        _field(name, _plain(rule, schema), given, is_required=name in required) for name, rule in properties.items()
    ]


def typed_input(fields: list[FormField], typed: Mapping[str, str]) -> dict[str, JSON]:
    """Return the input that a person typed.

    Args:
        fields: the fields, in order.
        typed: what was sent, by `field.N`; N counts from 1. A browser changes line ends in names, so they are not used.

    Raises:
        BadForm: it is not one; says which fields are wrong.

    """
    result: dict[str, JSON] = {}
    problems = []
    for number, each in enumerate(fields, 1):
        try:
            is_given, value = each.typed(typed.get(f"field.{number}", each.text))
        except BadForm as error:
            problems.append(str(error))
            continue
        if is_given:
            result[each.name] = value
    if problems:
        raise BadForm("; ".join(problems))
    return result


def _field(name: str, rule: Mapping[str, Any], given: Mapping[str, JSON], *, is_required: bool) -> FormField:
    value, is_given = given.get(name), name in given
    choices: tuple[str, ...] = ()
    kind: Literal["text", "number", "choice", "json"] = "json"
    match rule:
        case {"enum": [*values]}:
            choices = tuple(json.dumps(each, ensure_ascii=False) for each in values)
        case {"type": "boolean"}:
            choices = ("true", "false")
        case {"type": str(type_)} if type_ in _KINDS:
            kind = _KINDS[type_]
    as_json = json.dumps(value, ensure_ascii=False, indent=2)
    if choices and (not is_given or as_json in choices):
        kind = "choice"
    if kind == "text" and is_given and not isinstance(value, str):
        kind = "json"
    shown = _ABSENT if not is_given else value if kind == "text" else as_json
    text = str(rule.get("description", ""))
    return FormField(name, kind, str(shown), choices, is_required, text, value, is_given)


def _plain(rule: Any, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a property's rule with a reference replaced, and without an alternative that is null."""
    found = _object(rule)
    for branch in _branches(found):
        found = {**{key: value for key, value in found.items() if key == "description"}, **branch}
    reference = found.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/$defs/"):
        target = _object(schema.get("$defs")).get(reference.removeprefix("#/$defs/"))
        found = {**_object(target), **found}
    return found


def _branches(rule: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the one branch of an alternative with null."""
    match rule:
        case {"anyOf": [*branches]}:
            branches = [each for each in branches if each != {"type": "null"}]
            if len(branches) == 1:
                yield _object(branches[0])


def _object(value: Any) -> dict[str, Any]:
    """Return a part of a schema that should be an object; one of a foreign server may be anything."""
    return dict(value) if isinstance(value, Mapping) else {}
