"""Short words for trees of loops: what is said where, and how it stands there."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from tests.kit.machine import making as m
from toolloop.machine.queries import driven
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import Loop, Path, State
from toolloop.machine.tree import step

USED = {"usage": {"input_tokens": 3, "output_tokens": 2}}


def at(path: str, *events: ev.Event) -> tuple[ev.Event, ...]:
    """The same events, said of the loop at a path."""
    return tuple(evolve(event, path=_path(path)) for event in events)


def _path(path: str) -> Path:
    return tuple(path.split("/")) if path else ()


def ask(path: str, *names: str, tool: str = "pure") -> tuple[ev.Event, ...]:
    """A loop asks, and its reply has these calls."""
    return at(path, ev.Requested(), m.make_replied("tool_use", *(m.call(name, tool) for name in names), **USED))


def finish(path: str, words: str = "found") -> tuple[ev.Event, ...]:
    """A loop asks, and that was all."""
    return at(path, ev.Requested(), m.make_replied("end_turn", m.text(words), **USED))


def begin_with_calls(*names: str, inside: tuple[str, ...] = (), tool: str = "pure", **changes: Any) -> State:
    """A loop with these calls, and a loop inside of each; `inside`: the paths of more, after a round of their own."""
    state = m.go(m.state_after(**changes), *ask("", *names, tool=tool))
    for name in names:
        state = step(state, m.child(state, name, **changes))
    for path in inside:
        above, _, call_id = path.rpartition("/")
        state = m.go(state, *ask(above, call_id))
        state = step(state, m.child(state, *path.split("/"), **changes))
    return state


def loop_inside(state: State, path: str = "p") -> Loop:
    """The loop at a path."""
    return state.loops[_path(path)]


def kinds(state: State) -> dict[str, str]:
    """The phase of every loop that is driven, by its path."""
    return {"/".join(path): type(loop.phase).__name__ for path, loop in driven(state)}


def waits(path: str) -> tuple[ev.Event, ...]:
    """A loop asks, and its one call waits for the caller."""
    return (*ask(path, "a"), *at(path, m.asks("a")))
