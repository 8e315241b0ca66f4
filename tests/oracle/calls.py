"""Who may run: what verdicts and decisions do to a call. Pure; the callables themselves are asked by the driver."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime

from attrs import evolve

from tests.oracle.errors import DecisionConflict, IllegalCommand, UnknownCall
from tests.oracle.jsontext import JSON, canonical, decode, encode
from tests.oracle.setup import Setup
from tests.oracle.texts import Texts, say
from tests.oracle.values import (
    CLEARED,
    PROPOSED,
    SETTLED,
    WAITING,
    Call,
    Outcome,
    Reject,
    Result,
    Round,
    Ruling,
    Status,
    Verdict,
    Wait,
    Why,
    same_json,
)

LATEST = 253_402_300_799.0  # the last moment that a date can name: in the year 9999

# What each kind of waiting call takes. Approving is never running a second time: that is `rerun`, said by name.
_TAKES = {
    Why.APPROVAL: ("approve", "deny", "answer"),
    Why.EXTERNAL: ("answer", "deny"),
    Why.UNCERTAIN: ("rerun", "answer", "deny"),
}
_BECAUSE = {
    Why.APPROVAL: "it waits for approval and never ran",
    Why.EXTERNAL: "its tool is not ours to run: the result comes from you",
    Why.UNCERTAIN: "it was started and nobody saw it end: approving would run it a second time",
}


def digest_of(setup: Setup, iteration: int, call: Call) -> str:
    """What binds a decision to a call as it was shown: SHA-256 over loop, iteration, path, name and effective input.

    Of a call that was started, over how often that was, too: a word about one run is none about the next. Of one in a
    loop inside a call, over which runs of which calls those above are.
    """
    places: JSON = [*map(list, setup.runs), iteration] if setup.within else iteration
    parts: list[JSON] = [setup.loop_id, places, [*setup.path, call.id], call.name, decode(call.effective_input)]
    if call.started:
        parts.append(call.attempts)
    return hashlib.sha256(canonical(parts).encode()).hexdigest()


def error_result(text: str, outcome: Outcome) -> Result:
    """An error result that says one thing."""
    return Result(encode(text), is_error=True, outcome=outcome)


def judge(  # noqa: PLR0911 - one return for each verdict
    call: Call, verdict: Verdict | None, setup: Setup, now: float
) -> Call:
    """The call after a policy's verdict; None lets it run."""
    if verdict is None:
        return evolve(call, judged=True, status=CLEARED)
    call, texts = evolve(call, judged=True), setup.texts
    by_person = call.ruling is not None and call.ruling.by_person
    match verdict:
        case Wait(why=Why.APPROVAL) if by_person:  # a person's decision satisfies the ask, a policy's does not
            return evolve(call, status=Status.CLEARED)
        case Wait():
            call = evolve(call, status=Status.WAITING, why=verdict.why, reason=verdict.reason, ruling=None)
            return evolve(call, expires_at=deadline(setup, now, verdict.expires_in))
        case Reject() if call.started:
            return settle(
                call, error_result(say(texts, "uncertain", reason="it could not be run again"), Outcome.UNCERTAIN)
            )
        case Reject():
            return settle(call, error_result(verdict.text, verdict.outcome))
        case Ruling(kind="approve") if by_person:  # what a person decided to run is what runs
            return evolve(call, status=Status.CLEARED)
        case Ruling(kind="approve"):
            ruling = evolve(verdict, by_policy=True)
            return evolve(_edit(call, verdict.content), status=Status.CLEARED, ruling=ruling, judged=True)
        case _:
            return _settle_by(call, evolve(verdict, by_policy=True), texts)


def deadline(setup: Setup, now: float, expires_in: float | None = None) -> float | None:
    """Until when a call waits that starts to wait now; None is for ever."""
    seconds = setup.decision_timeout if expires_in is None else expires_in
    return None if seconds is None else min(now + seconds, LATEST)


def decide(setup: Setup, round_: Round, rulings: Iterable[tuple[str, Ruling]]) -> Round:
    """The round after decisions of the caller.

    Raises:
        UnknownCall: no such call in this round, or it has its result, or it expired.
        DecisionConflict: the call is another than the one shown, or was decided otherwise.
        IllegalCommand: the call does not wait, or does not take this kind of decision.

    """
    for call_id, ruling in rulings:
        call = round_.find(call_id)
        if call is None:
            known = tuple(_name(setup, other.id) for other in round_.having(Status.WAITING))
            raise UnknownCall(
                f"{ruling.kind} names the call {_name(setup, call_id)!r}, which is not of the open round; "
                f"the calls that wait are: {', '.join(known) or 'none'}",
                call=_name(setup, call_id),
                known=known,
            )
        if (decided := _decided(setup, round_, call, ruling)) is not call:
            round_ = replace_call(round_, decided)
    return round_


def _name(setup: Setup, call_id: str) -> str:
    """How a caller names a call: by its id, or inside of a call by its path."""
    return "/".join((*setup.path, call_id))


def _decided(setup: Setup, round_: Round, call: Call, ruling: Ruling) -> Call:
    name = _name(setup, call.id)
    if call.status is not Status.WAITING:
        _check_repeat(name, call, ruling)
        return call
    if ruling.digest is not None and ruling.digest != digest_of(setup, round_.iteration, call):
        raise DecisionConflict(
            f"{ruling.kind} of the call {name!r} was made for another call than it is now (the digests differ); "
            "look at handle.pending and decide what is there",
            call=name,
        )
    why = call.why or Why.APPROVAL
    if ruling.kind not in _TAKES[why]:
        raise IllegalCommand(
            f"{ruling.kind} of the call {name!r} is not possible: {_BECAUSE[why]}. It takes: {', '.join(_TAKES[why])}",
            state=str(call.status),
            asked=ruling.kind,
            allowed=_TAKES[why],
        )
    match ruling.kind:
        case "approve":
            return evolve(_edit(call, ruling.content), status=Status.DECIDED, ruling=ruling)
        case "rerun":
            return evolve(call, status=Status.DECIDED, ruling=ruling)
        case _:
            return _settle_by(call, ruling, setup.texts)


def _check_repeat(name: str, call: Call, ruling: Ruling) -> None:
    """A decision for a call that does not wait is allowed only as a repetition of the one it had."""
    if call.ruling is not None:
        if call.ruling.same_as(_named(ruling, call)):
            return
        raise DecisionConflict(
            f"the call {name!r} was decided already ({call.ruling.kind}); {ruling.kind} says something else, "
            "and a decision cannot be taken back",
            call=name,
        )
    if call.result is not None and call.result.outcome is Outcome.EXPIRED and call.expires_at is not None:
        when = datetime.fromtimestamp(call.expires_at, UTC).isoformat(timespec="seconds")
        raise UnknownCall(
            f"the call {name!r} expired at {when}: nobody decided on it in time, and {ruling.kind} comes too late. "
            "It does not run; go on with the loop",
            call=name,
            known=(),
        )
    if call.status is Status.SETTLED:
        raise UnknownCall(f"the call {name!r} has its result; nothing is left to decide", call=name, known=())
    raise IllegalCommand(
        f"{ruling.kind} of the call {name!r} is not possible: it is {call.status}, and does not wait for you. "
        "Go on with next_turn(), or stop the loop",
        state=str(call.status),
        asked=ruling.kind,
        allowed=(),
    )


def _named(ruling: Ruling, call: Call) -> Ruling:
    """An approval that names the input which runs anyhow says what the decision of the call says."""
    if ruling.kind == "approve" and call.ruling is not None:
        named = call.input if ruling.content is None else ruling.content
        return evolve(ruling, content=call.ruling.content) if same_json(named, call.effective_input) else ruling
    return ruling


def _edit(call: Call, content: str | None) -> Call:
    """The call with another input. History keeps the model's own words; what it proposed is no edit."""
    if content is None or same_json(content, call.effective_input):
        return call
    return evolve(call, edited=None if same_json(content, call.input) else content, judged=False)


def _settle_by(call: Call, ruling: Ruling, texts: Texts) -> Call:
    if ruling.kind == "answer":
        result = Result(ruling.content or encode(""), ruling.is_error, Outcome.ANSWERED)
    elif call.started:
        result = error_result(say(texts, "uncertain", reason=ruling.reason), Outcome.UNCERTAIN)
    else:
        result = error_result(say(texts, "denied", reason=ruling.reason), Outcome.DENIED)
    return evolve(settle(call, result), ruling=ruling)


def settle(call: Call, result: Result) -> Call:
    """The call with its one result. A loop inside of it is over then."""
    return evolve(call, status=SETTLED, result=result, child=None)


def replace_call(round_: Round, call: Call) -> Round:
    """The round with another state of one of its calls."""
    return with_calls(round_, [call if call.id == other.id else other for other in round_.calls])


def with_calls(round_: Round, calls: Iterable[Call]) -> Round:
    """The round with other calls, or others of their states."""
    return evolve(round_, calls=tuple(calls))


def is_settled(round_: Round) -> bool:
    """Whether every call has its result."""
    for call in round_.calls:  # noqa: SIM110 - `all` costs three times as much
        if call.status is not SETTLED:
            return False
    return True


def to_judge(call: Call) -> bool:
    """Whether a policy is to judge the call before it may start."""
    return not call.judged and (call.status is PROPOSED or call.status is CLEARED)


def startable(setup: Setup, round_: Round) -> list[Call]:
    """The calls that may start now. Under `barrier` nothing starts while a call waits."""
    if setup.execution == "barrier":
        for call in round_.calls:
            if call.status is WAITING:
                return []
    return [call for call in round_.calls if call.status is CLEARED]


def settle_open(round_: Round, texts: Texts) -> Round:
    """The round with every open call settled, truly: not run, cancelled, or uncertain."""
    return evolve(round_, calls=tuple(_settle_open(call, texts) for call in round_.calls))


def _settle_open(call: Call, texts: Texts) -> Call:
    if call.status is Status.SETTLED:
        return call
    if call.status is Status.RUNNING:
        return settle(call, error_result(say(texts, "cancelled"), Outcome.CANCELLED))
    if call.started:
        return settle(call, error_result(say(texts, "uncertain", reason="the loop stopped"), Outcome.UNCERTAIN))
    return settle(call, error_result(say(texts, "not_run"), Outcome.NOT_RUN))


def lose(call: Call, setup: Setup) -> Call:
    """A call that was running, and whose end nobody will see: it may run again, or waits for the caller."""
    if setup.repeatable(call.name):
        return evolve(call, status=Status.CLEARED, judged=False, child=None)
    return _uncertain(call)


def _uncertain(call: Call) -> Call:
    """A started call that waits for the caller to say how it ended. It does so for ever: nobody else could know."""
    lost = evolve(call, status=Status.WAITING, why=Why.UNCERTAIN, child=None)
    return evolve(lost, reason=None, ruling=None, expires_at=None)


def ask_again(call: Call, setup: Setup, now: float) -> Call:
    """An open call in a copy of its loop: a started one is uncertain there, every other asks again."""
    if call.status is Status.SETTLED:
        return call
    if call.started:
        return _uncertain(call)
    call = evolve(call, status=Status.WAITING, why=call.why or Why.APPROVAL, ruling=None, edited=None)
    return evolve(call, expires_at=deadline(setup, now))
