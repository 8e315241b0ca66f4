"""The sync driver. It polls, stores, performs and waits; the engine decides."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import ClassVar, TypeVar

from toolloop._drivers.notifier import Notifier
from toolloop._drivers.operation_threads import OperationThreads
from toolloop._drivers.streaming import Unread
from toolloop._engine.engine import Engine
from toolloop._engine.operations import Operation, Question, exhaust
from toolloop._engine.tool_calls import CallRun, Steps

T = TypeVar("T")

# The longest wait in seconds. CPython handles a Ctrl-C just before a wait only when the wait ends.
_LONGEST_WAIT = 0.5


class SyncDriver:
    """Drives a loop in the thread of its caller.

    A single operation is performed in this thread; several run in parallel, in threads. A tool also runs in a thread if
    the turn is streamed, so that its progress is read while it runs.
    """

    is_async: ClassVar[bool] = False

    def __init__(
        self, engine: Engine, notifier: Notifier, when_late: Callable[[], None], *, leaves_behind: bool = False
    ) -> None:
        """Drive with an engine. See `Driver`."""
        self.engine = engine
        self.notifier = notifier
        self._leaves_behind = leaves_behind
        self._wait_for_reader: Callable[[], None] | None = None  # in threads, while a turn is streamed
        self.threads = OperationThreads(engine, self.notifier, when_late, lambda asked: exhaust(asked.work.perform()))

    @staticmethod
    def make_notifier(_engine: Engine) -> Notifier:
        """Return a notifier. See `Driver`."""
        return Notifier()

    def drive(self, result: Callable[[], T | None], unread: Unread | None = None) -> Generator[None, None, T]:
        """Drive until it is the caller's turn. At each step, the reader of a stream can read. See `Driver`."""
        self._wait_for_reader = None if unread is None else unread.wait
        engine, journal = self.engine, self.engine.journal
        try:
            engine.wake()
            while True:
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
                elif engine.is_busy():
                    self.notifier.wait(min(_LONGEST_WAIT, engine.measure_patience()))
                elif (error := engine.take_error()) is not None:
                    raise error
                elif (turn := result()) is not None:
                    return turn
        except KeyboardInterrupt:
            self._let_end(engine.interrupt())
            raise

    def _let_end(self, seconds: float) -> None:
        """Wait for the tools in threads, which have seen that they were cancelled. Another Ctrl-C ends the wait."""
        until = time.monotonic() + seconds
        while self.engine.progress.has_runs() and (left := until - time.monotonic()) > 0:
            self.notifier.wait(min(_LONGEST_WAIT, left))

    def _perform(self, operation: Operation) -> Steps:
        is_apart = self._leaves_behind or (self._wait_for_reader is not None and isinstance(operation.work, CallRun))
        if not (isinstance(operation.work, Question) or (operation is self.engine.alone and not is_apart)):
            self.threads.launch(operation, lambda: exhaust(operation.work.perform(), self._wait_for_reader))
        elif self.engine.launch(operation):
            try:
                value = yield from operation.work.perform()
            except Exception as error:  # noqa: BLE001 - the engine handles every failure
                self.engine.complete(operation, error=error)
            else:
                self.engine.complete(operation, value)
