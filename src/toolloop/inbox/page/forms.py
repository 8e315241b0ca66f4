"""Inputs as forms: the fields that a JSON Schema makes, and the input that a person typed into them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from attrs import field, frozen

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
            return True, json.loads(text)
        except ValueError as error:
            what = "a number" if self.kind == "number" else "JSON"
            raise BadForm(f"{self.name}: {text!r} is not {what}") from error


def line_ends(text: str) -> str:
    """Return a text with the line ends of the model. Browsers send others."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def form_fields(schema: Mapping[str, Any], given: Mapping[str, JSON]) -> list[FormField]:
    """Return the fields for an input: the properties of its schema, then what else it holds."""
    properties: dict[str, Any] = {**schema.get("properties", {}), **{name: {} for name in given}}
    properties |= schema.get("properties", {})
    required = schema.get("required", ())
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
    found: dict[str, Any] = dict(rule) if isinstance(rule, Mapping) else {}
    for branch in _branches(found):
        found = {**{key: value for key, value in found.items() if key == "description"}, **branch}
    reference = found.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/$defs/"):
        target = schema.get("$defs", {}).get(reference.removeprefix("#/$defs/"))
        found = {**target, **found} if isinstance(target, Mapping) else found
    return found


def _branches(rule: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the one branch of an alternative with null."""
    branches = [each for each in rule.get("anyOf", ()) if each != {"type": "null"}]
    if len(branches) == 1 and isinstance(branches[0], Mapping):
        yield branches[0]
