"""Take the end of a request: what a reply means by its stop reason, and what a missing reply means.

Then take the judgement of its calls: each may start, waits for what is demanded, or gets its result.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from attrs import evolve

from toolloop._usage import Cost, IterationUsage, Usage
from toolloop.errors import ProtocolError, UnknownCall
from toolloop.machine.record.journal_events import Judged, Replied, RequestFailed
from toolloop.machine.record.loop import (
    Failed,
    Failure,
    Finished,
    Judging,
    Loop,
    Ready,
    Requesting,
    Round,
    Running,
    Waiting,
    replace_calls,
)
from toolloop.machine.record.replies import drop_unfinished, find_action, list_calls, make_assistant_message
from toolloop.machine.record.round_calls import RoundCalls
from toolloop.machine.rules import limits
from toolloop.machine.rules.approving import (
    count_missing,
    demands_of,
    is_open,
    list_approvals_by_persons,
    renew_demands,
)
from toolloop.machine.rules.calls import (
    find_deadline,
    halt_members,
    list_startable,
    list_to_judge,
    make_error_result,
    replace_input,
    settle,
    settle_by,
)
from toolloop.machine.rules.grants import satisfy
from toolloop.machine.rules.history_edits import is_compaction, take_server_compaction
from toolloop.machine.rules.joining import end, finish, is_system, join, make_user_message, settle_and_join
from toolloop.machine.rules.limits import take_lesser
from toolloop.machine.rules.repetition import drop_warning, find_repetition, warn
from toolloop.machine.rules.saying import queue_own, release
from toolloop.machine.rules.turns import proceed, spend
from toolloop.machine.values.calls import Call, DecisionRecord, Outcome, PolicyResult, Reject, Status, Wait, Why
from toolloop.machine.values.demands import Edit
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


# --- the judgement of its calls ---------------------------------------------------------------------------------------


def take_judgement(loop: Loop, event: Judged) -> Loop:
    """Take the results of the policies. A call without a result may run."""
    if event.stop:
        return stop_loop(loop, event.reason)
    is_running = isinstance(loop.phase, Running)
    if not is_running and read_action(loop) is not RUN:
        return conclude(loop, event.problems)
    if (found := detect_repetition(loop)) is not None:
        if is_stopped_by(loop, found):
            return end(loop, found)
        loop = warn(loop, found)
    if results := dict(event.results):
        refuse_strangers(loop.calls, results)
    asked, judged = len(loop.calls.having(Status.WAITING)), []
    for call in list_to_judge(loop.calls):
        if not event.only or call.id in event.only:
            loop, after = judge(loop, call, results.get(call.id))
            judged.append(after)
    loop = replace_calls(loop, judged)
    loop = halt_members(loop) if loop.calls.members else loop
    loop = loop if is_running else proceed(loop)
    if is_running or isinstance(loop.phase, Judging):  # a member of a toolset comes next
        return loop
    waits = len(loop.calls.having(Status.WAITING))
    # An edit or a grant can satisfy a policy that asks. Then no new call waits, and the other calls continue.
    if waits == 0 or (waits <= asked and (list_startable(loop) or loop.calls.having(Status.RUNNING))):
        return loop
    return loop._replace(phase=Waiting("decision_required", loop.round))


def detect_repetition(loop: Loop) -> LoopDetected | None:
    """Return the repetition by the newest round, which is not judged yet, if it must be reported."""
    wanted = loop.setup.loop_detection
    return find_repetition(wanted, loop.repetition, loop.calls) if wanted and read_action(loop) is RUN else None


def is_stopped_by(loop: Loop, found: LoopDetected | None) -> bool:
    """Return whether a repetition ends the loop."""
    wanted = loop.setup.loop_detection
    return found is not None and wanted is not None and wanted.action == "stop"


def refuse_strangers(calls: RoundCalls, names: Iterable[str]) -> None:
    """Refuse policy results for calls that do not need judgement.

    A call may wait already because its grant has just expired. Its result is accepted and ignored.

    Raises:
        UnknownCall: one of the names is not a call of the round that needs judgement.

    """
    known = {call.id for call in (*list_to_judge(calls), *calls.having(Status.WAITING))}
    if strangers := set(names) - known:
        raise UnknownCall(
            f"a policy result names {', '.join(sorted(strangers))}, which is not a call that needs judgement",
            call=min(strangers),
            known=tuple(call.id for call in calls),
        )


def judge(  # noqa: PLR0911 - one return for each result
    loop: Loop, call: Call, result: PolicyResult | None
) -> tuple[Loop, Call]:
    """Return the loop after the use of a grant, and the call after the result of its policy; None lets it run.

    A result that lets a call run drops no demand that stands, and meets none.
    """
    call, texts = call._replace(judged=True), loop.setup.texts
    match result:
        case Reject() if call.started:
            text = fill_text(texts, "uncertain", reason="it could not be run again")
            return loop, settle(call, make_error_result(text, Outcome.UNCERTAIN))
        case Reject():
            return loop, settle(call, make_error_result(result.text, result.outcome))
        case DecisionRecord(kind="deny" | "answer"):
            return loop, settle_by(call, evolve(result, by_policy=True), texts)
        case DecisionRecord() if not (call.demands or list_approvals_by_persons(call)):
            approved = replace_input(call, result.content)
            return loop, _clear_call(approved._replace(judged=True, decision=evolve(result, by_policy=True)))
        case Wait(why=Why.APPROVAL):
            return _apply_ask(loop, call, result)
        case Wait():  # it does not run here, so no approvals are counted
            call = call._replace(demands=(), approvals=())
            return loop, _begin_wait(loop, call, result, ())
    if call.demands and is_open(call):
        return loop, _begin_wait(
            loop, call, Wait(Why.APPROVAL, call.reason, preview=call.preview), list_approvals_by_persons(call)
        )
    return loop, _clear_call(call)


def _apply_ask(loop: Loop, call: Call, wait: Wait) -> tuple[Loop, Call]:
    """Apply an `Ask`: the newest demands stand, and the approvals of the same input count."""
    given = list_approvals_by_persons(call)
    call = call._replace(demands=renew_demands(wait.demands, call.demands, len(given)))
    if not any(count_missing(demands_of(call), given)):
        return loop, _clear_call(call)
    granted = None if wait.fresh or not loop.grants or _has_rerun(given) else satisfy(loop, call, given)
    if granted is not None:
        return granted[0], _clear_call(granted[1])
    return loop, _begin_wait(loop, call, wait, given)


def _clear_call(call: Call) -> Call:
    return call._replace(status=Status.CLEARED, edit=call.edit and Edit.JUDGED)


def _begin_wait(loop: Loop, call: Call, wait: Wait, given: tuple[DecisionRecord, ...]) -> Call:
    """Return a call that begins to wait. `given`: the approvals that count on.

    A second wait has no more time than the first, except once for an edit that was judged.
    """
    is_rerun = _has_rerun(given)
    expires_at = None if is_rerun else find_deadline(loop.setup, loop.now, wait.expires_in)
    if wait.why is Why.APPROVAL and not is_rerun and call.edit is not Edit.NEW:
        expires_at = take_lesser(call.expires_at, expires_at)
    waiting = call._replace(status=Status.WAITING, why=Why.UNCERTAIN if is_rerun else wait.why, decision=None)
    waiting = waiting._replace(approvals=given, edit=call.edit and Edit.JUDGED, expires_at=expires_at)
    return waiting._replace(reason=wait.reason, preview=wait.preview)


def _has_rerun(given: Sequence[DecisionRecord]) -> bool:
    return any(each.kind == "rerun" for each in given)
