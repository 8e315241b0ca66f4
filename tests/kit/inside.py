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
from toolloop._drivers.notifier import Notifier
from toolloop._engine.tool_calls import CallRun
from toolloop._journal import lease as leases

if TYPE_CHECKING:
    from toolloop import AsyncToolRunner, ToolRunner

Handle = ToolLoopHandle | AsyncToolLoopHandle


# --- parts -------------------------------------------------------------------------------------------------------


def loop_of(runner: ToolRunner[Any] | AsyncToolRunner[Any]) -> Any:
    """Return the handle under a runner."""
    return runner._loop


def provider_of(handle: Handle) -> Any:
    """Return the provider of the root."""
    return handle._parts.requests.provider


def tools_of(handle: Handle) -> Any:
    """Return the tools that the root runs with."""
    return handle._parts.given.here.tools


def tool_context_of(handle: Handle) -> Any:
    """Return the `LoopContext` of the root."""
    return handle._parts.given.here.context


def set_provider(handle: Handle, provider: Any) -> None:
    """Let the root send its next requests through another provider."""
    handle._parts.requests.provider = provider


def request_maker_of(handle: Handle) -> Any:
    """Return the part that builds the requests of the root."""
    return handle._parts.runtimes.root.requests


# --- locks and clocks --------------------------------------------------------------------------------------------


def lock_of(handle: Handle) -> Any:
    """Return the lock that guards the state."""
    return handle._parts.journal.lock


def use_lock(handle: Handle, lock: Any) -> None:
    """Guard the state, and the store, with another lock, which does what the real one does."""
    handle._parts.journal.lock = handle._parts.journal.io = lock  # type: ignore[attr-defined]  # the journal of a stored loop


def set_clock(handle: Handle, clock: Callable[[], float]) -> None:
    """Give events their time from another clock."""
    handle._parts.journal._clock = clock  # type: ignore[attr-defined]  # of both kinds of journals


def set_boot_clock(handle: Handle, clock: Callable[[], float]) -> None:
    """Count the time of the handle's lease by another clock than that of the system."""
    handle._parts.journal.term.clock = clock  # type: ignore[attr-defined]  # the journal of a stored loop


def active_time_passes(handle: Handle, seconds: float) -> None:
    """Let the loop have been active for so many more seconds, and notify its driver."""
    with handle._parts.journal.lock:
        handle._parts.engine.timer._last -= seconds
    handle._parts.driver.notifier.notify()


def paused_time_passes(handle: Handle, seconds: float) -> None:
    """Let so many more seconds have passed since the loop paused, as if its caller had taken them."""
    paused = handle._parts.engine.timer._paused
    assert paused is not None
    handle._parts.engine.timer._paused = paused - seconds
    handle._parts.engine.timer._last -= seconds


# --- what is in progress -----------------------------------------------------------------------------------------


def tool_runs_of(handle: Handle) -> Mapping[tuple[str, ...], Any]:
    """Return the tool runs in progress, by the path of their call: each has a `thread`, or None, and a `deadline`."""
    return {each.key[1:]: each for each in _operations(handle) if isinstance(each.work, CallRun)}


def _operations(handle: Handle) -> list[Any]:
    return list(handle._parts.progress.operations.values())


@contextmanager
def interrupt_wait(handle: Handle, *events: threading.Event) -> Iterator[None]:
    """Let the driver's wait raise `KeyboardInterrupt` as soon as all these events are set."""

    class Interrupting(Notifier):
        def wait(self, seconds: float) -> bool:
            for event in events:
                assert event.wait(60)
            raise KeyboardInterrupt

    before = handle._parts.driver.notifier
    set_notifier(handle, Interrupting())
    try:
        yield
    finally:
        set_notifier(handle, before)


def set_notifier(handle: Handle, notifier: Any) -> None:
    """Let the driver wait with another notifier."""
    driver: Any = handle._parts.driver
    driver.notifier = driver.threads.notifier = handle._parts.issuer._notifier = notifier


def call_before_each_notification(handle: Handle, act: Callable[[], None]) -> None:
    """Call a function before each notification of the driver."""
    notifier: Any = handle._parts.driver.notifier
    notify = notifier.notify

    def act_first() -> None:
        act()
        notify()

    notifier.notify = act_first


# --- the store ---------------------------------------------------------------------------------------------------


def renew_leases() -> None:
    """Renew every lease of this process now, in a thread as it does from time to time."""
    thread = threading.Thread(target=leases.KEEPER.value.renew_all, name="leases-of-toolloop")
    thread.start()
    thread.join()
