"""Converters between the machine's values and JSON objects: cattrs with strict hooks.

A field that has its default is left out. An unknown field and a value of another type are refused. An integer may be
written as 60.0 and a float as 60, because some JSON libraries have only one number type. Two converters have the same
hooks: the fast one reads, and the detailed one explains why reading failed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from enum import StrEnum
from functools import cache
from math import isfinite
from operator import attrgetter
from types import GenericAlias, NoneType, UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin

import attrs

from toolloop.errors import ProtocolError, ToolLoopError, UnreadableSnapshot
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import Kept, Loop, Path, Phase, Round, State
from toolloop.machine.record.replies import ParsedReply, read_reply
from toolloop.machine.record.round_calls import RoundCalls
from toolloop.machine.values.calls import Call, DecisionRecord, GrantSpec, PolicyResult, Result, StandingGrant, Status
from toolloop.machine.values.chain import Chain
from toolloop.machine.values.jsontext import JSON, decode
from toolloop.machine.values.setup import Setup, ToolFacts
from toolloop.machine.values.splicing import Splice
from toolloop.machine.values.stop_reasons import ReplyAction
from toolloop.stores.row_checks import is_time
from toolloop.terminations import Termination

if TYPE_CHECKING:
    from cattrs import Converter

# The fields that hold JSON texts. A field with several texts holds messages, or definitions of tools; `content` is the
# content of a result, or an input.
_JSON_FIELDS: dict[type, tuple[str, ...]] = {
    ev.Opened: ("messages",),
    ev.Continued: ("messages",),
    ev.FollowedUp: ("messages",),
    ev.Said: ("messages", "tools"),
    ev.HistoryTaken: ("reply",),
    ev.Changed: ("params",),
    Splice: ("messages",),
    Setup: ("params",),
    ToolFacts: ("input_schema",),
    Loop: ("messages", "unjoined", "queued", "response"),
    Kept: ("messages",),
    Round: ("reply",),
    DecisionRecord: ("content",),
    Result: ("content", "mark", "after"),
    GrantSpec: ("match",),
    StandingGrant: ("match", "exact"),
    Call: ("input", "edited"),
}

# The fields that hold times. Those of events: `at` and `said_at`.
_TIME_FIELDS: dict[type, tuple[str, ...]] = {
    Loop: ("now",),
    Kept: ("at",),
    DecisionRecord: ("at",),
    GrantSpec: ("expires_at",),
    StandingGrant: ("at", "expires_at"),
    Call: ("expires_at",),
}

_ROLES = ("user", "assistant", "system")

Hook = Callable[[Any, Any], Any]


class _Unfit(ValueError):
    """A value does not fit its field. The message is shown as it is."""


def write(value: Any, kind: Any = None) -> dict[str, JSON]:
    """Return the fields of a value that differ from their defaults. `kind`: its class, or a tagged union."""
    fields: dict[str, JSON] = _make_converter().unstructure(value, unstructure_as=kind or type(value))
    return fields


def read(fields: JSON, kind: Any, what: str) -> Any:
    """Return the value with these fields.

    Args:
        fields: the fields that `write` returned, possibly decoded from JSON.
        kind: the class, or a tagged union.
        what: the subject of the error.

    Raises:
        UnreadableSnapshot: the fields do not fit; the message names each of them and the reason.

    """
    try:
        return _make_converter().structure(fields, kind)
    except RecursionError as error:
        raise UnreadableSnapshot(f"{what} cannot be read: it is nested too deeply") from error
    except Exception as error:  # from cattrs, from a class or from a hook: the fields do not fit
        raise UnreadableSnapshot(f"{what} cannot be read: {'; '.join(_list_reasons(fields, kind, error))}") from error


def _list_reasons(fields: JSON, kind: Any, error: Exception) -> list[str]:
    from cattrs import transform_error  # noqa: PLC0415 - cattrs is imported when it is first needed

    try:
        _make_converter(detailed=True).structure(fields, kind)
    except Exception as explained:  # noqa: BLE001 - cattrs collects all errors with their paths
        error = explained
    return transform_error(error, path=getattr(kind, "__name__", "$"), format_exception=_explain)


def _explain(error: BaseException, kind: type | None) -> str:
    from cattrs.v import format_exception  # noqa: PLC0415 - likewise

    return str(error) if isinstance(error, (_Unfit, ToolLoopError)) else format_exception(error, kind)


@cache
def _make_converter(*, detailed: bool = False) -> Converter:
    from cattrs import Converter  # noqa: PLC0415 - likewise
    from cattrs.cols import namedtuple_dict_unstructure_factory  # noqa: PLC0415 - likewise

    converter = Converter(
        omit_if_default=True,
        forbid_extra_keys=True,
        detailed_validation=detailed,
        unstruct_collection_overrides={tuple: list, frozenset: sorted},
    )
    converter.register_structure_hook(str, _read_text)
    converter.register_structure_hook(int, _read_integer)
    converter.register_structure_hook(bool, _read_truth)
    converter.register_structure_hook(float, _read_number)
    converter.register_structure_hook(Decimal, _read_amount)
    converter.register_unstructure_hook(Decimal, lambda value: f"{value:f}")
    converter.register_structure_hook(int | Decimal, _read_count)
    converter.register_unstructure_hook(int | Decimal, lambda value: f"{value:f}" if type(value) is Decimal else value)
    converter.register_structure_hook_factory(
        _is_a(tuple, frozenset, Chain), lambda kind: _make_sequence_hook(converter, kind)
    )
    converter.register_unstructure_hook_factory(
        _is_a(Chain), lambda kind: converter.gen_unstructure_iterable(kind, list)
    )
    converter.register_unstructure_hook(StrEnum, lambda item: item.value)
    converter.register_structure_hook(ReplyAction, lambda value, _: _read_action(value))
    converter.register_unstructure_hook(ReplyAction, lambda action: action.name)
    converter.register_structure_hook(ParsedReply, _read_reply)
    converter.register_unstructure_hook(ParsedReply, _from_reply)
    _register_tagged(converter, Termination, "kind", attrgetter("kind"))
    _register_tagged(converter, PolicyResult, "result", attrgetter("__name__"))
    _register_tagged(converter, Phase, "name", attrgetter("__name__"))
    converter.register_structure_hook(RoundCalls, lambda value, _: RoundCalls(converter.structure(value, list[Call])))
    converter.register_unstructure_hook(RoundCalls, lambda calls: converter.unstructure(list(calls), list[Call]))
    converter.register_structure_hook(State, lambda value, _: _read_state(converter, value))
    converter.register_unstructure_hook(State, lambda state: _write_loops(converter, state))
    for kind in (Loop, Call):
        # `omit_if_default` is positional in cattrs.
        converter.register_unstructure_hook(kind, namedtuple_dict_unstructure_factory(kind, converter, True))  # noqa: FBT003 - cattrs takes it by position
    converter.register_structure_hook_factory(_is_checked, lambda kind: _make_checked_hook(converter, kind))
    return converter


# --- plain values, and sequences of them ------------------------------------------------------------------------------


def _read_text(value: JSON, kind: type[Any]) -> Any:
    if type(value) is not str:
        raise _make_unfit("a string", value)
    return value if kind is str else kind(value)  # a StrEnum


def _read_integer(value: JSON, _: Any) -> int:
    if type(value) is int or (type(value) is float and value.is_integer()):
        return int(value)
    raise _make_unfit("an integer", value)


def _read_number(value: JSON, _: Any) -> float:
    if type(value) in (float, int) and isfinite(number := float(value)):
        return number
    raise _make_unfit("a finite number", value)


def _read_amount(value: JSON, _: Any) -> Decimal:
    if type(value) is str and re.fullmatch(r"\d{1,30}(\.\d{1,60})?", value, re.ASCII):
        return Decimal(value)
    raise _make_unfit("an amount of dollars as a text", value)


def _read_count(value: JSON, _: Any) -> int | Decimal:
    return _read_amount(value, Decimal) if type(value) is str else _read_integer(value, int)


def _read_truth(value: JSON, _: Any) -> bool:
    if type(value) is not bool:
        raise _make_unfit("true or false", value)
    return value


def _make_unfit(expected: str, value: JSON) -> _Unfit:
    return _Unfit(f"expected {expected}, got {type(value).__name__}")


def _read_reply(value: JSON, _: Any) -> ParsedReply:
    if type(value) is not dict or not {"message"} <= value.keys() <= {"request_id", "message"}:
        raise _make_unfit("a reply with request_id and message", value)
    request_id, text = value.get("request_id"), _read_text(value["message"], str)
    return read_reply(decode(text), text=text, request_id=None if request_id is None else _read_text(request_id, str))


def _from_reply(reply: ParsedReply) -> dict[str, JSON]:
    named = {} if reply.request_id is None else {"request_id": reply.request_id}
    return {**named, "message": reply.text}


def _read_action(value: JSON) -> ReplyAction:
    if value not in ReplyAction.__members__:
        raise _Unfit(f"{value!r} is not an action; it may be {', '.join(ReplyAction.__members__)}")
    return ReplyAction[value]


def _is_a(*generic: Any) -> Callable[[Any], bool]:
    return lambda kind: get_origin(kind) in generic


def _make_sequence_hook(converter: Converter, kind: Any) -> Hook:
    make, parts = get_origin(kind), get_args(kind)
    if make is tuple and Ellipsis not in parts:
        return lambda value, _: tuple(
            converter.structure(item, part) for item, part in zip(_read_items(value, len(parts)), parts, strict=True)
        )
    listed = GenericAlias(list, parts[:1])
    hook = converter.get_structure_hook(listed)
    return lambda value, _: make(hook(_read_items(value), listed))


def _read_items(value: JSON, length: int | None = None) -> list[JSON]:
    if type(value) is not list or length not in (None, len(value)):
        raise _make_unfit("a list" if length is None else f"a list of {length} items", value)
    return value


# --- a state: a list of its loops, parents first ----------------------------------------------------------------------


def _write_loops(converter: Converter, state: State) -> dict[str, JSON]:
    listed = sorted(state.loops.items(), key=lambda item: len(item[0]))
    return {"loops": [{"path": [*path], **converter.unstructure(loop, unstructure_as=Loop)} for path, loop in listed]}


def _read_state(converter: Converter, value: JSON) -> State:
    if type(value) is not dict or value.keys() != {"loops"}:
        raise _make_unfit("an object with loops", value)
    loops: dict[Path, Loop] = {}
    for number, item in enumerate(_read_items(value["loops"])):
        if type(item) is not dict or "path" not in item:
            raise _Unfit(f"loops[{number}] is not an object with a path")
        path = converter.structure(item["path"], Path)
        if path in loops or (path[:-1] not in loops if path else loops):
            raise _Unfit(f"loops[{number}] is out of order: each loop appears once, after the loop that contains it")
        loops[path] = converter.structure({name: part for name, part in item.items() if name != "path"}, Loop)
    if not loops:
        raise _Unfit("'loops' is empty")
    running = [(path, round_.having(Status.RUNNING)) for path, loop in loops.items() if (round_ := loop.phase.round)]
    if {(), *((*path, call.id) for path, calls in running for call in calls if call.has_loop)} != loops.keys():
        raise _Unfit("'loops' must be the outermost loop and the loops of the running calls that have one")
    if any((round_ := loop.phase.round) and round_.iteration != loop.iterations for loop in loops.values()):
        raise _Unfit("an open round does not belong to the last reply")
    if any(call.attempts < 1 for _, calls in running for call in calls):
        raise _Unfit("a running call was never started")
    return State(loops)


# --- unions, and texts that hold JSON ---------------------------------------------------------------------------------


def _register_tagged(converter: Converter, union: Any, tag: str, name_of: Callable[[type[Any]], str]) -> None:
    """Write and read the classes of a union as objects whose tag names the class; None where it is allowed."""
    kinds = {name_of(kind): kind for kind in get_args(union)}

    def structure(value: JSON, of: Any) -> Any:
        if value is None and NoneType in get_args(of):
            return None
        if type(value) is not dict:
            raise _make_unfit("an object", value)
        fields = dict(value)
        name = fields.pop(tag, None)
        if not isinstance(name, str) or name not in kinds:  # cattrs would raise a bare KeyError
            raise _Unfit(f"{tag!r} is {name!r}; it may be {', '.join(kinds)}")
        return converter.structure(fields, kinds[name])

    def unstructure(value: Any) -> Any:
        if value is None:
            return None
        return {tag: name_of(type(value)), **converter.unstructure(value, unstructure_as=type(value))}

    def is_it(kind: Any) -> bool:
        return get_origin(kind) in (Union, UnionType) and {*get_args(kind)} - {NoneType} == {*kinds.values()}

    converter.register_structure_hook_func(is_it, structure)
    converter.register_unstructure_hook_func(is_it, unstructure)


def _is_event(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, ev.Event)


def _is_checked(kind: Any) -> bool:
    return kind in _JSON_FIELDS or kind in _TIME_FIELDS or _is_event(kind)


def _make_checked_hook(converter: Converter, kind: type[Any]) -> Hook:
    """Refuse a value with a text that is not the expected JSON, or with a time that no datetime can hold."""
    from cattrs.cols import namedtuple_dict_structure_factory  # noqa: PLC0415 - likewise
    from cattrs.gen import make_dict_structure_fn  # noqa: PLC0415 - likewise

    plain: Hook
    if attrs.has(kind):
        attrs.resolve_types(kind)
        plain = make_dict_structure_fn(kind, converter)
    else:
        plain = namedtuple_dict_structure_factory(kind, converter, "from_converter", True)  # noqa: FBT003 - likewise

    texts = _JSON_FIELDS.get(kind, ())
    times = _TIME_FIELDS.get(kind, ("at", "said_at") if _is_event(kind) else ())

    def structure(value: JSON, _: Any) -> Any:
        made = plain(value, kind)
        for name in times:
            if not is_time(getattr(made, name)):
                raise _Unfit(f"{name!r} is not a time")
        for name in texts:
            found = getattr(made, name)
            if isinstance(found, str):
                is_sound = _is_sound(_decode(found), name, kind)
            else:
                fits = _is_definition if name == "tools" else _is_message
                is_sound = all(fits(_decode(text)) for text in found or ())
            if not is_sound:
                raise _Unfit(f"{name!r} holds a text that is not the expected JSON")
        return made

    return structure


def _decode(text: str) -> JSON:
    try:
        text.encode()  # requests are UTF-8: only an escape can carry a lone surrogate
        return decode(text)
    except (ValueError, RecursionError):
        return None  # which is not valid in any of the fields


def _is_sound(value: JSON, name: str, kind: type) -> bool:
    if name == "response":
        return _is_reply(value)
    if kind is Result and name != "mark":
        return _is_content(value)
    return isinstance(value, dict) or (name == "content" and _is_content(value))


def _is_reply(value: JSON) -> bool:
    try:
        read_reply(value, text="")
    except ProtocolError:
        return False
    return True


def _is_message(value: JSON) -> bool:
    return isinstance(value, dict) and value.get("role") in _ROLES and _is_content(value.get("content"))


def _is_definition(value: JSON) -> bool:
    return isinstance(value, dict) and isinstance(value.get("name"), str)


def _is_content(value: JSON) -> bool:
    """Return whether a value is the content of a message or a result: a string, or a list of blocks."""
    return isinstance(value, str) or (isinstance(value, list) and all(map(_is_block, value)))


def _is_block(value: JSON) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        return False
    return value["type"] != "text" or isinstance(value.get("text"), str)
