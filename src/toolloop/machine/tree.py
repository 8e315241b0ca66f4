"""A tree of loops: route events by path, and apply time, usage, budgets and decisions to the whole tree.

Law
    `step(state, event)` is the only way a state changes. It returns the next state, or raises and changes nothing.
    `outstanding(state)` is derived from the state each time and never stored, so another process can continue from the
    state alone.

Theory
    The loops of a tree are one flat map; the key of a loop is the path of call ids that leads to it. A loop is in the
    map as long as the call that it runs inside is running. The rules of one loop (`machine`) never see a path. This
    module has the rules between loops:

    - time passes in every loop, and counts as active for those at work;
    - the usage and the starts of a loop are also counted in every loop above it, so a budget covers all loops below;
    - while a loop is stopped, the loops inside its calls are stopped too; late ends and revoked grants are still
      recorded in them;
    - a loop inside a call continues without a command. It stops while its calls wait for the caller, or after its
      request failed. Once nothing else can run, the loop above stops too, and its caller decides;
    - the caller's commands are for the outermost loop. Decisions name calls by path; "continue" applies to every
      stopped loop.
"""

from __future__ import annotations

from collections.abc import Iterable

from attrs import evolve

from toolloop.errors import IllegalCommand
from toolloop.machine.machine import end_stopped, restore, take, wake
from toolloop.machine.message_ids import name_all, name_joined, name_messages
from toolloop.machine.queries import (
    count_requests_left_inside,
    find_conclusions,
    find_open_calls,
    find_open_round,
    find_run,
    follow_path,
    is_at_work,
    list_children,
    list_inside,
    list_running,
    list_tools_along,
    look,
    may_start,
    waiting,
)
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.effects import EndTurn
from toolloop.machine.record.loop import (
    Failed,
    Judging,
    Loop,
    Path,
    Ready,
    Requesting,
    Round,
    Running,
    State,
    Stopping,
    Waiting,
    find_round_calls,
    is_over,
    replace_calls,
)
from toolloop.machine.refusals import make_not_possible_error, make_undecided_error
from toolloop.machine.rules import limits
from toolloop.machine.rules.deciding import make_unknown_call_error
from toolloop.machine.rules.joining import end
from toolloop.machine.rules.turns import advance_time, ask_all_again, end_if_expired, proceed, set_previews, spend
from toolloop.machine.values.calls import DecisionRecord, Result, Status
from toolloop.machine.values.chain import Chain

# The events of a loop inside a call. All others are for the outermost loop, which passes them on.
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
_ANY_TIME = (ev.Ended, ev.GrantRevoked, ev.Woken)  # also while a loop above is stopped


# --- the law ---------------------------------------------------------------------------------------------------------


def begin(first: ev.Opened | ev.Adopted) -> State:
    """Return the first state of a tree: that of a new loop, or the adopted one."""
    if isinstance(first, ev.Adopted):
        return first.state
    return State({(): name_all(Loop(first.setup, Chain(first.messages), now=first.at))})


def step(state: State, event: ev.Event) -> State:
    """Return the state after an event.

    Raises:
        CallerError: the state does not accept the event; nothing has changed.

    """
    if len(state.loops) == 1 and not event.path:  # no loop inside a call, so no rules between loops
        root = advance_time(state.root, event.at, event.seconds)
        after = State({(): end_if_expired(state.root, root, take(root, event))})
    else:
        now = _advance_time(state, event.at, event.seconds)
        after = _end_expired(state, now, _route(now, event))
    return name_messages(state, _end_stopped(after), event)


def _route(state: State, event: ev.Event) -> State:
    """Apply an event of a tree, whose time was applied before."""
    if isinstance(event, ev.Restored) and not event.path:
        return _restore(state, event)
    if not event.path:
        return _take(state, event)
    if not isinstance(event, _BELOW) or (isinstance(event, ev.HistoryEdited) and event.strategy is None):
        raise make_not_possible_error(state.root, event, "it is only for the outermost loop")
    if isinstance(event, ev.Opened):
        return _open(state, event)
    runs = event.above if isinstance(event, ev.Ended) else ()
    reached = follow_path(state, event.path, runs)
    if reached != event.path and isinstance(event, ev.Ended) and event.attempt:
        return _end_too_late(state, reached, event)
    if reached != event.path:
        raise make_not_possible_error(state.root, event, f"there is no loop inside the call {'/'.join(event.path)!r}")
    _check_above(state, event.path, event)
    return _take(state, event)


def fold(events: Iterable[ev.Event]) -> State:
    """Return the state after a whole journal."""
    journal = iter(events)
    first = next(journal, None)
    if not isinstance(first, (ev.Opened, ev.Adopted)) or first.path:
        where = "" if first is None or not first.path else " inside a call"
        raise IllegalCommand(
            f"a journal must start with Opened or Adopted; this one starts with {type(first).__name__}{where}",
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
    """Advance the time of the outermost loop and of those in calls of open rounds. It is active time if at work."""
    loops = dict(state.loops)
    now = max(at, state.root.now)

    def advance(path: Path, seconds: float) -> None:
        loop = loops[path]
        for below, child in list_children(state, path, find_open_calls(loop)):
            advance(below, seconds if is_at_work(child) else 0.0)
        loops[path] = advance_time(loop, now, seconds)

    advance((), seconds)
    return State(loops)


def _end_expired(before: State, now: State, after: State) -> State:
    """End the loops in which a call expired, if they stop then. `now`: after the time of an event, before the event."""
    for path, loop in now.loops.items():
        then = after.at(path)
        if then is not None and (ended := end_if_expired(before.loops[path], loop, then)) is not then:
            after = _change_loop(after, path, ended)
    return after


def _end_stopped(state: State) -> State:
    """End the loops that are to end, in which no call runs any more and no loop inside a call has an answer."""
    for path, loop in state.loops.items():
        if isinstance(loop.phase, Stopping) and not (list_running(state, path) or find_conclusions(state, path)):
            return _end_stopped(_change_loop(state, path, end_stopped(loop)))
    return state


def _end_too_late(state: State, path: Path, event: ev.Ended) -> State:
    """Count the usage of a run that was given up, in the loop at `path`. Its end changes nothing else."""
    below = (*event.path[len(path) :], event.call_id)
    return _change_loop(state, path, spend(state.loops[path], event.spent, below=below))


def _check_above(state: State, path: Path, event: ev.Event) -> None:
    """Refuse an event if a loop above is stopped, or if its limits forbid the event."""
    starts = isinstance(event, (ev.Started, ev.Opened))
    for above in (path[:depth] for depth in range(len(path))):
        loop = state.loops[above]
        if not isinstance(loop.phase, Running):
            if not isinstance(event, _ANY_TIME):
                raise make_not_possible_error(loop, event, "the loop above is not running")
        elif (
            (limits.find_time_limit(loop) and (starts or isinstance(event, ev.Requested)))
            or (isinstance(event, ev.Requested) and count_requests_left_inside(state, above) == 0)
            or (starts and limits.count_tools_left(loop) == 0)
        ):
            raise make_not_possible_error(loop, event, "a limit of a loop above forbids it")


def _take(state: State, event: ev.Event) -> State:
    """Apply an event to the loop at its path, and to the loops inside its calls."""
    path = event.path
    loop = state.loops[path]
    match event:
        case ev.Ended(result=Result()) if (below := state.at((*path, event.call_id))) and not is_over(below):
            if event.iteration == event.attempt == 0:
                raise make_not_possible_error(loop, event, f"the loop inside {event.call_id!r} is not over")
            return _end_too_late(state, path, event)
        case ev.Decided() if round_ := find_open_round(loop):
            return _decide(state, path, round_, event.decisions)
        case ev.Continued() if isinstance(loop.phase, (Waiting, Failed)):
            return _continue(state, event)
        case ev.HistoryTaken():
            return _take_history(state, event)
        case ev.Woken():
            state = _change_loop(state, path, take(loop, event))
            woken = {each: wake(inner, _wake_inside(state, each, event)) for each, inner in list_inside(state, path)}
            return State({**state.loops, **woken})
    is_tree = bool(list_children(state, path, find_open_calls(loop)))
    ended = _end_turn(state, path, event) if isinstance(event, ev.TurnEnded) and is_tree else take(loop, event)
    return _change_loop(state, path, ended)


def _wake_inside(state: State, path: Path, event: ev.Woken) -> ev.Woken:
    """Return the event for a loop inside the one that woke up, with the tools of that loop."""
    if not event.changed_tools:
        return ev.Woken()
    within = "".join([f"{name}/" for name in list_tools_along(state, path)[len(event.path) :]])
    names = [name.removeprefix(within) for name in event.changed_tools if name.startswith(within)]
    return ev.Woken(changed_tools=tuple(names), rebinds=event.rebinds)


def _restore(state: State, event: ev.Restored) -> State:
    """Leave a whole tree to a person."""
    state = _change_loop(state, (), take(state.root, event))
    for path, loop in list_inside(state, ()):
        above = "/".join((*path, ""))
        named = [(name.removeprefix(above), at, run) for name, at, run in event.runs if name.startswith(above)]
        # If a loop around it has ended, it is gone.
        state = _change_loop(state, path, restore(loop, ev.Restored(tuple(named)))) if path in state.loops else state
    return state


def _change_loop(state: State, path: Path, after: Loop) -> State:
    """Return the state with a changed loop: add its usage to the loops above it, and remove loops that ended below."""
    before, loops = state.loops[path], dict(state.loops)
    if path and isinstance(after.phase, Waiting) and after.phase.reason != "decision_required":
        after = after._replace(phase=Ready())  # a loop inside a call does not wait for a command
    loops[path] = after
    used, started = after.usage_log[len(before.usage_log) :], after.started[len(before.started) :]
    for depth in range(len(path)):
        loop = spend(loops[path[:depth]], used, below=path[depth:])
        names = ["/".join((*path[depth:], name)) for name in started]
        loops[path[:depth]] = loop._replace(started=loop.started.extend(names))
    rests = not isinstance(after.phase, (Judging, Running))
    for each, loop in list_inside(state, path):
        above = loops.get(each[:-1])
        call = find_round_calls(above).find(each[-1]) if above else None
        if call is None or not call.has_loop:
            del loops[each]
        elif rests and isinstance(loop.phase, Requesting):
            loops[each] = loop._replace(phase=Ready())  # the loop does not wait for that request any more
    return State(loops)


def _open(state: State, event: ev.Opened) -> State:
    """Begin a loop inside a call, and start the call."""
    path, call_id = event.path[:-1], event.path[-1]
    if path not in state.loops:
        raise make_not_possible_error(state.root, event, f"there is no loop inside the call {'/'.join(path)!r}")
    _check_above(state, path, event)
    loop = take(state.loops[path], ev.Started(call_id))
    iteration, attempt = find_run(loop, call_id)
    if event.setup.within != (*loop.setup.within, (iteration, call_id, attempt)):
        raise make_not_possible_error(loop, event, f"the setup of the new loop is not for the call {call_id!r}")
    started = [call for call in loop.calls.having(Status.RUNNING) if call.id == call_id]
    loop = replace_calls(loop, [call._replace(has_loop=True) for call in started])
    child = Loop(event.setup, Chain(event.messages), now=loop.now)
    return State({**_change_loop(state, path, loop).loops, event.path: child})


# --- the caller ------------------------------------------------------------------------------------------------------

Decisions = Iterable[tuple[str, DecisionRecord]]


def _decide(state: State, path: Path, round_: Round, decisions: Decisions) -> State:
    """Apply decisions on calls of the loop at `path`, and of the loops inside its calls, by their paths."""
    rounds = {
        below[-1]: inner
        for below, child in list_children(state, path, round_.calls)
        if (inner := find_open_round(child))
    }
    own: list[tuple[str, DecisionRecord]] = []
    deeper: dict[str, list[tuple[str, DecisionRecord]]] = {}
    for name, decision in decisions:
        above, _, below = name.partition("/")  # no id contains a slash
        if below and above in rounds:
            deeper.setdefault(above, []).append((below, decision))
        elif round_.calls.find(name) is None:
            known = tuple("/".join((*each, call.id)) for each, call in waiting(state, path))
            raise make_unknown_call_error(decision.kind, "/".join((*path, name)), known)
        else:
            own.append((name, decision))
    state = _change_loop(state, path, take(state.loops[path], ev.Decided(tuple(own))))
    for call_id, theirs in deeper.items():
        state = _decide(state, (*path, call_id), rounds[call_id], theirs)
    return state


def _continue(state: State, event: ev.Continued) -> State:
    """Continue the outermost loop, or retry its request, and do the same in the stopped loops below."""
    undecided = {"/".join((*path, call.id)): call for path, call in waiting(state)}
    if undecided and state.root.setup.execution == "barrier":
        raise make_undecided_error(undecided)
    return State({**state.loops, **_proceed_below(state, ()), (): take(state.root, event)})


def _proceed_below(state: State, path: Path) -> dict[Path, Loop]:
    """Return the loops below that continue with a loop: those with all calls decided, and failed ones that retry."""
    after: dict[Path, Loop] = {}
    for below, child in list_children(state, path, state.loops[path].calls):
        has_failed = isinstance(child.phase, Failed) and not is_over(child)
        held = child.setup.execution == "barrier" and waiting(state, below)
        if has_failed or (isinstance(child.phase, Waiting) and not held):
            after |= {below: take(child, ev.Continued()), **_proceed_below(state, below)}
    return after


def _take_history(state: State, event: ev.HistoryTaken) -> State:
    """Replace the history with that of a runner's caller. The open round continues, unless calls wait."""
    was = state.root.phase
    state = _change_loop(state, (), take(state.root, event))
    if isinstance(was, (Judging, Running)):
        return state
    if waiting(state):
        return State({**state.loops, (): state.root._replace(phase=Waiting("decision_required", state.root.round))})
    return State({**state.loops, **_proceed_below(state, ())})


def _end_turn(state: State, path: Path, event: ev.TurnEnded) -> Loop:
    """End the turn of a loop with loops inside its calls: it waits, a limit was reached, or a loop below failed."""
    loop, found = set_previews(state.loops[path], event.previews), look(state, path)
    if found.effects != (EndTurn(path),):
        raise make_not_possible_error(loop, event, "something can still be done, or is in progress")
    loops = list_children(state, path, loop.calls)
    unfinished = list_running(state, path) or any(is_at_work(child) for _, child in loops) or may_start(loop)
    if unfinished and (late := limits.find_time_limit(loop)):
        return end(loop, late, waits=event.waits)
    parts = tuple(part for part in (*limits.BEFORE_TOOLS, *limits.BEFORE_REQUESTS_BELOW) if part in found.held)
    if spent := limits.find_budget_limit(loop, parts):
        return end(loop, spent, waits=event.waits)
    failures = [(below[-1], child.phase.failure) for below, child in loops if isinstance(child.phase, Failed)]
    if not failures or waiting(state, path):  # the caller decides first; continuing also retries the request
        return loop._replace(phase=Waiting("decision_required", loop.round))
    call_id, failure = failures[0]
    return loop._replace(phase=Failed(evolve(failure, path=(call_id, *failure.path)), loop.round))


# --- copies ----------------------------------------------------------------------------------------------------------


def fork(state: State, loop_id: str, at: float) -> State:
    """Return an independent copy: started calls are uncertain in it, open calls wait again, and it has no grants."""
    now = _advance_time(state, at, 0.0)
    loops = _end_expired(state, now, now).loops
    return State({path: _copy_loop(state.loops[path], loop, loop_id) for path, loop in loops.items()})


def _copy_loop(shown: Loop, loop: Loop, loop_id: str) -> Loop:
    copy = loop._replace(grants=(), thread=None, metadata=())
    copy = name_joined(shown, proceed(copy) if isinstance(copy.phase, Requesting) else ask_all_again(copy))
    return copy._replace(setup=evolve(copy.setup, loop_id=loop_id))  # the ids of messages are those of the original
