"""What is to be done now, in the whole tree of a loop: derived from the state, each time anew."""

from __future__ import annotations

from attrs import field, frozen

from tests.oracle import limits
from tests.oracle.calls import startable, to_judge
from tests.oracle.effects import CancelRequest, Conclude, Effect, EndTurn, Judge, RunCall, SendRequest
from tests.oracle.repetition import detected, stops
from tests.oracle.states import Judging, Ready, Requesting, Running, State
from tests.oracle.stops import Fate
from tests.oracle.terminations import BudgetExceeded
from tests.oracle.tree import children, is_at_work, is_over
from tests.oracle.values import PROPOSED, RUNNING


@frozen
class _Room:
    """How many requests and tools the loops above allow; None is no limit."""

    requests: int | None = None
    tools: int | None = None


@frozen
class _Found:
    """What a loop is about.

    Attributes:
        busy: something was begun whose end will come.
        held: what could be done, a request or a tool, and a loop above forbids it.

    """

    effects: tuple[Effect, ...] = field(default=())
    busy: bool = False
    held: frozenset[str] = frozenset()


_FREE = _Room()
_REQUEST = frozenset({"request"})
_TOOL = frozenset({"tool"})
_NOTHING: frozenset[str] = frozenset()

# What is found again and again in a loop that is in no call. Every turn asks four times.
_IDLE = _Found()
_BUSY = _Found(busy=True)
_SEND = _Found((SendRequest(),))
_CANCEL = _Found((CancelRequest(),), busy=True)
_END = _Found((EndTurn(),))


def outstanding(state: State) -> tuple[Effect, ...]:
    """What is to be done now; nothing where the caller has the word, or all that can be done was begun."""
    return _look(state, (), _FREE).effects


def held_by(state: Running) -> BudgetExceeded | None:
    """The part of the budget of this very loop that forbids what is next in it, or inside of its calls."""
    room = _room_below(state, _FREE)
    blocked = room.tools == 0 and bool(startable(state.ledger.setup, state.round))
    held = _TOOL if blocked else _NOTHING
    held = held.union(*(_look(child, (), room).held for _, child in children(state.round)))
    tools = limits.BEFORE_TOOLS if held >= _TOOL else ()
    requests = limits.BEFORE_REQUESTS_BELOW if held >= _REQUEST else ()
    return limits.over_budget(state.ledger, (*tools, *requests))


def is_unfinished(state: Running) -> bool:
    """Whether something of the open round runs, in it or inside of its calls, or may start."""
    running = state.round.having(RUNNING)
    at_work = any(call.child is None or is_at_work(call.child) for call in running)
    return at_work or bool(startable(state.ledger.setup, state.round))


def _look(state: State, path: tuple[str, ...], room: _Room) -> _Found:
    # So written, a class that it is not costs a fifth of what it does by `isinstance`, or in a `match`.
    if type(state) is Running:
        return _run(state, path, room)
    if type(state) is Ready:
        return _request(state, path, room)
    if type(state) is Judging:
        return _Found((_judge(state, path),))
    if type(state) is Requesting:
        return _wait(state, path)
    return _IDLE


def _wait(state: Requesting, path: tuple[str, ...]) -> _Found:
    if not limits.out_of_time(state.ledger):
        return _BUSY
    return _Found((CancelRequest(path),), busy=True) if path else _CANCEL


def _request(state: Ready, path: tuple[str, ...], room: _Room) -> _Found:
    if limits.too_deep(state.ledger) or limits.before_request(state):
        return _end(path)
    if room.requests == 0:
        return _Found(held=_REQUEST)
    return _Found((SendRequest(path),)) if path else _SEND


def _end(path: tuple[str, ...]) -> _Found:
    return _Found((EndTurn(path),)) if path else _END


def _judge(state: Judging, path: tuple[str, ...]) -> Judge:
    ends = state.fate is not Fate.RUN or (stops(state.ledger) and detected(state) is not None)
    calls = () if ends else state.round.calls
    asked = [call.id for call in calls if to_judge(call)]
    stop_when = "stop_when" in state.ledger.setup.callables and all(call.status is PROPOSED for call in calls)
    return Judge(tuple(asked), stop_when, path)


def _run(state: Running, path: tuple[str, ...], room: _Room) -> _Found:
    setup, round_ = state.ledger.setup, state.round
    if limits.out_of_time(state.ledger):
        over = tuple(Conclude(call.id, path) for call, child in children(round_) if is_over(child))
        return _Found(over) if over else _end(path)
    running = [call for call in round_.calls if call.status is RUNNING]
    ready = startable(setup, round_)
    below = _room_below(state, room) if ready or running else room
    effects: list[Effect] = []
    busy, held = False, _NOTHING
    if ready:
        places = setup.max_parallel_tools
        free = below.tools if places is None else limits.lesser(below.tools, max(0, places - len(running)))
        effects += [RunCall(call.id, path) for call in ready[:free]]
        held = _TOOL if below.tools == 0 else _NOTHING
    for call in running:
        child = call.child
        if child is None:
            busy = True
        elif is_over(child):
            effects.append(Conclude(call.id, path))
        else:
            found = _look(child, (*path, call.id), below)
            effects += found.effects
            busy, held = busy or found.busy, held | found.held
    if effects:
        return _Found(tuple(effects), busy)
    if busy:
        return _BUSY
    if held and room is not _FREE and _run(state, path, _FREE).effects != (EndTurn(path),):
        return _Found(held=held)
    return _end(path)


def _room_below(state: Running, room: _Room) -> _Room:
    """How many requests and tools this loop and those above it allow the loops inside its calls."""
    if not limits.has_budget(state.ledger):
        return room
    requests, tools = limits.room_for_requests(state), limits.room_for_tools(state.ledger)
    return _Room(limits.lesser(room.requests, requests), limits.lesser(room.tools, tools))
