"""The sync worker: a thread for each loop that it drives."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, ClassVar

from toolloop.loop.notifier import Notifier
from toolloop.loop.questions import Questions, ask_each
from toolloop.loop.sync import ToolLoopHandle
from toolloop.stores.protocol import StoredLoop
from toolloop.worker.base import Until, WorkerBase
from toolloop.worker.desk import POLL
from toolloop.worker.signals import Signals


class Worker(WorkerBase):
    """Drives the loops of a store that need nobody.

    These are the loops that are `runnable`, those whose driver is gone, those with a call whose deadline has passed,
    and failed ones that are due to be tried again. A loop that waits for a command is left to its caller. Any number
    of workers, also in other processes, may share a store: one of them drives a loop at a time.

    Args:
        store: where the loops are.
        provider: as for a handle.
        tools: of the loops. A loop that cannot be driven with these is `failed`, and the log says why, once. When that
            is mended, call `Inbox.retry`.
        params: what no store keeps, such as headers, timeouts and tokens; or a function of the loop's id.
        context: as for a handle; or a function of the loop's id.
        config: None takes the stored limits.
        concurrency: how many loops it drives at a time.
        notify: is called with each call that begins to wait for a decision, an `InboxCall`, one at a time. It is called
            once; again when the call begins to wait for something else; and perhaps again after a crash, with the same
            `notification_id`. Its exceptions are logged.
        max_attempts: after so many failed requests in a row a person is needed.
        clock: seconds since the epoch, for deadlines and retries.

    Raises:
        BadTool: two tools of one name, an async tool, something that is not a tool.
        TypeError: a part is of a type that it cannot be.
        ValueError: a number is too small, or `params` has a model.

    """

    _is_async = False
    _open: ClassVar[Any] = ToolLoopHandle.open

    def run_once(self) -> int:
        """Drive each loop that is due now, as far as it goes without a person. Return how many there were.

        Raises:
            StoreError: the store failed.

        """
        jobs = _Threads()
        try:
            return ask_each(self._once(jobs))
        finally:
            jobs.stop()

    def run(self, stop_event: threading.Event | None = None) -> None:
        """Drive loops as they come due, until the event is set; without an event, until SIGTERM or Ctrl-C arrives.

        Then no further loop is begun, the turns in progress come to their end, and `run` returns; after Ctrl-C it
        raises `KeyboardInterrupt`. A second signal does what it does without a worker. The handlers are installed in
        the main thread only, and only without an event: a program that gives one, such as a web server, handles the
        signals itself. If the store fails, that is logged, and the worker goes on.
        """
        jobs = _Threads(stop_event)
        with Signals(jobs.stop, installed=stop_event is None) as signals, self._desk.watching(jobs.look_again):
            try:
                ask_each(self._on_and_on(jobs))
            finally:
                jobs.stop()
        signals.pass_on()

    def drive(self, loop_id: str, until: Callable[[], bool] | None = None) -> StoredLoop:
        """Drive one loop, if it is due, as far as it goes without a person: for a queue that says which loop is next.

        Args:
            loop_id: the loop.
            until: asked after each turn. Once it returns True, the loop is left as `runnable`.

        Returns:
            The loop as it is stored then. Its `due_at` says when to drive it again, if nobody changes it before.

        Raises:
            Conflict: another driver has it. Try again later.
            LoopNotFound: it is not there.
            StoreError: the store failed; nothing is lost. Try again later.

        """
        return ask_each(self._one(loop_id, until))

    def _drive(self, loop_id: str, until: Until, given: dict[str, Any]) -> Any:
        with self._opening(loop_id, **given) as handle:
            return handle.run(until=until) if self._desk.admits(handle) else None


class _Threads:
    """See `Jobs`. They never delay the exit of the process."""

    def __init__(self, stop_event: threading.Event | None = None) -> None:
        self.busy: set[str] = set()
        self._notifier = Notifier()
        self._exit: BaseException | None = None
        self._stop_event = stop_event
        self._is_over = False

    def start(self, key: str, questions: Questions[None]) -> None:
        def answer() -> None:
            try:
                ask_each(questions)
            except BaseException as error:  # noqa: BLE001 - an exit in a tool is the worker's to raise
                self._exit = error
                self.stop()
            finally:
                self.busy.discard(key)
                self._notifier.notify()

        self.busy.add(key)
        threading.Thread(target=answer, name=f"worker-of-toolloop {key}", daemon=True).start()

    def wait(self, seconds: float) -> None:
        while not self._notifier.wait(min(seconds, POLL)) and (seconds := seconds - POLL) > 0 and not self.is_over():
            pass  # an event that is set notifies nobody

    def look_again(self) -> None:
        """Any thread may call this."""
        self._notifier.notify()

    def wait_for_all(self) -> None:
        while self.busy:
            self.wait(POLL)
        if self._exit is not None:
            raise self._exit

    def is_over(self) -> bool:
        return self._is_over or (self._stop_event is not None and self._stop_event.is_set())

    def stop(self) -> None:
        """A signal handler may call this."""
        self._is_over = True
        self._notifier.notify()
