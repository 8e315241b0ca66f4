"""Apply the decisions of persons: all of them, or none."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from toolloop.errors import AlreadyDecided, DecisionConflict, IllegalCommand, UnknownCall
from toolloop.machine.record.loop import Round
from toolloop.machine.rules.approving import (
    count_missing,
    demands_of,
    describe,
    drop_approvals,
    find_counted,
    is_counted,
    is_enough_alone,
    is_same_person,
    is_unjudged,
)
from toolloop.machine.rules.calls import digest_of, expire_call, is_expired, replace_input, settle_by
from toolloop.machine.values.calls import Call, DecisionRecord, Outcome, Status, Why, is_same_json
from toolloop.machine.values.demands import Edit
from toolloop.machine.values.names import to_name_key
from toolloop.machine.values.setup import Setup

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


def decide(setup: Setup, round_: Round, decisions: Iterable[tuple[str, DecisionRecord]]) -> list[Call]:
    """Return the calls that decisions of the caller change. Each has its own time, which counts only for its own call.

    Raises:
        UnknownCall: the call is not in this round.
        AlreadyDecided: the call has its result, or has expired.
        DecisionConflict: the call has changed since it was shown, another decision was made, or the decision must
            carry the digest of the call.
        IllegalCommand: the call does not wait, does not take this kind of decision, or the approval cannot count.

    """
    changed: dict[str, Call] = {}
    for call_id, decision in decisions:
        name = "/".join((*setup.path, call_id))
        call = changed.get(call_id) or round_.calls.find(call_id)
        if call is None:
            known = tuple("/".join((*setup.path, each.id)) for each in round_.calls.having(Status.WAITING))
            raise make_unknown_call_error(decision.kind, name, known)
        is_old = decision.digest not in (None, digest_of(setup, round_.iteration, call))
        if is_old and not _is_of_standing(call, decision):
            raise _explain_conflict(name, call, decision)
        if call.status is Status.WAITING:
            changed[call_id] = _decide_call(name, call, decision, setup)
            if is_old and changed[call_id] is not call:  # it would count for a demand that stands only since then
                raise _explain_conflict(name, call, decision)
        else:
            _check_repeat(name, call, decision)
    return list(changed.values())


def make_unknown_call_error(kind: str, name: str, known: tuple[str, ...]) -> UnknownCall:
    """Return the error for a decision on a call that is not in an open round. `known`: the waiting calls."""
    return UnknownCall(
        f"cannot {kind} the call {name!r}: it is not in the open round. Waiting calls: {', '.join(known) or 'none'}",
        call=name,
        known=known,
    )


def _is_of_standing(call: Call, decision: DecisionRecord) -> bool:
    """Return whether a decision is bound to the version of the call that an existing decision was made on.

    Any other digest must be that of the call as it is now: its input, its tool, and how often it was started. So a
    denial of a call that waited for approval is refused once the call has run, even if the uncertain call was denied
    later. But a caller who repeats a decision cannot know whether the call has changed. A waiting call has only
    approvals, and each person repeats their own.
    """
    taken = [] if call.decision is None else [call.decision.digest]
    taken += [each.digest for each in call.approvals if is_same_person(each, decision) and each.same_as(decision)]
    return decision.digest in taken


def _explain_conflict(name: str, call: Call, decision: DecisionRecord) -> DecisionConflict:
    who = call.approvals[0].by if call.approvals and call.edited is not None else None
    return DecisionConflict(
        f"cannot {decision.kind} the call {name!r}: "
        + ("it has changed since it was shown (the digests differ). " if who is None else f"{who} has edited it. ")
        + "Look at handle.pending, and decide the calls that are listed there",
        **_read_standing(name, call),
    )


def _decide_call(name: str, call: Call, decision: DecisionRecord, setup: Setup) -> Call:
    """Return a waiting call after a decision."""
    why = call.why or Why.APPROVAL
    if is_expired(call, decision.at):  # by the clock of the person, which says nothing about other calls
        raise make_settled_error(name, expire_call(call, setup.texts))
    if decision.kind not in TAKES[why]:
        raise IllegalCommand(
            f"cannot {decision.kind} the call {name!r}: {_BECAUSE[why]}. Allowed: {', '.join(TAKES[why])}",
            state=str(call.status),
            asked=decision.kind,
            allowed=TAKES[why],
        )
    if decision.kind in ("deny", "answer"):
        return settle_by(call, decision, setup.texts)
    return _approve(name, call, decision)


def _approve(name: str, call: Call, new: DecisionRecord) -> Call:
    """Return a waiting call after an approval. An edit drops the approvals of the old input."""
    was_edited = call.edited is not None and (bool(call.approvals) or new.via is not None)
    is_edit = new.content is not None and not is_same_json(new.content, call.effective_input)
    if is_edit:
        call = _edit(call, new)
    demands, given = demands_of(call), call.approvals
    before, after = count_missing(demands, given), count_missing(demands, (*given, new))
    if before == after:
        if any(is_same_person(new, each) for each in given):
            return call  # the approval of this person stands
        _refuse_uncountable(name, call, new)
    counted = any(find_counted(demands, given))
    if new.digest is None and (counted or was_edited or not is_enough_alone(demands, new)):
        raise DecisionConflict(
            f"cannot {new.kind} the call {name!r} without its digest, because {_explain_binding(call)}. Look at the "
            "call as it is now, and give the digest that it has there",
            **_read_standing(name, call),
        )
    if new.remember is not None and not is_enough_alone(demands, new):
        raise _reject(name, call, new, "a grant cannot be given with a call that one person alone may not approve")
    if any(after):
        return call._replace(approvals=(*given, new))
    is_judged = call.judged and (new.kind != "rerun" or new.via is None)  # those of old journals were not judged again
    return call._replace(status=Status.DECIDED, decision=new, judged=is_judged)


def _edit(call: Call, new: DecisionRecord) -> Call:
    edit = None if new.via is None else Edit.NEW if call.edit in (None, Edit.NEW) else Edit.AGAIN
    return drop_approvals(replace_input(call, new.content))._replace(edit=edit)


def _refuse_uncountable(name: str, call: Call, new: DecisionRecord) -> None:
    """Refuse an approval that no demand counts, unless the policy has yet to judge the input."""
    demands = demands_of(call)
    if any(is_counted(demand, new) for demand in demands):
        return
    if not to_name_key(new.by):
        raise _reject(name, call, new, "this decision has no name: give by=")
    if not is_unjudged(call):
        raise _reject(name, call, new, f"an approval of {new.by} does not count")


def _reject(name: str, call: Call, new: DecisionRecord, why: str) -> IllegalCommand:
    needed = describe(demands_of(call), call.approvals)
    text = f"cannot {new.kind} the call {name!r}: {why}. {call.name} needs {needed}"
    return IllegalCommand(text, state=str(call.status), asked=new.kind, allowed=TAKES[call.why or Why.APPROVAL])


def _explain_binding(call: Call) -> str:
    if call.edited is not None:
        return "its input was edited"
    return "approvals of it stand" if call.approvals else "one approval does not complete it"


def _check_repeat(name: str, call: Call, decision: DecisionRecord) -> None:
    """Refuse a decision on a call that does not wait, unless it repeats the existing decision."""
    if call.decision is not None and _is_same(call, call.decision, decision):
        return
    if call.status is Status.SETTLED:
        raise make_settled_error(name, call)
    if call.decision is not None:
        raise DecisionConflict(
            f"{_describe_decision(name, call)}; this {decision.kind} differs from that decision, which cannot be "
            "changed",
            **_read_standing(name, call),
        )
    raise IllegalCommand(
        f"cannot {decision.kind} the call {name!r}: it is {call.status}, and does not wait for a decision. "
        "Let the loop continue, or stop it",
        state=str(call.status),
        asked=decision.kind,
        allowed=(),
    )


def make_settled_error(name: str, call: Call) -> AlreadyDecided:
    """Return the error for a decision on a call that has its result."""
    is_late = call.result is not None and call.result.outcome is Outcome.EXPIRED and call.expires_at is not None
    if is_late and call.expires_at is not None:
        when = _to_datetime(call.expires_at).isoformat(timespec="seconds")
        what = f"the call {name!r} expired at {when} without a decision, and does not run. Continue the loop"
    else:
        what = f"{_describe_decision(name, call)}; nothing is left to decide"
    return AlreadyDecided(what, **_read_standing(name, call))


def make_already_decided_error(name: str, call: Call, kind: type[AlreadyDecided]) -> AlreadyDecided:
    """Return the error, of this class, for a decision on a call that was decided or has expired."""
    if call.decision is None:
        when = _to_datetime(call.expires_at or 0.0).isoformat(timespec="seconds")
        text = f"the call {name!r} expired at {when} without a decision, and did not run"
        return kind(text, call=name, decision=None, by=None, at=None)
    return kind(f"{_describe_decision(name, call)}; nothing is left to decide", **_read_standing(name, call))


def _describe_decision(name: str, call: Call) -> str:
    """Describe the decision on a call for an error: kind, person, time and outcome."""
    outcome = "" if call.result is None else f", and has its result ({call.result.outcome})"
    if (taken := call.decision) is None:
        return f"the call {name!r} did not need a decision{outcome}"
    by = "" if taken.by is None else f" by {taken.by}"
    when = _to_datetime(taken.at).isoformat(timespec="seconds")
    return f"the call {name!r} was decided already ({taken.kind}{by} at {when}){outcome}"


def _read_standing(name: str, call: Call) -> dict[str, Any]:
    """Return the attributes of an error about the existing decision, or about the last approval."""
    taken = call.decision or next(reversed(call.approvals), None)
    if taken is None:
        return {"call": name, "decision": None, "by": None, "at": None}
    return {"call": name, "decision": taken.kind, "by": taken.by, "at": _to_datetime(taken.at)}


def _to_datetime(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _is_same(call: Call, taken: DecisionRecord, decision: DecisionRecord) -> bool:
    """Return whether a decision is equal to the existing one of a call.

    An approval is also equal if it names the input that runs anyway.
    """
    named = call.input if decision.content is None else decision.content
    if decision.kind == taken.kind == "approve" and is_same_json(named, call.effective_input):
        return True
    return taken.same_as(decision)
