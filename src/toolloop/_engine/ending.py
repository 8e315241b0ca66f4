"""Operations of a loop that is to end: which of them the driver still waits for, and how long."""

from __future__ import annotations

import time
from collections.abc import Iterable

from toolloop._engine.operations import ModelRequest, Operation
from toolloop.machine.queries import driven_at
from toolloop.machine.record.loop import Requesting, Stopping
from toolloop.machine.record.state import Path, State


def is_ending(state: State, path: Path) -> bool:
    """Return whether the loop at a path, or one above it, is to end once the calls that run have ended."""
    loops = [state.at(path[:depth]) for depth in range(len(path) + 1)]
    return any(loop is not None and isinstance(loop.phase, Stopping) for loop in loops)


def notice_ends(state: State, operations: Iterable[Operation]) -> None:
    """Note the time for the operations of loops that are now seen to end."""
    for operation in operations:
        if operation.left_at is None and (is_ending(state, operation.path) or _is_stopped(state, operation)):
            operation.left_at = time.monotonic()


def grace_of(state: State, operation: Operation) -> float | None:
    """Return until when the driver waits for an operation, by `time.monotonic`; None if its loop is not to end."""
    return None if operation.left_at is None else operation.left_at + state.root.setup.stop_grace


def is_graced(state: State, operation: Operation) -> bool:
    """Return whether `stop_grace` seconds have not passed since the loop was seen to end."""
    until = grace_of(state, operation)
    return until is None or time.monotonic() < until


def is_given_up(state: State, operation: Operation) -> bool:
    """Return whether it is a request that a stop cut off: at once if its reply is streamed, else after the grace."""
    work = operation.work
    is_cut = isinstance(work, ModelRequest) and (work.hear is not None or not is_graced(state, operation))
    return is_cut and _is_stopped(state, operation)


def _is_stopped(state: State, operation: Operation) -> bool:
    """Return whether it is a request of a loop that was stopped meanwhile."""
    if not isinstance(operation.work, ModelRequest) or operation.work.summary is not None:
        return False
    loop = driven_at(state, operation.path)
    return loop is not None and isinstance(loop.phase, Requesting) and loop.phase.stopping
