"""Queries of a tree of loops: its loops, what is to be done in it, deadlines, what an event changed, and ends of loops.

A loop is at work while it is Ready, Requesting, Judging or Running. A loop inside a call never waits for a command. It
stops only while its calls wait for the caller, or after its request failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal

from attrs import asdict, evolve, field, frozen

from toolloop.machine.machine import list_effects
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.effects import Conclude, Effect, EndTurn, SendRequest
from toolloop.machine.record.loop import (
    Failed,
    Finished,
    Judging,
    Loop,
    Path,
    Ready,
    Requesting,
    Round,
    Running,
    State,
    Stopping,
    TooDeep,
    Waiting,
    find_round_at,
    find_round_calls,
    is_over,
)
from toolloop.machine.record.round_calls import NO_CALLS, RoundCalls
from toolloop.machine.rules import limits
from toolloop.machine.rules.calls import list_startable
from toolloop.machine.rules.turns import expire
from toolloop.machine.values.calls import Call, Outcome, Result, Status
from toolloop.machine.values.jsontext import decode, encode, make_well_formed
from toolloop.machine.values.setup import Texts
from toolloop.machine.values.texts import fill_text
from toolloop.terminations import NaturalEnd, Refused, StopCondition

LoopStatus = Literal["needs_decision", "needs_command", "runnable", "running", "stopping", "failed", "ended"]


# --- the loops of a tree ---------------------------------------------------------------------------------------------


def find_open_round(loop: Loop) -> Round | None:
    """Return the open round of a loop that continues it, without a command or after a decision."""
    return loop.phase.round if isinstance(loop.phase, (Judging, Running, Waiting)) else None


def find_open_calls(loop: Loop) -> RoundCalls:
    """Return the calls of the round that `find_open_round` returns; none without it."""
    return loop.calls if isinstance(loop.phase, (Judging, Running, Waiting)) else NO_CALLS


def is_at_work(loop: Loop) -> bool:
    """Return whether a loop inside a call is at work, so that its active time counts."""
    return isinstance(loop.phase, (Ready, Requesting, Judging, Running))


def list_children(state: State, path: Path, calls: RoundCalls) -> list[tuple[Path, Loop]]:
    """Return the loops inside those of these calls of the loop at `path` that run, in the model's order."""
    if len(state.loops) == 1:
        return []
    below = [(*path, call.id) for call in calls.having(Status.RUNNING) if call.has_loop]
    return [(each, state.loops[each]) for each in below]


def list_inside(state: State, path: Path) -> list[tuple[Path, Loop]]:
    """Return all loops inside the calls of the loop at `path`."""
    return [(each, loop) for each, loop in state.loops.items() if len(each) > len(path) and each[: len(path)] == path]


def driven(state: State) -> list[tuple[Path, Loop]]:
    """Return the outermost loop and the loops inside calls of open rounds: parents first, then in the model's order."""
    return list(_walk(state, (), only_open=True)) if len(state.loops) > 1 else [((), state.root)]


def everywhere(state: State) -> list[tuple[Path, Loop]]:
    """Return the loops of `driven`, and those in calls of a round with which a failed or limited loop may resume."""
    return list(_walk(state, (), only_open=False))


def driven_at(state: State, path: Path) -> Loop | None:
    """Return the loop at a path; None if there is none, or if a loop above it is not Running."""
    for depth in range(len(path)):
        above = state.at(path[:depth])
        if above is None or not isinstance(above.phase, Running):
            return None
    return state.at(path)


def follow_path(state: State, path: Path, runs: Sequence[tuple[int, int]]) -> Path:
    """Return the part of a path at which loops exist. Ids may repeat, so `runs` may name the run of each call on it."""
    for depth in range(len(path)):
        above, below = path[:depth], path[: depth + 1]
        if below not in state.loops:
            return above
        if depth < len(runs) and runs[depth] != find_run(state.loops[above], below[-1]):
            return above
    return path


def list_tools_along(state: State, path: Path) -> tuple[str, ...]:
    """Return the names of the tools of the calls that lead to the loop at a path, from the outermost down."""
    return tuple([call.name for call in state.calls_along(path) if call is not None])


def find_run(loop: Loop, call_id: str) -> tuple[int, int]:
    """Return the current run of a call: its iteration, and how many times it was started."""
    call = find_round_calls(loop).find(call_id)
    return (loop.iterations, call.attempts) if call else (0, 0)


def _walk(state: State, path: Path, *, only_open: bool) -> Iterator[tuple[Path, Loop]]:
    loop = state.loops[path]
    yield path, loop
    for below, _ in list_children(state, path, find_open_calls(loop) if only_open else find_round_calls(loop)):
        yield from _walk(state, below, only_open=only_open)


# --- waits and deadlines ---------------------------------------------------------------------------------------------


def waiting(state: State, path: Path = ()) -> list[tuple[Path, Call]]:
    """Return the calls that wait for the caller, with the paths of their loops: in the loop at `path`, and below."""
    loops = _walk(state, path, only_open=True) if len(state.loops) > 1 else [(path, state.loops[path])]
    return [(each, call) for each, loop in loops for call in find_open_calls(loop).having(Status.WAITING)]


def under_way(state: State) -> bool:
    """Return whether a request or a call is in progress, anywhere in the tree."""
    requests = any(isinstance(loop.phase, Requesting) for _, loop in driven(state))
    return requests or isinstance(state.root.phase, Stopping) or bool(list_running(state))


def has_running_tool(loop: Loop) -> bool:
    """Return whether a loop has running calls without a loop inside."""
    return any(not call.has_loop for call in loop.calls.having(Status.RUNNING))


def list_running(state: State, path: Path = ()) -> list[tuple[Path, Call]]:
    """Return the calls whose tools run, with the paths of their loops: in the loop at `path`, and below.

    They include those that a loop which is to end waits for.
    """
    loop, found = state.loops[path], list[tuple[Path, Call]]()
    for call in loop.calls.having(Status.RUNNING):
        found += list_running(state, (*path, call.id)) if call.has_loop else [(path, call)]
    return found


def count_requests_left_inside(state: State, path: Path) -> int | None:
    """Return how many more requests the loop at `path` allows inside its calls; None means no limit."""
    in_progress = sum(isinstance(each.phase, Requesting) for _, each in list_inside(state, path))
    return limits.count_requests_left(state.loops[path], in_progress)


def status_of(  # noqa: PLR0911 - one return for each status
    state: State, *, is_handed_over: bool = True
) -> LoopStatus:
    """Return the status by which a store lists loops.

    Args:
        state: the state of the loop.
        is_handed_over: whether a loop that waits for a command waits for the caller of its driver. If False, any
            driver may continue it.

    """
    if waiting(state):
        return "needs_decision"
    match state.root.phase:
        case Waiting() if is_handed_over:
            return "needs_command"
        case Stopping() | Requesting(stopping=True):
            return "stopping"
        case Failed():
            return "failed"
        case Finished() | TooDeep():
            return "ended"
    if is_empty(state.root):  # a caller must begin the conversation
        return "needs_command"
    return "running" if under_way(state) else "runnable"


def next_deadline(state: State) -> float | None:
    """Return when the first waiting call expires, in seconds since the epoch; None if none expires."""
    return min((call.expires_at for _, call in waiting(state) if call.expires_at is not None), default=None)


def is_due(state: State, now: float) -> bool:
    """Return whether a waiting call, or the grant of a call that has not started, has expired by then."""
    later = [loop._replace(now=max(loop.now, now)) for _, loop in driven(state) if find_open_calls(loop)]
    return any(expire(loop) is not loop for loop in later)


def time_left(state: State, path: Path = ()) -> float | None:
    """Return the seconds until the first loop at work reaches its timeout; None if none has one."""
    loop = state.loops[path]
    if not is_at_work(loop):  # time does not count for the loops inside its calls either
        return None
    timeout = loop.setup.limits.timeout
    own = None if timeout is None or timeout <= loop.active else timeout - loop.active
    times = [own, *[time_left(state, below) for below, _ in list_children(state, path, loop.calls)]]
    return min([seconds for seconds in times if seconds is not None], default=None)


def is_empty(loop: Loop) -> bool:
    """Return whether the conversation has not begun: it has no messages."""
    return isinstance(loop.phase, Ready) and not (loop.messages or loop.queued)


def implied(event: ev.Event, following: ev.Event) -> bool:
    """Return whether a journal may omit an event, because the next event implies it."""
    match event, following:
        case ev.Judged(results=(), stop=False, at=0, seconds=0), ev.Started() | ev.Opened():
            return event.path == (following.path[:-1] if isinstance(following, ev.Opened) else following.path)
    return False


# --- what is to be done -----------------------------------------------------------------------------------------------


@frozen
class Found:
    """The effects to perform in a loop and inside its calls.

    Attributes:
        busy: whether something is in progress.
        held: the parts of the budgets, of this loop or of those above, that forbid an effect.

    """

    effects: tuple[Effect, ...] = field(default=())
    busy: bool = False
    held: frozenset[str] = frozenset()


def outstanding(state: State) -> tuple[Effect, ...]:
    """Return the effects to perform now in the whole tree; none if it is the caller's turn, or all are in progress."""
    return look(state, ()).effects if len(state.loops) > 1 else list_effects(state.root)


def look(state: State, path: Path, room: limits.Room = limits.ANY) -> Found:
    """Return the effects to perform in the loop at `path` and inside its calls."""
    loop = state.loops[path]
    if isinstance(loop.phase, Running):
        return _look_inside(state, path, room)
    if isinstance(loop.phase, Stopping):
        return Found(find_conclusions(state, path), busy=True)
    effects = tuple(evolve(effect, path=path) for effect in list_effects(loop))
    if room.requests == 0 and SendRequest(path) in effects:
        return Found(held=frozenset(limits.BEFORE_REQUESTS_BELOW))
    return Found(effects, busy=isinstance(loop.phase, Requesting))


def _look_inside(state: State, path: Path, room: limits.Room) -> Found:
    loop = state.loops[path]
    loops = list_children(state, path, loop.calls)
    if limits.find_time_limit(loop):
        return Found(find_conclusions(state, path) or (EndTurn(path),))
    tools = limits.take_lesser(room.tools, limits.count_tools_left(loop))
    below_room = limits.Room(limits.take_lesser(room.requests, count_requests_left_inside(state, path)), tools)
    own = (effect for effect in list_effects(loop, tools) if not isinstance(effect, EndTurn))
    effects: list[Effect] = [evolve(effect, path=path) for effect in own]
    busy = has_running_tool(loop)
    held = frozenset(limits.BEFORE_TOOLS if tools == 0 and may_start(loop) else ())
    for below, child in loops:
        if is_over(child):
            effects.append(Conclude(below[-1], path))
        else:
            found = look(state, below, below_room)
            effects += found.effects
            busy, held = busy or found.busy, held | found.held
    if effects or busy:
        return Found(tuple(effects), busy)
    if held and room != limits.ANY and look(state, path).effects != (EndTurn(path),):
        return Found(held=held)
    return Found((EndTurn(path),), held=held)


def find_conclusions(state: State, path: Path) -> tuple[Effect, ...]:
    """Return the effects that settle the calls of a loop whose own loops are over."""
    inner = list_children(state, path, state.loops[path].calls)
    return tuple(Conclude(below[-1], path) for below, child in inner if is_over(child))


def may_start(loop: Loop) -> bool:
    """Return whether a call of a loop may start, whatever the loops above it allow."""
    return bool(list_startable(loop))


# --- what an event has changed ----------------------------------------------------------------------------------------


Change = tuple[Path, Call | None, Call | None]
_OPEN: Final = (Status.PROPOSED, Status.WAITING)
_NO_CALL: Final = Call("", "", "{}")


def call_changes(before: State, event: ev.Event, after: State) -> Iterator[Change]:
    """Yield the calls that an event has changed, in loops at any depth: the path, the call before, and after.

    The call before is None for a call that waits in a new round. The call after is None for one that was open when its
    round went. Other calls of rounds that begin or end are left out.
    """
    for path in {**before.loops, **after.loops}:
        old, new = find_round_at(before, path), find_round_at(after, path)
        if old is new:
            continue
        for was, call in _pair_calls(old, new, event):
            yield (*path, (was or call or _NO_CALL).id), was, call


def _pair_calls(old: Round | None, new: Round | None, event: ev.Event) -> Iterable[tuple[Call | None, Call | None]]:
    """Return the calls of a round that differ, before and after."""
    if old is None or new is None or old.iteration != new.iteration:
        gone = [] if old is None else [(call, None) for status in _OPEN for call in old.calls.having(status)]
        return [*gone, *([] if new is None else [(None, call) for call in new.calls.having(Status.WAITING)])]
    if isinstance(event, ev.HistoryTaken):  # its calls may be others
        known = {call.id: call for call in old.calls}
        gone = [(call, None) for call in old.calls if new.calls.find(call.id) is None and call.status in _OPEN]
        return [*gone, *[(known.get(call.id), call) for call in new.calls if call is not known.get(call.id)]]
    return new.calls.changes(old.calls)


def is_granted(was: Call | None, call: Call | None) -> bool:
    """Return whether a call was cleared by a grant between these two."""
    decision = None if call is None else call.decision
    return decision is not None and decision.grant is not None and (was is None or was.decision is not decision)


def has_expired(was: Call | None, call: Call | None, now: float) -> bool:
    """Return whether a call expired between these two. `now`: the time after."""
    if call is None:  # the loop ended with it
        is_late = was is not None and was.expires_at is not None and was.expires_at <= now
        return is_late and was is not None and was.status is Status.WAITING
    is_new = was is None or was.result is None
    return is_new and call.result is not None and call.result.outcome is Outcome.EXPIRED


# --- the end of a loop inside a call ---------------------------------------------------------------------------------


def answer_of(loop: Loop, texts: Texts) -> Result:
    """Return the result of a call whose loop is over: its last text, or the reason why there is none.

    If the loop was cut short, its last text is not an answer: the result is an error that includes the text.
    """
    text = _read_last_text(loop)
    chosen = isinstance(loop.phase, Finished) and isinstance(loop.phase.termination, (NaturalEnd, StopCondition))
    if chosen and text:
        return Result(encode(text))
    if text:
        return _make_error(fill_text(texts, "cut_short", reason=_describe_end(loop), text=text))
    silent = fill_text(texts, "no_answer", reason=_describe_end(loop))
    return Result(encode(silent)) if chosen else _make_error(silent)


def _describe_end(loop: Loop) -> str:
    match loop.phase:
        case Finished(termination=NaturalEnd()):
            return "it said nothing"
        case Finished(termination=ended):
            details = asdict(ended, filter=lambda _, value: value is not None)
            more = ", ".join(f"{name.replace('_', ' ')}: {value}" for name, value in details.items())
            return ended.kind.replace("_", " ") + (f" ({more})" if more else "")
        case Failed(failure=failure):
            return f"its model request failed: {failure.message}"
    return f"it is nested too deep: {loop.setup.depth}, and {loop.setup.limits.max_depth} is the limit"


def _make_error(text: str) -> Result:
    return Result(encode(text), is_error=True, outcome=Outcome.FAILED)


def _read_last_text(loop: Loop) -> str:
    """Return the text of the last reply, if that joined the history of its loop."""
    if not isinstance(loop.phase, Finished) or isinstance(loop.phase.termination, Refused) or loop.response is None:
        return ""
    blocks = decode(loop.response)["content"]
    texts = (block["text"] for block in blocks if block["type"] == "text" and block["text"].strip())
    return make_well_formed("\n".join(texts))  # the model may write text that the API refuses in a request
