"""Take the end of a request: what a reply means by its stop reason, and what a missing reply means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolloop._usage import Cost, IterationUsage, Usage
from toolloop.errors import ProtocolError
from toolloop.machine.record.journal_events import Replied, RequestFailed
from toolloop.machine.record.loop import Failed, Failure, Finished, Judging, Loop, Ready, Requesting, Round, Waiting
from toolloop.machine.record.replies import drop_unfinished, find_action, list_calls, make_assistant_message
from toolloop.machine.rules import limits
from toolloop.machine.rules.history_edits import is_compaction, take_server_compaction
from toolloop.machine.rules.joining import end, finish, is_system, join, make_user_message, settle_and_join
from toolloop.machine.rules.repetition import drop_warning, find_repetition
from toolloop.machine.rules.saying import queue_own, release
from toolloop.machine.rules.turns import proceed, spend
from toolloop.machine.values.jsontext import encode
from toolloop.machine.values.stop_reasons import CUT, END, PAUSE, REFUSE, RUN, ReplyAction
from toolloop.machine.values.texts import fill_text
from toolloop.terminations import InvalidOutput, LoopDetected, NaturalEnd, Refused, StopCondition, Truncated


def take_reply(loop: Loop, event: Replied) -> Loop:
    """Take a reply, as its stop reason requires (`stop_reasons`). Then apply a stop that came during the request."""
    then = _read(loop, event)
    asked = loop.phase
    if isinstance(asked, Requesting) and asked.stopping and not isinstance(then.phase, Finished):
        return stop_loop(then, asked.reason)
    return then


def _read(loop: Loop, event: Replied) -> Loop:
    reply = event.reply
    entry = reply.entry(loop.iterations + 1, event.took, event.costs)
    counted: dict[str, Any] = {
        "usage_log": loop.usage_log.append(entry),
        "total_usage": loop.total_usage + entry.usage,
        "iterations": loop.iterations + 1,
        "turn_iterations": loop.turn_iterations + 1,
        "thread": event.thread or loop.thread,
    }
    try:
        limits.refuse_too_many_calls(loop, reply)
        action = find_action(reply)
    except ProtocolError as error:
        return loop._replace(phase=Failed(Failure("protocol", str(error), retryable=error.retryable)), **counted)
    counted |= {"response": reply.text, "pauses": loop.pauses + 1 if action is PAUSE else 0}
    if action is REFUSE:
        why = reply.stop_details or {}
        kept = join(loop, drop_unfinished(loop.unjoined), **counted)
        return finish(kept, Refused(why.get("category"), why.get("explanation")))
    if action is CUT:
        cut = make_assistant_message(reply.blocks, calls=False)
        kept = join(loop, [*loop.unjoined, *([cut] if cut else [])], **counted)
        return finish(kept, Truncated(str(reply.stop_reason)))
    text = make_assistant_message(reply.blocks, ends=action is not PAUSE)
    calls = list_calls(reply.blocks, members=loop.setup.members)
    round_ = Round(loop.iterations + 1, text, calls)
    container = reply.container or loop.container  # a reply that resumes a turn may leave it out
    loop = loop._replace(container=container, phase=Judging(round_, action), **counted)
    is_judged = action is RUN or "stop_when" in loop.setup.callables or (action is END and loop.setup.output)
    return loop if is_judged else conclude(loop)


def read_action(loop: Loop) -> ReplyAction | None:
    """Return what the reply asks for, if the loop is judging it."""
    return loop.phase.action if isinstance(loop.phase, Judging) else None


def conclude(loop: Loop, problems: Sequence[str] = ()) -> Loop:
    """Pause or end the loop after a reply without calls.

    `problems`: why the answer is not one of the class of the result. The model gets them once in a user turn.
    """
    if is_compaction(loop):
        return take_server_compaction(loop)
    if read_action(loop) is PAUSE:
        unjoined = loop.open_messages
        container = loop.container if unjoined else None
        return loop._replace(unjoined=unjoined, container=container, phase=Waiting("paused"))
    loop = release(loop._replace(queued=drop_warning(loop)))
    # The model has not answered queued user messages, so the loop continues. System messages alone do not continue it.
    is_answered = all(map(is_system, loop.queued))
    if problems and is_answered and not loop.misfit and limits.find_request_limit(loop) is None:
        said = fill_text(loop.setup.texts, "misfit", problems="\n".join(f"- {each}" for each in problems))
        answer = make_user_message([encode({"type": "text", "text": said})])
        return settle_and_join(queue_own(loop, answer)._replace(misfit=True), phase=Ready())
    loop = settle_and_join(loop, phase=Ready())
    if not is_answered:
        return loop
    return finish(loop, InvalidOutput(tuple(problems)) if problems else NaturalEnd())


def fail(loop: Loop, event: RequestFailed) -> Loop:
    """Take the end of a request without a reply. If the caller has stopped the loop meanwhile, it ends."""
    if event.thread is not None:  # the same request is sent again, without the thread that was refused
        loop = loop._replace(thread=event.thread, requests=loop.requests - 1)
    loop = loop._replace(response=event.response or loop.response)
    loop = loop if event.spent is None else spend(loop, (event.spent,))
    if isinstance(loop.phase, Requesting) and loop.phase.stopping:
        return end(loop, StopCondition(loop.phase.reason))
    return proceed(loop) if event.failure is None else loop._replace(phase=Failed(event.failure))


def look_again(loop: Loop) -> Loop:
    """Return a failed loop whose compaction strategies do not wait for growth, because its request may be too large.

    A request that can be retried as it is was not too large.
    """
    if isinstance(loop.phase, Failed) and not loop.phase.failure.retryable:
        return loop._replace(compacted=())
    return loop


def lose_request(loop: Loop) -> Loop:
    """Take the end of a request that is not known, because its driver is gone. It may have cost anything."""
    spent = None
    if isinstance(loop.phase, Requesting) and loop.phase.is_priced:
        unknown = Usage(cost=Cost(is_partial=True))
        spent = IterationUsage(loop.iterations + 1, usage=unknown, is_partial=True)
    return fail(loop, RequestFailed(spent=spent))


def stop_loop(loop: Loop, reason: str | None, *, waits: bool = False) -> Loop:
    """Return the loop that its caller, or `stop_when`, stopped. `waits`: see `end`."""
    return end(take_server_compaction(loop) if is_compaction(loop) else loop, StopCondition(reason), waits=waits)


def detect_repetition(loop: Loop) -> LoopDetected | None:
    """Return the repetition by the newest round, which is not judged yet, if it must be reported."""
    wanted = loop.setup.loop_detection
    return find_repetition(wanted, loop.repetition, loop.calls) if wanted and read_action(loop) is RUN else None


def is_stopped_by(loop: Loop, found: LoopDetected | None) -> bool:
    """Return whether a repetition ends the loop."""
    wanted = loop.setup.loop_detection
    return found is not None and wanted is not None and wanted.action == "stop"
