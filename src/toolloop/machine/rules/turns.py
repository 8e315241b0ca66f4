"""Continue a loop with its open round or a request, let time pass in it, and count what it used."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import evolve

from toolloop._usage import IterationUsage
from toolloop.machine.record.loop import (
    Judging,
    Loop,
    Ready,
    Running,
    Stopping,
    Waiting,
    find_round_calls,
    is_over,
    replace_calls,
)
from toolloop.machine.rules.calls import ask_again, expire_call, halt_members, list_to_judge, lose
from toolloop.machine.rules.grants import ask_where_gone
from toolloop.machine.rules.joining import end, join
from toolloop.machine.rules.saying import release
from toolloop.machine.values.calls import Status
from toolloop.terminations import Expired


def proceed(loop: Loop) -> Loop:
    """Continue with the open round, or with a request. Queued messages join now if possible."""
    if (round_ := loop.phase.round) is not None:
        return loop._replace(phase=Judging(round_) if list_to_judge(round_.calls) else Running(round_))
    loop = loop if loop.unjoined else release(loop)
    if loop.queued and not loop.unjoined:
        return join(loop, (), phase=Ready())
    return loop._replace(phase=Ready())


# --- time ------------------------------------------------------------------------------------------------------------


def advance_time(loop: Loop, at: float, seconds: float) -> Loop:
    """Return the loop at a time, with more active seconds. A time in the past counts as now."""
    now, lasted = max(loop.now, at), max(0.0, seconds)  # in this order, NaN changes nothing
    if now != loop.now or lasted:
        loop = loop._replace(now=now, active=loop.active + lasted)
    return expire(loop)


def expire(loop: Loop) -> Loop:
    """Settle the calls whose deadline has passed. Calls whose grant has expired wait for approval again."""
    if not isinstance(loop.phase, (Judging, Waiting, Running)):
        return loop
    now, waits = loop.now, loop.calls.having(Status.WAITING)  # many, so no function is called for each
    late = [call for call in waits if call.expires_at is not None and call.expires_at <= now]
    if late:
        loop = halt_members(replace_calls(loop, [expire_call(call, loop.setup.texts) for call in late]))
    return ask_where_gone(loop) if loop.grants else loop


def end_if_expired(before: Loop, now: Loop, after: Loop) -> Loop:
    """End a loop with `on_expiry="stop"` in which a call expired.

    Args:
        before: the loop before an event.
        now: after the time of the event, which may have expired calls.
        after: after the event, which counts: it may end a tool, or the loop.

    """
    if now.setup.on_expiry != "stop" or is_over(after) or isinstance(after.phase, Stopping):
        return after
    changes = now.calls.changes(before.calls)
    late = next((call for _, call in changes if call.status is Status.SETTLED), None)
    return after if late is None else end(after, Expired(late.name), waits=True)


# --- what is lost and what is used -----------------------------------------------------------------------------------


def ask_all_again(loop: Loop) -> Loop:
    """Return a loop that no driver works on: started calls are uncertain, and other open calls wait again."""
    if isinstance(loop.phase, Stopping):
        lost = [ask_again(call, loop.setup, loop.now) for call in loop.calls.having(Status.RUNNING)]
        return end(replace_calls(loop, lost), loop.phase.termination)
    if isinstance(loop.phase, Judging) and all(call.status is Status.PROPOSED for call in loop.calls):
        return loop  # its calls are not judged yet
    loop = replace_calls(loop, [ask_again(call, loop.setup, loop.now) for call in find_round_calls(loop)])
    if isinstance(loop.phase, (Judging, Running)):
        return loop._replace(phase=Waiting("decision_required", loop.round))
    return loop


def lose_runs(loop: Loop, runs: Iterable[tuple[str, int, int]]) -> Loop:
    """Return the loop with the runs that its journal has lost. `runs`: the call, iteration and attempt of each."""
    found = [(find_round_calls(loop).find(call_id), attempt) for call_id, at, attempt in runs if at == loop.iterations]
    return replace_calls(loop, [lose(call, attempt) for call, attempt in found if call is not None])


def set_previews(loop: Loop, previews: Iterable[tuple[str, str]]) -> Loop:
    """Return the loop with descriptions of the effects of its waiting calls."""
    calls = [(loop.calls.find(call_id), preview) for call_id, preview in previews]
    seen = [call._replace(preview=text) for call, text in calls if call is not None and call.status is Status.WAITING]
    return replace_calls(loop, seen)


def spend(loop: Loop, used: Iterable[IterationUsage], *, below: tuple[str, ...] = ()) -> Loop:
    """Return the loop with more entries in its usage log: of its own requests, or of those inside the call `below`."""
    for entry in used:
        entry_here = evolve(entry, path=(*below, *entry.path))
        loop = loop._replace(usage_log=loop.usage_log.append(entry_here), total_usage=loop.total_usage + entry.usage)
    return loop
