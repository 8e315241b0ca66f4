"""The sync driver. It polls, stores, performs and waits; it decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, ClassVar

from toolloop.loop.engine import Engine
from toolloop.loop.notifier import Notifier
from toolloop.loop.operations import Operation, Question, exhaust
from toolloop.loop.streaming import Unread
from toolloop.loop.threads import OperationThreads
from toolloop.loop.tool_calls import Steps

# At most so many seconds: CPython sees a Ctrl-C in the instant before a wait only when the wait ends.
_LONGEST_WAIT = 0.5


class SyncDriver:
    """Drives a loop in the thread of its caller.

    An operation that is alone is performed here; others run side by side, in threads.
    """

    is_async: ClassVar[bool] = False

    def __init__(self, engine: Engine, when_late: Callable[[], None]) -> None:
        """`when_late`: stores the end of a call, in its thread, where no driver does."""
        self.engine = engine
        self.notifier = Notifier()
        self._wait_for_reader: Callable[[], None] | None = None  # in threads, while a turn is streamed
        self.threads = OperationThreads(engine, self.notifier, when_late)

    def read_by(self, unread: Unread | None) -> None:
        """Let the threads wait for the reader of a streamed turn; None: there is no reader."""
        self._wait_for_reader = None if unread is None else unread.wait

    def drive(self, result: Callable[[], Any]) -> Generator[None, None, Any]:
        """Drive until it is the caller's turn. Each step lets the reader of a stream read what happened.

        Args:
            result: gives what the turn came to; None if there is more to do.

        """
        engine, journal = self.engine, self.engine.journal
        engine.wake()
        while True:
            self.notifier.clear()
            operations = engine.poll()
            journal.commit()
            journal.tell()
            yield
            for operation in operations:
                yield from self._perform(operation)
            if operations:
                yield  # what came of them is read before anything follows from it
                continue
            if engine.is_busy():
                self.notifier.wait(min(_LONGEST_WAIT, engine.patience()))
            elif (error := engine.take_error()) is not None:
                raise error
            elif (turn := result()) is not None:
                return turn

    def _perform(self, operation: Operation) -> Steps:
        if not (isinstance(operation.work, Question) or self.engine.is_alone(operation)):
            self.threads.launch(operation, lambda: exhaust(operation.work.perform(), self._wait_for_reader))
        elif self.engine.launch(operation):
            try:
                value = yield from operation.work.perform()
            except Exception as error:  # noqa: BLE001 - the engine knows what a failure means
                self.engine.complete(operation, error=error)
            else:
                self.engine.complete(operation, value)
