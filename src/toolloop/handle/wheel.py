"""One caller drives."""

from __future__ import annotations

import threading

from attrs import define

from toolloop.core.errors import IllegalCommand
from toolloop.core.states import State


@define(eq=False)
class Wheel:
    """Held by whoever drives, as a context manager; a second one is told so at once.

    It is no generator, which would cost three times as much: each turn passes here.

    Attributes:
        lock: of the handle; locked while somebody drives.
        state: where the loop is, for the error.
        asked: what the caller wants.

    """

    lock: threading.Lock
    state: State
    asked: str

    def __enter__(self) -> None:
        if not self.lock.acquire(blocking=False):
            raise IllegalCommand(
                f"{self.asked}: another caller drives this loop right now; one caller drives, any may decide",
                state=type(self.state).__name__,
                asked=self.asked,
                allowed=("decide()", "pending", "view()", "resume(Stop())"),
            )

    def __exit__(self, *error: object) -> None:
        self.lock.release()
