"""Input judged by a JSON Schema that was given as one, and what is wrong told to the model."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

from toolloop.core.freezing import frozen
from toolloop.core.jsontext import JSON
from toolloop.tools.failures import InvalidInput, shortened
from toolloop.tools.schema.judging import MOST, Judge
from toolloop.tools.schema.words import joined, shown, unreadable

if TYPE_CHECKING:
    from jsonschema import ValidationError  # type: ignore[import-untyped] # it has no types of its own

LOG = logging.getLogger("toolloop.tools")
# How much of a list of choices the model is shown, and how much of what is wrong with a schema is logged.
_CHOICES = 400
_LOGGED = 200
_MISSING = object()
_Path = tuple[str | int, ...]

# What a rule of JSON Schema expects, where its bare name would not tell.
_EXPECTED = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "exclusiveMinimum": "more than {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "const": "{}",
}
_TYPES = {
    "object": "an object",
    "array": "an array",
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
}


@frozen
class ForeignSchema:
    """A schema of somebody else's. One that is wrong, or beyond what can be judged here, judges nothing.

    The same holds for its patterns, and for an input that would take long to judge: the server judges these.

    Args:
        tool: the tool's name, for errors.
        schema: the JSON Schema of the input; draft 2020-12 unless its `$schema` says otherwise.

    """

    tool: str
    schema: Mapping[str, JSON]

    def fit(self, given: object) -> dict[str, Any]:
        """The input, if it fits.

        Raises:
            InvalidInput: it does not; every field that is wrong is named.

        """
        if not isinstance(given, Mapping):
            raise InvalidInput(self.tool, [f"input: expected an object, got {shown(given)}"])
        fields = dict(given)
        if problems := _unsendable(fields) or self._problems(fields):
            raise InvalidInput(self.tool, problems)
        return fields

    @cached_property
    def _judge(self) -> Judge | None:
        try:
            return Judge.of(self.schema)
        except Exception as error:  # noqa: BLE001 - what is no schema at all fails in any way
            self._log(error)
            return None

    def _problems(self, given: JSON) -> list[str]:
        if self._judge is None:
            return []
        try:
            return told(self._judge.errors(given))
        except Exception as error:  # noqa: BLE001 - a reference to nowhere, a circle, a rule that is none
            self._log(error)
            return []

    def _log(self, error: Exception) -> None:
        why = shortened(str(error).partition("\n")[0], _LOGGED)
        LOG.warning("the schema of the tool %s cannot be used here, so the server alone judges: %s", self.tool, why)


def _unsendable(given: JSON) -> list[str]:
    """What no message to a server can carry. mcp finds out where it can only give up the connection (mcp 2.3)."""
    from pydantic_core import to_json  # noqa: PLC0415 - pydantic is slow to import

    try:
        to_json([[[[given]]]])  # as deep as it lies in a message
    except ValueError:
        return [unreadable(given)]
    return []


@frozen
class _Wrong:
    """What is wrong in one place.

    Attributes:
        path: where.
        expected: what was expected there; None if nothing should be there.
        value: what is there, or `_MISSING`.

    """

    path: _Path
    expected: str | None
    value: JSON

    def __str__(self) -> str:
        return f"{joined(self.path)}: {self.told([self.expected or ''])}"

    def told(self, expected: Iterable[str]) -> str:
        """The text without the path; `expected` is what other errors expect there, too."""
        if self.value is _MISSING:
            return "required, but it is missing"
        if self.expected is None:
            return f"no such field, got {shown(self.value)}"
        return f"expected {' or '.join(dict.fromkeys(expected))}, got {shown(self.value)}"


def told(errors: Iterable[ValidationError]) -> list[str]:
    """What is wrong, for the model: one text per field, by path."""
    by_path: dict[_Path, list[_Wrong]] = {}
    for each in islice((wrong for error in errors for wrong in _wrongs(error)), MOST):
        by_path.setdefault(each.path, []).append(each)
    return [
        f"{joined(path)}: {wrongs[0].told(each.expected or '' for each in wrongs)}"
        for path, wrongs in sorted(by_path.items(), key=lambda item: [str(step) for step in item[0]])
    ]


def _wrongs(error: ValidationError) -> Iterator[_Wrong]:
    path: _Path = tuple(error.absolute_path)
    rule, wanted, value = error.validator, error.validator_value, error.instance
    if rule is None:  # the schema of this place is `false`
        yield _Wrong(path, "nothing", value)
    elif error.context:
        yield from _of_union(path, error)
    elif rule == "required" and isinstance(wanted, list):
        yield from (_Wrong((*path, name), "a value", _MISSING) for name in wanted if name not in value)
    elif rule == "additionalProperties":
        yield from (_Wrong((*path, name), None, value[name]) for name in value if not _is_named(name, error.schema))
    else:
        yield _Wrong(path, _expectation(rule, wanted), value)


def _is_named(name: str, schema: Mapping[str, JSON]) -> bool:
    patterns = schema.get("patternProperties", ())
    return name in schema.get("properties", ()) or any(re.search(pattern, name) for pattern in patterns)


def _of_union(path: _Path, error: ValidationError) -> Iterator[_Wrong]:
    """What is wrong where no branch fits: all that is wrong, if it is in one place, else what each branch says."""
    branches: dict[object, list[_Wrong]] = {}
    for each in error.context[:MOST]:
        # The number of the branch; jsonschema gives none for one that is simply `false` (jsonschema 4.26).
        branches.setdefault(tuple(each.schema_path)[:1], []).extend(_wrongs(each))
    if all(wrong.path == path for wrongs in branches.values() for wrong in wrongs):
        for wrongs in branches.values():
            yield from wrongs
    else:
        said = (f"({'; '.join(map(str, wrongs))})" for wrongs in branches.values())
        yield _Wrong(path, shortened(f"what one of these asks for: {' or '.join(said)}", _CHOICES), error.instance)


def _expectation(rule: str, wanted: Any) -> str:
    if rule == "type":
        return " or ".join(_TYPES.get(name, name) for name in ([wanted] if isinstance(wanted, str) else wanted))
    if rule == "enum":
        return shortened(" or ".join(map(shown, wanted[:MOST])), _CHOICES)
    return _EXPECTED.get(rule, rule + " {}").format(shown(wanted))
