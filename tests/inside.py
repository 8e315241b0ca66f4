"""The one place where tests look inside a handle: its lock, clock, what is in progress, what is not stored yet.

Every other test goes through public names, so that another inside changes this file alone. Name a look after its
purpose, not after the attribute that it reads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from toolloop import AsyncToolLoopHandle, ToolLoopHandle
from toolloop.loop import lease as leases
from toolloop.loop.notifier import Notifier
from toolloop.loop.operations import ModelRequest
from toolloop.loop.tool_calls import CallRun
from toolloop.machine import events as ev
from toolloop.stores.protocol import Store

if TYPE_CHECKING:
    from toolloop import AsyncToolRunner, ToolRunner

Handle = ToolLoopHandle | AsyncToolLoopHandle


# --- parts -------------------------------------------------------------------------------------------------------


def loop_of(runner: ToolRunner[Any] | AsyncToolRunner[Any]) -> Any:
    """Return the handle under a runner."""
    return runner._loop


def provider_of(handle: Handle) -> Any:
    """Return the provider of the root."""
    return handle._assembly.requests.provider


def tools_of(handle: Handle) -> Any:
    """Return the tools that the root runs with."""
    return handle._assembly.parts.here.tools


def tool_context_of(handle: Handle) -> Any:
    """Return the `LoopContext` of the root."""
    return handle._assembly.parts.here.context


def set_provider(handle: Handle, provider: Any) -> None:
    """Let the root send its next requests through another provider."""
    handle._assembly.requests.provider = provider


def request_maker_of(handle: Handle) -> Any:
    """Return the part that builds the requests of the root."""
    return handle._assembly.runtimes.root.requests


@contextmanager
def recorded_by(handle: Handle, hear: Callable[[Any, ev.Event, Any], None]) -> Iterator[None]:
    """Tell a function of each event that the journal records: the state before, the event, the state after."""
    journal = handle._journal
    record = journal.record

    def recording(event: ev.Event, *arguments: Any, **options: Any) -> Any:
        before = journal.state
        item = record(event, *arguments, **options)
        hear(before, event, journal.state)
        return item

    journal.record = recording  # type: ignore[method-assign]  # there is no other way to hear of it
    try:
        yield
    finally:
        del journal.record


# --- locks and clocks --------------------------------------------------------------------------------------------


def lock_of(handle: Handle) -> Any:
    """Return the lock that guards the state."""
    return handle._journal.lock


def use_lock(handle: Handle, lock: Any) -> None:
    """Guard the state, and the store, with another lock, which does what the real one does."""
    handle._journal.lock = handle._journal.io = lock  # type: ignore[attr-defined]  # the journal of a stored loop


def set_clock(handle: Handle, clock: Callable[[], float]) -> None:
    """Give events their time from another clock."""
    handle._journal._clock = clock


def active_time_passes(handle: Handle, seconds: float) -> None:
    """Let the loop have been active for so many more seconds, and notify its driver."""
    with handle._journal.lock:
        handle._engine.timer._last -= seconds
    handle._driver.notifier.notify()


def paused_time_passes(handle: Handle, seconds: float) -> None:
    """Let so many more seconds have passed since the loop paused, as if its caller had taken them."""
    paused = handle._engine.timer._paused
    assert paused is not None
    handle._engine.timer._paused = paused - seconds
    handle._engine.timer._last -= seconds


# --- what is in progress -----------------------------------------------------------------------------------------


def is_editing_history(handle: Handle) -> bool:
    """Whether the caller holds a list of `messages_mut`."""
    return handle._issuer.edits._list is not None


def tool_runs_of(handle: Handle) -> Mapping[tuple[str, ...], Any]:
    """Return the tool runs in progress, by the path of their call: each has a `thread`, or None, and a `deadline`."""
    return {each.key[1:]: each for each in _operations(handle) if isinstance(each.work, CallRun)}


def requests_in_flight(handle: Handle) -> Mapping[tuple[str, ...], Any]:
    """Return the model requests in progress, by path."""
    return {each.path: each.work for each in _operations(handle) if isinstance(each.work, ModelRequest)}


def _operations(handle: Handle) -> list[Any]:
    return list(handle._engine._progress.operations.values())


@contextmanager
def interrupted_wait(handle: Handle, *events: threading.Event) -> Iterator[None]:
    """Let the driver's wait raise `KeyboardInterrupt` as soon as all these events are set."""

    class Interrupting(Notifier):
        def wait(self, seconds: float) -> None:
            for event in events:
                assert event.wait(60)
            raise KeyboardInterrupt

    before = handle._driver.notifier
    set_notifier(handle, Interrupting())
    try:
        yield
    finally:
        set_notifier(handle, before)


def set_notifier(handle: Handle, notifier: Notifier) -> None:
    """Let the driver wait with another notifier."""
    handle._driver.notifier = handle._driver.threads.notifier = notifier


def pieces_in_flight(stream: Any) -> int:
    """Return how many pieces of a streamed turn wait to be read, in all loops of the tree."""
    return len(stream._unread._events)


def events_in_flight(handle: Handle) -> int:
    """Return how many watch events wait to be delivered."""
    return len(handle._journal.bus._since) + len(handle._journal.bus._untold)


def notifications_in_flight(handle: ToolLoopHandle) -> int:
    """Return how many notifications the driver has not taken yet."""
    waiting: int = handle._driver.notifier._queue.qsize()
    return waiting


def before_each_notification(handle: Handle, act: Callable[[], None]) -> None:
    """Call a function before each notification of the driver."""
    notify = handle._driver.notifier.notify

    def acting() -> None:
        act()
        notify()

    handle._driver.notifier.notify = acting


# --- the store ---------------------------------------------------------------------------------------------------


def store_of(handle: Handle) -> Store | None:
    """Return the store, or None."""
    return getattr(handle._journal, "store", None)


def revision_of(handle: Handle) -> int:
    """Return the revision of the journal that a stored handle knows."""
    journal: Any = handle._journal
    revision: int = journal.rev
    return revision


def unstored(handle: Handle) -> list[ev.Event]:
    """Return the recorded events that are not stored yet."""
    journal: Any = handle._journal
    return [item.event for item in journal._buffer]


def renew_leases() -> None:
    """Renew every lease of this process now, in a thread as it does from time to time."""
    thread = threading.Thread(target=leases.renew_all, name="leases-of-toolloop")
    thread.start()
    thread.join()
