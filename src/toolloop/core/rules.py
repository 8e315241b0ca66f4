"""The rules of the table: each takes a state and an event that the state knows, and gives the state that follows.

A rule first validates what the event carries, then makes the new state. It raises, or it returns; it changes nothing.
"""

from __future__ import annotations

from typing import Any, TypeVar

from toolloop.core import events as ev
from toolloop.core import limits
from toolloop.core.chain import Chain
from toolloop.core.closing import close_round, end, finish, is_system, join, last_user_turn, settled_and_joined
from toolloop.core.errors import IllegalCommand, ProtocolError, UndecidedCalls, UnknownCall
from toolloop.core.evolving import evolve
from toolloop.core.policy import ask_again, decide, error_result, judge, lose, replace_call, settle, startable, to_judge
from toolloop.core.replies import assistant_message, settle_tail
from toolloop.core.setup import Setup
from toolloop.core.states import (
    Back,
    Deciding,
    Executed,
    Failed,
    Failure,
    Finished,
    Judging,
    Ledger,
    Open,
    Paused,
    Ready,
    Running,
    State,
    TooDeep,
)
from toolloop.core.stops import Fate, fate_of
from toolloop.core.terminations import LIMITS, NaturalEnd, Refused, StopCondition, Truncated
from toolloop.core.texts import say
from toolloop.core.usage import IterationUsage
from toolloop.core.values import Call, Outcome, Round, Status

S = TypeVar("S", bound=State)

# --- the model -------------------------------------------------------------------------------------------------------


def take_reply(state: Ready, event: ev.Replied) -> State:
    """A reply is in: its stop reason decides (the table is in `stops`)."""
    reply = event.reply
    ledger = _count(state, event)
    try:
        fate = fate_of(reply)
    except ProtocolError as error:
        return Failed(ledger, Failure("protocol", str(error), retryable=error.retryable), state.tail)
    container = reply.container or ledger.container  # a reply that goes on with a turn need not name it again
    ledger = evolve(ledger, pauses=ledger.pauses + 1 if fate is Fate.PAUSE else 0, container=container)
    match fate:
        case Fate.REFUSE:
            details = reply.stop_details or {}
            kept = join(ledger, settle_tail(state.tail))
            return finish(kept, Refused(details.get("category"), details.get("explanation")))
        case Fate.CUT:
            cut = assistant_message(reply.blocks, calls=False)
            kept = join(ledger, [*state.tail, *([cut] if cut else [])])
            return finish(kept, Truncated(str(reply.stop_reason)))
    text = assistant_message(reply.blocks, ends=fate is not Fate.PAUSE)
    round_ = Round(ledger.iterations, text, reply.calls(), state.tail)
    judging = Judging(ledger, round_, fate)
    if fate is Fate.RUN or "stop_when" in ledger.setup.callables:
        return judging
    return _conclude(judging)


def _count(state: Ready, event: ev.Replied) -> Ledger:
    ledger, reply = state.ledger, event.reply
    entry = IterationUsage(
        iteration=ledger.iterations + 1,
        model=reply.model,
        stop_reason=reply.stop_reason,
        request_id=reply.request_id,
        usage=reply.usage,
        seconds=event.seconds,
    )
    return evolve(
        ledger,
        response=reply.text,
        usage_log=ledger.usage_log.append(entry),
        total_usage=ledger.total_usage + reply.usage,
        iterations=ledger.iterations + 1,
        turn_iterations=ledger.turn_iterations + 1,
    )


def _conclude(state: Judging) -> State:
    """A reply after which nothing is to be run: the loop pauses, or ends."""
    ledger, round_ = state.ledger, state.round
    if state.fate is Fate.PAUSE:
        tail = (*round_.tail, *([round_.reply] if round_.reply else []))
        return Paused(ledger if tail else evolve(ledger, container=None), tail)
    # What a user said meanwhile is still to be answered: the loop goes on. A system message alone waits for a user's.
    unheard = any(not is_system(text) for text in ledger.held)
    ledger = settled_and_joined(ledger, round_)
    return Ready(ledger) if unheard else finish(ledger, NaturalEnd())


def give_up(state: Ready, event: ev.RequestCancelled) -> Ready:
    """A request was cancelled: as if it had not been made. What was injected meanwhile goes out with the next one."""
    return _ready(state.ledger, state.tail)


def fail(state: Ready, event: ev.RequestFailed) -> Failed:
    """The request failed: nothing was consumed."""
    return Failed(state.ledger, event.failure, state.tail)


def end_before_request(state: Ready, event: ev.TurnEnded) -> State:
    """A limit forbids the next request."""
    if limits.too_deep(state.ledger):
        return TooDeep(state.ledger)
    reached = limits.before_request(state)
    if reached is None:
        raise _not_now(state, event, "a request is outstanding, and no limit forbids it")
    return end(state, reached)


# --- policies, calls -------------------------------------------------------------------------------------------------


def take_judgement(state: Judging, event: ev.Judged) -> State:
    """The policies had their say; what they did not name may run."""
    if event.stop:
        return end(state, StopCondition(event.reason))
    if state.fate is not Fate.RUN:
        return _conclude(state)
    verdicts = dict(event.verdicts)
    if strangers := set(verdicts) - {call.id for call in state.round.calls if to_judge(call)}:
        raise UnknownCall(
            f"a verdict names {', '.join(sorted(strangers))}: no call that is to be judged",
            call=min(strangers),
            known=tuple(call.id for call in state.round.calls),
        )
    texts = state.ledger.setup.texts
    calls = tuple(judge(call, verdicts.get(call.id), texts) if to_judge(call) else call for call in state.round.calls)
    round_ = evolve(state.round, calls=calls)
    waits = round_.having(Status.WAITING)
    asks = len(waits) > len(state.round.having(Status.WAITING))  # an ask that a person's edit satisfies is none
    if waits and (asks or not startable(state.ledger.setup, round_)):
        return Deciding(state.ledger, round_)
    return Running(state.ledger, round_)


def start_unjudged(state: Judging, event: ev.Started) -> State:
    """A journal leaves out a judgement that lets everything run: the first start implies it."""
    judged = take_judgement(state, ev.Judged())
    if not isinstance(judged, Running):
        raise _not_now(state, event, "it is not yet decided what may run")
    return start_call(judged, event)


def start_call(state: Running, event: ev.Started) -> Running:
    """A call starts. Nothing that is denied, undecided, settled or started already can."""
    if event.call_id not in {call.id for call in startable(state.ledger.setup, state.round)}:
        raise _not_now(state, event, f"{event.call_id!r} is no call that may start")
    call = _call(state, event.call_id)
    return Running(
        evolve(state.ledger, ran=state.ledger.ran.append(call.id)),
        replace_call(state.round, evolve(call, status=Status.RUNNING, started=True)),
    )


def end_call(state: Running, event: ev.Ended) -> Running:
    """A call ends. The first end is its one result."""
    return evolve(state, round=replace_call(state.round, settle(_running(state, event, event.call_id), event.result)))


def cancel_call(state: Running, event: ev.Cancelled) -> Running:
    """A call was seen to be cancelled: settled if it may be repeated, else nobody knows what it did."""
    call = _running(state, event, event.call_id)
    setup = state.ledger.setup
    if setup.repeatable(call.name):
        call = settle(call, error_result(say(setup.texts, "cancelled"), Outcome.CANCELLED))
    else:
        call = lose(call, setup)
    return evolve(state, round=replace_call(state.round, call))


def end_round(state: Running, event: ev.TurnEnded) -> State:
    """Nothing more can run in this turn: the round closes, or the caller is asked, or a limit was met."""
    round_, setup = state.round, state.ledger.setup
    if round_.having(Status.RUNNING):
        raise _not_now(state, event, "calls are running")
    if startable(setup, round_):
        reached = limits.before_tool(state.ledger)
        if reached is None:
            raise _not_now(state, event, "calls may start")
        return end(state, reached)
    if all(call.status is Status.SETTLED for call in round_.calls):
        return close_round(state.ledger, round_)
    return Deciding(state.ledger, round_)


def wake(state: State, event: ev.Woken) -> State:
    """Another driver took over: what ran is lost to it, and policies judge once more what has not started."""
    setup = event.setup or state.ledger.setup
    state = evolve(state, ledger=evolve(state.ledger, setup=setup))
    match state:
        case Ready():
            return _ready(state.ledger, state.tail)  # nobody's request is under way here
        case Running():
            return _run(state.ledger, _wake_round(state.round, setup))
        case Judging() | Deciding():
            return evolve(state, round=_wake_round(state.round, setup))
        case Finished(back=Back(round=Round() as round_) as back):
            return evolve(state, back=evolve(back, round=_wake_round(round_, setup)))
    return state


def _wake_round(round_: Round, setup: Setup) -> Round:
    return evolve(round_, calls=tuple(_woken(call, setup) for call in round_.calls))


def _woken(call: Call, setup: Setup) -> Call:
    if call.status is Status.RUNNING:
        return lose(call, setup)
    return call if call.status is Status.SETTLED else evolve(call, judged=False)


# --- the caller ------------------------------------------------------------------------------------------------------


def decide_calls(state: Open, event: ev.Decided) -> State:
    """Decisions of the caller: all apply, or none does."""
    return evolve(state, round=decide(state.ledger.setup, state.round, event.rulings))


def run_decided(state: Deciding, event: ev.Event) -> State:
    """Go on with what is decided; an edited input is judged first."""
    round_ = state.round
    undecided = tuple(call.id for call in round_.having(Status.WAITING))
    if undecided and state.ledger.setup.execution == "barrier":
        raise UndecidedCalls(
            f"the loop cannot go on while calls wait for a decision: {', '.join(undecided)}. Approve, deny or answer "
            'each, or set execution="ready" to run the others meanwhile',
            calls=undecided,
        )
    calls = (evolve(call, status=Status.CLEARED) if call.status is Status.DECIDED else call for call in round_.calls)
    return _run(state.ledger, evolve(round_, calls=tuple(calls)))


def _run(ledger: Ledger, round_: Round) -> Judging | Running:
    """Run what is cleared; what was edited, or slept, since it was judged is judged first."""
    if any(to_judge(call) for call in round_.calls):
        return Judging(ledger, round_, Fate.RUN)
    return Running(ledger, round_)


def next_request(state: Executed | Paused, event: ev.Event) -> Ready:
    """Go on with the next request."""
    return _ready(state.ledger, state.tail)


def _ready(ledger: Ledger, tail: tuple[str, ...] = ()) -> Ready:
    """A request is next; what was held joins now if it can."""
    return Ready(ledger, tail) if tail or not ledger.held else Ready(join(ledger, ()))


def continue_unended(state: Running, event: ev.Continued) -> State:
    """A journal leaves out the end of a turn where the command to go on implies it."""
    match end_round(state, ev.TurnEnded()):
        case Executed() as ended:
            return next_request(ended, event)
        case Deciding() as asking:
            return run_decided(asking, event)
    raise _not_now(state, event, "a limit ended the turn")


def inject(state: Ready | Open | Executed | Paused, event: ev.Injected) -> State:
    """Add messages, and go on where a command is awaited. Where the API allows none, they are held."""
    match state:
        case Ready(tail=()) | Executed(tail=()) | Paused(tail=()) if not event.hold:
            return _ready(_hold(state.ledger, event))
        case Ready() | Judging() | Running():
            return evolve(state, ledger=_hold(state.ledger, event))
        case Deciding():
            return run_decided(evolve(state, ledger=_hold(state.ledger, event)), event)
        case _:
            return next_request(evolve(state, ledger=_hold(state.ledger, event)), event)


def _hold(ledger: Ledger, event: ev.Injected) -> Ledger:
    return evolve(ledger, held=(*ledger.held, *event.messages))


def stop(state: Ready | Open | Executed | Paused | Failed, event: ev.Stopped) -> Finished:
    """End the loop, wherever it stands."""
    return end(state, StopCondition(event.reason))


def edit_history(state: State, event: ev.HistoryEdited) -> State:
    """Another closed history. A limit's end goes on from it, not from what it replaced."""
    ledger = evolve(state.ledger, messages=Chain(event.messages))
    if isinstance(state, Finished) and state.back is not None:
        return evolve(state, ledger=ledger, back=Back(ledger.messages, ledger.held, (), None))
    return evolve(state, ledger=ledger)


def change_params(state: State, event: ev.ParamsChanged) -> State:
    """Other parameters from the next request on. A container that is named, or taken away, counts while code waits."""
    changed = _set_up(state, params=event.params)
    if "container" not in event.changed:
        return changed
    if isinstance(changed, Finished) and changed.back is not None:
        changed = evolve(changed, back=evolve(changed.back, container=None))
    return evolve(changed, ledger=evolve(changed.ledger, container=None))


def extend_limits(state: State, event: ev.Extended) -> State:
    """Other limits."""
    return _set_up(state, limits=event.limits)


def extend(state: Finished, event: ev.Extended) -> State:
    """Other limits; where a limit ended the loop, it goes on from where it stood."""
    state = _set_up(state, limits=event.limits)
    back = state.back
    if back is None or not isinstance(state.termination, LIMITS):
        return state
    ledger = evolve(state.ledger, messages=back.messages, held=back.held, container=back.container)
    return _ready(ledger, back.tail) if back.round is None else _run(ledger, back.round)


def follow_up(state: Finished, event: ev.FollowedUp) -> Ready:
    """A further user turn: iterations, pauses and active time count anew."""
    ledger = state.ledger
    kept = ledger.messages
    if event.replace_last:
        kept = Chain(kept[: last_user_turn(kept)])
    messages = kept.extend((*event.messages, *ledger.held))
    return Ready(evolve(ledger, messages=messages, held=(), turn_iterations=0, pauses=0, active=0.0))


def retry(state: Failed, event: ev.Retried) -> Ready:
    """Back to the point before the failed request."""
    return _ready(state.ledger, state.tail)


def fork(state: State, event: ev.Forked) -> State:
    """A loop of its own: what was started is uncertain in it, and every open call asks again."""
    forked = _set_up(state, loop_id=event.loop_id)
    match forked:
        case Judging() | Deciding() | Running() if forked.round.calls and not forked.round.having(Status.PROPOSED):
            return Deciding(forked.ledger, _ask_again(forked.round))
        case Finished(back=Back(round=Round() as round_) as back):
            return evolve(forked, back=evolve(back, round=_ask_again(round_)))
    return forked


def _ask_again(round_: Round) -> Round:
    return evolve(round_, calls=tuple(ask_again(call) for call in round_.calls))


# --- guards and small parts ------------------------------------------------------------------------------------------


def _set_up(state: S, **changes: Any) -> S:
    return evolve(state, ledger=evolve(state.ledger, setup=evolve(state.ledger.setup, **changes)))


def _call(state: Running, call_id: str) -> Call:
    return next(call for call in state.round.calls if call.id == call_id)


def _running(state: Running, event: ev.Event, call_id: str) -> Call:
    call = state.round.find(call_id)
    if call is None or call.status is not Status.RUNNING:
        raise _not_now(state, event, f"{call_id!r} is no call that runs")
    return call


def _not_now(state: State, event: ev.Event, why: str) -> IllegalCommand:
    name, asked = type(state).__name__, type(event).__name__
    return IllegalCommand(
        f"{asked} is not possible while the loop is {name}: {why}", state=name, asked=asked, allowed=()
    )
