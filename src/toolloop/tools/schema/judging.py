"""A JSON Schema that need not be trusted, applied with `jsonschema`: whatever it says, the judgement ends soon.

What takes long in a schema is the patterns (Python's `re` can take for ever, and lets no other thread run), references
that double the work at each step, and comparisons of all items with all others. So patterns are left to the server,
references lead nowhere but into the schema itself, and each rule first looks at the clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from functools import cache
from itertools import islice
from typing import Any
from urllib.parse import unquote

from attrs import define
from jsonschema import (  # type: ignore[import-untyped] # it has no types of its own
    Draft7Validator,
    Draft202012Validator,
    SchemaError,
    ValidationError,
)
from jsonschema.validators import extend, validator_for  # type: ignore[import-untyped] # likewise

from toolloop.core.freezing import frozen
from toolloop.core.jsontext import JSON, canonical

# Seconds of this thread's own work after which a judgement is given up.
LONGEST = 0.5
# How many errors are worth finding.
MOST = 100
# Texts of at most so many characters are in an error of jsonschema's as they are.
_SHORT = 80

# What makes a schema one of its own.
_OWN = ("$schema", "$id")
# The rules for which "fits" may be what is wrong.
_TURNING = frozenset({"not", "oneOf", "if", "contains", "disallow"})

_Rule = Callable[[Any, Any, Any, Any], Iterable[ValidationError] | None]


class Unjudgeable(Exception):
    """What cannot be judged here; the text says why."""


@define
class _Run:
    """A judgement that goes on.

    Attributes:
        root: the whole schema, into which references lead.
        until: when it is given up, by the clock of the thread.
        exact: how many rules are being applied for which "fits" may be what is wrong.

    """

    root: JSON
    until: float
    exact: int = 0


_RUN: ContextVar[_Run] = ContextVar("_RUN")


@frozen
class Judge:
    """A schema, ready to be applied.

    Attributes:
        kind: jsonschema's validator of its draft.
        root: the schema.

    """

    kind: Any
    root: JSON

    @classmethod
    def of(cls, schema: Mapping[str, JSON]) -> Judge:
        """The judge of a schema: in draft 2020-12, unless its `$schema` says otherwise.

        Raises:
            Exception: it is no schema, or none that can be used here.

        """
        kind = validator_for(schema, default=Draft202012Validator)
        root = _bare(schema)
        # The later drafts describe themselves in many pieces; the one description of draft 7 does for them too.
        described = Draft7Validator if "allOf" in kind.META_SCHEMA else kind
        for error in cls(described, _bare(described.META_SCHEMA)).errors(root):
            raise SchemaError.create_from(error)
        return cls(kind, root)

    def errors(self, given: JSON) -> list[ValidationError]:
        """What does not fit, as far as that is worth telling.

        Raises:
            Exception: it cannot be judged: a reference to nowhere or a circle, say; or it takes too long.

        """
        token = _RUN.set(_Run(self.root, time.thread_time() + LONGEST))
        try:
            return list(islice(_watched(self.kind)(self.root).iter_errors(_terse(given)), MOST))
        finally:
            _RUN.reset(token)


def _bare(schema: Mapping[str, JSON]) -> JSON:
    """The schema without a draft and an address of its own; a part with one would be applied by other rules than ours.

    Raises:
        Unjudgeable: it has such a part.

    """
    bare = _terse({key: value for key, value in schema.items() if key not in _OWN})
    parts = [bare]
    for part in parts:
        if isinstance(part, dict):
            if any(isinstance(part.get(key), str) for key in _OWN):
                raise Unjudgeable("a part of it is a schema of its own")
            parts += part.values()
        elif isinstance(part, list):
            parts += part
    return bare


class _Object(dict[str, JSON]):
    """An object that is short in a text: jsonschema writes all that is wrong into its errors, each time anew."""

    def __repr__(self) -> str:
        return "an object"


class _Array(list[JSON]):
    """Likewise."""

    def __repr__(self) -> str:
        return "an array"


class _Text(str):
    """Likewise."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "a text"


def _terse(value: JSON) -> JSON:
    match value:
        case Mapping():
            return _Object({key: _terse(item) for key, item in value.items()})
        case list() | tuple():
            return _Array(map(_terse, value))
        case str() if len(value) > _SHORT:
            return _Text(value)
    return value


@cache
def _watched(kind: Any) -> Any:
    """A validator of jsonschema's, with rules that can be trusted with any schema."""
    return extend(kind, {name: _timed(name, _RULES.get(name, rule)) for name, rule in kind.VALIDATORS.items()})


def _timed(name: str, rule: _Rule) -> _Rule:
    def checked(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterable[ValidationError]:
        run = _RUN.get()
        if time.thread_time() > run.until:
            raise Unjudgeable(f"judging takes more than {LONGEST} seconds")
        if name not in _TURNING:
            return rule(validator, wanted, instance, schema) or ()
        run.exact += 1
        try:
            return list(rule(validator, wanted, instance, schema) or ())
        finally:
            run.exact -= 1

    return checked


def _left(kind: str) -> _Rule:
    """A rule for values of a kind that only the server applies: here whatever it is applied to fits."""

    def unapplied(validator: Any, _wanted: Any, instance: Any, _schema: Any) -> None:
        if _RUN.get().exact and validator.is_type(instance, kind):
            raise Unjudgeable("what the server alone judges decides about the rest")

    return unapplied


def _beyond(_validator: Any, wanted: Any, _instance: Any, _schema: Any) -> None:
    raise Unjudgeable(f"a reference to {wanted}")


def _reference(validator: Any, wanted: str, instance: Any, _schema: Any) -> Iterable[ValidationError]:
    """Only into the schema itself, and found without a look at anything else."""
    start, *steps = unquote(wanted).split("/")
    if start != "#":
        raise Unjudgeable(f"a reference to {wanted}")
    target = _RUN.get().root
    for step in steps:
        target = target[int(step) if isinstance(target, list) else step.replace("~1", "/").replace("~0", "~")]
    errors: Iterable[ValidationError] = validator.descend(instance, target)
    return errors


def _required(validator: Any, wanted: Any, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    """One error, where jsonschema has one for each name: they are told together anyway."""
    if validator.is_type(instance, "object") and not all(name in instance for name in wanted):
        yield ValidationError("a property is missing")


def _unique(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """By text, in one pass. What is the same only as a number, like 1 and 1.0, is left to the server."""
    _ARRAYS(validator, wanted, instance, schema)
    if wanted and validator.is_type(instance, "array") and len(set(map(canonical, instance))) < len(instance):
        yield ValidationError("an item is there twice")


def _additional(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterable[ValidationError] | None:
    """Which names are additional, only the server can say where patterns name some."""
    if "patternProperties" in schema:
        return None
    errors: Iterable[ValidationError] = Draft202012Validator.VALIDATORS["additionalProperties"](
        validator, wanted, instance, schema
    )
    return errors


_ARRAYS = _left("array")
_RULES: dict[str, _Rule] = {
    "pattern": _left("string"),
    "patternProperties": _left("object"),
    # They look at patterns too, and at every other rule once more.
    "unevaluatedProperties": _left("object"),
    "unevaluatedItems": _ARRAYS,
    "$ref": _reference,
    "$dynamicRef": _beyond,
    "$recursiveRef": _beyond,
    "required": _required,
    "uniqueItems": _unique,
    "additionalProperties": _additional,
}
