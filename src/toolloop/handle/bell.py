"""How a thread wakes a driver."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import anyio


def setter(event: anyio.Event) -> Callable[[], None]:
    """What sets an event of the running event loop, from any thread."""
    import anyio.lowlevel  # noqa: PLC0415 - loaded when it is first needed

    return partial(_set, anyio.lowlevel.current_token(), event)


def _set(token: Any, event: anyio.Event) -> None:
    # trio's token and asyncio's loop have the same thing under two names.
    loop = token.native_token
    soon = getattr(loop, "run_sync_soon", None) or loop.call_soon_threadsafe
    with contextlib.suppress(Exception):  # the event loop is closed: nobody listens any more
        soon(event.set)


class Bell:
    """What a sync driver waits with. A Ctrl-C may strike at any place in it, which an `Event` does not outlive."""

    def __init__(self) -> None:
        """Nobody has rung."""
        self._rung: SimpleQueue[None] = SimpleQueue()

    def ring(self) -> None:
        """Wake whoever waits, or will."""
        self._rung.put(None)

    def clear(self) -> None:
        """Forget that it was rung."""
        while not self._rung.empty():
            with contextlib.suppress(Empty):  # somebody else took it
                self._rung.get_nowait()

    def wait(self, seconds: float) -> None:
        """Wait until it is rung, at most so long."""
        with contextlib.suppress(Empty):
            self._rung.get(timeout=max(seconds, 0.0))


class AsyncBell:
    """Rung from any thread; heard by the one driver that listens."""

    def __init__(self) -> None:
        """Nobody listens yet."""
        self._lock = threading.Lock()
        self._event: anyio.Event | None = None
        self._token: Any = None
        self._thread: int | None = None

    @contextlib.contextmanager
    def listening(self) -> Generator[None, None, None]:
        """While a driver waits in its event loop."""
        import anyio  # noqa: PLC0415 - loaded when it is first needed
        import anyio.lowlevel  # noqa: PLC0415 - likewise

        with self._lock:
            self._event = anyio.Event()
            self._token = anyio.lowlevel.current_token()
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
            event, token, here = self._event, self._token, self._thread == threading.get_ident()
        if event is None:
            return
        if here:
            event.set()
            return
        _set(token, event)

    def wait_for(self, awaitable: Awaitable[Any]) -> Any:
        """Await something in the event loop of the driver that listened last, from another thread."""
        import anyio.from_thread  # noqa: PLC0415 - likewise

        async def settled() -> Any:
            return await awaitable

        return anyio.from_thread.run(settled, token=self._token)
