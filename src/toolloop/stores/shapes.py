"""How the machine's values are written as JSON objects and read back: cattrs, made strict.

A field that has its default is left out; a field that is not known, or of another type, is refused. An integer may come
as 60.0 and a float as 60, for much of the world's JSON has one kind of number. Both kinds of converter have the same
hooks: the quick one reads, and the other one says what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import cache
from math import isfinite
from types import GenericAlias, NoneType, UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin

import attrs

from toolloop.core import events as ev
from toolloop.core.chain import Chain
from toolloop.core.errors import ToolLoopError, UnreadableSnapshot
from toolloop.core.jsontext import JSON, decode
from toolloop.core.replies import Reply
from toolloop.core.setup import Setup
from toolloop.core.splicing import Splice
from toolloop.core.states import Back, Executed, Failed, Ledger, Paused, Ready, Requesting, State
from toolloop.core.stops import Fate
from toolloop.core.terminations import Termination
from toolloop.core.values import Call, Result, Round, Ruling, StandingGrant, Terms, Verdict

if TYPE_CHECKING:
    from cattrs import Converter

# The fields that hold JSON texts: of messages, and of other objects; but the content of a result may be a string.
MESSAGES: dict[type, tuple[str, ...]] = {
    ev.Opened: ("messages",),
    ev.Injected: ("messages",),
    ev.HistoryEdited: ("messages",),
    Splice: ("messages",),
    ev.FollowedUp: ("messages",),
    ev.RoundAdopted: ("after",),
    Ledger: ("messages", "held"),
    Back: ("messages", "held", "tail"),
    Round: ("tail", "after"),
    Ready: ("tail",),
    Requesting: ("tail",),
    Executed: ("tail",),
    Paused: ("tail",),
    Failed: ("tail",),
}
TEXTS: dict[type, tuple[str, ...]] = {
    Setup: ("params",),
    ev.ParamsChanged: ("params",),
    ev.RoundAdopted: ("reply",),
    Ruling: ("content",),
    Result: ("content",),
    Terms: ("match",),
    StandingGrant: ("match", "exact"),
    Call: ("input", "edited"),
    Round: ("reply",),
    Ledger: ("response",),
}

# What says of which class an object of a union is.
_TAGS: tuple[tuple[Any, str, Callable[[type[Any]], str]], ...] = (
    (Termination, "kind", lambda kind: kind.kind),
    (Verdict, "verdict", lambda kind: kind.__name__),
    (State, "state", lambda kind: kind.__name__),
)
attrs.resolve_types(Call, localns={"State": State})  # a call may hold a loop, which `values` cannot name

Hook = Callable[[Any, Any], Any]


class _Unfit(ValueError):
    """A value that does not fit its field; it says why itself."""


def write(value: Any) -> dict[str, JSON]:
    """The fields of a value that are not their defaults, in the order of its class."""
    kind = type(value)
    fields: dict[str, JSON] = _converter().unstructure(value, unstructure_as=kind)
    return fields


def read(fields: JSON, kind: type[Any], what: str) -> Any:
    """The value of such fields. `what` they are, for the error.

    Raises:
        UnreadableSnapshot: they do not fit the class; it names each field, and what is wrong with it.

    """
    try:
        return _converter().structure(fields, kind)
    except RecursionError as error:
        raise UnreadableSnapshot(f"{what} cannot be read: it is nested too deep") from error
    except Exception as error:  # it may be of cattrs, of a class or of a hook: all mean the same
        raise UnreadableSnapshot(f"{what} cannot be read: {'; '.join(_reasons(fields, kind, error))}") from error


def hook_of(kind: Any) -> Callable[[JSON], Any]:
    """The function that reads a type, and says little of what is wrong."""
    hook = _converter().get_structure_hook(kind)
    return lambda value: hook(value, kind)


def is_checked(kind: Any) -> bool:
    """Whether more is looked at in a class than the types of its fields."""
    return kind in MESSAGES or kind in TEXTS


def _reasons(fields: JSON, kind: type[Any], error: Exception) -> list[str]:
    from cattrs import transform_error  # noqa: PLC0415 - cattrs is loaded when it is first needed

    try:
        _converter(detailed=True).structure(fields, kind)
    except Exception as told:  # noqa: BLE001 - cattrs collects whatever happened, with the path to it
        error = told
    return transform_error(error, path=kind.__name__, format_exception=_in_words)


def _in_words(error: BaseException, kind: type | None) -> str:
    from cattrs.v import format_exception  # noqa: PLC0415 - likewise

    return str(error) if isinstance(error, _Unfit | ToolLoopError) else format_exception(error, kind)


@cache
def _converter(*, detailed: bool = False) -> Converter:
    from cattrs import Converter  # noqa: PLC0415 - likewise

    converter = Converter(omit_if_default=True, forbid_extra_keys=True, detailed_validation=detailed)
    converter.register_structure_hook(str, _text)
    converter.register_structure_hook(int, _integer)
    converter.register_structure_hook(bool, _truth)
    converter.register_structure_hook(float, _number)
    converter.register_structure_hook_factory(_is_a(tuple, frozenset, Chain), lambda kind: _sequence(converter, kind))
    converter.register_unstructure_hook_factory(_is_row, lambda kind: _row_writer(converter, kind))
    converter.register_unstructure_hook_factory(_is_a(Chain), lambda kind: _chain_writer(converter, kind))
    converter.register_unstructure_hook_func(_is_a(frozenset), sorted)
    converter.register_unstructure_hook(StrEnum, lambda item: item.value)
    converter.register_structure_hook(Fate, lambda value, _: Fate[value])
    converter.register_unstructure_hook(Fate, lambda fate: fate.name)
    converter.register_structure_hook(Reply, lambda reply, _: reply)  # it is read where its text is: see `events`
    converter.register_unstructure_hook(Reply, _reply_fields)
    for union, tag, name in _TAGS:
        _register_tagged(converter, union, tag, name)
    converter.register_structure_hook_factory(is_checked, lambda kind: _checked(converter, kind))
    return converter


# --- plain values ----------------------------------------------------------------------------------------------------


def _text(value: JSON, kind: type[Any]) -> Any:
    if not isinstance(value, str):
        raise _unfit("a text", value)
    return value if kind is str else kind(value)  # an enumeration of texts


def _integer(value: JSON, _: Any) -> int:
    if type(value) is int:
        return value
    if type(value) is float and value.is_integer():
        return int(value)
    raise _unfit("an integer", value)


def _number(value: JSON, _: Any) -> float:
    if type(value) in (float, int) and isfinite(number := float(value)):
        return number
    raise _unfit("a number", value)


def _truth(value: JSON, _: Any) -> bool:
    if type(value) is not bool:
        raise _unfit("true or false", value)
    return value


def _unfit(expected: str, value: JSON) -> _Unfit:
    return _Unfit(f"expected {expected}, not {type(value).__name__}")


def _reply_fields(reply: Reply) -> dict[str, JSON]:
    request_id: dict[str, JSON] = {} if reply.request_id is None else {"request_id": reply.request_id}
    return {**request_id, "message": reply.text}


# --- sequences -------------------------------------------------------------------------------------------------------


def _is_a(*generic: Any) -> Callable[[Any], bool]:
    return lambda kind: get_origin(kind) in generic


def _sequence(converter: Converter, kind: Any) -> Hook:
    make, parts = get_origin(kind), get_args(kind)
    if _is_row(kind):
        return _row(converter, parts)
    listed = GenericAlias(list, parts[:1])
    hook = converter.get_structure_hook(listed)
    return lambda value, _: make(hook(_list(value), listed))


def _row(converter: Converter, parts: tuple[Any, ...]) -> Hook:
    def structure(value: JSON, _: Any) -> tuple[Any, ...]:
        if len(_list(value)) != len(parts):
            raise _Unfit(f"expected {len(parts)} items, not {len(value)}")
        return tuple(converter.structure(item, part) for item, part in zip(value, parts, strict=True))

    return structure


def _is_row(kind: Any) -> bool:
    """Whether it is a tuple of so many items, each of a type of its own."""
    return get_origin(kind) is tuple and Ellipsis not in get_args(kind)


def _row_writer(converter: Converter, kind: Any) -> Callable[[Any], list[JSON]]:
    parts = get_args(kind)
    return lambda row: [converter.unstructure(item, unstructure_as=part) for item, part in zip(row, parts, strict=True)]


def _list(value: JSON) -> list[JSON]:
    if type(value) is not list:
        raise _unfit("a list", value)
    return value


def _chain_writer(converter: Converter, kind: Any) -> Callable[[Any], list[JSON]]:
    (part,) = get_args(kind)
    return lambda chain: [converter.unstructure(item, unstructure_as=part) for item in chain]


# --- unions, and texts that hold JSON --------------------------------------------------------------------------------


def _register_tagged(converter: Converter, union: Any, tag: str, name_of: Callable[[type[Any]], str]) -> None:
    """Write and read a union of classes, as objects with a tag that says which; and None, where that is one of it."""
    kinds = {name_of(kind): kind for kind in get_args(union)}

    def structure(value: JSON, of: Any) -> Any:
        if value is None and NoneType in get_args(of):
            return None
        if type(value) is not dict:
            raise _unfit("an object", value)
        fields = dict(value)
        kind = kinds.get(str(fields.pop(tag, None)))
        if kind is None:
            raise _Unfit(f"{tag!r} is {value.get(tag)!r}; it may be {', '.join(kinds)}")
        return converter.structure(fields, kind)

    def is_it(kind: Any) -> bool:
        return get_origin(kind) in (Union, UnionType) and {*get_args(kind)} - {NoneType} == {*kinds.values()}

    def unstructure(value: Any) -> Any:
        if value is None:
            return None
        return {tag: name_of(type(value)), **converter.unstructure(value, unstructure_as=type(value))}

    converter.register_structure_hook_func(is_it, structure)
    converter.register_unstructure_hook_func(is_it, unstructure)


def _checked(converter: Converter, kind: type[Any]) -> Hook:
    """Refuse a value whose texts hold no JSON."""
    from cattrs.gen import make_dict_structure_fn  # noqa: PLC0415 - likewise

    attrs.resolve_types(kind)
    plain = make_dict_structure_fn(kind, converter)
    messages, texts = MESSAGES.get(kind, ()), TEXTS.get(kind, ())

    def structure(value: JSON, _: Any) -> Any:
        made = plain(value, kind)
        for name in messages:
            if not all(_is_message(text) for text in getattr(made, name)):
                raise _Unfit(f"{name!r} holds a text that is no message")
        for name in texts:
            text = getattr(made, name)
            if text is not None and not _is_text(text, made):
                raise _Unfit(f"{name!r} is no JSON text of {'a content' if _is_answer(made) else 'an object'}")
        return made

    return structure


def _is_message(text: str) -> bool:
    message = _decoded(text)
    return isinstance(message, dict) and isinstance(message.get("role"), str) and is_content(message.get("content"))


def _is_text(text: str, of: Any) -> bool:
    value = _decoded(text)
    return is_content(value) if _is_answer(of) else isinstance(value, dict)


def _is_answer(of: Any) -> bool:
    return isinstance(of, Result) or (isinstance(of, Ruling) and of.kind == "answer")


def _decoded(text: str) -> JSON:
    try:
        text.encode()  # a lone surrogate may be in it as an escape only, for requests are UTF-8
        return decode(text)
    except (ValueError, RecursionError):
        return None  # as `null`, this is nothing that any of the fields may hold


def is_content(value: JSON) -> bool:
    """Whether a value is the content of a message or a result as the machine reads it: a text, or a list of blocks."""
    return isinstance(value, str) or (isinstance(value, list) and all(map(_is_block, value)))


def _is_block(value: JSON) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        return False
    return value["type"] != "text" or isinstance(value.get("text"), str)
