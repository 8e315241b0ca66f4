"""What is to be done in a tree of loops: the effects of each loop, within what the loops above it allow."""

from __future__ import annotations

from attrs import evolve, field, frozen

from toolloop.machine.machine import outstanding as effects_of
from toolloop.machine.queries import count_requests_left_inside, has_running_tool, list_children
from toolloop.machine.record.effects import Conclude, Effect, EndTurn, SendRequest
from toolloop.machine.record.loop import Loop, Requesting, Running, Stopping, is_over
from toolloop.machine.record.state import Path, State
from toolloop.machine.rules import limits
from toolloop.machine.rules.calls import list_startable


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
    return look(state, ()).effects if len(state.loops) > 1 else effects_of(state.root)


def look(state: State, path: Path, room: limits.Room = limits.ANY) -> Found:
    """Return the effects to perform in the loop at `path` and inside its calls."""
    loop = state.loops[path]
    if isinstance(loop.phase, Running):
        return _look_inside(state, path, room)
    if isinstance(loop.phase, Stopping):
        return Found(find_conclusions(state, path), busy=True)
    effects = tuple(evolve(effect, path=path) for effect in effects_of(loop))
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
    own = (effect for effect in effects_of(loop, tools) if not isinstance(effect, EndTurn))
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
