"""Short words for trees of loops: what is said where, and how it stands there."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from tests.core import making as m
from toolloop.core import events as ev
from toolloop.core.machine import step
from toolloop.core.states import State
from toolloop.core.tree import loop_at, loops

USED = {"usage": {"input_tokens": 3, "output_tokens": 2}}


def at(path: str, *events: ev.Event) -> tuple[ev.Event, ...]:
    """The same events, said of the loop at a path."""
    return tuple(evolve(event, path=tuple(path.split("/")) if path else ()) for event in events)


def asked(path: str, *names: str) -> tuple[ev.Event, ...]:
    """A loop asks, and its reply has these calls."""
    return at(path, ev.Requested(), m.replied("tool_use", *(m.call(name, "pure") for name in names), **USED))


def over(path: str, words: str = "found") -> tuple[ev.Event, ...]:
    """A loop asks, and that was all."""
    return at(path, ev.Requested(), m.replied("end_turn", m.text(words), **USED))


def begun(*names: str, inside: tuple[str, ...] = (), **changes: Any) -> State:
    """A loop with these calls, and a loop inside of each; `inside`: the paths of more, after a round of their own."""
    state = m.go(m.after(**changes), *asked("", *names))
    for name in names:
        state = step(state, m.child(state, name))
    for path in inside:
        above, _, call_id = path.rpartition("/")
        state = m.go(state, *asked(above, call_id))
        state = step(state, m.child(state, *path.split("/")))
    return state


def inside(state: State, path: str = "p") -> Any:
    """The loop at a path."""
    loop = loop_at(state, tuple(path.split("/")))
    assert loop is not None
    return loop


def kinds(state: State) -> dict[str, str]:
    """The state of every loop, by its path."""
    return {"/".join(path): type(loop).__name__ for path, loop in loops(state)}


def waits(path: str) -> tuple[ev.Event, ...]:
    """A loop asks, and its one call waits for the caller."""
    return (*asked(path, "a"), *at(path, m.asks("a")))
