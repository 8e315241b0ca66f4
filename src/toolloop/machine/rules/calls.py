"""The life of a call: how policies, decisions, ends and other drivers change it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from attrs import evolve

from toolloop.errors import AlreadyDecided, DecisionConflict, IllegalCommand, UnknownCall
from toolloop.machine.record.loop import Round
from toolloop.machine.values.calls import (
    Call,
    DecisionRecord,
    Outcome,
    PolicyResult,
    Reject,
    Result,
    Status,
    Wait,
    Why,
    same_json,
)
from toolloop.machine.values.jsontext import JSON, canonical, decode, encode
from toolloop.machine.values.setup import Setup, Texts
from toolloop.machine.values.texts import fill_text

LATEST = 253_402_300_799.0  # the latest time of a datetime, in the year 9999

# --- policies --------------------------------------------------------------------------------------------------------


def to_judge(call: Call) -> bool:
    """Return whether a policy must judge the call before it may start."""
    return not call.judged and (call.status is Status.PROPOSED or call.status is Status.CLEARED)


def refuse_strangers(round_: Round, names: Iterable[str]) -> None:
    """Refuse policy results for calls that do not need judgement.

    A call may wait already because its grant has just expired. Its result is accepted and ignored.

    Raises:
        UnknownCall: one of the names is not a call of the round that needs judgement.

    """
    known = {call.id for call in round_.calls if to_judge(call) or call.status is Status.WAITING}
    if strangers := set(names) - known:
        raise UnknownCall(
            f"a policy result names {', '.join(sorted(strangers))}, which is not a call that needs judgement",
            call=min(strangers),
            known=tuple(call.id for call in round_.calls),
        )


def judge(  # noqa: PLR0911 - one return for each result
    call: Call, result: PolicyResult | None, setup: Setup, now: float
) -> Call:
    """Return the call after the result of a policy; None lets it run."""
    if result is None:
        return call._replace(judged=True, status=Status.CLEARED)
    call, texts = call._replace(judged=True), setup.texts
    by_person = call.decision is not None and call.decision.by_person
    match result:
        case Wait(why=Why.APPROVAL) if by_person:  # a person's decision satisfies a policy that asks
            return call._replace(status=Status.CLEARED)
        case Wait():
            call = call._replace(status=Status.WAITING, why=result.why, reason=result.reason, decision=None)
            return call._replace(expires_at=deadline(setup, now, result.expires_in), preview=result.preview)
        case Reject() if call.started:
            text = fill_text(texts, "uncertain", reason="it could not be run again")
            return settle(call, error_result(text, Outcome.UNCERTAIN))
        case Reject():
            return settle(call, error_result(result.text, result.outcome))
        case DecisionRecord(kind="approve") if by_person:  # run the input that the person approved
            return call._replace(status=Status.CLEARED)
        case DecisionRecord(kind="approve"):
            decision = evolve(result, by_policy=True)
            return _edit(call, result.content)._replace(status=Status.CLEARED, decision=decision, judged=True)
        case _:
            return _settle_by(call, evolve(result, by_policy=True), texts)


def deadline(setup: Setup, now: float, expires_in: float | None = None) -> float | None:
    """Return the deadline of a call that starts to wait now; None means that it does not expire."""
    seconds = setup.decision_timeout if expires_in is None else expires_in
    return None if seconds is None else min(now + seconds, LATEST)


# --- decisions -------------------------------------------------------------------------------------------------------

# The decisions that each kind of waiting call takes. Only `rerun` runs a call a second time; an approval never does.
TAKES: dict[Why, tuple[str, ...]] = {
    Why.APPROVAL: ("approve", "deny", "answer"),
    Why.EXTERNAL: ("answer", "deny"),
    Why.UNCERTAIN: ("rerun", "answer", "deny"),
}
_BECAUSE = {
    Why.APPROVAL: "it waits for approval and never ran",
    Why.EXTERNAL: "toolloop does not run its tool; you supply the result",
    Why.UNCERTAIN: "it was started and its end is unknown, so an approval would run it a second time",
}


def digest_of(setup: Setup, iteration: int, call: Call) -> str:
    """Return the digest that binds a decision to a call as it was shown.

    It is the SHA-256 of the loop, the iteration, the path, the tool and the effective input. For a started call it
    includes the number of starts, so a decision on one run does not apply to the next. In a loop inside a call it
    includes the runs of the calls above, because ids may repeat.
    """
    places: JSON = [*map(list, setup.runs), iteration] if setup.within else iteration
    parts: list[JSON] = [setup.loop_id, places, [*setup.path, call.id], call.name, decode(call.effective_input)]
    if call.started:
        parts.append(call.attempts)
    return hashlib.sha256(canonical(parts).encode()).hexdigest()


def decide(setup: Setup, round_: Round, decisions: Iterable[tuple[str, DecisionRecord]]) -> Round:
    """Return the round after decisions of the caller.

    Raises:
        UnknownCall: the call is not in this round.
        AlreadyDecided: the call has its result, or has expired.
        DecisionConflict: the call has changed since it was shown, or another decision was made.
        IllegalCommand: the call does not wait, or does not take this kind of decision.

    """
    changed: dict[str, Call] = {}
    for call_id, decision in decisions:
        name = "/".join((*setup.path, call_id))
        call = changed.get(call_id) or round_.find(call_id)
        if call is None:
            known = tuple("/".join((*setup.path, each.id)) for each in round_.having(Status.WAITING))
            raise unknown_call(decision.kind, name, known)
        _check_digest(name, call, decision, setup, round_.iteration)
        if call.status is Status.WAITING:
            changed[call_id] = _decided(name, call, decision, setup.texts)
        else:
            _check_repeat(name, call, decision)
    return replace_calls(round_, changed.values())


def unknown_call(kind: str, name: str, known: tuple[str, ...]) -> UnknownCall:
    """Return the error for a decision on a call that is not in an open round. `known`: the waiting calls."""
    return UnknownCall(
        f"cannot {kind} the call {name!r}: it is not in the open round. Waiting calls: {', '.join(known) or 'none'}",
        call=name,
        known=known,
    )


def _check_digest(name: str, call: Call, decision: DecisionRecord, setup: Setup, iteration: int) -> None:
    """Refuse a decision that is bound to an earlier version of the call.

    The digest must be that of the call as it is now: its input, and how often it was started. So a denial of a call
    that waited for approval is refused once the call has run, even if the uncertain call was denied later.
    The digest of the existing decision is accepted too, because a caller who repeats a decision cannot know whether
    the call has changed. A waiting call has no decision.
    """
    taken = None if call.decision is None else call.decision.digest
    if decision.digest is None or decision.digest in (taken, digest_of(setup, iteration, call)):
        return
    raise DecisionConflict(
        f"cannot {decision.kind} the call {name!r}: it has changed since it was shown (the digests differ). Look at "
        "handle.pending, and decide the calls that are listed there",
        **_standing(name, call),
    )


def _decided(name: str, call: Call, decision: DecisionRecord, texts: Texts) -> Call:
    why = call.why or Why.APPROVAL
    if decision.kind not in TAKES[why]:
        raise IllegalCommand(
            f"cannot {decision.kind} the call {name!r}: {_BECAUSE[why]}. Allowed: {', '.join(TAKES[why])}",
            state=str(call.status),
            asked=decision.kind,
            allowed=TAKES[why],
        )
    match decision.kind:
        case "approve":
            return _edit(call, decision.content)._replace(status=Status.DECIDED, decision=decision)
        case "rerun":
            return call._replace(status=Status.DECIDED, decision=decision)
    return _settle_by(call, decision, texts)


def _check_repeat(name: str, call: Call, decision: DecisionRecord) -> None:
    """Refuse a decision on a call that does not wait, unless it repeats the existing decision."""
    if call.decision is not None and _says_same(call, call.decision, decision):
        return
    if call.status is Status.SETTLED:
        raise already_decided(name, call)
    if call.decision is not None:
        raise DecisionConflict(
            f"{_told(name, call)}; this {decision.kind} differs from that decision, which cannot be changed",
            **_standing(name, call),
        )
    raise IllegalCommand(
        f"cannot {decision.kind} the call {name!r}: it is {call.status}, and does not wait for a decision. "
        "Let the loop continue, or stop it",
        state=str(call.status),
        asked=decision.kind,
        allowed=(),
    )


def already_decided(name: str, call: Call) -> AlreadyDecided:
    """Return the error for a decision on a call that has its result."""
    is_late = call.result is not None and call.result.outcome is Outcome.EXPIRED and call.expires_at is not None
    if is_late and call.expires_at is not None:
        when = _moment(call.expires_at).isoformat(timespec="seconds")
        what = f"the call {name!r} expired at {when} without a decision, and does not run. Continue the loop"
    else:
        what = f"{_told(name, call)}; nothing is left to decide"
    return AlreadyDecided(what, **_standing(name, call))


def _told(name: str, call: Call) -> str:
    """Describe the decision on a call for an error: kind, person, time and outcome."""
    outcome = "" if call.result is None else f", and has its result ({call.result.outcome})"
    if (taken := call.decision) is None:
        return f"the call {name!r} did not need a decision{outcome}"
    by = "" if taken.by is None else f" by {taken.by}"
    when = _moment(taken.at).isoformat(timespec="seconds")
    return f"the call {name!r} was decided already ({taken.kind}{by} at {when}){outcome}"


def _standing(name: str, call: Call) -> dict[str, Any]:
    """Return the attributes of an error about the existing decision."""
    taken = call.decision
    if taken is None:
        return {"call": name, "decision": None, "by": None, "at": None}
    return {"call": name, "decision": taken.kind, "by": taken.by, "at": _moment(taken.at)}


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _says_same(call: Call, taken: DecisionRecord, decision: DecisionRecord) -> bool:
    """Return whether a decision is equal to the existing one of a call.

    An approval is also equal if it names the input that runs anyway.
    """
    named = call.input if decision.content is None else decision.content
    if decision.kind == taken.kind == "approve" and same_json(named, call.effective_input):
        return True
    return taken.same_as(decision)


def _edit(call: Call, content: str | None) -> Call:
    """Return the call with another input. The history keeps the model's input. The proposed input is not an edit."""
    if content is None or same_json(content, call.effective_input):
        return call
    edited = None if same_json(content, call.input) else content
    return call._replace(edited=edited, judged=False, preview=None)


def _settle_by(call: Call, decision: DecisionRecord, texts: Texts) -> Call:
    if decision.kind == "answer":
        result = Result(decision.content or encode(""), decision.is_error, Outcome.ANSWERED)
    elif call.started:
        result = error_result(fill_text(texts, "uncertain", reason=decision.reason), Outcome.UNCERTAIN)
    else:
        result = error_result(fill_text(texts, "denied", reason=decision.reason), Outcome.DENIED)
    return settle(call, result)._replace(decision=decision)


def cleared(round_: Round) -> Round:
    """Return the round in which the calls that the caller allowed may start."""
    decided = round_.having(Status.DECIDED)
    return replace_calls(round_, [call._replace(status=Status.CLEARED) for call in decided]) if decided else round_


# --- starts and ends -------------------------------------------------------------------------------------------------


def may_start(setup: Setup, round_: Round) -> bool:
    """Return whether calls may start now. With `barrier`, no call may start while a call waits."""
    return setup.execution != "barrier" or not round_.having(Status.WAITING)


def startable(setup: Setup, round_: Round) -> list[Call]:
    """Return the calls that may start now."""
    return round_.having(Status.CLEARED) if may_start(setup, round_) else []


def ends(call: Call, attempt: int, result: Result | None) -> bool:
    """Return whether the end of a run settles its call, even if the run was already marked as interrupted.

    After a `rerun`, and for a cancellation (`result` is None), only the newest run counts.
    """
    if call.status is Status.SETTLED or not 1 <= attempt <= call.attempts:
        return False
    if result is not None and (call.decision is None or call.decision.kind != "rerun"):
        return True
    return call.status is Status.RUNNING and attempt == call.attempts


def ended(call: Call, result: Result | None, setup: Setup) -> Call:
    """Return a call that ended. If it was cancelled (`result` is None) and may not be repeated, it is uncertain."""
    if result is not None:
        return settle(call, result)
    if setup.repeatable(call.name):
        return settle(call, error_result(fill_text(setup.texts, "cancelled"), Outcome.CANCELLED))
    return mark_interrupted(call, setup)


def settle(call: Call, result: Result) -> Call:
    """Return the call with its result. A loop inside it is over."""
    return call._replace(status=Status.SETTLED, result=result, has_loop=False)


def error_result(text: str, outcome: Outcome) -> Result:
    """Return an error result with a text."""
    return Result(encode(text), is_error=True, outcome=outcome)


def settle_open(round_: Round, texts: Texts) -> Round:
    """Return the round with each open call settled as not run, cancelled or uncertain."""
    return replace_calls(round_, [_settle_open(call, texts) for call in round_.calls])


def _settle_open(call: Call, texts: Texts) -> Call:
    if call.status is Status.SETTLED:
        return call
    if call.status is Status.RUNNING:
        return settle(call, error_result(fill_text(texts, "cancelled"), Outcome.CANCELLED))
    if call.started:
        return settle(call, error_result(fill_text(texts, "uncertain", reason="the loop stopped"), Outcome.UNCERTAIN))
    return settle(call, error_result(fill_text(texts, "not_run"), Outcome.NOT_RUN))


# --- other drivers and copies ----------------------------------------------------------------------------------------


def woken(call: Call, setup: Setup) -> Call:
    """Return a call after another driver took over: a running call is interrupted, another open one is judged again.

    A call that waited to be repeated is interrupted again, because its tool may no longer be repeatable.
    """
    is_asked_for = call.decision is not None and call.decision.kind == "rerun"
    is_repeated = call.status is Status.CLEARED and call.started and not is_asked_for
    if call.status is Status.RUNNING or is_repeated:
        return call if call.has_loop else mark_interrupted(call, setup)
    return call if call.status is Status.SETTLED else call._replace(judged=False)


def mark_interrupted(call: Call, setup: Setup) -> Call:
    """Return an interrupted call: it may run again if it is repeatable; else it is uncertain."""
    if setup.repeatable(call.name):
        return call._replace(status=Status.CLEARED, judged=False, has_loop=False)
    return _uncertain(call)


def _uncertain(call: Call) -> Call:
    """Return a started call that waits for a decision on its end. Only the caller can decide, so it never expires."""
    lost = call._replace(status=Status.WAITING, why=Why.UNCERTAIN, has_loop=False)
    return lost._replace(reason=None, decision=None, expires_at=None)


def ask_again(call: Call, setup: Setup, now: float) -> Call:
    """Return a call in a copy of its loop. A started call is uncertain there, and other open calls wait again.

    A loop inside a running call is copied with it.
    """
    if call.status is Status.SETTLED or (call.has_loop and call.status is Status.RUNNING):
        return call
    if call.started:
        return _uncertain(call)
    call = call._replace(status=Status.WAITING, why=call.why or Why.APPROVAL, decision=None, edited=None)
    return call._replace(expires_at=deadline(setup, now))


# --- rounds ----------------------------------------------------------------------------------------------------------


def replace_calls(round_: Round, changed: Iterable[Call]) -> Round:
    """Return the round in which these calls replace those with the same ids."""
    return Round(round_.iteration, round_.reply, round_.calls.replace(changed))


def is_settled(round_: Round) -> bool:
    """Return whether every call has its result."""
    return len(round_.having(Status.SETTLED)) == len(round_.calls)
