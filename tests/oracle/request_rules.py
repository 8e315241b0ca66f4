"""The rules of a model request: that it goes out, and what comes of it. See `rules`."""

from __future__ import annotations

from attrs import evolve

from tests.oracle import events as ev
from tests.oracle import limits
from tests.oracle.errors import ProtocolError
from tests.oracle.history_edits import asked_to_compact, replace_all
from tests.oracle.joining import end, finish, is_system, join, settled_and_joined
from tests.oracle.repetition import unwarned
from tests.oracle.replies import assistant_message, settle_tail
from tests.oracle.shared_steps import hold, not_now, ready
from tests.oracle.states import (
    Failed,
    Failure,
    Finished,
    Judging,
    Ledger,
    Paused,
    Proposed,
    Ready,
    Requesting,
    State,
    TooDeep,
)
from tests.oracle.stops import CUT, PAUSE, REFUSE, RUN, fate_of
from tests.oracle.terminations import NaturalEnd, Refused, StopCondition, Truncated
from tests.oracle.thinking import within_reach
from tests.oracle.values import Round


def send(state: Ready, event: ev.Requested) -> Requesting:
    """A request goes out, unless a limit forbids it."""
    if limits.too_deep(state.ledger) or limits.before_request(state):
        raise not_now(state, event, "a limit forbids the request")
    return Requesting(within_reach(state.ledger, len(state.tail)), state.tail, summary=event.summary)


def end_before_request(state: Ready, event: ev.TurnEnded) -> Finished | TooDeep:
    """A limit forbids the next request."""
    if limits.too_deep(state.ledger):
        return TooDeep(state.ledger)
    reached = limits.before_request(state)
    if reached is None:
        raise not_now(state, event, "a request is outstanding, and no limit forbids it")
    return end(state, reached)


def take_reply(state: Requesting, event: ev.Replied) -> State:
    """A reply is in: its stop reason decides (the table is in `stops`). A stop that was said meanwhile comes after."""
    if state.summary:
        raise not_now(state, event, "the request that is under way is for a summary")
    then = _take(state, event)
    if state.stopped and not isinstance(then, Finished):
        return end(then, StopCondition(state.reason))
    return then


def _take(state: Requesting, event: ev.Replied) -> Proposed | Judging | Paused | Ready | Finished | Failed:
    reply = event.reply
    try:
        fate = fate_of(reply)
    except ProtocolError as error:
        failure = Failure("protocol", str(error), retryable=error.retryable)
        return Failed(_counted(state, event, state.ledger.pauses, state.ledger.container), failure, state.tail)
    container = reply.container or state.ledger.container  # a reply that goes on with a turn need not name it again
    ledger = _counted(state, event, state.ledger.pauses + 1 if fate is PAUSE else 0, container)
    if fate is REFUSE:
        details = reply.stop_details or {}
        kept = join(ledger, settle_tail(state.tail))
        return finish(kept, Refused(details.get("category"), details.get("explanation")))
    if fate is CUT:
        cut = assistant_message(reply.blocks, calls=False)
        kept = join(ledger, [*state.tail, *([cut] if cut else [])])
        return finish(kept, Truncated(str(reply.stop_reason)))
    text = assistant_message(reply.blocks, ends=fate is not PAUSE)
    round_ = Round(ledger.iterations, text, reply.calls(), state.tail)
    if fate is RUN and ledger.setup.shows_replies:
        return Proposed(ledger, round_)
    judging = Judging(ledger, round_, fate)
    if fate is RUN or "stop_when" in ledger.setup.callables:
        return judging
    return conclude(judging)


def _counted(state: Requesting, event: ev.Replied, pauses: int, container: str | None) -> Ledger:
    ledger, reply = state.ledger, event.reply
    entry = reply.entry(ledger.iterations + 1, event.took or event.seconds)
    return evolve(
        ledger,
        pauses=pauses,
        container=container,
        response=reply.text,
        usage_log=ledger.usage_log.append(entry),
        total_usage=ledger.total_usage + reply.usage,
        iterations=ledger.iterations + 1,
        turn_iterations=ledger.turn_iterations + 1,
    )


def conclude(state: Judging) -> Paused | Ready | Finished:
    """A reply after which nothing is to be run: the loop pauses, or ends."""
    ledger, round_ = state.ledger, state.round
    if asked_to_compact(state):
        return replace_all(state)
    if state.fate is PAUSE:
        tail = (*round_.tail, *([round_.reply] if round_.reply else []))
        return Paused(ledger if tail else evolve(ledger, container=None), tail)
    ledger = unwarned(ledger)
    # What a user said meanwhile is still to be answered: the loop goes on. A system message alone waits for a user's.
    unheard = any(not is_system(text) for text in ledger.held)
    ledger = settled_and_joined(ledger, round_)
    return Ready(ledger) if unheard else finish(ledger, NaturalEnd())


def fail(state: Requesting, event: ev.RequestFailed) -> Failed | Finished:
    """The request failed: nothing was consumed. Who said stop meanwhile has no use for the failure."""
    if state.summary:
        raise not_now(state, event, "the request that is under way is for a summary")
    if state.stopped:
        return end(state, StopCondition(state.reason))
    return Failed(state.ledger, event.failure, state.tail)


def give_up(state: Requesting, event: ev.Event) -> Ready | Finished:  # noqa: ARG001 - as every rule
    """Nobody waits for the reply: as if the request had not been made, but for what was said meanwhile."""
    if state.stopped:
        return end(state, StopCondition(state.reason))
    return ready(state.ledger, state.tail)


def hold_back(state: Requesting, event: ev.Injected) -> Requesting:
    """What is injected while a request is under way comes after its reply."""
    return evolve(state, ledger=hold(state.ledger, event))


def stop_after(state: Requesting, event: ev.Stopped) -> Requesting:
    """The loop ends once the request is over. The first word counts."""
    return state if state.stopped else evolve(state, stopped=True, reason=event.reason)
