"""The life of a call: how policies, decisions, ends and other drivers change it."""

from __future__ import annotations

import hashlib

from toolloop.machine.record.loop import Loop, Round, find_round_calls, replace_calls
from toolloop.machine.record.round_calls import RoundCalls
from toolloop.machine.rules.approving import drop_approvals, list_approvals
from toolloop.machine.rules.limits import take_lesser
from toolloop.machine.values.calls import (
    Call,
    DecisionRecord,
    Outcome,
    Result,
    Status,
    Why,
    is_same_json,
)
from toolloop.machine.values.jsontext import JSON, decode, encode, to_canonical
from toolloop.machine.values.setup import Setup, Texts
from toolloop.machine.values.texts import fill_text

LATEST = 253_402_300_799.0  # the latest time of a datetime, in the year 9999

# --- what is asked ---------------------------------------------------------------------------------------------------


def list_to_judge(calls: RoundCalls) -> list[Call]:
    """Return the calls that policies must judge now."""
    open_ = (call for call in calls if call.status is Status.PROPOSED or call.status is Status.CLEARED)
    found, held = [call for call in open_ if not call.judged], find_held(calls)
    return [call for call in found if call.id not in held] if held else found


def find_held(calls: RoundCalls) -> frozenset[str]:
    """Return the ids of the members of toolsets that wait for the result of an earlier member."""
    open_, held = set[str | None](), set[str]()
    for call in (each for name in calls.members if (each := calls.find(name)) is not None):
        if call.toolset in open_:
            held.add(call.id)
        elif call.status is not Status.SETTLED:
            open_.add(call.toolset)
    return frozenset(held)


def halt_members(loop: Loop) -> Loop:
    """Return the loop in which no member of a toolset runs after one with an error: the model planned a sequence.

    The text is that of the API, which names the toolset `computer` only (source: anthropic-sdk 2.14).
    """
    calls, failed, halted = find_round_calls(loop), set[str | None](), []
    for call in (each for name in calls.members if (each := calls.find(name)) is not None):
        if call.result is not None:
            failed |= {call.toolset} if call.result.is_error else set()
        elif call.toolset in failed and not call.started:
            kind = "computer " if call.toolset == "computer" else ""
            text = fill_text(loop.setup.texts, "member_not_run", kind=kind)
            halted.append(settle(call, make_error_result(text, Outcome.NOT_RUN)))
    return replace_calls(loop, halted)


def find_deadline(setup: Setup, now: float, expires_in: float | None = None) -> float | None:
    """Return the deadline of a call that starts to wait now; None means that it does not expire."""
    seconds = setup.decision_timeout if expires_in is None else expires_in
    return None if seconds is None else min(now + seconds, LATEST)


# --- decisions -------------------------------------------------------------------------------------------------------


def digest_of(setup: Setup, iteration: int, call: Call) -> str:
    """Return the digest that binds a decision to a call as it was shown.

    It is the SHA-256 of the loop, the iteration, the path, the tool and the effective input. For a started call it
    includes the number of starts, so a decision on one run does not apply to the next. After changes of its tool it
    includes their number, so a decision on the call of the old tool does not apply either. In a loop inside a call it
    includes the runs of the calls above, because ids may repeat.
    """
    places: JSON = [*map(list, setup.runs), iteration] if setup.within else iteration
    parts: list[JSON] = [setup.loop_id, places, [*setup.path, call.id], call.name, decode(call.effective_input)]
    if call.started or call.redefined:
        parts.append(call.attempts)
    if call.redefined:
        parts.append(call.redefined)
    return hashlib.sha256(to_canonical(parts).encode()).hexdigest()


def replace_input(call: Call, content: str | None) -> Call:
    """Return the call with another input. The history keeps the model's input. The proposed input is not an edit."""
    if content is None or is_same_json(content, call.effective_input):
        return call
    edited = None if is_same_json(content, call.input) else content
    return call._replace(edited=edited, judged=False, preview=None)


def settle_by(call: Call, decision: DecisionRecord, texts: Texts) -> Call:
    """Return the call with the result that a denial or an answer gives it."""
    if decision.kind == "answer":
        result = Result(decision.content or encode(""), decision.is_error, Outcome.ANSWERED)
    elif call.started:
        result = make_error_result(fill_text(texts, "uncertain", reason=decision.reason), Outcome.UNCERTAIN)
    else:
        result = make_error_result(fill_text(texts, "denied", reason=decision.reason), Outcome.DENIED)
    return settle(call, result)._replace(decision=decision)


def clear(loop: Loop) -> Loop:
    """Return the loop in which the calls that the caller allowed may start."""
    return replace_calls(loop, [call._replace(status=Status.CLEARED) for call in loop.calls.having(Status.DECIDED)])


# --- starts and ends -------------------------------------------------------------------------------------------------


def is_barrier_open(loop: Loop) -> bool:
    """Return whether calls of the open round may start now. With `barrier`, no call may start while one waits."""
    return loop.setup.execution != "barrier" or not loop.calls.having(Status.WAITING)


def list_startable(loop: Loop) -> list[Call]:
    """Return the calls that may start now: a cleared call has what it demands, and its start is refused if not."""
    cleared = loop.calls.having(Status.CLEARED) if is_barrier_open(loop) else []
    held = find_held(loop.calls) if cleared else ()
    return [call for call in cleared if call.id not in held] if held else cleared


def may_end(call: Call, attempt: int, result: Result | None) -> bool:
    """Return whether the end of a run settles its call, even if the run was already marked as interrupted.

    After a `rerun`, and for a cancellation (`result` is None), only the newest run counts.
    """
    if call.status is Status.SETTLED or not 1 <= attempt <= call.attempts:
        return False
    if result is not None and (call.decision is None or call.decision.kind != "rerun"):
        return True
    return call.status is Status.RUNNING and attempt == call.attempts


def end_run(call: Call, result: Result | None, setup: Setup) -> Call:
    """Return a call that ended. If it was cancelled (`result` is None) and may not be repeated, it is uncertain."""
    if result is not None:
        return settle(call, result)
    if setup.repeatable(call.name):
        return settle(call, make_error_result(fill_text(setup.texts, "cancelled"), Outcome.CANCELLED))
    return mark_interrupted(call, setup)


def settle(call: Call, result: Result) -> Call:
    """Return the call with its result. A loop inside it is over."""
    return call._replace(status=Status.SETTLED, result=result, has_loop=False)


def make_error_result(text: str, outcome: Outcome) -> Result:
    """Return an error result with a text."""
    return Result(encode(text), is_error=True, outcome=outcome)


def settle_open(round_: Round, texts: Texts) -> Round:
    """Return the round with each open call settled as not run, cancelled or uncertain."""
    return round_.replace([_settle_open(call, texts) for call in round_.calls])


def _settle_open(call: Call, texts: Texts) -> Call:
    if call.status is Status.SETTLED:
        return call
    if call.status is Status.RUNNING:
        return settle(call, make_error_result(fill_text(texts, "cancelled"), Outcome.CANCELLED))
    if call.started:
        return settle(
            call, make_error_result(fill_text(texts, "uncertain", reason="the loop stopped"), Outcome.UNCERTAIN)
        )
    return settle(call, make_error_result(fill_text(texts, "not_run"), Outcome.NOT_RUN))


# --- other drivers and copies ----------------------------------------------------------------------------------------


def interrupt(call: Call, setup: Setup) -> Call:
    """Return a call after another driver took over: a running call is interrupted, another open one is judged again.

    A call that waited to be repeated is interrupted again, because its tool may no longer be repeatable.
    """
    if call.status is Status.RUNNING or is_repeated(call):
        return call if call.has_loop else mark_interrupted(call, setup)
    return call if call.status is Status.SETTLED else call._replace(judged=False)


def is_repeated(call: Call) -> bool:
    """Return whether the machine is about to repeat the start of a call by itself."""
    is_asked_for = call.decision is not None and call.decision.kind == "rerun"
    return call.status is Status.CLEARED and call.started and not is_asked_for


def ask_for_again(call: Call, setup: Setup, now: float, *, rebinds: bool) -> Call:
    """Return a call whose tool changed. Unless it runs, its approvals no longer count, and it waits for them.

    It has no more time than its first wait has left. A call that was started, and would be repeated by the machine, is
    the same run and keeps them. If a person has to decide about a second run, it is uncertain. With `rebinds`, each
    open call has another digest.
    """
    if call.status is Status.SETTLED:
        return call
    if rebinds:
        call = call._replace(redefined=call.redefined + 1)
    if call.status is Status.RUNNING or is_repeated(call):
        return call
    if call.started and (call.why is Why.UNCERTAIN or not setup.repeatable(call.name)):
        return _mark_uncertain(call)
    if not (call.demands or list_approvals(call)):
        return call
    until = (
        call.expires_at if call.status is Status.WAITING else take_lesser(call.expires_at, find_deadline(setup, now))
    )
    return drop_approvals(call)._replace(status=Status.WAITING, why=Why.APPROVAL, expires_at=until)


def mark_interrupted(call: Call, setup: Setup) -> Call:
    """Return an interrupted call: it may run again if it is repeatable; else it is uncertain."""
    if setup.repeatable(call.name):
        return call._replace(status=Status.CLEARED, judged=False, has_loop=False)
    return _mark_uncertain(call)


def _mark_uncertain(call: Call) -> Call:
    """Return a started call that waits for a decision on its end. Only the caller can decide, so it never expires."""
    lost = drop_approvals(call)._replace(status=Status.WAITING, why=Why.UNCERTAIN, has_loop=False)
    return lost._replace(reason=None, expires_at=None)


def ask_again(call: Call, setup: Setup, now: float) -> Call:
    """Return a call in a copy of its loop. A started call is uncertain there, and other open calls wait again.

    Their approvals no longer count. A loop inside a running call is copied with it.
    """
    if call.status is Status.SETTLED or (call.has_loop and call.status is Status.RUNNING):
        return call
    if call.started:
        return _mark_uncertain(call)
    is_judged = call.judged and call.edited is None  # the demands of an edit are not those of the model's input
    call = drop_approvals(call)._replace(status=Status.WAITING, why=call.why or Why.APPROVAL, judged=is_judged)
    return call._replace(edited=None, edit=None, expires_at=find_deadline(setup, now))


def lose(call: Call, attempts: int) -> Call:
    """Return a call that was started, as an event says that the journal has lost: its end is unknown."""
    if call.started:
        return call
    return _mark_uncertain(call)._replace(attempts=max(1, attempts), judged=True, result=None)


def is_expired(call: Call, now: float) -> bool:
    """Return whether a waiting call has reached its deadline. A decision at the deadline is too late."""
    return call.expires_at is not None and call.expires_at <= now and call.status is Status.WAITING


def expire_call(call: Call, texts: Texts) -> Call:
    """Return a call that waited too long for a decision."""
    if call.started:  # it ran once, was interrupted, and waits for the decision whether to run again
        text = fill_text(texts, "uncertain", reason="no decision on a rerun arrived in time")
    else:
        text = fill_text(texts, "expired")
    return settle(call, make_error_result(text, Outcome.EXPIRED))
