"""The ids of messages: of the history, of unjoined messages and of the open reply.

A reply has the id of its request, so that a repeated request has a new one. What a person said has the id of that. Any
other message is numbered when it comes in. The loop is part of each id, and messages keep their ids: in forks, in
edits of the history, and in compactions. Nothing of that is in the journal, because it follows from the events.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import Finished, Kept, Loop, State, count_messages, list_messages
from toolloop.machine.record.replies import ends_in_reply
from toolloop.machine.rules.joining import join_rest
from toolloop.machine.values.chain import Chain
from toolloop.machine.values.jsontext import encode
from toolloop.machine.values.splicing import find_splices

_LENGTH = 16  # characters


def derive_reply_id(loop: Loop) -> str:
    """Return the id of the reply to the next request of a loop."""
    return _make_id(loop, "reply", loop.requests + 1)


def list_with_ids(loop: Loop) -> list[tuple[str, str]]:
    """Return the messages of a loop as they are shown, each with its id before it."""
    shown = name_shown(loop)
    return list(zip(shown.ids, list_messages(shown), strict=True))


def name_all(loop: Loop) -> Loop:
    """Return the loop with an id for each message, also if an older version stored it without ids."""
    count = count_messages(loop)
    return loop if len(loop.ids) == count else _set_ids(loop._replace(ids=Chain()), [None] * count, 0)


def name_messages(before: State, after: State, event: ev.Event) -> State:
    """Return the state after an event, with ids for the messages that came in with it."""
    named = {}
    for path, loop in after.loops.items():
        was = before.loops.get(path)
        if was is None:
            named[path] = name_all(loop)
        elif (
            was.messages is not loop.messages
            or was.unjoined is not loop.unjoined
            or (was.phase is not loop.phase and was.open_messages != loop.open_messages)
        ):
            named[path] = _name_new(name_shown(was), loop, event)
    return State({**after.loops, **named}) if named else after


def name_joined(before: Loop, after: Loop) -> Loop:
    """Return the loop after a change that no event makes, with the ids of its messages and new ones for what joined."""
    return _name_new(name_shown(before), after, ev.Ticked())


def name_shown(loop: Loop) -> Loop:
    """Return the loop as it is shown: with ids also for what a limit left open."""
    named = name_all(loop)
    shown = join_rest(loop) if isinstance(loop.phase, Finished) else loop
    return named if shown is loop else _name_new(named, shown, ev.Ticked())


def _name_new(before: Loop, after: Loop, event: ev.Event) -> Loop:
    """Return the loop after an event. Messages that it had before keep their ids, also if they were changed."""
    after = after._replace(ids=before.ids, named=before.named)
    start = 0 if after.messages.since(before.messages) is None else len(before.messages)
    old, new = [*before.messages[start:], *before.open_messages], [*after.messages[start:], *after.open_messages]
    kept: list[str | None] = [*before.ids[start:], *[None] * (len(new) - len(old))]
    if new[: len(old)] != old:
        kept = _align(old, new, before.ids[start:], carries=not isinstance(event, ev.HistoryEdited))
    if isinstance(event, ev.Replied) and None in kept:  # the last new reply is the one that came in
        fresh = [place for place, text in enumerate(new) if kept[place] is None and ends_in_reply((text,))]
        for place in fresh[-1:]:  # an empty reply leaves no message
            kept[place] = _make_id(before, "reply", before.requests)
    if before.kept or isinstance(event, ev.Said):
        _name_said(before, after, event, new, kept)
    return _set_ids(after, kept, start)


def _align(old: Sequence[str], new: Sequence[str], ids: Sequence[str], *, carries: bool) -> list[str | None]:
    """Return the ids of the new messages that are among the old ones; with `carries`, also of replies that differ."""
    kept: list[str | None] = []
    at = 0
    for splice in find_splices(old, new):
        gone = [ids[place] for place in range(splice.start, splice.stop) if ends_in_reply(old[place : place + 1])]
        kept += ids[at : splice.start]
        for text in splice.messages:
            kept.append(gone.pop(0) if carries and gone and ends_in_reply((text,)) else None)
        at = splice.stop
    return [*kept, *ids[at:]]


def _name_said(before: Loop, after: Loop, event: ev.Event, new: Sequence[str], kept: list[str | None]) -> None:
    """Give messages of persons that joined the ids of what they said. They join last, after injected messages."""
    said = (*before.kept, Kept(event.id, event.messages)) if isinstance(event, ev.Said) else before.kept
    still = {each.id for each in after.kept}
    joined = [
        (text, each.id if number == 0 else f"{each.id}.{number + 1}")
        for each in said
        if each.id and each.id not in still
        for number, text in enumerate(each.messages)
    ]
    for place in reversed(range(len(new))):
        if kept[place] is None and any(text == new[place] for text, _ in joined):
            while joined[-1][0] != new[place]:  # a system message that was said last may be queued again
                joined.pop()
            kept[place] = joined.pop()[1]


def _set_ids(loop: Loop, ids: Sequence[str | None], start: int) -> Loop:
    """Return the loop with the ids of its messages from `start` on. Those that are None are numbered."""
    number, named = loop.named, []
    for each in ids:
        number += each is None
        named.append(_make_id(loop, "message", number) if each is None else each)
    known = loop.ids[start:]
    is_longer = named[: len(known)] == known
    chain = loop.ids.extend(named[len(known) :]) if is_longer else Chain([*loop.ids[:start], *named])
    return loop._replace(ids=chain, named=number)


def _make_id(loop: Loop, kind: str, number: int) -> str:
    setup = loop.setup
    return sha256(encode([setup.loop_id, setup.within, kind, number]).encode()).hexdigest()[:_LENGTH]
