"""Instances of attrs classes, dataclasses and named tuples, made of values that are validated already."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from toolloop.tools.schema.words import REFUSED

Build = Callable[[dict[str, Any]], Any]


def builder(kind: type) -> Build:
    """What makes an instance out of the values of its fields, by the names that its constructor takes.

    Whatever the class raises becomes an error of pydantic's that names the field, if one is to blame. Its text is not
    told: it may hold what the model must not see.
    """
    if not attrs.has(kind):
        return _guarded(lambda given: kind(**given), lambda _: None)
    from cattrs import Converter  # noqa: PLC0415 - only needed for attrs classes
    from cattrs.gen import make_dict_structure_fn  # noqa: PLC0415 - likewise

    # pydantic has made every field's value; cattrs gives them to the constructor, which converts and validates.
    converter = Converter(detailed_validation=False, use_alias=True)
    converter.register_structure_hook_func(lambda _: True, lambda value, _: value)
    variables = getattr(kind, "__parameters__", ())  # which cattrs insists on knowing
    generic: Any = kind
    structure = make_dict_structure_fn(generic[(Any,) * len(variables)] if variables else generic, converter)
    return _guarded(lambda given: structure(given, kind), lambda given: _culprit(kind, given))


def _guarded(build: Build, culprit: Callable[[Mapping[str, Any]], str | None]) -> Build:
    from pydantic_core import PydanticCustomError  # noqa: PLC0415 - pydantic is slow to import

    def structure(given: dict[str, Any]) -> Any:
        try:
            return build(given)
        except Exception as error:
            raise PydanticCustomError(REFUSED, "is not accepted", {"field": culprit(given)}) from error

    return structure


def _culprit(kind: type[attrs.AttrsInstance], given: Mapping[str, Any]) -> str | None:
    """The first field whose converter or validator does not take its value; None if it is the class that does not."""
    instance = object.__new__(kind)
    taken = [each for each in attrs.fields(kind) if each.init and each.alias in given]
    for each in taken:
        try:
            value = _converted(each, given[str(each.alias)], instance)
        except Exception:  # noqa: BLE001 - whatever it raises, it is this field's
            return str(each.alias)
        object.__setattr__(instance, each.name, value)
    for each in taken:
        try:
            if each.validator is not None:
                each.validator(instance, each, getattr(instance, each.name))
        except Exception:  # noqa: BLE001 - likewise
            return str(each.alias)
    return None


def _converted(field: attrs.Attribute[Any], value: Any, instance: object) -> Any:
    converter: Any = field.converter
    if converter is None:
        return value
    if not hasattr(converter, "takes_self"):  # a plain function, and no `attrs.Converter`
        return converter(value)
    more = ([instance] if converter.takes_self else []) + ([field] if converter.takes_field else [])
    function: Any = converter.converter
    return function(value, *more)


def is_plain_dataclass(kind: type) -> bool:
    """Whether it is a dataclass of the standard library's that does not speak to pydantic itself."""
    ours = dataclasses.is_dataclass(kind) and not hasattr(kind, "__pydantic_validator__")
    return ours and not hasattr(kind, "__pydantic_config__")
