"""Earlier points of a loop, found in its journal: after an iteration, or just before a message of a user."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from attrs import evolve

from toolloop._usage import Usage
from toolloop.errors import IllegalCommand
from toolloop.machine.message_ids import name_messages, name_shown
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import Failed, Finished, Kept, Loop, Requesting, State
from toolloop.machine.rules.joining import is_prompt, is_system
from toolloop.machine.tree import begin, step
from toolloop.machine.values.chain import Chain
from toolloop.machine.values.jsontext import decode

Steps = Iterable[tuple[ev.Event, State]]
_Words = ev.Continued | ev.FollowedUp | ev.Said


def rewind(steps: Steps, at: int | str) -> State:
    """Return an earlier state of a loop, with a usage of zero.

    Args:
        steps: the events of its journal, each with the state after it.
        at: an iteration: the state after its round closed, or after its reply if that made no calls. Or the id of a
            message of a user: the state just before it.

    Raises:
        IllegalCommand: the journal has no such point.

    """
    state = _find_iteration(steps, at) if isinstance(at, int) else _find_message(steps, at)
    loops = state.loops.items()
    return State({path: one._replace(usage_log=Chain(), total_usage=Usage(), started=Chain()) for path, one in loops})


def _find_iteration(steps: Steps, at: int) -> State:
    ended: State | None = None  # a limit ended the loop, and its round is open
    for event, state in steps:
        loop = state.root
        is_next_turn = ended is not None and isinstance(event, ev.FollowedUp | ev.Said)
        if loop.iterations > at or is_next_turn:
            break
        if loop.iterations == at and isinstance(loop.phase, Finished):
            ended = state
        if loop.iterations == at and loop.phase.round is None and not isinstance(loop.phase, Requesting):
            return state
    if ended is None:
        raise _reject(f"its iteration {at} has not ended, or is older than the journal")
    return ended


def _find_message(steps: Steps, name: str) -> State:
    before: State | None = None
    for event, state in steps:
        if (place := _find_new(before, state, name)) is not None:
            return _rewind_before(before, event, state, place)
        before = state
    raise _reject(f"no message in its conversation has the id {name!r}; see view(messages=True)")


def _find_new(before: State | None, after: State, name: str) -> int | None:
    """Return the place of the message with this id in the history, if it has just come in."""
    ids, known = after.root.ids, Chain[str]() if before is None else before.root.ids
    if ids is known:
        return None
    more = ids.since(known)
    start = 0 if more is None else len(known)
    new = list(ids[start:])
    return start + new.index(name) if name in new and name not in known else None


def _rewind_before(before: State | None, event: ev.Event, after: State, place: int) -> State:
    """Return the state just before a message. What was said after it, and joined with it, is left out, too."""
    later = [text for text in after.root.messages[place:] if _is_of_user(text)]
    if not (place < len(after.root.messages) and _is_of_user(after.root.messages[place])):
        raise _reject("the message is not one of a user. Give the id of a user message, or an iteration")
    if isinstance(event, ev.Opened):
        return begin(evolve(event, messages=event.messages[:place]))
    if before is None:
        raise _reject("the message came with a fork or a snapshot. Fork the loop that `forked_from` names")
    if isinstance(event, ev.HistoryEdited | ev.HistoryTaken):
        shown = name_shown(before.root)
        if (name := after.root.ids[place]) not in shown.ids:
            return before
        # A limit had left it queued, and the edited history begins with it joined.
        later = [text for text in shown.messages[list(shown.ids).index(name) :] if _is_of_user(text)]
    root, words = _cut(before.root, after.root, event, len(later))
    shorter = State({**before.loops, (): root})
    if isinstance(event, ev.HistoryEdited | ev.HistoryTaken | _Words) and not words:
        return shorter
    event = evolve(event, messages=words) if isinstance(event, _Words) else event
    # Messages that are left have their ids, and the number of one that is cut off is not given again.
    return name_messages(after, step(shorter, event), ev.Ticked())


def _cut(loop: Loop, after: Loop, event: ev.Event, count: int) -> tuple[Loop, tuple[str, ...]]:
    """Return a loop, and the messages of an event, without the last `count` messages of users that join with the event.

    What was said after these is left out, too.
    """
    words = event.messages if isinstance(event, _Words) else ()
    kept = [text for each in loop.kept for text in each.messages]
    queued, last = list(loop.queued), list[str]()
    if isinstance(loop.phase, Finished | Failed) and isinstance(event, ev.FollowedUp | ev.Said):
        while queued and is_system(queued[-1]):
            last.insert(0, queued.pop())  # it joins last, though it was there before
    joined = queued if after.kept else [*queued, *kept, *words]
    places = [place for place, text in enumerate(joined) if _is_of_user(text)]
    if count > len(places):
        raise _reject("the loop itself made the message. Give the id of a user message, or an iteration")
    left = places[-count]
    is_later = left >= len(queued)
    still = tuple(_cut_kept(loop.kept, left - len(queued)))
    gone = {each.id for each in loop.kept} - {each.id for each in still}
    said = Chain([each for each in loop.said if each not in gone]) if gone else loop.said
    cut = loop._replace(queued=(*queued[:left], *(last if is_later else ())), kept=still, said=said)
    return cut, tuple(words[: max(0, left - len(queued) - len(kept))])


def _cut_kept(kept: Iterable[Kept], count: int) -> Iterator[Kept]:
    for each in kept:
        if count > 0:
            yield evolve(each, messages=each.messages[:count])
        count -= len(each.messages)


def _is_of_user(text: str) -> bool:
    return is_prompt(text) and decode(text)["role"] == "user"


def _reject(why: str) -> IllegalCommand:
    return IllegalCommand(f"fork(): the loop has no such point: {why}", state="a journal", asked="fork()", allowed=())
