"""Literals and enums that are told apart as JSON tells them apart: true is not 1."""

from __future__ import annotations

import enum
import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, get_args

from toolloop.core.freezing import frozen
from toolloop.core.jsontext import JSON, encode
from toolloop.tools.failures import shortened


def literal(annotation: Any) -> Any:
    """A `Literal`, as it is if it holds only texts, which pydantic tells apart well.

    Raises:
        TypeError: it holds what is not JSON.

    """
    values = get_args(annotation)
    if all(type(value) in {str, type(None)} for value in values):
        return annotation
    pairs = [(_given(value) if isinstance(value, enum.Enum) else value, value) for value in values]
    for given, _ in pairs:
        if not _is_scalar(given):
            raise TypeError(f"{annotation} holds {given!r}, which is not JSON")
    return Annotated[Any, Choice.of(pairs)]


def members(kind: type[enum.Enum]) -> Any:
    """An enum: given by its members' values; by their names, if the values are not all scalars of JSON."""
    values = [member.value for member in kind]
    if not values:
        raise TypeError(f"{kind.__name__} has no members")
    if all(type(value) is str for value in values) and "_missing_" not in vars(kind):
        return kind
    return Annotated[Any, Choice.of([(_given(member), member) for member in kind], vars(kind).get("__doc__"))]


def choice_of(values: Sequence[Any]) -> Choice | None:
    """What judges the values of a literal or an enum of pydantic's; None if pydantic judges them well."""
    pairs = [(_given(value) if isinstance(value, enum.Enum) else value, value) for value in values]
    if all(type(given) in {str, type(None)} for given, _ in pairs) or not all(_is_scalar(given) for given, _ in pairs):
        return None
    return Choice.of(pairs)


def named_by(annotation: Any) -> Any:
    """What picks a value by the name of a field: the text itself, or that of another value's JSON."""
    choice = next((each for each in getattr(annotation, "__metadata__", ()) if isinstance(each, Choice)), None)
    return annotation if choice is None else Annotated[Any, choice.by_name()]


def _given(member: enum.Enum) -> JSON:
    """What stands for a member: its value; its name, if not all values of its kind are scalars of JSON."""
    return member.value if all(_is_scalar(each.value) for each in type(member)) else member.name


def _is_scalar(value: object) -> bool:
    return math.isfinite(value) if isinstance(value, float) else isinstance(value, str | int | None)


@frozen(eq=False)
class Choice:
    """One of some values, for pydantic: in `Annotated[Any, Choice(...)]`."""

    choices: tuple[JSON, ...]
    description: str | None
    _picked: dict[tuple[bool, JSON], Any]

    @classmethod
    def of(cls, pairs: Iterable[tuple[JSON, Any]], doc: str | None = None) -> Choice:
        """Of what is given, and what it stands for."""
        picked: dict[tuple[bool, JSON], Any] = {}
        for given, meant in pairs:
            picked.setdefault((isinstance(given, bool), given), meant)
        return cls(tuple(given for _, given in picked), inspect.cleandoc(doc) if doc else None, picked)

    def by_name(self) -> Choice:
        """The same choice, as names of fields."""
        named = [(given if isinstance(given, str) else encode(given), it) for (_, given), it in self._picked.items()]
        return Choice.of(named, self.description)

    def pick(self, given: JSON) -> Any:
        """What a JSON value stands for."""
        from pydantic_core import PydanticKnownError  # noqa: PLC0415 - pydantic is slow to import

        try:
            return self._picked[isinstance(given, bool), given]
        except (KeyError, TypeError):  # TypeError: an array or object, which is no key
            expected = " or ".join(map(encode, self.choices))
            raise PydanticKnownError("literal_error", {"expected": shortened(expected)}) from None

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """How pydantic validates it."""
        from pydantic_core import core_schema  # noqa: PLC0415 - pydantic is slow to import

        return core_schema.no_info_plain_validator_function(self.pick)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Callable[..., Any]) -> JSON:
        """How pydantic describes it."""
        described = {} if self.description is None else {"description": self.description}
        texts = {"type": "string"} if all(isinstance(each, str) for each in self.choices) else {}
        return {**described, **texts, "enum": list(self.choices)}
