"""One caller drives at a time."""

from __future__ import annotations

import inspect
import threading
import weakref
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

from toolloop.machine.errors import IllegalCommand

Steps = Generator[Any, Any, Any] | Coroutine[Any, Any, Any]
S = TypeVar("S", bound=Steps)


class Driving:
    """Knows whether somebody drives: whoever does has a generator or a coroutine on its way.

    There is no flag to be reset, so an interrupt cannot leave a handle that is driven by nobody.
    """

    def __init__(self) -> None:
        """Nobody drives."""
        self._lock = threading.Lock()
        self._steps: weakref.ref[Steps] | None = None

    @property
    def is_active(self) -> bool:
        """Return whether somebody drives."""
        steps = None if self._steps is None else self._steps()
        return steps is not None and _is_on_its_way(steps)

    def steps(self, turning: Callable[..., S], *arguments: Any) -> S:
        """Return the generator or coroutine of a turn. `turning` makes it, and gets a reference to it for `begin`."""
        own: list[weakref.ref[Steps]] = []
        steps = turning(own, *arguments)
        own.append(weakref.ref(steps))
        return steps

    def begin(self, own: list[weakref.ref[Steps]], *, asked: str, state: str) -> None:
        """Begin to drive; called by the generator or coroutine itself.

        Raises:
            IllegalCommand: another caller drives.

        """
        with self._lock:
            if self.is_active:
                raise IllegalCommand(
                    f"{asked}: another caller drives this loop right now; one caller drives, any may decide",
                    state=state,
                    asked=asked,
                    allowed=("decide()", "pending", "view()", "resume(Stop())"),
                )
            (self._steps,) = own


def _is_on_its_way(steps: Steps) -> bool:
    if inspect.isgenerator(steps):
        return inspect.getgeneratorstate(steps) in (inspect.GEN_RUNNING, inspect.GEN_SUSPENDED)
    if inspect.iscoroutine(steps):
        return inspect.getcoroutinestate(steps) in (inspect.CORO_RUNNING, inspect.CORO_SUSPENDED)
    return False
