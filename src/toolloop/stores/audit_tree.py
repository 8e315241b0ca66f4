"""The loops of a tree, as an audit looks at them."""

from __future__ import annotations

from attrs import evolve

from toolloop.core import events as ev
from toolloop.core.states import Finished, State
from toolloop.core.tree import children, round_of
from toolloop.core.values import Ruling

Path = tuple[str, ...]


def tree(state: State) -> dict[Path, State]:
    """All loops with their paths, the outermost first: also those in a round that a limit ended."""
    found: dict[Path, State] = {(): state}
    paths: list[Path] = [()]
    for path in paths:  # which grows meanwhile
        inside: dict[Path, State] = {(*path, call.id): child for call, child in children(round_of(found[path]))}
        found |= inside
        paths += inside
    return found


def standing(loops: dict[Path, State]) -> dict[Path, State]:
    """Those loops of a tree that none above has cut off by ending."""
    ended = {path for path, loop in loops.items() if isinstance(loop, Finished)}
    return {path: loop for path, loop in loops.items() if not ended & {path[:end] for end in range(len(path))}}


def hearings(loops: dict[Path, State], event: ev.Event) -> dict[Path, ev.Event]:
    """What an event is to each loop that hears of it, wherever it was said.

    A loop that begins inside of a call is the start of that call.
    """
    match event:
        case ev.Decided():
            own: dict[Path, list[tuple[str, Ruling]]] = {(): []}
            for name, ruling in event.rulings:
                *path, call_id = name.split("/")
                own.setdefault(tuple(path), []).append((call_id, ruling))
            return {path: evolve(event, rulings=tuple(rulings)) for path, rulings in own.items()}
        case ev.Opened() if event.path:
            return {event.path[:-1]: ev.Started(event.path[-1], at=event.at, seconds=event.seconds)}
        case ev.Woken() | ev.Forked():
            return {path: event for path in loops if path[: len(event.path)] == event.path}
    return {event.path: event}
