"""How a thread wakes an async driver."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import anyio


class AsyncBell:
    """Rung from any thread; heard by the one driver that listens."""

    def __init__(self) -> None:
        """Nobody listens yet."""
        self._lock = threading.Lock()
        self._event: anyio.Event | None = None
        self._loop: Any = None
        self._thread: int | None = None

    @contextlib.contextmanager
    def listening(self) -> Generator[None, None, None]:
        """While a driver waits in its event loop."""
        import anyio  # noqa: PLC0415 - loaded when it is first needed
        import anyio.lowlevel  # noqa: PLC0415 - likewise

        with self._lock:
            self._event = anyio.Event()
            self._loop = anyio.lowlevel.current_token().native_token
            self._thread = threading.get_ident()
        try:
            yield
        finally:
            with self._lock:
                self._event = None

    def fresh(self) -> anyio.Event:
        """An event that the next ring sets."""
        import anyio  # noqa: PLC0415 - likewise

        with self._lock:
            if self._event is None or self._event.is_set():
                self._event = anyio.Event()
            return self._event

    def ring(self) -> None:
        """Wake the driver. Never waits: a thread that rings may hold what the event loop needs to go on."""
        with self._lock:
            event, loop, here = self._event, self._loop, self._thread == threading.get_ident()
        if event is None:
            return
        if here:
            event.set()
            return
        # trio's token and asyncio's loop have the same thing under two names.
        soon = getattr(loop, "run_sync_soon", None) or loop.call_soon_threadsafe
        with contextlib.suppress(Exception):  # the event loop is closed: nobody listens any more
            soon(event.set)
