"""The rules of the table: each takes a state and an event that the state knows, and gives the state that follows.

A rule first validates what the event carries, then makes the new state. It raises, or it returns; it changes nothing.
Here are those of calls and of what the caller says; `requests`, `waking` and `grants` hold the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import evolve

from tests.oracle import events as ev
from tests.oracle import limits
from tests.oracle.calls import (
    decide,
    error_result,
    is_settled,
    judge,
    lose,
    replace_call,
    settle,
    startable,
    to_judge,
    with_calls,
)
from tests.oracle.chain import Chain
from tests.oracle.effects import EndTurn
from tests.oracle.errors import UndecidedCalls, UnknownCall
from tests.oracle.grants import remember, satisfy
from tests.oracle.history_edits import asked_to_compact, replace_all
from tests.oracle.joining import close_round, end, last_user_turn
from tests.oracle.pending_effects import held_by, is_unfinished, outstanding
from tests.oracle.repetition import detected, forget, heed, stops
from tests.oracle.request_rules import conclude
from tests.oracle.shared_steps import hold, not_now, ready, run, set_up
from tests.oracle.states import (
    Deciding,
    Executed,
    Failed,
    Finished,
    Judging,
    Ledger,
    Open,
    Paused,
    Proposed,
    Ready,
    Running,
    State,
)
from tests.oracle.stops import Fate
from tests.oracle.terminations import LIMITS, StopCondition
from tests.oracle.texts import say
from tests.oracle.thinking import cut_off, same_beginning, unbind
from tests.oracle.tree import children, each_child, is_over, resting, round_of, waiting, with_children, with_round
from tests.oracle.values import RUNNING, SETTLED, WAITING, Call, Outcome, Round, Ruling, Status, Verdict, Wait

# --- policies, calls -------------------------------------------------------------------------------------------------


def take_judgement(state: Judging, event: ev.Judged) -> State:
    """The policies had their say; what they did not name may run."""
    if event.stop:
        return _stopped(state, event.reason)
    if state.fate is not Fate.RUN:
        return conclude(state)
    if (circle := detected(state)) is not None:
        if stops(state.ledger):
            return end(state, circle)
        state = evolve(state, ledger=heed(state.ledger, circle))
    verdicts = dict(event.verdicts)
    if verdicts:
        _refuse_strangers(state, verdicts)
    ledger, calls = state.ledger, []
    for call in state.round.calls:
        judged = call
        if to_judge(call):
            ledger, judged = _judged(ledger, call, verdicts.get(call.id))
        calls.append(judged)
    round_ = with_calls(state.round, calls)
    waits = [call for call in calls if call.status is WAITING]
    if not waits:
        return Running(ledger, round_)
    asks = len(waits) > len(state.round.having(Status.WAITING))  # an ask that an edit or a grant satisfies is none
    goes_on = startable(ledger.setup, round_) or round_.having(Status.RUNNING)  # loops inside of calls do
    # Where the round was adopted while a loop inside of a call had a request under way, nobody waits for that any more.
    return Deciding(ledger, resting(round_)) if asks or not goes_on else Running(ledger, round_)


def _refuse_strangers(state: Judging, verdicts: Iterable[str]) -> None:
    # A call that waits by now, because its grant was over in this very moment, needs no verdict.
    known = {call.id for call in state.round.calls if to_judge(call) or call.status is Status.WAITING}
    if strangers := set(verdicts) - known:
        raise UnknownCall(
            f"a verdict names {', '.join(sorted(strangers))}: no call that is to be judged",
            call=min(strangers),
            known=tuple(call.id for call in state.round.calls),
        )


def _judged(ledger: Ledger, call: Call, verdict: Verdict | None) -> tuple[Ledger, Call]:
    """The call after its verdict, and the ledger after the use of a grant."""
    granted = satisfy(ledger, call, verdict) if ledger.grants and isinstance(verdict, Wait) else None
    return granted or (ledger, judge(call, verdict, ledger.setup, ledger.now))


def start_unjudged(state: Judging, event: ev.Started) -> State:
    """A journal leaves out a judgement that lets everything run: the first start implies it."""
    judged = take_judgement(state, ev.Judged())
    if not isinstance(judged, Running):
        raise not_now(state, event, "it is not yet decided what may run")
    return start_call(judged, event)


def start_call(state: Running, event: ev.Started) -> Running:
    """A call starts. Nothing that is denied, undecided, settled or started already can."""
    call = state.round.find(event.call_id)
    if call is None or call.id not in [each.id for each in startable(state.ledger.setup, state.round)]:
        raise not_now(state, event, f"{event.call_id!r} is no call that may start")
    ledger = evolve(state.ledger, ran=state.ledger.ran.append(call.id))
    return Running(ledger, replace_call(state.round, evolve(call, status=RUNNING, attempts=call.attempts + 1)))


def end_call(state: State, event: ev.Ended) -> State:
    """A call ends. The first end is its one result; one that says of which run it is may come too late, and is none.

    What ran when a limit ended the loop has its end in the round with which the loop may go on.
    """
    round_ = round_of(state) or _NO_ROUND
    call = round_.find(event.call_id)
    if event.iteration == event.attempt == 0:
        call = _running(state, event, round_, event.call_id)
        if _goes_on(call):
            raise not_now(state, event, f"the loop inside {event.call_id!r} is not over")
    elif call is None or event.iteration != round_.iteration or _goes_on(call) or not _counts(call, event.attempt):
        return state
    return with_round(state, replace_call(round_, settle(call, event.result)))


_NO_ROUND = Round(0, None)


def _goes_on(call: Call) -> bool:
    """Whether the loop inside of a call is not over."""
    return call.child is not None and not is_over(call.child)


def _counts(call: Call, attempt: int) -> bool:
    """Whether the end of a run is the result of its call: also of one that nobody was thought to see end.

    Who said `rerun` has given up what ran before; from then on only the new run counts.
    """
    if call.status is SETTLED or not 1 <= attempt <= call.attempts:
        return False
    if call.ruling is None or call.ruling.kind != "rerun":
        return True
    return call.status is RUNNING and attempt == call.attempts


def cancel_call(state: Running, event: ev.Cancelled) -> Running:
    """A call was seen to be cancelled: settled if it may be repeated, else nobody knows what it did."""
    call = _running(state, event, state.round, event.call_id)
    setup = state.ledger.setup
    if setup.repeatable(call.name):
        call = settle(call, error_result(say(setup.texts, "cancelled"), Outcome.CANCELLED))
    else:
        call = lose(call, setup)
    return evolve(state, round=replace_call(state.round, call))


def end_round(state: Running, event: ev.TurnEnded) -> State:
    """Nothing more can run in this turn: the round closes, or the caller is asked, or a limit was met."""
    round_, ledger = state.round, state.ledger
    if is_settled(round_):
        return Proposed(ledger, round_) if ledger.setup.shows_replies else close_round(ledger, round_)
    if outstanding(state) != (EndTurn(),):
        raise not_now(state, event, "something may be done yet, or is under way")
    if (late := limits.out_of_time(ledger)) and is_unfinished(state):
        return end(state, late)
    if spent := held_by(state):
        return end(state, spent)
    failed = next(((call, child) for call, child in children(round_) if isinstance(child, Failed)), None)
    if failed is None or waiting(state):  # who is to be asked is asked first; to go on is to try again, too
        return Deciding(ledger, round_)
    call, child = failed
    return Failed(ledger, evolve(child.failure, path=(call.id, *child.failure.path)), (), round_)


# --- the caller ------------------------------------------------------------------------------------------------------


def decide_calls(state: Open, event: ev.Decided) -> State:
    """Decisions of the caller: all apply, or none does. What is to be remembered stands from now on."""
    now = state.ledger.now  # a decision is not older than what it decides, whatever the clock says
    return _decided(state, [(name, evolve(ruling, at=now)) for name, ruling in event.rulings])


def _decided(state: Open, rulings: Sequence[tuple[str, Ruling]]) -> Open:
    """The loop after decisions on its calls, and on those of loops inside of them: these are named by their path."""
    inside = {call.id: child for call, child in children(state.round)}
    own: list[tuple[str, Ruling]] = []
    below: dict[str, list[tuple[str, Ruling]]] = {}
    for name, ruling in rulings:
        # An id may have a slash in it, if a provider of the caller's own makes such: it is looked at as a whole first.
        above = None if state.round.find(name) else next((each for each in inside if name.startswith(f"{each}/")), None)
        if above is not None:
            below.setdefault(above, []).append((name.removeprefix(f"{above}/"), ruling))
        elif ("/" in name or inside) and state.round.find(name) is None:
            raise _nowhere(state, name, ruling)
        else:
            own.append((name, ruling))
    round_ = decide(state.ledger.setup, state.round, own)
    ledger = remember(state.ledger, state.round, round_)
    for call_id, theirs in below.items():
        child = inside[call_id]
        if not isinstance(child, Judging | Deciding | Running):
            raise _nowhere(state, f"{call_id}/{theirs[0][0]}", theirs[0][1])
        inside[call_id] = _decided(child, theirs)
    return evolve(state, ledger=ledger, round=with_children(round_, inside))


def _nowhere(state: Open, name: str, ruling: Ruling) -> UnknownCall:
    above = state.ledger.setup.path
    known = tuple("/".join((*above, *path, call.id)) for path, call in waiting(state))
    name = "/".join((*above, name))
    return UnknownCall(
        f"{ruling.kind} names the call {name!r}, and there is no such call in an open round; "
        f"the calls that wait are: {', '.join(known) or 'none'}",
        call=name,
        known=known,
    )


def let_time_pass(state: State, event: ev.Ticked) -> State:
    """What expires at this time has done so already, as before any other event."""
    return state


def run_decided(state: Proposed | Deciding, event: ev.Event) -> State:
    """Go on with what is decided; an edited input is judged first."""
    undecided = tuple("/".join((*path, call.id)) for path, call in waiting(state))
    if undecided and state.ledger.setup.execution == "barrier":
        raise UndecidedCalls(
            f"the loop cannot go on while calls wait for a decision: {', '.join(undecided)}. Approve, deny or answer "
            'each, or set execution="ready" to run the others meanwhile',
            calls=undecided,
        )
    round_ = each_child(state.round, _gone_on)
    calls = (evolve(call, status=Status.CLEARED) if call.status is Status.DECIDED else call for call in round_.calls)
    return run(state.ledger, evolve(round_, calls=tuple(calls)))


def _gone_on(child: State) -> State:
    """A loop inside a call, when the caller says go on: it does, unless its own calls wait and hold it up."""
    if isinstance(child, Failed):
        return _tried_again(child)
    if not isinstance(child, Deciding) or (child.ledger.setup.execution == "barrier" and waiting(child)):
        return child
    return run_decided(child, ev.Continued())


def next_request(state: Executed | Paused, event: ev.Event) -> Ready:
    """Go on with the next request."""
    return ready(state.ledger, state.tail)


def inject(state: Ready | Open | Executed | Paused, event: ev.Injected) -> State:
    """Add messages, and go on where a command is awaited. Where the API allows none, they are held."""
    match state:
        case Ready(tail=()) | Executed(tail=()) | Paused(tail=()):
            return ready(hold(state.ledger, event))
        case Ready() | Proposed() | Judging() | Running():
            return evolve(state, ledger=hold(state.ledger, event))
        case Deciding():
            return run_decided(evolve(state, ledger=hold(state.ledger, event)), event)
        case _:
            return next_request(evolve(state, ledger=hold(state.ledger, event)), event)


def stop(state: Ready | Open | Executed | Paused | Failed, event: ev.Stopped) -> Finished:
    """End the loop, wherever it stands."""
    return _stopped(state, event.reason)


def _stopped(state: Ready | Open | Executed | Paused | Failed, reason: str | None) -> Finished:
    """The end of a loop that somebody stopped; what the server compacted until then is not lost."""
    return end(replace_all(state) if asked_to_compact(state) else state, StopCondition(reason))


def change_params(state: State, event: ev.ParamsChanged) -> State:
    """Other parameters from the next request on. A container that is named, or taken away, counts while code waits."""
    changed = set_up(state, params=event.params)
    if not same_beginning(state.ledger.setup, changed.ledger.setup, state.ledger.unbound):
        changed = unbind(changed)
    if "container" not in event.changed:
        return changed
    if isinstance(changed, Finished) and changed.back is not None:
        changed = evolve(changed, back=evolve(changed.back, container=None))
    return evolve(changed, ledger=evolve(changed.ledger, container=None))


def extend_limits(state: State, event: ev.Extended) -> State:
    """Other limits."""
    return set_up(state, limits=event.limits)


def extend(state: Finished, event: ev.Extended) -> State:
    """Other limits; where a limit ended the loop, it goes on from where it stood."""
    state = set_up(state, limits=event.limits)
    back = state.back
    if back is None or not isinstance(state.termination, LIMITS):
        return state
    ledger = evolve(state.ledger, messages=back.messages, held=back.held, container=back.container)
    return ready(ledger, back.tail) if back.round is None else run(ledger, back.round)


def follow_up(state: Finished, event: ev.FollowedUp) -> Ready:
    """A further user turn: iterations, pauses and active time count anew."""
    ledger = forget(state.ledger)
    kept = ledger.messages
    if event.replace_last:
        kept = Chain(kept[: last_user_turn(kept)])
    messages = kept.extend((*event.messages, *ledger.held))
    unbound = cut_off(ledger.unbound, len(kept))
    if event.replace_last:
        ledger = evolve(ledger, compacted=())
    return Ready(evolve(ledger, messages=messages, held=(), turn_iterations=0, pauses=0, active=0.0, unbound=unbound))


def retry(state: Failed, event: ev.Retried) -> Ready | Judging | Running:
    """Back to the point before the failed request: also if that was of a loop inside a call."""
    if state.round is not None:
        return run(state.ledger, each_child(state.round, _tried_again))
    return ready(state.ledger, state.tail)


def _tried_again(child: State) -> State:
    return retry(child, ev.Retried()) if isinstance(child, Failed) and not is_over(child) else child


# --- guards and small parts ------------------------------------------------------------------------------------------


def _running(state: State, event: ev.Event, round_: Round, call_id: str) -> Call:
    call = round_.find(call_id)
    if call is None or call.status is not RUNNING:
        raise not_now(state, event, f"{call_id!r} is no call that runs")
    return call
