"""Time as an input: before the rule of an event, settle calls that have waited too long for a decision."""

from __future__ import annotations

from toolloop.machine.record.loop import Judging, Loop, Running, Stopping, Waiting, is_over, replace_calls
from toolloop.machine.rules.calls import expire_call, halt_members
from toolloop.machine.rules.grants import ask_where_gone
from toolloop.machine.rules.joining import end
from toolloop.machine.values.calls import Status
from toolloop.terminations import Expired


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
