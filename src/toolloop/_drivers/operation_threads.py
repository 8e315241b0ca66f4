"""Threads that perform operations, for both drivers."""

from __future__ import annotations

import contextvars
import sys
import threading
from collections.abc import Callable
from typing import Any

from attrs import define

from toolloop._drivers.driver import AnyNotifier
from toolloop._engine.engine import Engine
from toolloop._engine.operations import Operation


@define(eq=False)
class OperationThreads:
    """Performs operations, each in its own thread, and reports their ends to the engine.

    Args:
        engine: takes the ends.
        notifier: of the driver.
        when_late: stores, in its thread, the end of a call that comes while no driver works.
        ask: performs a question in such a thread.

    """

    _engine: Engine
    notifier: AnyNotifier
    _when_late: Callable[[], None]
    _ask: Callable[[Operation], Any]

    def launch(self, operation: Operation, perform: Callable[[], Any]) -> None:
        """Start a thread that launches an operation and performs it."""
        self._start(operation, self._launch, operation, perform)

    def finish(self, operation: Operation, perform: Callable[[], Any]) -> None:
        """Start a thread that performs the rest of a launched operation."""
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
        else:
            operation.thread = None  # it may begin later
            self.notifier.notify()
            if self._engine.timer.is_paused:  # there is no driver that stores that it did not begin
                self._when_late()

    def _perform(self, operation: Operation, perform: Callable[[], Any]) -> None:
        try:
            value = perform()
        except Exception as error:  # noqa: BLE001 - the engine handles every failure
            self._engine.complete(operation, error=error)
        except BaseException as error:  # noqa: BLE001 - the driver raises an exit
            self._engine.cut(operation, error)
        else:
            self._engine.complete(operation, value)
        self.notifier.notify()
        if self._engine.timer.is_paused:  # there is no driver, or it waits for the reader of a stream
            if (filters := self._engine.find_filters(operation)) is not None:
                self._launch(filters, lambda: self._ask(filters))
            self._when_late()


def _leave_event_loop() -> None:
    """Clear sniffio's marker, if it is loaded: the new thread has no event loop, and a tool may run one."""
    if (sniffio := sys.modules.get("sniffio")) is not None:
        sniffio.current_async_library_cvar.set(None)
