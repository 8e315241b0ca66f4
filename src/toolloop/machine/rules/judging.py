"""Apply the results of policies: a call may start, waits for what is demanded, or gets its result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import evolve

from toolloop.errors import UnknownCall
from toolloop.machine.record.loop import Loop
from toolloop.machine.record.round_calls import RoundCalls
from toolloop.machine.rules.approving import (
    count_missing,
    demands_of,
    is_open,
    list_approvals_by_persons,
    renew_demands,
)
from toolloop.machine.rules.calls import error_result, find_deadline, list_to_judge, replace_input, settle, settle_by
from toolloop.machine.rules.grants import satisfy
from toolloop.machine.rules.limits import take_lesser
from toolloop.machine.values.calls import Call, DecisionRecord, Outcome, PolicyResult, Reject, Status, Wait, Why
from toolloop.machine.values.demands import Edit
from toolloop.machine.values.texts import fill_text


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
            return loop, settle(call, error_result(text, Outcome.UNCERTAIN))
        case Reject():
            return loop, settle(call, error_result(result.text, result.outcome))
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
