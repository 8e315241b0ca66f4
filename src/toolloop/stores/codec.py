"""The stored format: states as snapshots, events as entries of a journal, and back.

This version writes states in format 3, and reads those of formats 1 and 2, in which messages have no ids. In format 1,
the open round is beside the phase of its loop, and a limit has joined it to the history. Only states differ, so an
event without one has format 1. The error for any other format names its number. `tests/recorded/golden/` has an example
of each kind, which never changes while its format is read.

A state is stored as the list of its loops, each with its path, parents first. Messages are stored as the JSON texts
that the state holds, so that a restored loop sends the same bytes. The long text of an event (a reply, the content of a
result) is stored separately from the event's other fields, unchanged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, cast

from toolloop._public import set_module
from toolloop.errors import UnreadableSnapshot
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import State
from toolloop.machine.tree import fold, step
from toolloop.machine.values.jsontext import JSON, decode, encode, to_canonical, unify_numbers
from toolloop.stores.converter import read, write
from toolloop.stores.protocol import Entry

FORMAT: Final = 3

EVENTS: dict[str, type[ev.Event]] = {kind.__name__: kind for kind in (*ev.Event.__subclasses__(), ev.Approved)}
# For each event: the member that contains the long text, and the name of the text in it.
_LONG: Final = {"Replied": ("reply", "message"), "Ended": ("result", "content")}


@set_module("toolloop.stores")
def dump(state: State) -> dict[str, JSON]:
    """Return the snapshot of a state: JSON, `format` first."""
    fields = write(state, State)
    return {"format": FORMAT, "digest": digest_snapshot(fields), **fields}


@set_module("toolloop.stores")
def load(snapshot: Mapping[str, JSON]) -> State:
    """Return the state of a snapshot.

    Args:
        snapshot: a snapshot that `dump` returned.

    Raises:
        UnreadableSnapshot: it is damaged or foreign, or has a format that this version does not read.

    """
    given: object = snapshot  # a caller may pass anything
    if not isinstance(given, Mapping) or "format" not in given:
        raise UnreadableSnapshot(
            "this is not a snapshot of toolloop: `format` is missing. Pass the value that handle.snapshot() returned"
        )
    found = _check_format(snapshot["format"], "the snapshot")
    fields = {key: value for key, value in snapshot.items() if key not in ("format", "digest")}
    try:
        digest = digest_snapshot(fields)
    except (TypeError, ValueError, RecursionError) as error:
        raise UnreadableSnapshot(f"the snapshot is damaged: it is not JSON ({error})") from error
    if snapshot.get("digest") != digest:
        raise UnreadableSnapshot("the snapshot is damaged: its digest does not match its content")
    return cast("State", read(_upgrade(fields) if found == 1 else fields, State, "the snapshot"))


def digest_snapshot(fields: Mapping[str, JSON]) -> str:
    """Return the digest of a snapshot's members without `format` and `digest`.

    It finds damage, not attacks: never accept a snapshot from a client. It treats 60.0 like 60, because some JSON
    libraries have only one number type, and change one into the other.
    """
    return hashlib.sha256(to_canonical(unify_numbers(fields)).encode()).hexdigest()


@set_module("toolloop.stores")
def encode_event(entry_id: str, event: ev.Event) -> Entry:
    """Return an event as an entry of a journal.

    Args:
        entry_id: identifies the event within its loop.
        event: the event.

    Raises:
        ValueError: a number in it is NaN or infinite.

    """
    name = type(event).__name__
    fields: dict[str, JSON] = {"format": FORMAT if isinstance(event, ev.Adopted) else 1, "event": name, **write(event)}
    member, inner = _LONG.get(name, ("", ""))
    text = None
    if fields.get(member) is not None:
        text = fields[member].pop(inner)
        try:
            text.encode()
        except UnicodeEncodeError:  # only an escape can carry a lone surrogate
            text = encode(decode(text))
    return Entry(entry_id, encode(fields), text)


@set_module("toolloop.stores")
def decode_event(entry: Entry) -> ev.Event:
    """Return the event of an entry.

    Raises:
        UnreadableSnapshot: it is damaged or foreign, or has a format that this version does not read.

    """
    try:
        fields = decode(entry.body)
    except (ValueError, RecursionError) as error:
        raise UnreadableSnapshot(f"the event is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise UnreadableSnapshot(f"the event is not a JSON object: got {type(fields).__name__}")
    found = _check_format(fields.pop("format", None), "the event")
    name = fields.pop("event", None)
    if not isinstance(name, str) or name not in EVENTS:
        raise UnreadableSnapshot(f"the event {name!r} is unknown to this version of toolloop", is_newer=True)
    if found == 1 and "state" in fields:
        fields["state"] = _upgrade(fields["state"])
    member, inner = _LONG.get(name, ("", ""))
    has_place = isinstance(fields.get(member), dict)
    if has_place is (entry.text is None):
        raise UnreadableSnapshot(
            f"the event {name} cannot be read: its text is {'missing' if has_place else 'unexpected'}"
        )
    if has_place:
        fields[member] |= {inner: entry.text}
    return cast("ev.Event", read(fields, EVENTS[name], f"the event {name}"))


@set_module("toolloop.stores")
def read_journal(entries: Iterable[Entry]) -> State:
    """Return the state after a whole journal.

    Args:
        entries: its entries, oldest first.

    Raises:
        UnreadableSnapshot: an entry cannot be read, or cannot follow the entries before it. The attribute `entry` is
            its number, counted from 1; 0 if the journal is empty.

    """
    *_, (_, state) = replay(entries)
    return state


def replay(entries: Iterable[Entry], state: State | None = None, rev: int = 0) -> Iterator[tuple[ev.Event, State]]:
    """Yield each event of a journal, and the state after it. Raises as `read_journal` does.

    Args:
        entries: the entries of the whole journal, or those after a revision.
        state: the state at that revision.
        rev: the revision.

    """
    for number, entry in enumerate(entries, start=rev + 1):
        event: Any = None
        try:
            event = decode_event(entry)
            state = fold([event]) if state is None else step(state, event)
        except Exception as error:  # unreadable, refused by the machine, or an event that was never legal
            problem = str(error) or type(error).__name__
            if event is not None:
                problem = f"{type(event).__name__} cannot follow the entries before it: {problem}"
            raise UnreadableSnapshot(
                f"entry {number} of the journal cannot be read: {problem}",
                entry=number,
                is_newer=getattr(error, "is_newer", False),
            ) from error
        yield event, state
    if state is None:
        raise UnreadableSnapshot("the journal is empty", entry=0)


def _check_format(found: JSON, what: str) -> int:
    if type(found) is int and 1 <= found <= FORMAT:
        return found
    raise UnreadableSnapshot(
        f"{what} has format {found!r}, but this version of toolloop reads formats 1 to {FORMAT}. Use the version that "
        "wrote it, or a newer one",
        is_newer=type(found) is int and found > FORMAT,
    )


def _upgrade(state: JSON) -> JSON:
    """Return a state of format 1 as later formats have it. What does not fit is left, so that `read` names it."""
    if not isinstance(state, dict) or not isinstance(loops := state.get("loops"), list):
        return state
    return {**state, "loops": [*map(_upgrade_loop, loops)]}


def _upgrade_loop(loop: JSON) -> JSON:
    """Move the round into the phase. After a limit, take what had joined out of the history again."""
    match loop:
        case {
            "messages": [*texts],
            "phase": {"resume_point": {"kept": int(kept), "parted": [*parted], **rest}, **phase},
            **others,
        }:
            loop = {**others, **rest, "messages": [*texts[:kept], *parted], "phase": phase}
    match loop:
        case {"phase": {**phase}, "round": round_, **others}:
            return {**others, "phase": {**phase, "round": round_}}
    return loop
