"""Time as an input: before the rule of an event, settle calls that have waited too long for a decision."""

from __future__ import annotations

from toolloop.machine.record.loop import Judging, Loop, Running, Waiting
from toolloop.machine.rules.calls import error_result, replace_calls, settle
from toolloop.machine.rules.grants import ask_where_gone
from toolloop.machine.values.calls import Call, Outcome, Status
from toolloop.machine.values.setup import Texts
from toolloop.machine.values.texts import fill_text


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
    if expired := [call for call in round_.having(Status.WAITING) if is_expired(call, loop.now)]:
        round_ = replace_calls(round_, [_expired(call, loop.setup.texts) for call in expired])
    if loop.grants:
        round_ = ask_where_gone(loop, round_)
    return loop if round_ is loop.round else loop._replace(round=round_)


def is_expired(call: Call, now: float) -> bool:
    """Return whether a waiting call has reached its deadline. A decision at the deadline is too late."""
    return call.expires_at is not None and call.expires_at <= now and call.status is Status.WAITING


def _expired(call: Call, texts: Texts) -> Call:
    if call.started:  # it ran once, was interrupted, and waits for the decision whether to run again
        text = fill_text(texts, "uncertain", reason="no decision on a rerun arrived in time")
    else:
        text = fill_text(texts, "expired")
    return settle(call, error_result(text, Outcome.EXPIRED))
