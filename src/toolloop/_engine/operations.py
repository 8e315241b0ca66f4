"""The operations of a driver: a model request, a run of a tool, or a question to a function of the caller.

At the end of this file are the rules for how long a driver waits for those of a loop that is to end.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any, cast

from attrs import define, field

from toolloop._engine.pace import Slot
from toolloop._engine.questions import FunctionCall, Questions, ask_each, await_each
from toolloop._engine.tool_calls import CallRun, Steps
from toolloop.machine.queries import driven_at
from toolloop.machine.record.loop import Path, Requesting, State, Stopping
from toolloop.machine.values.jsontext import JSON
from toolloop.providers.accumulate import Accumulator
from toolloop.providers.protocol import (
    AsyncProvider,
    AsyncStreamingProvider,
    Provider,
    Reply,
    Request,
    StreamingProvider,
)
from toolloop.providers.replies import built_reply

if TYPE_CHECKING:
    from toolloop._engine.compacting import SummaryRequest
    from toolloop._journal.records import PendingRecord

LOG = logging.getLogger("toolloop")

AnyProvider = Provider | AsyncProvider  # sync or async like the driver
Key = tuple[str, ...]
DIGITS = 4  # of a second, in events


@define(eq=False)
class ModelRequest:
    """A model request.

    Attributes:
        provider: sends it.
        hear: takes the request and an event of the reply's stream, and returns whether the loop still waits for the
            reply; None if the reply is not streamed.
        around: the context manager of the observers.
        read: the part of the reply that was streamed so far.
        summary: how to use the reply, if the request is for a summary of the history.
        slot: its place among the requests of a worker.

    """

    request: Request
    provider: AnyProvider
    hear: Callable[[ModelRequest, Mapping[str, JSON]], bool] | None = None
    around: Callable[[], AbstractContextManager[object]] = nullcontext
    summary: SummaryRequest | None = None
    read: Accumulator = field(factory=Accumulator)
    slot: Slot = field(factory=Slot)

    def perform(self) -> Steps:
        """Send the request, and read the reply."""
        with self.around():
            if self.hear is None:
                return self.provider.send(self.request)
            events = cast("StreamingProvider", self.provider).stream(self.request)
            try:
                for event in events:
                    if not self.hear(self, event):
                        break  # the loop no longer waits for it
                    yield
                return self._build_reply(events)
            finally:
                close(events)

    async def perform_async(self, was_read: Callable[[], Awaitable[None]]) -> Any:
        """Send the request, and read the reply."""
        with self.around():
            if self.hear is None:
                return await cast("AsyncProvider", self.provider).send(self.request)
            events = cast("AsyncStreamingProvider", self.provider).stream(self.request)
            try:
                async for event in events:
                    if not self.hear(self, event):
                        break
                    await was_read()
                return self._build_reply(events)
            finally:
                await aclose(events)

    def _build_reply(self, events: object) -> Reply:
        return built_reply(self.read.message(), getattr(events, "request_id", None))


@define(eq=False)
class Question:
    """Calls of the caller's functions: policies, `stop_when`, filters, and functions that return parameters.

    Attributes:
        asking: a generator that yields each function with its arguments, and is sent its value or its exception.
        finish: takes the value of the generator.
        give_up: called if the question was cancelled, or the loop no longer waits for the answer.
        is_wanted: returns whether the loop waits for the answer.
        first: the first function, with its arguments.
        goes_on: returns whether to call the next function, after the first.
        run: the run whose result the functions filter; None for functions that are called before an effect.

    """

    asking: Questions[Any]
    finish: Callable[[Any], object]
    give_up: Callable[[], object]
    is_wanted: Callable[[], bool]
    first: FunctionCall
    goes_on: Callable[[Question], bool]
    run: CallRun | None = None

    def perform(self) -> Steps:
        """Call one function after the other."""
        return ask_each(self.asking, self.first, partial(self.goes_on, self))
        yield

    async def perform_async(self, _was_read: Callable[[], Awaitable[None]]) -> Any:
        """Call one function after the other, and await those that are declared async."""
        return await await_each(self.asking, self.first, partial(self.goes_on, self))


@define(eq=False)
class Operation:
    """Something to perform.

    Attributes:
        path: the path of its loop.
        key: its key; at most one operation with a key is in progress.
        work: the work. `perform()` does it in a thread: each step lets the reader of a stream read, and the value is
            the outcome. `perform_async(was_read)` does it in an event loop; `was_read` waits until the reader of a
            stream has read everything.
        recorded: the record that allows it; None if it needs no record.
        launched: whether it is being performed.
        begun: when that began, by `time.monotonic`.
        thread: the thread that performs it, or is about to; None if the driver or a task performs it.
        left_at: when its loop was seen to end without waiting for it any longer, by `time.monotonic`.
        since: when it began, in seconds since the epoch, once `InProgress.show` has measured it.
        report: the last progress that its tool reported: the message, the progress and the total.
        interrupted: whether the caller gave it up with Ctrl-C, so that its tool sees `cancelled`.
        outcome: its value and its error, until they are recorded.
        cancel: cancels the task that performs it, at once or after some seconds.

    """

    path: Path
    key: Key
    work: ModelRequest | CallRun | Question
    recorded: PendingRecord | None = None
    launched: bool = False
    begun: float = field(factory=time.monotonic)
    thread: Thread | None = None
    left_at: float | None = None
    since: float | None = None
    report: tuple[str | None, float | None, float | None] = (None, None, None)
    interrupted: bool = False
    outcome: tuple[Any, Exception | None] | None = None
    cancel: Callable[[float], object] = lambda _seconds: None

    @property
    def run(self) -> CallRun | None:
        """The run of a call that it performs, or whose result it filters."""
        work = self.work
        return work if isinstance(work, CallRun) else work.run if isinstance(work, Question) else None

    @property
    def name(self) -> str:
        """Return the name for its thread; for a tool run, it has the path of the call."""
        return f"toolloop-{'/'.join(self.key[1:] if isinstance(self.work, CallRun) else self.key)}"

    @property
    def took(self) -> float:
        """Return the seconds since it began."""
        return round(time.monotonic() - self.begun, DIGITS)

    @property
    def has_thread(self) -> bool:
        """Return whether a thread performs it, or is about to."""
        return self.thread is not None and self.thread.is_alive()

    @property
    def runs_in_thread(self) -> bool:
        """Return whether an async driver performs it in a thread, because it runs a plain function."""
        return isinstance(self.work, CallRun) and not self.work.tool.is_async

    @property
    def limit(self) -> float | None:
        """Return its limit in seconds; None means no limit."""
        return self.work.limit if isinstance(self.work, CallRun) else None

    @property
    def deadline(self) -> float | None:
        """Return the deadline of a tool in a thread, by `time.monotonic`. The task of an async tool cancels it."""
        return None if self.limit is None or not self.launched or self.thread is None else self.begun + self.limit


def close(stream: object) -> None:
    """Close the stream of a provider, if it can be closed. A failure does not change the reply."""
    try:
        getattr(stream, "close", lambda: None)()
    except Exception:
        LOG.exception("could not close the stream of a reply")


async def aclose(stream: object) -> None:
    """Close an async stream; see `close`."""
    if (closing := getattr(stream, "aclose", None)) is not None:
        try:
            await closing()
        except Exception:
            LOG.exception("could not close the stream of a reply")


def exhaust(steps: Steps, wait: Callable[[], None] | None = None) -> Any:
    """Return the value of a generator. `wait`: called at each of its steps."""
    try:
        while True:
            next(steps)
            if wait is not None:
                wait()
    except StopIteration as done:
        return done.value
    finally:
        steps.close()


# --- operations of a loop that is to end ---------------------------------------------------------------------------


def is_ending(state: State, path: Path) -> bool:
    """Return whether the loop at a path, or one above it, is to end once the calls that run have ended."""
    loops = [state.at(path[:depth]) for depth in range(len(path) + 1)]
    return any(loop is not None and isinstance(loop.phase, Stopping) for loop in loops)


def notice_ends(state: State, operations: Iterable[Operation]) -> None:
    """Note the time for the operations of loops that are now seen to end, and for no others."""
    phases = [loop.phase for loop in state.loops.values()]
    is_any = any(isinstance(each, Stopping) or (isinstance(each, Requesting) and each.stopping) for each in phases)
    for operation in operations:
        if not (is_any and (is_ending(state, operation.path) or _is_stopped(state, operation))):
            operation.left_at = None
        elif operation.left_at is None:
            operation.left_at = time.monotonic()


def list_graces(state: State, operations: Iterable[Operation]) -> list[tuple[Operation, float]]:
    """Return the operations of loops that are to end, each with the seconds for which the driver still waits."""
    late = time.monotonic() - state.root.setup.stop_grace
    return [(each, max(0.0, each.left_at - late)) for each in operations if each.left_at is not None]


def is_graced(state: State, operation: Operation) -> bool:
    """Return whether `stop_grace` seconds have not passed since the loop was seen to end."""
    left_at = operation.left_at
    return left_at is None or time.monotonic() < left_at + state.root.setup.stop_grace


def is_given_up(state: State, operation: Operation) -> bool:
    """Return whether it is a request that a stop cut off: at once if its reply is streamed, else after the grace."""
    work = operation.work
    if not isinstance(work, ModelRequest) or not _is_stopped(state, operation):
        return False
    return work.hear is not None or work.slot.waits or not is_graced(state, operation)


def _is_stopped(state: State, operation: Operation) -> bool:
    """Return whether it is a request of a loop that was stopped meanwhile."""
    if not isinstance(operation.work, ModelRequest) or operation.work.summary is not None:
        return False
    loop = driven_at(state, operation.path)
    return loop is not None and isinstance(loop.phase, Requesting) and loop.phase.stopping
