"""pydantic's validator of a tool's parameters, mended where it would not do what the schema says.

What pydantic made of the annotations is changed before a validator is made of it; the JSON Schema is not made of that.

1. Functions that are not pydantic's own are guarded. Whatever they raise becomes one error of their field, without a
   text: pydantic would take a `ValidationError` of theirs for its own, and tell what is in it.
2. Literals, enums, times and numbers as names of fields are judged as JSON, inside pydantic models too: `true` is not
   1, the text `"5"` is no date, and `" 1"` no integer.
3. A field is given by the name that the schema says, and by no other.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from toolloop.core.jsontext import encode
from toolloop.tools.schema.choices import choice_of
from toolloop.tools.schema.words import REFUSED

# Names of fields that stand for integers.
INTEGER_KEY = r"^(0|-?[1-9][0-9]*)$"

_NUMBER = re.compile(r"[\s\d.+-]*")
_DATE = re.compile(r"\d+-\d+-\d+")
# The beginning of the errors of each kind of time.
_TIMES = {"date": "date", "datetime": "datetime", "time": "time", "timedelta": "time_delta"}
# What is no schema, however much it may look like one.
_OPAQUE = {"type", "cls", "config", "default", "expected", "function", "members", "metadata", "ref", "serialization"}
# Their errors tell what the definition says, and nothing else.
_OWN = ("pydantic._internal._validators", "pydantic.types", "pydantic.networks", "toolloop.tools.schema.")


def mended(schema: Any, *, exact: bool) -> Any:
    """A core schema of pydantic's, for a validator.

    Args:
        schema: the core schema, or a part of it.
        exact: whether an input is judged as JSON; if not, functions are guarded, and that is all.

    Raises:
        TypeError: a field can be given by several names.

    """
    if isinstance(schema, list | tuple):
        return type(schema)(mended(each, exact=exact) for each in schema)
    if not isinstance(schema, dict):
        return schema
    if not isinstance(schema.get("type"), str):  # the fields of a class, by name
        return {name: mended(each, exact=exact) for name, each in schema.items()}
    copied = {key: each if key in _OPAQUE else mended(each, exact=exact) for key, each in schema.items()}
    return _guarded(_exact(copied) if exact else copied)


def _guarded(schema: dict[str, Any]) -> dict[str, Any]:
    """With guards around the functions that it calls itself."""
    kind = schema["type"]
    if kind.startswith("function-") and not _is_own(function := schema["function"]["function"]):
        schema["function"] = {**schema["function"], "function": _guard(function, wraps=kind == "function-wrap")}
    if "default_factory" in schema:
        schema["default_factory"] = _guard(schema["default_factory"])
    if callable(schema.get("discriminator")):
        schema["discriminator"] = _guarded_tag(schema["discriminator"])
    if kind == "model" and schema.get("custom_init"):
        # What an `__init__` raises cannot be told from what pydantic raises inside it.
        return _around(schema, "function-wrap", _guard(lambda value, make: make(value)))
    if kind == "model" and (after := schema.pop("post_init", None)):

        def finish(instance: Any) -> Any:
            getattr(instance, after)(None)
            return instance

        return _around(schema, "function-after", _guard(finish))
    return schema


def _exact(schema: dict[str, Any]) -> dict[str, Any]:
    """Such that it takes what its JSON Schema says."""
    kind = schema["type"]
    schema.pop("missing", None)  # an enum's own idea of values that it does not have
    _check_names([schema.get("validation_alias")])
    if kind == "arguments":
        _check_names([each.get("alias", each["name"]) for each in schema["arguments_schema"]])
    if schema.get("config", {}).get("validate_by_alias", True) and "config" in schema:
        schema["config"] = {**schema["config"], "validate_by_name": False}
    if kind in _TIMES:
        return _read_from_text(schema, {"type": "str"}, f"{_TIMES[kind]}_number")
    if kind == "dict" and schema.get("keys_schema", {}).get("type") == "int":
        keys = _read_from_text(schema["keys_schema"], {"type": "str", "pattern": INTEGER_KEY}, None)
        return {**schema, "keys_schema": keys}
    if kind in {"literal", "enum"} and (choice := choice_of(schema.get("expected", schema.get("members", ())))):
        ref = {"ref": schema["ref"]} if "ref" in schema else {}
        return {"type": "function-plain", "function": {"type": "no-info", "function": choice.pick}, **ref}
    return schema


def _check_names(names: list[Any]) -> None:
    for name in names:
        if isinstance(name, list):
            raise TypeError("a field that can be given by several names, or from inside another, has no schema")
        if names.count(name) > 1:
            raise TypeError(f"two of them are named {name!r}")


def _around(schema: dict[str, Any], kind: str, function: Any) -> dict[str, Any]:
    """A function around a schema, known by the schema's own reference."""
    ref = {"ref": schema.pop("ref")} if "ref" in schema else {}
    return {"type": kind, "schema": schema, "function": {"type": "no-info", "function": function}, **ref}


def _read_from_text(schema: dict[str, Any], text: dict[str, Any], number: str | None) -> dict[str, Any]:
    """What pydantic reads from a text, and only from one; `number` is the error for one that looks like a number."""
    from pydantic_core import PydanticCustomError, SchemaValidator  # noqa: PLC0415 - pydantic is slow to import

    validator = SchemaValidator(schema)

    def read(given: str) -> Any:
        if number is None:
            return validator.validate_python(int(given), strict=True)
        if _NUMBER.fullmatch(given) and not _DATE.fullmatch(given):
            raise PydanticCustomError(number, "is a number")
        return validator.validate_json(encode(given), strict=True)

    return _around({**text, **({"ref": schema["ref"]} if "ref" in schema else {})}, "function-after", read)


def _guard(function: Callable[..., Any], *, wraps: bool = False) -> Callable[..., Any]:
    """A function of the caller's whose exceptions become an error of the field, without their text.

    The errors of the validator that it `wraps`, its second argument, pass.
    """
    from pydantic_core import PydanticCustomError, PydanticOmit, PydanticUseDefault  # noqa: PLC0415 - slow to import

    def guard(*given: Any) -> Any:
        passing: list[Exception] = []
        if wraps:
            given = (given[0], _noting(given[1], passing), *given[2:])
        try:
            return function(*given)
        except (PydanticOmit, PydanticUseDefault):
            raise
        except Exception as error:
            if any(error is each for each in passing):
                raise
            raise PydanticCustomError(REFUSED, "is not accepted") from error

    return guard


def _noting(handler: Callable[..., Any], errors: list[Exception]) -> Callable[..., Any]:
    def handle(*given: Any, **named: Any) -> Any:
        try:
            return handler(*given, **named)
        except Exception as error:
            errors.append(error)
            raise

    return handle


def _guarded_tag(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def tag(value: Any) -> Any:
        try:
            return function(value)
        except Exception:  # noqa: BLE001 - no tag, then; what it says may hold anything
            return None

    return tag


def _is_own(function: Any) -> bool:
    inner = getattr(function, "func", function)  # pydantic's own are partials
    return str(getattr(inner, "__module__", "")).startswith(_OWN)
