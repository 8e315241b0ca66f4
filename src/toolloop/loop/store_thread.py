"""What an event loop does apart from itself: work that waits for a store."""

from __future__ import annotations

import contextvars
import os
import threading
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from toolloop.loop.notifier import call_soon, shielded

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from toolloop.loop.asynchronous import AsyncToolLoopHandle

T = TypeVar("T")
H = TypeVar("H", bound="AsyncToolLoopHandle")


_POOL: list[tuple[int, ThreadPoolExecutor]] = []  # of this process: a child of a fork has no threads of its parent's
_LOCK = threading.Lock()
_MOST = 32


async def in_thread(work: Callable[[], T]) -> T:
    """Do work in a thread, and wait for its end whatever happens.

    Nothing that is being stored is cancelled half-way, or continues unseen: a cancellation of any kind is raised when
    the work is over.
    """
    import anyio  # noqa: PLC0415 - loaded when it is first needed

    done, soon = anyio.Event(), call_soon()
    future = _pool().submit(contextvars.copy_context().run, work)
    future.add_done_callback(lambda _future: soon(done.set))
    await shielded(done)
    return future.result()


def _pool() -> ThreadPoolExecutor:
    """The threads that wait for stores. They are apart from those that tools share."""
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - a handle without a store needs none

    with _LOCK:
        if not _POOL or _POOL[0][0] != os.getpid():
            _POOL[:] = [(os.getpid(), ThreadPoolExecutor(_MOST, thread_name_prefix="stores-of-toolloop"))]
        return _POOL[0][1]


def _after_fork() -> None:
    """In a child: none of the parent's threads is here, and one of them may have had the lock."""
    global _LOCK  # noqa: PLW0603 - a lock that another thread held at the fork would stay held for ever
    _LOCK = threading.Lock()
    _POOL.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class OpeningLoop(Generic[H]):
    """A stored loop on its way: await it for the handle, or use it in `async with`, which closes the handle."""

    def __init__(self, load: Callable[[], H]) -> None:
        """`load`: gives the handle; it blocks while the store works."""
        self._load = load
        self._handle: H | None = None

    def __await__(self) -> Generator[Any, Any, H]:
        return in_thread(self._load).__await__()

    async def __aenter__(self) -> H:
        """Load the loop, and open what its tools open."""
        self._handle = await self
        return await self._handle.__aenter__()

    async def __aexit__(self, *error: object) -> None:
        """Close it."""
        if self._handle is not None:
            await self._handle.__aexit__(*error)
