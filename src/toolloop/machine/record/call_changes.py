"""Which calls an event has changed, from the states before and after it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import Round, round_of
from toolloop.machine.record.state import Path, State
from toolloop.machine.values.calls import Call, Outcome, Status

Change = tuple[Path, Call | None, Call | None]
_OPEN: Final = (Status.PROPOSED, Status.WAITING)


def call_changes(before: State, event: ev.Event, after: State) -> Iterator[Change]:
    """Yield the calls that an event has changed, in loops at any depth: the path, the call before, and after.

    The call before is None for a call that waits in a new round. The call after is None for one that was open when its
    round went. Other calls of rounds that begin or end are left out.
    """
    for path in {**before.loops, **after.loops}:
        old, new = round_at(before, path), round_at(after, path)
        if old is new:
            continue
        for was, call in _pair_calls(old, new, event):
            yield (*path, (was or call or _NO_CALL).id), was, call


def _pair_calls(old: Round | None, new: Round | None, event: ev.Event) -> Iterable[tuple[Call | None, Call | None]]:
    """Return the calls of a round that differ, before and after."""
    if old is None or new is None or old.iteration != new.iteration:
        gone = [] if old is None else [(call, None) for status in _OPEN for call in old.calls.having(status)]
        return [*gone, *([] if new is None else [(None, call) for call in new.calls.having(Status.WAITING)])]
    if isinstance(event, ev.HistoryTaken):  # its calls may be others
        known = {call.id: call for call in old.calls}
        gone = [(call, None) for call in old.calls if new.calls.find(call.id) is None and call.status in _OPEN]
        return [*gone, *[(known.get(call.id), call) for call in new.calls if call is not known.get(call.id)]]
    return new.calls.changes(old.calls)


def is_granted(was: Call | None, call: Call | None) -> bool:
    """Return whether a call was cleared by a grant between these two."""
    decision = None if call is None else call.decision
    return decision is not None and decision.grant is not None and (was is None or was.decision is not decision)


def has_expired(was: Call | None, call: Call | None, now: float) -> bool:
    """Return whether a call expired between these two. `now`: the time after."""
    if call is None:  # the loop ended with it
        is_late = was is not None and was.expires_at is not None and was.expires_at <= now
        return is_late and was is not None and was.status is Status.WAITING
    is_new = was is None or was.result is None
    return is_new and call.result is not None and call.result.outcome is Outcome.EXPIRED


def round_at(state: State, path: Path) -> Round | None:
    """Return the open round of the loop at a path, if there is one."""
    loop = state.at(path)
    return None if loop is None else round_of(loop)


_NO_CALL: Final = Call("", "", "{}")
