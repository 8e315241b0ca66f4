"""Time as an input: before the rule of an event, settle calls that have waited too long for a decision."""

from __future__ import annotations

from toolloop.machine.record.loop import Judging, Loop, Running, Stopping, Waiting, is_over
from toolloop.machine.rules.calls import expired, is_expired, replace_calls
from toolloop.machine.rules.grants import ask_where_gone
from toolloop.machine.rules.joining import end
from toolloop.machine.values.calls import Status
from toolloop.terminations import Expired


def advance_time(loop: Loop, at: float, seconds: float) -> Loop:
    """Return the loop at a time, with more active seconds. A time in the past counts as now."""
    now, lasted = max(loop.now, at), max(0.0, seconds)  # in this order, NaN changes nothing
    if now != loop.now or lasted:
        loop = loop._replace(now=now, active=loop.active + lasted)
    return loop if loop.round is None else expire(loop)


def expire(loop: Loop) -> Loop:
    """Settle the calls whose deadline has passed. Calls whose grant has expired wait for approval again."""
    if loop.round is None or not isinstance(loop.phase, (Judging, Waiting, Running)):
        return loop
    round_ = loop.round
    if late := [call for call in round_.having(Status.WAITING) if is_expired(call, loop.now)]:
        round_ = replace_calls(round_, [expired(call, loop.setup.texts) for call in late])
    if loop.grants:
        round_ = ask_where_gone(loop, round_)
    return loop if round_ is loop.round else loop._replace(round=round_)


def end_if_expired(before: Loop, now: Loop, after: Loop) -> Loop:
    """End a loop with `on_expiry="stop"` in which a call expired.

    Args:
        before: the loop before an event.
        now: after the time of the event, which may have expired calls.
        after: after the event, which counts: it may end a tool, or the loop.

    """
    if now.setup.on_expiry != "stop" or before.round is None or now.round is None:
        return after
    if is_over(after) or isinstance(after.phase, Stopping):
        return after
    changes = now.round.calls.changes(before.round.calls)
    late = next((call for _, call in changes if call.status is Status.SETTLED), None)
    return after if late is None else end(after, Expired(late.name), waits=True)
