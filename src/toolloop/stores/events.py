"""An event as JSON text, and back; and a whole journal.

The two texts that make up nearly all of a journal, the model's replies and the results of calls, stand in it as they
are, at the end of their object, and are taken out of it as they are (see `bodies`): they need no escapes there, and the
JSON functions of a database see into them. Every other JSON text is a string, as in a snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from toolloop.core import events as ev
from toolloop.core.errors import ProtocolError, UnreadableSnapshot
from toolloop.core.folding import stride
from toolloop.core.jsontext import JSON, decode, encode
from toolloop.core.machine import fold, step
from toolloop.core.replies import Reply, read_reply
from toolloop.core.states import State
from toolloop.stores.bodies import END, LONG, quick_cut, quick_members, read_body
from toolloop.stores.codec import dump, load
from toolloop.stores.formats import FORMAT, UPGRADES, Upgrade, check_format, upgraded
from toolloop.stores.quick import quick
from toolloop.stores.shapes import is_content, read, write

EVENTS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in vars(ev).values()
    if isinstance(kind, type) and issubclass(kind, ev.Event) and kind is not ev.Event
}

_USUAL: dict[str, Any] = {name: kind for name, kind in EVENTS.items() if kind is not ev.Adopted}

# They are added up, and the sum must stay a number that JSON has.
_MOST_SECONDS = 1e15

# How the writer begins every event. Another beginning may say the same, and is read carefully.
_START = f'{{"format":{FORMAT},"event":"'


def encode_event(event: ev.Event) -> str:
    """The JSON text of an event: one line but for what the model sent, `format` first.

    Raises:
        ValueError: it could not be read again: a text in it that should be JSON is none, or none that fits; or a number
            is NaN, infinite, or too large.

    """
    if event.seconds > _MOST_SECONDS:
        raise ValueError(f"no event takes {event.seconds:g} seconds")
    name = type(event).__name__
    head = {"format": FORMAT, "event": name}
    if isinstance(event, ev.Adopted):
        return encode({**head, **_base(event), "state": dump(event.state)})
    fields = write(event)
    if name not in LONG:
        return encode({**head, **fields})
    member, inner, _ = LONG[name]
    around = fields.pop(member)
    text = _sound(around.pop(inner), name)
    start = encode({**head, **fields, member: {**around, inner: None}})
    return f"{start.removesuffix(f'null{END}')}{text}{END}"


def _sound(text: str, name: str) -> str:
    """A JSON text, sure to be what is read, and to be encodable: it would make the whole journal unreadable else."""
    value = decode(text)
    if name == "Ended" and not is_content(value):
        raise ValueError(f"the content of a result is a text or a list of content blocks, not {text[:40]}")
    try:
        text.encode()
    except UnicodeEncodeError:
        return encode(value)
    return text


def _base(event: ev.Event) -> dict[str, JSON]:
    return write(ev.Event(at=event.at, seconds=event.seconds, path=event.path))


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
    if not text.startswith(_START):
        raise LookupError(text[: len(_START)])
    name = text[len(_START) : text.index('"', len(_START))]
    read_fields = quick(_USUAL[name])
    if name in LONG:
        member, _, mark = LONG[name]
        fields, taken, value = quick_cut(text, mark, member)
        _put(fields, name, taken, value)
    else:
        fields = quick_members(text)
    del fields["format"], fields["event"]
    event: ev.Event = read_fields(fields)
    if event.seconds > _MOST_SECONDS:
        raise ValueError(event.seconds)
    return event


def _any(text: str, upgrades: Mapping[int, Upgrade]) -> ev.Event:
    try:
        fields, cut = read_body(text)
    except (ValueError, RecursionError, TypeError, AttributeError) as error:
        raise UnreadableSnapshot(f"it is no JSON: {error}") from error
    number = check_format(fields.pop("format", None), "the event", upgrades)
    changes = {start: upgrade.event for start, upgrade in upgrades.items()}
    fields = dict(upgraded(fields, changes, number, "the event"))
    name = fields.pop("event", None)
    kind = EVENTS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise UnreadableSnapshot(f"the event {name!r} is none that toolloop knows")
    if kind is ev.Adopted:
        state = load(fields.pop("state", None), upgrades=upgrades)
        base: ev.Event = read(fields, ev.Event, "the event Adopted")
        return ev.Adopted(state, at=base.at, seconds=base.seconds, path=base.path)
    if kind.__name__ in LONG:
        member, inner, _ = LONG[kind.__name__]
        try:
            value = fields[member][inner]
            taken = cut.text if cut is not None and cut.value is value else encode(value)
            _put(fields, kind.__name__, taken, value)
        except (ProtocolError, LookupError, TypeError, ValueError) as error:
            raise UnreadableSnapshot(f"the event {name} cannot be read: {type(error).__name__}: {error}") from error
    event = cast("ev.Event", read(fields, kind, f"the event {name}"))
    if event.seconds > _MOST_SECONDS:
        raise UnreadableSnapshot(f"the event {name} cannot be read: it took {event.seconds:g} seconds")
    return event


def _put(fields: dict[str, JSON], name: str, text: str, value: JSON) -> None:
    """Put the long text of an event where its class has it."""
    member, inner, _ = LONG[name]
    around = fields[member]
    if name == "Replied":
        fields[member] = _reply(around, text, value)
    elif is_content(value):
        around[inner] = text
    else:
        raise TypeError("`content` is neither a text nor a list of content blocks")


def _reply(around: dict[str, JSON], text: str, message: JSON) -> Reply:
    request_id = around.get("request_id")
    if len(around) > (1 if request_id is None else 2) or not isinstance(request_id, str | None):
        raise TypeError(f"a reply has a text `request_id` and a `message`, not {', '.join(around)}")
    return read_reply(message, text=text, request_id=request_id)


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
