"""The rules of loops inside calls: what happens in one happens to the call, and to every loop above. See `rules`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import evolve

from tests.oracle import events as ev
from tests.oracle import limits
from tests.oracle.calls import replace_call, startable
from tests.oracle.chain import Chain
from tests.oracle.shared_steps import not_now
from tests.oracle.states import Judging, Ledger, Ready, Running, State
from tests.oracle.tree import children, round_of, settled_down, with_round
from tests.oracle.usage import IterationUsage
from tests.oracle.values import Call, Status

Take = Callable[[State, Any], State]

# What happens inside of a call. All else is said to the outermost loop, and reaches down from there.
BELOW = (
    ev.Opened,
    ev.Requested,
    ev.Replied,
    ev.RequestFailed,
    ev.RequestCancelled,
    ev.Judged,
    ev.Started,
    ev.Ended,
    ev.Spent,
    ev.Cancelled,
    ev.TurnEnded,
    ev.Compacted,
    ev.GrantRevoked,
    ev.Woken,
)
_ANY_TIME = (ev.Ended, ev.Spent, ev.GrantRevoked, ev.Woken)  # also where the loop above stands still


def within(state: State, event: ev.Event, take: Take) -> State:
    """An event of a loop inside a call: that loop takes it, and the loops above count what it used.

    Args:
        state: of the loop that has the call.
        event: with the path to the loop it is for.
        take: what a loop does with an event of its own.

    """
    if not isinstance(event, BELOW):
        raise not_now(state, event, "it is for the outermost loop, and reaches down from there")
    call_id, *rest = event.path
    if isinstance(event, ev.Opened) and not rest:
        return _open(state, event, take)
    found = next(((call, child) for call, child in children(round_of(state)) if call.id == call_id), None)
    if found is None or not _is_meant(state, event, found[0]):
        return _too_late(state, event)
    if isinstance(state, Running):
        _refuse_beyond_limits(state, event)
    elif not isinstance(event, _ANY_TIME):
        raise not_now(state, event, "the loop above does not run")
    call, child = found
    inner = evolve(event, path=tuple(rest))
    if isinstance(inner, ev.Ended):
        inner = evolve(inner, above=inner.above[1:])
    then = settled_down(take(child, inner))
    round_ = round_of(state)
    if then is child or round_ is None:
        return state
    state = evolve(state, ledger=_counted(state.ledger, call.id, child.ledger, then.ledger))
    return with_round(state, replace_call(round_, evolve(call, child=then)))


def _is_meant(state: State, event: ev.Event, call: Call) -> bool:
    """Whether it is this very run of the call that an end says it was in. Ids may come again."""
    if not isinstance(event, ev.Ended) or not event.above:
        return True
    round_ = round_of(state)
    return round_ is not None and event.above[0] == (round_.iteration, call.attempts)


def _too_late(state: State, event: ev.Event) -> State:
    """There is no such loop, or none any more. What has its place in the record is no mistake then."""
    match event:
        case ev.Ended() if event.attempt:
            return state
        case ev.Spent():
            return spend(state, event)
    raise not_now(state, event, f"there is no loop inside the call {'/'.join(event.path)!r}")


def _refuse_beyond_limits(state: Running, event: ev.Event) -> None:
    """What goes on inside a call is bound by the limits of the loops above it, too."""
    late = isinstance(event, ev.Requested | ev.Started | ev.Opened) and limits.out_of_time(state.ledger)
    if late or (isinstance(event, ev.Requested) and limits.room_for_requests(state) == 0):
        raise not_now(state, event, "a limit of a loop above forbids the request")
    if isinstance(event, ev.Started | ev.Opened) and limits.room_for_tools(state.ledger) == 0:
        raise not_now(state, event, "a limit of a loop above forbids another tool")


def _open(state: State, event: ev.Opened, take: Take) -> State:
    """A loop begins inside a call: it is the start of that call, and nothing that may not start is opened."""
    call_id = event.path[0]
    if isinstance(state, Judging):
        state = take(state, ev.Judged())  # a journal may leave out what lets everything run
    if not isinstance(state, Running) or call_id not in {
        call.id for call in startable(state.ledger.setup, state.round)
    }:
        raise not_now(state, event, f"{call_id!r} is no call that may start")
    call = next(call for call in state.round.calls if call.id == call_id)
    if event.setup.within != (*state.ledger.setup.within, (state.round.iteration, call_id, call.attempts + 1)):
        raise not_now(state, event, f"the loop that begins is not of the call {call_id!r}")
    child = Ready(Ledger(event.setup, Chain(event.messages), now=state.ledger.now))
    calls = tuple(_begun(call, child) if call.id == call_id else call for call in state.round.calls)
    ledger = evolve(state.ledger, ran=state.ledger.ran.append(call_id))
    return Running(ledger, evolve(state.round, calls=calls))


def _begun(call: Call, child: Ready) -> Call:
    return evolve(call, status=Status.RUNNING, attempts=call.attempts + 1, child=child)


def _counted(ledger: Ledger, call_id: str, before: Ledger, after: Ledger) -> Ledger:
    """The ledger with what the loop inside a call used and started."""
    if after.usage_log is not before.usage_log:
        for entry in after.usage_log[len(before.usage_log) :]:
            ledger = used(ledger, evolve(entry, path=(call_id, *entry.path)))
    if after.ran is not before.ran:
        started = [f"{call_id}/{name}" for name in after.ran[len(before.ran) :]]
        ledger = evolve(ledger, ran=ledger.ran.extend(started))
    return ledger


def spend(state: State, event: ev.Spent) -> State:
    """The tool of a call drove a loop of its own: what that used counts here, whatever became of the call."""
    entry = evolve(event.usage, path=(*event.path, event.call_id, *event.usage.path))
    return evolve(state, ledger=used(state.ledger, entry))


def used(ledger: Ledger, entry: IterationUsage) -> Ledger:
    """The ledger with what an answered request used."""
    return evolve(ledger, usage_log=ledger.usage_log.append(entry), total_usage=ledger.total_usage + entry.usage)
