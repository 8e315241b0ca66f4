"""What an event loop does apart from itself: work that waits for a store."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from toolloop.handle.asynchronous import AsyncToolLoopHandle

T = TypeVar("T")
H = TypeVar("H", bound="AsyncToolLoopHandle")


async def in_thread(work: Callable[[], T]) -> T:
    """Work in a thread. It is not cancelled half-way: what is being stored is stored or not, and that is known."""
    import anyio  # noqa: PLC0415 - loaded when it is first needed
    import anyio.to_thread  # noqa: PLC0415 - likewise

    # A limiter of its own: many loops that wait for one store must not use up the threads that tools share.
    with anyio.CancelScope(shield=True):
        done = await anyio.to_thread.run_sync(work, limiter=anyio.CapacityLimiter(1))
    return done  # noqa: RET504 - the type checker thinks that a cancel scope may swallow what is raised


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
