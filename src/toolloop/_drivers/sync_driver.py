"""The sync driver. It polls, stores, performs and waits; the engine decides."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import Any, ClassVar

from toolloop._drivers.notifier import Notifier
from toolloop._drivers.operation_threads import OperationThreads
from toolloop._drivers.streaming import Unread
from toolloop._engine.engine import Engine
from toolloop._engine.operations import Operation, Question, exhaust
from toolloop._engine.tool_calls import CallRun, Steps

# The longest wait in seconds. CPython handles a Ctrl-C just before a wait only when the wait ends.
_LONGEST_WAIT = 0.5


class SyncDriver:
    """Drives a loop in the thread of its caller.

    A single operation is performed in this thread; several run in parallel, in threads. A tool also runs in a thread if
    the turn is streamed, so that its progress is read while it runs.
    """

    is_async: ClassVar[bool] = False

    def __init__(self, engine: Engine, when_late: Callable[[], None]) -> None:
        """`when_late`: stores, in its thread, the end of a call that comes while no driver works."""
        self.engine = engine
        self.notifier = Notifier()
        self.leaves_behind = False  # whether a stop ends the turn though a single tool or request goes on
        self._wait_for_reader: Callable[[], None] | None = None  # in threads, while a turn is streamed
        self.threads = OperationThreads(engine, self.notifier, when_late, lambda asked: exhaust(asked.work.perform()))

    def read_by(self, unread: Unread | None) -> None:
        """Set the reader that the threads wait for; None means that the turn is not streamed."""
        self._wait_for_reader = None if unread is None else unread.wait

    def drive(self, result: Callable[[], Any]) -> Generator[None, None, Any]:
        """Drive until it is the caller's turn. At each step, the reader of a stream can read.

        Args:
            result: returns the result of the turn; None while it is not over.

        """
        try:
            return (yield from self._drive(result))
        except KeyboardInterrupt:
            self._let_end(self.engine.interrupt())
            raise

    def _drive(self, result: Callable[[], Any]) -> Generator[None, None, Any]:
        engine, journal = self.engine, self.engine.journal
        engine.wake()
        while True:
            self.notifier.clear()
            operations, state = engine.poll(), journal.state
            if engine.must_store(operations):
                journal.commit()
                journal.tell()
            yield
            if journal.state is not state:
                continue  # it has read what others stored
            for operation in operations:
                yield from self._perform(operation)
            if operations:
                yield  # their events are read before the engine continues
                continue
            if engine.is_busy():
                self.notifier.wait(min(_LONGEST_WAIT, engine.patience()))
            elif (error := engine.take_error()) is not None:
                raise error
            elif (turn := result()) is not None:
                return turn

    def _let_end(self, seconds: float) -> None:
        """Wait for the tools in threads, which have seen that they were cancelled. Another Ctrl-C ends the wait."""
        until = time.monotonic() + seconds
        while self.engine.has_runs() and (left := until - time.monotonic()) > 0:
            self.notifier.wait(min(_LONGEST_WAIT, left))

    def _perform(self, operation: Operation) -> Steps:
        is_apart = self.leaves_behind or (self._wait_for_reader is not None and isinstance(operation.work, CallRun))
        if not (isinstance(operation.work, Question) or (self.engine.is_alone(operation) and not is_apart)):
            self.threads.launch(operation, lambda: exhaust(operation.work.perform(), self._wait_for_reader))
        elif self.engine.launch(operation):
            try:
                value = yield from operation.work.perform()
            except Exception as error:  # noqa: BLE001 - the engine handles every failure
                self.engine.complete(operation, error=error)
            else:
                self.engine.complete(operation, value)
