"""Wait for a change of a loop, or follow its changes: with the store's `watch`, and a poll behind it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Generator
from functools import partial
from math import inf
from typing import Final, TypeVar, get_args

from attrs import frozen

from toolloop._drivers.event_loops import call_soon, run_in_thread
from toolloop._interface.calls import RunningCall
from toolloop._journal.lease import read_progress
from toolloop._journal.store_access import call_store
from toolloop._public import set_module
from toolloop.errors import Conflict, LoopNotFound, StoreError, UnreadableSnapshot
from toolloop.machine.queries import LoopStatus
from toolloop.stores.arguments import check_seconds, check_text
from toolloop.stores.optional import watch_store
from toolloop.stores.protocol import Store, StoredLoop

Until = LoopStatus | Collection[LoopStatus]
AT_REST: Final[tuple[LoopStatus, ...]] = ("needs_decision", "needs_command", "failed", "ended")
_POLL = 1.0  # seconds, for stores that do not report changes, or not all of them
LOG: Final = logging.getLogger("toolloop.inbox")
T = TypeVar("T")


@set_module("toolloop.inbox")
@frozen
class LoopChange:
    """A loop at one moment, as `Inbox.watch` follows it.

    Attributes:
        loop_id: the id of the loop.
        rev: its revision: the number of its events.
        status: its status. `changed`: when its row was last written, in seconds since the epoch.
        driven: whether a driver works on it. If it is False, the driver of a `running` or `stopping` loop is gone.
        running: the calls that run, as far as their driver has stored it, with the progress that their tools reported.
        text: the text so far of the reply that streams, if its driver keeps it (`Worker(live=...)`); else None. It is
            None again when the reply is in the conversation.
        retry_at: for a failed loop: when a worker repeats its request, in seconds since the epoch. None: a person must
            decide.

    """

    loop_id: str
    rev: int
    status: str
    changed: float
    driven: bool
    running: tuple[RunningCall, ...] = ()
    text: str | None = None
    retry_at: float | None = None


def check_until(until: Until, timeout: float | None) -> frozenset[str]:
    """Check the arguments of `wait`, and return the statuses.

    Raises:
        TypeError: an argument has a wrong type.
        ValueError: `until` has none, or one that does not exist.

    """
    wanted, known = frozenset((until,) if isinstance(until, str) else until), get_args(LoopStatus)
    if not wanted or not wanted <= {*known}:
        raise ValueError(f"until: expected one or more of {', '.join(known)}; got {until!r}")
    if timeout is not None:
        check_seconds("timeout", timeout)
    return wanted


def changes_of(store: Store, loop_id: str) -> Generator[LoopChange]:
    """Yield the loop as it is, then each change. See `Inbox.watch`."""
    news, last = threading.Event(), None
    with watch_store(store, news.set):
        while True:
            if (change := _read(store, loop_id)) != last:
                last = change
                yield change
            news.wait(_POLL)
            news.clear()


def wait_until(store: Store, loop_id: str, wanted: frozenset[str], timeout: float | None) -> StoredLoop:
    """Wait for a status. See `Inbox.wait`."""
    news, end = threading.Event(), _end_of(timeout)
    with watch_store(store, news.set):
        while (row := _head(store, loop_id)).status not in wanted:
            news.wait(_time_to_wait(row, wanted, end))
            news.clear()
        return row


async def changes_of_async(store: Store, loop_id: str) -> AsyncGenerator[LoopChange]:
    """Yield the loop as it is, then each change. See `Inbox.watch`."""
    news, last = _News(), None
    with watch_store(store, news.set):
        while True:
            if (change := await run_in_thread(partial(_read, store, loop_id))) != last:
                last = change
                yield change
            await news.wait(_POLL)


async def wait_until_async(store: Store, loop_id: str, wanted: frozenset[str], timeout: float | None) -> StoredLoop:  # noqa: ASYNC109 - as in the sync inbox, and the error names the status
    """Wait for a status. See `Inbox.wait`."""
    news, end = _News(), _end_of(timeout)
    with watch_store(store, news.set):
        while (row := await run_in_thread(partial(_head, store, loop_id))).status not in wanted:
            await news.wait(_time_to_wait(row, wanted, end))
        return row


@set_module("toolloop.inbox")
async def retry_store_errors(loop_id: str, work: Callable[[], Awaitable[T]]) -> T:
    """Call an async function until the store does not fail, as a worker does, and return its result.

    After a `StoreError`, it is called again a second later, and the log has a warning. So it must be harmless to call
    it twice: `say` with a key is, a decision is, and following a loop is.

    Args:
        loop_id: the loop, for the log.
        work: the function.

    Raises:
        LoopNotFound, Conflict, UnreadableSnapshot: the store failed in a way that does not pass.

    """
    import anyio  # noqa: PLC0415 - loaded when it is first needed

    while True:
        try:
            return await work()
        except (LoopNotFound, Conflict, UnreadableSnapshot):
            raise
        except StoreError as error:
            LOG.warning("the store failed; will retry: %s", error, extra={"loop_id": loop_id})
            await anyio.sleep(_POLL)


class _News:
    """An event of this event loop that any thread may set."""

    def __init__(self) -> None:
        import anyio  # noqa: PLC0415 - loaded when it is first needed

        self._anyio = anyio
        self._soon = call_soon()
        self._event = anyio.Event()

    def set(self) -> None:
        self._soon(self._set)

    def _set(self) -> None:
        self._event.set()

    async def wait(self, seconds: float) -> None:
        with self._anyio.move_on_after(seconds):
            await self._event.wait()
        self._event = self._anyio.Event()


def _head(store: Store, loop_id: str) -> StoredLoop:
    check_text("loop_id", loop_id)
    return call_store(loop_id, partial(store.head, loop_id))


def _read(store: Store, loop_id: str) -> LoopChange:
    row = _head(store, loop_id)
    is_driven, progress = read_progress(store, row)
    head = row.head
    return LoopChange(
        loop_id, row.rev, row.status, head.changed, is_driven, progress.running, progress.text, head.retry_at
    )


def _end_of(timeout: float | None) -> float:
    return inf if timeout is None else time.monotonic() + timeout


def _time_to_wait(row: StoredLoop, wanted: frozenset[str], end: float) -> float:
    if (left := end - time.monotonic()) <= 0:
        expected = " or ".join(sorted(wanted))
        raise TimeoutError(f"the loop {row.loop_id!r} is {row.status}, and did not become {expected} in time")
    return min(_POLL, left)
