"""A tree of loops: events by the paths of their loops; time, usage, budgets and decisions over all of them.

Law
    `step(state, event)` is the only way a state changes. It raises, and nothing has changed; or it returns the state
    that follows. `outstanding(state)` is derived anew each time, so a loop that another process takes over needs no
    word about what it was doing.

Theory
    The loops of a tree are one flat map; the path of call ids that leads to a loop is its key. A loop is in the map as
    long as the call that it runs inside is running. The rules of one loop (`machine`) never see a path. Here is what
    passes between loops:

    - time passes in each; it counts for those at work;
    - what a loop uses and starts is counted in every loop above it, so a budget of one covers what is below it;
    - while a loop stands still, so do the loops inside its calls; what ends late, or is taken back, is recorded there
      all the same;
    - a loop inside a call continues by itself. It stands still where its calls wait for the caller, or where its
      request failed. Once nothing else can be done, the loop above does, too, and its caller is asked;
    - the caller speaks to the outermost loop. Decisions name calls by path; "continue" reaches all that stand still.
"""

from __future__ import annotations

from collections.abc import Iterable

from attrs import evolve, field, frozen

from toolloop.machine import events as ev
from toolloop.machine import limits
from toolloop.machine.calls import ask_again, startable, with_calls
from toolloop.machine.chain import Chain
from toolloop.machine.effects import Conclude, Effect, EndTurn, RunCall, SendRequest
from toolloop.machine.errors import IllegalCommand, UnknownCall
from toolloop.machine.expiry import advance_time
from toolloop.machine.impossible_events import not_possible, undecided_calls
from toolloop.machine.joining import end
from toolloop.machine.loop import Failed, Judging, Loop, Ready, Requesting, Round, Running, Waiting, round_of
from toolloop.machine.machine import outstanding as effects_of
from toolloop.machine.machine import proceed, spend, take, wake, with_round
from toolloop.machine.queries import children, is_at_work, is_over, open_round, runs_calls, waiting
from toolloop.machine.state import Path, State
from toolloop.machine.usage import IterationUsage
from toolloop.machine.values import Call, DecisionRecord, Result, Status

# What happens in a loop inside a call. Everything else is said to the outermost loop, and reaches down from there.
_BELOW = (
    ev.Opened,
    ev.Requested,
    ev.Replied,
    ev.RequestFailed,
    ev.Judged,
    ev.Started,
    ev.Ended,
    ev.TurnEnded,
    ev.HistoryEdited,
    ev.GrantRevoked,
    ev.Woken,
)
_ANY_TIME = (ev.Ended, ev.GrantRevoked, ev.Woken)  # also while a loop above stands still


# --- the law ---------------------------------------------------------------------------------------------------------


def begin(first: ev.Opened | ev.Adopted) -> State:
    """Return the first state of a tree: that of a new loop, or the one that was taken over."""
    if isinstance(first, ev.Adopted):
        return first.state
    return State({(): Loop(first.setup, Chain(first.messages), now=first.at)})


def step(state: State, event: ev.Event) -> State:
    """Return the state after an event.

    Raises:
        CallerError: the event is not possible here; the state is as before.

    """
    if len(state.loops) == 1 and not event.path:  # no loop inside a call: nothing passes between loops
        return State({(): take(advance_time(state.root, event.at, event.seconds), event)})
    state = _advance_time(state, event.at, event.seconds)
    if not event.path:
        return _take(state, event)
    if not isinstance(event, _BELOW) or (isinstance(event, ev.HistoryEdited) and event.strategy is None):
        raise not_possible(state.root, event, "it is for the outermost loop, and reaches down from there")
    if isinstance(event, ev.Opened):
        return _open(state, event)
    reached = _reached(state, event)
    if reached != event.path and isinstance(event, ev.Ended) and event.attempt:
        return _end_too_late(state, reached, event)
    if reached != event.path:
        raise not_possible(state.root, event, f"there is no loop inside the call {'/'.join(event.path)!r}")
    _check_above(state, event.path, event)
    return _take(state, event)


def fold(events: Iterable[ev.Event]) -> State:
    """Return the state after a whole journal."""
    journal = iter(events)
    first = next(journal, None)
    if not isinstance(first, ev.Opened | ev.Adopted) or first.path:
        where = "" if first is None or not first.path else " inside a call"
        raise IllegalCommand(
            f"a journal starts with Opened or Adopted, and this one with {type(first).__name__}{where}",
            state="none",
            asked=type(first).__name__,
            allowed=("Opened", "Adopted"),
        )
    state = begin(first)
    for event in journal:
        state = step(state, event)
    return state


# --- events and their loops ------------------------------------------------------------------------------------------


def _advance_time(state: State, at: float, seconds: float) -> State:
    """Let time pass in the outermost loop and in those inside calls of open rounds; it counts for those at work."""
    loops = dict(state.loops)
    now = max(at, state.root.now)

    def advance(path: Path, seconds: float) -> None:
        loop = loops[path]
        for below, child in children(state, path, open_round(loop)):
            advance(below, seconds if is_at_work(child) else 0.0)
        loops[path] = advance_time(loop, now, seconds)

    advance((), seconds)
    return State(loops)


def _reached(state: State, event: ev.Event) -> Path:
    """Return how far the path of an event leads. Ids may repeat, so an end may name the runs that it was in."""
    runs = event.above if isinstance(event, ev.Ended) else ()
    for depth in range(len(event.path)):
        above, below = event.path[:depth], event.path[: depth + 1]
        if below not in state.loops:
            return above
        if depth < len(runs) and runs[depth] != _run_of(state.loops[above], below[-1]):
            return above
    return event.path


def _run_of(loop: Loop, call_id: str) -> tuple[int, int]:
    """Return which run of which call a call is in: its iteration, and how many times it was started."""
    round_ = round_of(loop)
    call = round_.find(call_id) if round_ else None
    return (round_.iteration, call.attempts) if round_ and call else (0, 0)


def _end_too_late(state: State, path: Path, event: ev.Ended) -> State:
    """The end of a run that nobody waits for any more changes nothing; what it spent counts in the loop at `path`."""
    below = (*event.path[len(path) :], event.call_id)
    return _changed(state, path, _counted(state.loops[path], below, event.spent))


def _check_above(state: State, path: Path, event: ev.Event) -> None:
    """Refuse what the loops above do not allow: they stand still, or their limits forbid it."""
    starts = isinstance(event, ev.Started | ev.Opened)
    for above in (path[:depth] for depth in range(len(path))):
        loop = state.loops[above]
        if not isinstance(loop.phase, Running):
            if not isinstance(event, _ANY_TIME):
                raise not_possible(loop, event, "the loop above does not run")
        elif (
            (limits.out_of_time(loop) and (starts or isinstance(event, ev.Requested)))
            or (isinstance(event, ev.Requested) and _room_for_requests(state, above) == 0)
            or (starts and limits.room_for_tools(loop) == 0)
        ):
            raise not_possible(loop, event, "a limit of a loop above forbids it")


def _take(state: State, event: ev.Event) -> State:
    """Let the loop at the path of an event take it, with what that means for the loops inside its calls."""
    path = event.path
    loop = state.loops[path]
    match event:
        case ev.Ended(result=Result(), call_id=call_id) if _continues(state, (*path, call_id)):
            if event.iteration == event.attempt == 0:
                raise not_possible(loop, event, f"the loop inside {call_id!r} is not over")
            return _end_too_late(state, path, event)
        case ev.Decided():
            return _decide(state, path, event.decisions, event)
        case ev.Continued() if isinstance(loop.phase, Waiting | Failed):
            return _continue(state, event)
        case ev.HistoryTaken():
            return _take_history(state, event)
        case ev.Woken():
            state = _changed(state, path, take(loop, event))
            woken = {each: wake(inner, ev.Woken()) for each, inner in _inside(state, path)}
            return State({**state.loops, **woken})
    ends_turn = isinstance(event, ev.TurnEnded) and children(state, path, open_round(loop))
    return _changed(state, path, _end_turn(state, path, event) if ends_turn else take(loop, event))


def _continues(state: State, path: Path) -> bool:
    """Return whether there is a loop at a path, and it is not over."""
    loop = state.at(path)
    return loop is not None and not is_over(loop)


def _inside(state: State, path: Path) -> list[tuple[Path, Loop]]:
    """Return all loops inside the calls of a loop."""
    return [(each, loop) for each, loop in state.loops.items() if len(each) > len(path) and each[: len(path)] == path]


def _changed(state: State, path: Path, after: Loop) -> State:
    """Return the state with a loop that has changed: what it used counts above it, and what ended below it is gone."""
    before, loops = state.loops[path], dict(state.loops)
    if path and isinstance(after.phase, Waiting) and after.phase.reason != "decision_required":
        after = evolve(after, phase=Ready())  # a loop inside a call waits for no command
    loops[path] = after
    used, started = after.usage_log[len(before.usage_log) :], after.started[len(before.started) :]
    for depth in range(len(path)):
        loop = _counted(loops[path[:depth]], path[depth:], used)
        names = ["/".join((*path[depth:], name)) for name in started]
        loops[path[:depth]] = evolve(loop, started=loop.started.extend(names))
    rests = not isinstance(after.phase, Judging | Running)
    for each, loop in _inside(state, path):
        above = loops.get(each[:-1])
        round_ = round_of(above) if above else None
        call = round_.find(each[-1]) if round_ else None
        if call is None or not call.has_loop or call.status is not Status.RUNNING:
            del loops[each]
        elif rests and isinstance(loop.phase, Requesting):
            loops[each] = evolve(loop, phase=Ready())  # nobody waits for that request any more
    return State(loops)


def _counted(loop: Loop, below: Path, used: Iterable[IterationUsage]) -> Loop:
    """Return the loop after requests that were made below it."""
    for entry in used:
        loop = spend(loop, evolve(entry, path=(*below, *entry.path)))
    return loop


def _open(state: State, event: ev.Opened) -> State:
    """A loop begins inside a call: it is the start of that call."""
    path, call_id = event.path[:-1], event.path[-1]
    if path not in state.loops:
        raise not_possible(state.root, event, f"there is no loop inside the call {'/'.join(path)!r}")
    _check_above(state, path, event)
    loop = take(state.loops[path], ev.Started(call_id))
    round_ = loop.round or Round(0, None)
    if event.setup.within != (*loop.setup.within, (round_.iteration, call_id, _run_of(loop, call_id)[1])):
        raise not_possible(loop, event, f"the loop that begins is not of the call {call_id!r}")
    calls = tuple(evolve(call, has_loop=True) if call.id == call_id else call for call in round_.calls)
    loop = evolve(loop, round=evolve(round_, calls=calls))
    child = Loop(event.setup, Chain(event.messages), now=loop.now)
    return State({**_changed(state, path, loop).loops, event.path: child})


# --- the caller ------------------------------------------------------------------------------------------------------

Decisions = Iterable[tuple[str, DecisionRecord]]


def _decide(state: State, path: Path, decisions: Decisions, event: ev.Decided) -> State:
    """Apply decisions on calls of the loop at `path`, and on those of loops inside its calls, named by their paths."""
    loop = state.loops[path]
    round_ = open_round(loop)
    if round_ is None:
        return _changed(state, path, take(loop, event))  # it refuses
    inside = {below[-1]: child for below, child in children(state, path, round_)}
    own: list[tuple[str, DecisionRecord]] = []
    deeper: dict[str, list[tuple[str, DecisionRecord]]] = {}
    for name, decision in decisions:
        # An id of a provider of one's own may have a slash in it, so it is first looked at as a whole.
        above = None if round_.find(name) else next((each for each in inside if name.startswith(f"{each}/")), None)
        if above is not None:
            deeper.setdefault(above, []).append((name.removeprefix(f"{above}/"), decision))
        elif ("/" in name or inside) and round_.find(name) is None:
            raise _unknown(state, path, name, decision)
        else:
            own.append((name, decision))
    state = _changed(state, path, take(loop, ev.Decided(tuple(own))))
    for call_id, theirs in deeper.items():
        if open_round(inside[call_id]) is None:
            raise _unknown(state, path, f"{call_id}/{theirs[0][0]}", theirs[0][1])
        state = _decide(state, (*path, call_id), theirs, event)
    return state


def _unknown(state: State, path: Path, name: str, decision: DecisionRecord) -> UnknownCall:
    known = tuple("/".join((*each, call.id)) for each, call in waiting(state, path))
    name = "/".join((*path, name))
    return UnknownCall(
        f"{decision.kind} names the call {name!r}, and there is no such call in an open round; "
        f"the calls that wait are: {', '.join(known) or 'none'}",
        call=name,
        known=known,
    )


def _continue(state: State, event: ev.Continued) -> State:
    """The caller continues the outermost loop, or retries: so do the loops below that stand still."""
    undecided = tuple("/".join((*path, call.id)) for path, call in waiting(state))
    if undecided and state.root.setup.execution == "barrier":
        raise undecided_calls(undecided)
    below = _proceed_below(state, (), is_retried=isinstance(state.root.phase, Failed))
    return State({**state.loops, **below, (): take(state.root, event)})


def _proceed_below(state: State, path: Path, *, is_retried: bool) -> dict[Path, Loop]:
    """Return the loops inside the calls of a loop that go on with it: decided ones, and failed ones that try again."""
    after: dict[Path, Loop] = {}
    for below, child in children(state, path, state.loops[path].round):
        has_failed = isinstance(child.phase, Failed) and not is_over(child)
        held = child.setup.execution == "barrier" and waiting(state, below)
        if has_failed or (isinstance(child.phase, Waiting) and not held and not is_retried):
            after |= {below: take(child, ev.Continued()), **_proceed_below(state, below, is_retried=has_failed)}
    return after


def _take_history(state: State, event: ev.HistoryTaken) -> State:
    """The caller of a runner has a history of their own. What is left of the open round goes on, unless calls wait."""
    was = state.root.phase
    state = _changed(state, (), take(state.root, event))
    if isinstance(was, Judging | Running):
        return state
    if waiting(state):
        return State({**state.loops, (): evolve(state.root, phase=Waiting("decision_required"))})
    return State({**state.loops, **_proceed_below(state, (), is_retried=False)})


def _end_turn(state: State, path: Path, event: ev.Event) -> Loop:
    """End the turn of a loop with loops inside its calls: it waits for the caller, a limit was met, or they failed."""
    loop = state.loops[path]
    if _look(state, path, _FREE).effects != (EndTurn(path),):
        raise not_possible(loop, event, "something may be done yet, or is in progress")
    inside = children(state, path, loop.round)
    unfinished = runs_calls(loop) or any(is_at_work(child) for _, child in inside) or _may_start(loop)
    if unfinished and (late := limits.out_of_time(loop)):
        return end(loop, late)
    room = _room_below(state, path, _FREE)
    held = _held_tools(loop, room).union(*(_look(state, below, room).held for below, _ in inside))
    parts = (limits.BEFORE_TOOLS if "tool" in held else ()) + (
        limits.BEFORE_REQUESTS_BELOW if "request" in held else ()
    )
    if spent := limits.over_budget(loop, parts):
        return end(loop, spent)
    failures = [(below[-1], child.phase.failure) for below, child in inside if isinstance(child.phase, Failed)]
    if not failures or waiting(state, path):  # who is to be asked is asked first; to continue is to try again, too
        return evolve(loop, phase=Waiting("decision_required"))
    call_id, failure = failures[0]
    return evolve(loop, phase=Failed(evolve(failure, path=(call_id, *failure.path))))


# --- what is to be done ----------------------------------------------------------------------------------------------


@frozen
class _Room:
    """How many requests and tools the loops above allow; None is no limit."""

    requests: int | None = None
    tools: int | None = None


_FREE = _Room()


@frozen
class _Found:
    """What is to be done in a loop and inside its calls.

    Attributes:
        busy: something is in progress.
        held: what could be done, a request or a tool, and a budget of a loop above forbids it.

    """

    effects: tuple[Effect, ...] = field(default=())
    busy: bool = False
    held: frozenset[str] = frozenset()


def outstanding(state: State) -> tuple[Effect, ...]:
    """Return what is to be done now, in the whole tree; nothing if it is the caller's turn, or all is in progress."""
    return _look(state, (), _FREE).effects if len(state.loops) > 1 else effects_of(state.root)


def _look(state: State, path: Path, room: _Room) -> _Found:
    loop = state.loops[path]
    if isinstance(loop.phase, Running):
        return _look_inside(state, path, room)
    effects = tuple(evolve(effect, path=path) for effect in effects_of(loop))
    if room.requests == 0 and SendRequest(path) in effects:
        return _Found(held=frozenset({"request"}))
    return _Found(effects, busy=isinstance(loop.phase, Requesting))


def _look_inside(state: State, path: Path, room: _Room) -> _Found:
    loop = state.loops[path]
    inside = children(state, path, loop.round)
    if limits.out_of_time(loop):
        over = tuple(Conclude(below[-1], path) for below, child in inside if is_over(child))
        return _Found(over or (EndTurn(path),))
    below_room = _room_below(state, path, room)
    runs = (effect for effect in effects_of(loop, below_room.tools) if isinstance(effect, RunCall))
    effects: list[Effect] = [evolve(effect, path=path) for effect in runs]
    busy, held = runs_calls(loop), _held_tools(loop, below_room)
    for below, child in inside:
        if is_over(child):
            effects.append(Conclude(below[-1], path))
        else:
            found = _look(state, below, below_room)
            effects += found.effects
            busy, held = busy or found.busy, held | found.held
    if effects or busy:
        return _Found(tuple(effects), busy, held)
    if held and room != _FREE and _look(state, path, _FREE).effects != (EndTurn(path),):
        return _Found(held=held)
    return _Found((EndTurn(path),))


def _held_tools(loop: Loop, room: _Room) -> frozenset[str]:
    return frozenset({"tool"}) if room.tools == 0 and _may_start(loop) else frozenset()


def _may_start(loop: Loop) -> bool:
    return loop.round is not None and bool(startable(loop.setup, loop.round))


def _room_below(state: State, path: Path, room: _Room) -> _Room:
    """Return how many requests and tools a loop and those above it allow the loops inside its calls."""
    tools = limits.lesser(room.tools, limits.room_for_tools(state.loops[path]))
    return _Room(limits.lesser(room.requests, _room_for_requests(state, path)), tools)


def _room_for_requests(state: State, path: Path) -> int | None:
    in_progress = sum(isinstance(each.phase, Requesting) for _, each in _inside(state, path))
    return limits.room_for_requests(state.loops[path], in_progress)


# --- copies ----------------------------------------------------------------------------------------------------------


def fork(state: State, loop_id: str, at: float) -> State:
    """Return a tree of its own: what was started is uncertain in it, every open call asks again, it has no grants."""
    state = _advance_time(state, at, 0.0)
    return State({path: _copied(loop, loop_id) for path, loop in state.loops.items()})


def _copied(loop: Loop, loop_id: str) -> Loop:
    loop = evolve(loop, setup=evolve(loop.setup, loop_id=loop_id), grants=())
    if isinstance(loop.phase, Requesting):
        return proceed(loop)
    round_ = open_round(loop)
    if isinstance(loop.phase, Judging) and round_ and all(call.status is Status.PROPOSED for call in round_.calls):
        return loop  # nobody looked at its calls yet
    if (asks := round_of(loop)) is not None:
        loop = with_round(loop, with_calls(asks, [_asks_again(loop, call) for call in asks.calls]))
    return loop if round_ is None else evolve(loop, phase=Waiting("decision_required"))


def _asks_again(loop: Loop, call: Call) -> Call:
    """A loop inside a running call is copied with it; every other open call asks again."""
    return call if call.has_loop and call.status is Status.RUNNING else ask_again(call, loop.setup, loop.now)
