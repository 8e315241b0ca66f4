"""Threads in which operations are performed, for either driver."""

from __future__ import annotations

import contextvars
import sys
import threading
from collections.abc import Callable
from typing import Any

from toolloop.loop.engine import Engine
from toolloop.loop.notifier import AsyncNotifier, Notifier
from toolloop.loop.operations import Operation


class OperationThreads:
    """Performs operations, each in a thread of its own, and reports their ends to the engine.

    Attributes:
        notifier: of the driver.

    """

    def __init__(self, engine: Engine, notifier: Notifier | AsyncNotifier, when_late: Callable[[], None]) -> None:
        """`when_late`: stores the end of a call, in its thread, where no driver does."""
        self.notifier = notifier
        self._engine = engine
        self._when_late = when_late

    def launch(self, operation: Operation, perform: Callable[[], Any]) -> None:
        """Start a thread that launches an operation, and performs it."""
        self._start(operation, self._launch, operation, perform)

    def finish(self, operation: Operation, perform: Callable[[], Any]) -> None:
        """Start a thread that performs the rest of an operation, which is launched."""
        self._start(operation, self._perform, operation, perform)

    def _start(self, operation: Operation, work: Callable[..., None], *arguments: Any) -> None:
        """Start a thread with a copy of the current context. It never delays the exit of the process."""
        context = contextvars.copy_context()
        context.run(_leave_event_loop)
        operation.thread = threading.Thread(
            target=context.run, args=(work, *arguments), name=operation.name, daemon=True
        )
        operation.thread.start()

    def _launch(self, operation: Operation, perform: Callable[[], Any]) -> None:
        if self._engine.launch(operation):
            self.notifier.notify()  # from here on it may time out
            self._perform(operation, perform)

    def _perform(self, operation: Operation, perform: Callable[[], Any]) -> None:
        try:
            value = perform()
        except Exception as error:  # noqa: BLE001 - the engine knows what a failure means
            self._engine.complete(operation, error=error)
        except BaseException as error:  # noqa: BLE001 - an exit is the driver's to raise
            self._engine.cut(operation, error)
        else:
            self._engine.complete(operation, value)
        self.notifier.notify()
        if self._engine.timer.is_paused:  # there is no driver, or it waits for the reader of a stream
            self._when_late()


def _leave_event_loop() -> None:
    """Clear the mark of sniffio, if it is loaded: the new thread is in no event loop, and a tool may run its own."""
    if (sniffio := sys.modules.get("sniffio")) is not None:
        sniffio.current_async_library_cvar.set(None)
