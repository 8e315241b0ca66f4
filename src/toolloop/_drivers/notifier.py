"""Notify a waiting driver from any thread."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from toolloop._drivers.event_loops import call_soon

if TYPE_CHECKING:
    import anyio


class Notifier:
    """Notifies a sync driver. It uses a queue, because an `Event` does not survive a Ctrl-C at every point.

    A notification that came while the driver did not wait ends its next wait at once, so the driver looks once more.
    """

    def __init__(self) -> None:
        """Start without a notification."""
        self._queue: SimpleQueue[None] = SimpleQueue()

    def notify(self) -> None:
        """Notify the driver, now or at its next wait."""
        if self._queue.empty():  # if it is full, the driver will poll anyway
            self._queue.put(None)

    def wait(self, seconds: float) -> bool:
        """Wait for a notification, for at most this many seconds. Return whether one came."""
        with contextlib.suppress(Empty):
            self._queue.get(timeout=seconds)
            return True
        return False


class AsyncNotifier:
    """Notifies an async driver, from any thread.

    Attributes:
        when_notified: called in the event loop at each notification.

    """

    def __init__(self, when_notified: Callable[[], None] = lambda: None) -> None:
        """Start without a listener."""
        self.when_notified = when_notified
        self._event: anyio.Event | None = None
        self._call_soon: Callable[[Callable[[], None]], object] | None = None
        self._thread = 0

    def listen(self) -> None:
        """Listen in the running event loop from now on."""
        import anyio  # noqa: PLC0415 - loaded when it is first needed

        self._event, self._thread = anyio.Event(), threading.get_ident()
        self._call_soon = call_soon()

    @contextlib.contextmanager
    def listen_meanwhile(self) -> Generator[None, None, None]:
        """Listen during the `with` block."""
        self.listen()
        try:
            yield
        finally:
            self._call_soon = None

    def clear(self) -> None:
        """Forget earlier notifications."""
        import anyio  # noqa: PLC0415 - loaded already

        if self._event is None or self._event.is_set():
            self._event = anyio.Event()

    async def wait(self, seconds: float) -> None:
        """Wait for a notification, for at most this many seconds."""
        import anyio  # noqa: PLC0415 - loaded already

        if self._event is not None:
            with anyio.move_on_after(seconds):
                await self._event.wait()

    def notify(self) -> None:
        """Notify the driver. This never waits, because the thread may hold a lock that the event loop needs."""
        if (soon := self._call_soon) is None:
            return
        if threading.get_ident() == self._thread:
            self._set()
        else:
            soon(self._set)

    def _set(self) -> None:
        if self._event is not None:
            self._event.set()
        self.when_notified()
