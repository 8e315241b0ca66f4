"""Take the end of a request: what a reply means by its stop reason, and what a missing reply means."""

from __future__ import annotations

from typing import Any

from toolloop.errors import ProtocolError
from toolloop.machine.record.journal_events import Replied, RequestFailed
from toolloop.machine.record.loop import Failed, Failure, Finished, Judging, Loop, Ready, Requesting, Round, Waiting
from toolloop.machine.record.replies import action_of, assistant_message, drop_unfinished
from toolloop.machine.rules import limits
from toolloop.machine.rules.history_edits import compacted_by_server, is_compaction
from toolloop.machine.rules.joining import end, finish, is_system, join, settled_and_joined
from toolloop.machine.rules.repetition import repeated, without_warning
from toolloop.machine.rules.saying import release
from toolloop.machine.rules.turns import proceed, spend
from toolloop.machine.values.stop_reasons import CUT, PAUSE, REFUSE, RUN, ReplyAction
from toolloop.terminations import LoopDetected, NaturalEnd, Refused, StopCondition, Truncated


def take_reply(loop: Loop, event: Replied) -> Loop:
    """Take a reply, as its stop reason requires (`stop_reasons`). Then apply a stop that came during the request."""
    then = _read(loop, event)
    asked = loop.phase
    if isinstance(asked, Requesting) and asked.stopping and not isinstance(then.phase, Finished):
        return stopped(then, asked.reason)
    return then


def _read(loop: Loop, event: Replied) -> Loop:
    reply = event.reply
    counted: dict[str, Any] = {
        "usage_log": loop.usage_log.append(reply.entry(loop.iterations + 1, event.took)),
        "total_usage": loop.total_usage + reply.usage,
        "iterations": loop.iterations + 1,
        "turn_iterations": loop.turn_iterations + 1,
        "thread": event.thread or loop.thread,
    }
    try:
        limits.refuse_too_many_calls(loop, reply)
        action = action_of(reply)
    except ProtocolError as error:
        return loop._replace(phase=Failed(Failure("protocol", str(error), retryable=error.retryable)), **counted)
    counted |= {"response": reply.text, "pauses": loop.pauses + 1 if action is PAUSE else 0}
    if action is REFUSE:
        why = reply.stop_details or {}
        kept = join(loop, drop_unfinished(loop.unjoined), **counted)
        return finish(kept, Refused(why.get("category"), why.get("explanation")))
    if action is CUT:
        cut = assistant_message(reply.blocks, calls=False)
        kept = join(loop, [*loop.unjoined, *([cut] if cut else [])], **counted)
        return finish(kept, Truncated(str(reply.stop_reason)))
    text = assistant_message(reply.blocks, ends=action is not PAUSE)
    round_ = Round(loop.iterations + 1, text, reply.calls())
    container = reply.container or loop.container  # a reply that resumes a turn may leave it out
    loop = loop._replace(container=container, round=round_, phase=Judging(action), **counted)
    return loop if action is RUN or "stop_when" in loop.setup.callables else conclude(loop)


def action_in(loop: Loop) -> ReplyAction | None:
    """Return what the reply asks for, if the loop is judging it."""
    return loop.phase.action if isinstance(loop.phase, Judging) else None


def conclude(loop: Loop) -> Loop:
    """Pause or end the loop after a reply without calls."""
    if is_compaction(loop):
        return compacted_by_server(loop)
    if action_in(loop) is PAUSE:
        unjoined = (*loop.unjoined, *([loop.round.reply] if loop.round and loop.round.reply else []))
        container = loop.container if unjoined else None
        return loop._replace(unjoined=unjoined, round=None, container=container, phase=Waiting("paused"))
    loop = release(loop._replace(queued=without_warning(loop)))
    # The model has not answered queued user messages, so the loop continues. System messages alone do not continue it.
    is_answered = all(map(is_system, loop.queued))
    loop = settled_and_joined(loop, phase=Ready())
    return finish(loop, NaturalEnd()) if is_answered else loop


def fail(loop: Loop, event: RequestFailed) -> Loop:
    """Take the end of a request without a reply. If the caller has stopped the loop meanwhile, it ends."""
    loop = loop._replace(thread=event.thread or loop.thread, response=event.response or loop.response)
    loop = loop if event.spent is None else spend(loop, (event.spent,))
    if isinstance(loop.phase, Requesting) and loop.phase.stopping:
        return end(loop, StopCondition(loop.phase.reason))
    return proceed(loop) if event.failure is None else loop._replace(phase=Failed(event.failure))


def stopped(loop: Loop, reason: str | None, *, waits: bool = False) -> Loop:
    """Return the loop that its caller, or `stop_when`, stopped. `waits`: see `end`."""
    return end(compacted_by_server(loop) if is_compaction(loop) else loop, StopCondition(reason), waits=waits)


def detected(loop: Loop) -> LoopDetected | None:
    """Return the repetition by the newest round, which is not judged yet, if it must be reported."""
    if loop.round is None or action_in(loop) is not RUN:
        return None
    return repeated(loop.setup.loop_detection, loop.repetition, loop.round.calls)


def stops_at(loop: Loop, found: LoopDetected | None) -> bool:
    """Return whether a repetition ends the loop."""
    wanted = loop.setup.loop_detection
    return found is not None and wanted is not None and wanted.action == "stop"
