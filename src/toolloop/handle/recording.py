"""Recording events: the one place where a handle's state changes."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from toolloop.core import events as ev
from toolloop.core.machine import step
from toolloop.core.states import State
from toolloop.handle.hearing import watch
from toolloop.handle.observing import Observers, record_of
from toolloop.handle.watching import Compacted, Delta, LoopDetected, WatchEvent

LOG = logging.getLogger("toolloop")

Path = tuple[str, ...]
Observer = Callable[[Any], Any]
_AT_ONCE = nullcontext()
_WARNING = (LoopDetected, Compacted)  # events that may be worth a warning


def read_clock(clock: Callable[[], float], *, otherwise: float) -> float:
    """The time, in seconds since the epoch; of a clock that fails, another."""
    try:
        return round(float(clock()), 3)  # every event of a journal carries it
    except Exception:
        LOG.exception("the clock failed")
        return otherwise


class Recorder:
    """Holds the state of a loop. Every change goes through `record`, one at a time, from any thread."""

    def __init__(
        self, state: State, clock: Callable[[], float], audience: Callable[[Path], Sequence[Observer]]
    ) -> None:
        """Start from a state. `audience`: who is told of what happens in the loop at a path."""
        self.lock = threading.RLock()
        self.clock = clock
        self.state = state
        self._observers = Observers(self, audience)
        self._seen: list[WatchEvent] = []
        self._untold: deque[WatchEvent] = deque()
        self._telling = False
        self.reader: Observer | None = None  # of the turn that is streamed

    def now(self) -> float:
        """The time, in seconds since the epoch; for the record only, no limit is counted with it.

        A clock that fails is no reason to lose what happened: then it is as late as it was.
        """
        return read_clock(self.clock, otherwise=self.state.ledger.now)

    def record(self, event: ev.Event) -> State:
        """Believe an event: the state after it is the loop's state from here on.

        Observers are told before anybody else can record, so that all see one order.

        Raises:
            CallerError: the event is not possible now; nothing changed.

        """
        with self.lock:
            before = self.state
            after = self.state = step(before, event)
            if seen := watch(before, event, after):
                self._note(seen)
                self._tell_noted()
            return after

    def saying(self) -> AbstractContextManager[None]:
        """What is recorded in here is the caller's word. Where there is a store, it is stored before this is over."""
        return _AT_ONCE

    def flush(self) -> None:
        """Store what waits to be stored. Without a store nothing ever does."""

    def check(self) -> None:
        """For the driver: is the loop still its own? Without a store it always is."""

    def secure(self) -> None:
        """The driver's flush: what it has recorded is stored, and the loop is still its own."""

    def forget_intents(self) -> None:
        """What was about to be done, and is not stored yet, is not done."""

    def refresh(self) -> bool:
        """Read what others stored, if that can be done at once. Whether there was anything."""
        return False

    def tell(self, event: WatchEvent) -> None:
        """Tell those who watch something that is no event of the machine at all."""
        with self.lock:
            if not isinstance(event, Delta):
                self._seen.append(event)
            self._untold.append(event)
            self._tell_noted()

    def around(self, event: WatchEvent) -> AbstractContextManager[object]:
        """What observers want around the request or the tool's run that an event begins; see `LoopConfig.observers`.

        It is entered and left by whoever sends the request or runs the tool, in that thread or task.
        """
        return self._observers.around(event)

    def close(self) -> None:
        """Say to those who watch that the handle was closed."""
        self._observers.close()

    def drain(self) -> tuple[WatchEvent, ...]:
        """What happened since the last time this was asked."""
        with self.lock:
            seen, self._seen = tuple(self._seen), []
            return seen

    def _note(self, seen: Sequence[WatchEvent]) -> None:
        self._seen += seen
        self._untold += seen

    def _tell_noted(self) -> None:
        if self._telling:  # an observer changed the loop: what that did is told after what it was told
            return
        self._telling = True
        is_logged = LOG.isEnabledFor(logging.DEBUG)
        try:
            while self._untold:
                event = self._untold.popleft()
                if is_logged:
                    LOG.debug("%s", type(event).__name__, extra=record_of(event, self._extra()))
                if isinstance(event, _WARNING):
                    self._warn(event)
                self._observers.tell(event)
                if self.reader is not None:
                    self.reader(event)
        finally:
            self._telling = False

    def _warn(self, event: WatchEvent) -> None:
        if isinstance(event, LoopDetected):
            found = {"tool": event.tool_name, "count": event.count}
            LOG.warning("the model called %s %d times in a row alike", *found.values(), extra=self._extra() | found)
        if isinstance(event, Compacted) and event.problem is not None:
            failed = {"strategy": event.strategy}  # why may repeat what was said, and is in the event
            LOG.warning(
                "%s left the history as it is; its event Compacted says why",
                event.strategy,
                extra=self._extra() | failed,
            )

    def _extra(self) -> dict[str, str]:
        return {"loop_id": self.state.ledger.setup.loop_id}
