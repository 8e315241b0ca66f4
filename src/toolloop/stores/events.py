"""An event as JSON text, and back; and a whole journal.

The two texts that make up nearly all of a journal, the model's replies and the results of calls, stand in it as they
are, at the end of their object, and are taken out of it as they are: they need no escapes there, and the JSON functions
of a database see into them. Every other JSON text is a string, as in a snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from math import isfinite
from typing import Any, cast

from toolloop.core import events as ev
from toolloop.core.errors import ProtocolError, UnreadableSnapshot
from toolloop.core.folding import stride
from toolloop.core.jsontext import JSON, decode, encode
from toolloop.core.machine import fold, step
from toolloop.core.replies import Reply, read_reply
from toolloop.core.states import State
from toolloop.stores.codec import dump, load
from toolloop.stores.formats import FORMAT, UPGRADES, Upgrade, check_format, upgraded
from toolloop.stores.quick import quick
from toolloop.stores.shapes import read, write

EVENTS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in vars(ev).values()
    if isinstance(kind, type) and issubclass(kind, ev.Event) and kind is not ev.Event
}

_USUAL: dict[str, Any] = {name: kind for name, kind in EVENTS.items() if kind is not ev.Adopted}

# The member that holds the one long text of an event, its name there, and what stands before it. Both come last.
_LONG = {"Replied": ("reply", "message", '"message":'), "Ended": ("result", "content", '"content":')}
_END = "}}"


def encode_event(event: ev.Event) -> str:
    """The JSON text of an event: one line but for what the model sent, `format` first.

    Raises:
        ValueError: a text in it that should be JSON is none, or a number is NaN or infinite.

    """
    name = type(event).__name__
    head = {"format": FORMAT, "event": name}
    if isinstance(event, ev.Adopted):
        return encode({**head, **_times(event), "state": dump(event.state)})
    fields = write(event)
    if name not in _LONG:
        return encode({**head, **fields})
    member, inner, _ = _LONG[name]
    around = fields.pop(member)
    text = _sound(around.pop(inner))
    start = encode({**head, **fields, member: {**around, inner: None}})
    return f"{start.removesuffix(f'null{_END}')}{text}{_END}"


def _sound(text: str) -> str:
    """A JSON text, sure to be one and to be encodable: it would make the whole journal unreadable else."""
    value = decode(text)
    try:
        text.encode()
    except UnicodeEncodeError:
        return encode(value)
    return text


def _times(event: ev.Event) -> dict[str, JSON]:
    return write(ev.Event(at=event.at, seconds=event.seconds))


def decode_event(text: str, *, upgrades: Mapping[int, Upgrade] = UPGRADES) -> ev.Event:
    """The event of a JSON text.

    Args:
        text: what `encode_event` made, in this version of toolloop or an older one.
        upgrades: how to read the older formats.

    Raises:
        UnreadableSnapshot: it is damaged, foreign, or of a format that this version does not know.

    """
    try:  # what is usual, quickly; whatever else there is, is looked at again, and carefully
        return _usual(text)
    except Exception:  # noqa: BLE001 - it is found out now what is wrong
        return _any(text, upgrades)


def _usual(text: str) -> ev.Event:
    fields = _quick_json()(text, allow_inf_nan=False)
    name, found = fields.pop("event"), fields.pop("format")
    if found != FORMAT or found is True:
        raise LookupError(found)
    if name in _LONG:
        _take_out(text, fields, name)
    read_fields = quick(_USUAL[name])
    event: ev.Event = read_fields(fields)
    if isfinite(event.at + event.seconds):
        return event
    raise ValueError(event.at)


@cache
def _quick_json() -> Callable[..., Any]:
    """Pydantic's reader of JSON: half the time of the standard library's, and it keeps integers of any size too.

    It refuses escapes of lone surrogates, which are then looked at once more. It takes 1e999 for an infinity: a time
    that is one is looked at once more too, and a message with one is refused when it is encoded for the history.
    """
    from pydantic_core import from_json  # noqa: PLC0415 - pydantic is loaded when it is first needed

    return from_json


def _any(text: str, upgrades: Mapping[int, Upgrade]) -> ev.Event:
    try:
        fields = decode(text)
    except (ValueError, RecursionError, TypeError, AttributeError) as error:
        raise UnreadableSnapshot(f"it is no JSON: {error}") from error
    if not isinstance(fields, dict):
        raise UnreadableSnapshot(f"it is no JSON object, but {type(fields).__name__}")
    number = check_format(fields.pop("format", None), "the event", upgrades)
    changes = {start: upgrade.event for start, upgrade in upgrades.items()}
    fields = dict(upgraded(fields, changes, number, "the event"))
    name = fields.pop("event", None)
    kind = EVENTS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise UnreadableSnapshot(f"the event {name!r} is none that toolloop knows")
    if kind is ev.Adopted:
        state = load(fields.pop("state", None), upgrades=upgrades)
        times = read(fields, ev.Event, "the event Adopted")
        return ev.Adopted(state, at=times.at, seconds=times.seconds)
    if kind.__name__ in _LONG:
        try:
            _take_out(text, fields, kind.__name__)
        except (ProtocolError, LookupError, TypeError) as error:
            raise UnreadableSnapshot(f"the event {name} cannot be read: {type(error).__name__}: {error}") from error
    return cast("ev.Event", read(fields, kind, f"the event {name}"))


def _take_out(text: str, fields: dict[str, JSON], name: str) -> None:
    """Put the long text of an event, as it stands in the text of the whole, in the place of its decoded form."""
    member, inner, mark = _LONG[name]
    around = fields[member]
    value = around[inner]
    start = text.find(mark)  # no string holds that: a quote in one has a backslash before it
    if start >= 0 and text.endswith(_END) and next(reversed(fields)) == member and next(reversed(around)) == inner:
        taken = text[start + len(mark) : -len(_END)]
    else:
        taken = encode(value)
    if name == "Ended":
        around[inner] = taken
    else:
        fields[member] = _reply(around, taken)


def _reply(around: dict[str, JSON], text: str) -> Reply:
    request_id = around.get("request_id")
    if len(around) > (1 if request_id is None else 2) or not isinstance(request_id, str | None):
        raise TypeError(f"a reply has a text `request_id` and a `message`, not {', '.join(around)}")
    return read_reply(around["message"], text=text, request_id=request_id)


def read_journal(bodies: Iterable[str], *, upgrades: Mapping[int, Upgrade] = UPGRADES) -> State:
    """The state after a whole journal.

    Args:
        bodies: the JSON texts of its events, oldest first.
        upgrades: how to read the older formats.

    Raises:
        UnreadableSnapshot: an entry is damaged, foreign, of a newer format, or does not follow from those before it.
            `entry` is its number, counted from 1, and 0 if there is none at all.

    """
    state: State | None = None
    turn: list[ev.Event] = []
    number = 0
    for number, body in enumerate(bodies, start=1):
        try:
            event = decode_event(body, upgrades=upgrades)
        except UnreadableSnapshot as error:
            _after(state, turn, number - len(turn))  # what comes first is told first
            raise _unreadable(number, str(error)) from error
        turn.append(event)
        if state is None or type(event) is ev.Continued:
            state, turn = _after(state, turn, number + 1 - len(turn)), []
    if state is None:
        raise UnreadableSnapshot("the journal is empty", entry=0)
    return _after(state, turn, number + 1 - len(turn))


def _after(state: State | None, turn: list[ev.Event], first: int) -> State:
    """The state after some events, of which the first is the entry of that number."""
    if state is not None and (then := _in_one_stride(state, turn)) is not None:
        return then
    for number, event in enumerate(turn, start=first):
        try:
            state = fold([event]) if state is None else step(state, event)
        except Exception as error:  # a refusal, or what an event that was never legal may lead to
            told = str(error) or type(error).__name__
            raise _unreadable(number, f"{type(event).__name__} cannot follow what is before it: {told}") from error
    return cast("State", state)


def _in_one_stride(state: State, turn: list[ev.Event]) -> State | None:
    try:
        return stride(state, turn)
    except Exception:  # noqa: BLE001 - `step` says what is wrong, and where
        return None


def _unreadable(number: int, told: str) -> UnreadableSnapshot:
    return UnreadableSnapshot(f"entry {number} of the journal cannot be read: {told}", entry=number)
