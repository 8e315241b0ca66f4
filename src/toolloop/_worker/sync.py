"""The sync worker: a thread for each loop that it drives."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from toolloop._drivers.notifier import Notifier
from toolloop._engine.questions import Questions, ask_each
from toolloop._handles.sync import ToolLoopHandle
from toolloop._public import set_module
from toolloop._worker import desk
from toolloop._worker.base import Until, WorkerBase
from toolloop._worker.desk import POLL
from toolloop._worker.signals import Signals
from toolloop.inbox.items import InboxCall
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
        tools: the tools of the loops. A loop with other tools is left to other workers: the log says so once, and its
            row (`StoredLoop.left`) until one drives it. So is a loop that `open` would refuse as `Drift`, and one that
            a newer version of this library has written.
        params: parameters that the store does not keep, such as headers, timeouts and tokens; or a function that takes
            a loop's id and returns them.
        context: as for a handle; or a function that takes a loop's id and returns it.
        config: None uses the stored limits.
        concurrency: the maximum number of loops that it drives at a time.
        notify: called with an `InboxCall` when a call begins to wait for a decision, one at a time. It is called once
            per call; again when the call begins to wait for another reason; and possibly again after a crash, with the
            same `notification_id`. Its exceptions are logged. After 60 seconds it is given up, and the next one begins.
        remind_after: after how many seconds of waiting to call `notify` again, such as `(600, 3600)`. The `reminder`
            of the item counts these, and each has its own `notification_id`. A call whose `Ask` has `remind_after` goes
            by that. Of several missed reminders, only the newest is sent; after the deadline, none is. Workers of a
            store with different times remind each by its own.
        max_attempts: the number of failed requests in a row after which a person must decide. A 429 or 529 is not a
            failure, but a pause of all loops of this worker. It is one if the API accepts nothing over so many pauses,
            or refuses the same request once more than that.
        metadata: it takes only loops whose metadata contains all of these, so that several kinds of agents can share a
            store. None: all loops.
        backoff: takes how many attempts have failed in a row, from 1, and returns the seconds until the next one. The
            API's `retry-after` is the floor. By default 4, 16, 64, ... seconds at most, at random from half of that,
            up to 600.
        adopt_after: how many seconds after the first worker left a loop because of missing tools this one drives it
            without them. Calls of such a tool that are open still keep the loop from being driven. None: never.
        live: the seconds between two texts of a reply that streams, for the readers of `Inbox.watch`. The worker then
            requests streamed replies, and stores their text beside the lease. None stores no text of replies.
        clock: returns seconds since the epoch, for deadlines and retries, if the store has no clock.

    Raises:
        BadTool: two tools have the same name, a tool is async, or an object is not a tool.
        TypeError: an argument has a wrong type.
        ValueError: a number is too small, or `params` has a model.

    """

    _is_async = False

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
        self._run(stop_event, until_idle=False)

    def run_until_idle(self, stop_event: threading.Event | None = None) -> None:
        """Drive loops like `run`, and return when nothing is left to do: for batches.

        It waits for loops that are `runnable`, `running` or `stopping`, also if another process drives them; for failed
        loops that are to be retried; for expired calls; and for notifications. It does not wait for people: for calls
        that have not expired, for loops that need a command, and for failed loops without a next attempt. Nor does it
        wait for loops that this worker leaves to others, or that its `metadata` excludes.

        Args:
            stop_event: as for `run`.

        """
        self._run(stop_event, until_idle=True)

    def _run(self, stop_event: threading.Event | None, *, until_idle: bool) -> None:
        jobs = _Threads(stop_event)
        with Signals(jobs.stop, installed=stop_event is None) as signals, self._desk.watching(jobs.look_again):
            try:
                ask_each(self._on_and_on(jobs, until_idle=until_idle))
            finally:
                jobs.stop()
        signals.pass_on()

    def drive(self, loop_id: str, until: Callable[[], bool] | None = None) -> StoredLoop:
        """Drive one loop, if it is due, until it needs a person or ends. Use it if a queue chooses the next loop.

        Args:
            loop_id: the loop. It is not due for a worker whose `metadata` it does not have.
            until: called after each turn, and while a request waits after a 429 or 529. When it returns True, the
                worker leaves the loop to be driven later.

        Returns:
            The stored loop after that. Its `due_at` is the time to drive it again, unless another program changes it.

        Raises:
            Conflict: another driver has the loop. Try again later.
            LoopNotFound: the loop does not exist.
            StoreError: the store failed; nothing is lost. Try again later.

        """
        return ask_each(self._one(loop_id, until))

    def _notify_of_all(self, is_over: Callable[[], bool]) -> None:
        """Send the notifications that are due, until `is_over` returns True. For `DurableLoops`."""
        ask_each(self._notifying(self._desk.unnotified(), is_over))

    def _tell(self, call: InboxCall) -> None:
        outcome: list[BaseException | None] = []

        def notify() -> None:
            try:
                self._notify(call)
            except BaseException as error:  # noqa: BLE001 - raised below
                outcome.append(error)
            else:
                outcome.append(None)

        thread = threading.Thread(target=notify, name="worker-of-toolloop notify", daemon=True)
        thread.start()
        thread.join(desk.NOTIFY_SECONDS)
        if not outcome:
            raise desk.NotifyHangs
        if outcome[0] is not None:
            raise outcome[0]

    def _drive(self, loop_id: str, until: Until, given: dict[str, Any]) -> Any:
        opening, options = self._open(loop_id, given), self._options(until)
        with ToolLoopHandle._load(opening, options) as handle:  # noqa: SLF001 - of the same library
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
