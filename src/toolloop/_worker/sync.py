"""The sync worker: a thread for each loop that it drives."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, ClassVar

from toolloop._drivers.notifier import Notifier
from toolloop._engine.questions import Questions, ask_each
from toolloop._handles.sync import ToolLoopHandle, leave_behind
from toolloop._public import set_module
from toolloop._worker.base import Until, WorkerBase
from toolloop._worker.desk import POLL
from toolloop._worker.signals import Signals
from toolloop.providers import Provider
from toolloop.providers.anthropic import SdkClient
from toolloop.stores.protocol import StoredLoop


@set_module("toolloop")
class Worker(WorkerBase[Provider | SdkClient]):
    """Drives the loops of a store that can go on without a person.

    It drives loops that are `runnable`, loops whose driver is gone, loops with a call whose deadline has passed, and
    failed loops that are due for a retry. It does not drive a loop that waits for a command of its caller. Any number
    of workers, also in other processes, may share a store: each loop is driven by one of them at a time.

    Args:
        store: the store with the loops.
        provider: as for a handle.
        tools: the tools of the loops. A loop that cannot be driven with these becomes `failed`, and the reason is
            logged once. After you fixed the cause, call `Inbox.retry`.
        params: parameters that the store does not keep, such as headers, timeouts and tokens; or a function that takes
            a loop's id and returns them.
        context: as for a handle; or a function that takes a loop's id and returns it.
        config: None uses the stored limits.
        concurrency: the maximum number of loops that it drives at a time.
        notify: called with an `InboxCall` when a call begins to wait for a decision, one at a time. It is called once
            per call; again when the call begins to wait for another reason; and possibly again after a crash, with the
            same `notification_id`. Its exceptions are logged.
        max_attempts: the number of failed requests in a row after which a person must decide.
        live: the seconds between two texts of a reply that streams, for the readers of `Inbox.watch`. The worker then
            requests streamed replies, and stores their text beside the lease. None stores no text of replies.
        clock: returns seconds since the epoch, for deadlines and retries.

    Raises:
        BadTool: two tools have the same name, a tool is async, or an object is not a tool.
        TypeError: an argument has a wrong type.
        ValueError: a number is too small, or `params` has a model.

    """

    _is_async = False
    _open: ClassVar[Any] = ToolLoopHandle.open

    def run_once(self) -> int:
        """Drive each loop that is due now, until it needs a person or ends. Return the number of loops.

        Raises:
            StoreError: the store failed.

        """
        jobs = _Threads()
        try:
            return ask_each(self._once(jobs))
        finally:
            jobs.stop()

    def run(self, stop_event: threading.Event | None = None) -> None:
        """Drive loops as they become due, until the event is set or, without an event, SIGTERM or Ctrl-C arrives.

        Then the worker starts no further loop, finishes the turns in progress, and returns; after Ctrl-C it raises
        `KeyboardInterrupt`. A second signal has the effect that it has without a worker. The signal handlers are
        installed in the main thread only, and only without an event: a program that passes one, such as a web server,
        handles the signals itself. A failure of the store is logged, and the worker continues.
        """
        jobs = _Threads(stop_event)
        with Signals(jobs.stop, installed=stop_event is None) as signals, self._desk.watching(jobs.look_again):
            try:
                ask_each(self._on_and_on(jobs))
            finally:
                jobs.stop()
        signals.pass_on()

    def drive(self, loop_id: str, until: Callable[[], bool] | None = None) -> StoredLoop:
        """Drive one loop, if it is due, until it needs a person or ends. Use it if a queue chooses the next loop.

        Args:
            loop_id: the loop.
            until: called after each turn. When it returns True, the worker leaves the loop `runnable`.

        Returns:
            The stored loop after that. Its `due_at` is the time to drive it again, unless another program changes it.

        Raises:
            Conflict: another driver has the loop. Try again later.
            LoopNotFound: the loop does not exist.
            StoreError: the store failed; nothing is lost. Try again later.

        """
        return ask_each(self._one(loop_id, until))

    def _drive(self, loop_id: str, until: Until, given: dict[str, Any]) -> Any:
        with self._opening(loop_id, **given) as handle:
            leave_behind(handle)
            handle._keep_live(self._live)  # noqa: SLF001 - of the same library
            return handle.run(until=until) if self._desk.admits(handle) else None


class _Threads:
    """See `Jobs`. The threads do not delay the exit of the process."""

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
            except BaseException as error:  # noqa: BLE001 - the worker raises the exit of a tool
                self._exit = error
                self.stop()
            finally:
                self.busy.discard(key)
                self._notifier.notify()

        self.busy.add(key)
        threading.Thread(target=answer, name=f"worker-of-toolloop {key}", daemon=True).start()

    def wait(self, seconds: float) -> None:
        while not self._notifier.wait(min(seconds, POLL)) and (seconds := seconds - POLL) > 0 and not self.is_over():
            pass  # setting the stop event does not notify this thread

    def look_again(self) -> None:
        """End the current `wait`. Any thread may call this."""
        self._notifier.notify()

    def wait_for_all(self) -> None:
        while self.busy:
            self.wait(POLL)
        if self._exit is not None:
            raise self._exit

    def is_over(self) -> bool:
        return self._is_over or (self._stop_event is not None and self._stop_event.is_set())

    def stop(self) -> None:
        """Start no further jobs. A signal handler may call this."""
        self._is_over = True
        self._notifier.notify()
