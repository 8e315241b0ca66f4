"""What a driver performs: a model request, the run of a tool, a question to a function of the caller."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import AbstractContextManager, nullcontext
from threading import Thread
from typing import TYPE_CHECKING, Any

from attrs import define, field

from toolloop.loop.questions import Question as Asked
from toolloop.loop.questions import Questions, ask_each, await_each
from toolloop.loop.tool_calls import CallRun, async_outcome, outcome
from toolloop.machine.state import Path
from toolloop.machine.values import Result
from toolloop.providers.accumulate import Accumulator
from toolloop.providers.protocol import Reply, Request
from toolloop.providers.replies import built_reply

if TYPE_CHECKING:
    from toolloop.loop.journal import PendingRecord

LOG = logging.getLogger("toolloop")

Key = tuple[str, ...]
Steps = Generator[None, None, Any]


def _nothing() -> None:
    """Do nothing: nobody waits for it in a task of its own."""


@define(eq=False)
class Operation:
    """Something to be performed.

    Attributes:
        path: of its loop.
        key: names it; at most one operation with a key is in progress.
        recorded: the event that allows it; None if it needs none.
        launched: somebody performs it.
        begun: when that was, by `time.monotonic`.
        thread: that performs it, or is about to; None: the driver itself or a task does.
        outcome: what came of it, as a value and an error, until that is recorded.
        cancel: cancels the task that performs it.

    """

    path: Path
    key: Key
    recorded: PendingRecord | None = field(default=None, kw_only=True)
    launched: bool = field(default=False, kw_only=True)
    begun: float = field(factory=time.monotonic, kw_only=True)
    thread: Thread | None = field(default=None, kw_only=True)
    outcome: tuple[Any, Exception | None] | None = field(default=None, kw_only=True)
    cancel: Callable[[], object] = field(default=_nothing, kw_only=True)

    @property
    def name(self) -> str:
        """Return the name of a thread that performs it."""
        return f"toolloop-{'/'.join(self.key)}"

    @property
    def has_thread(self) -> bool:
        """Return whether a thread performs it, or is about to."""
        return self.thread is not None and self.thread.is_alive()

    @property
    def runs_in_thread(self) -> bool:
        """Return whether an async driver performs it in a thread."""
        return False

    @property
    def limit(self) -> float | None:
        """Return how many seconds it may take; None is no limit."""
        return None

    def perform(self) -> Steps:
        """Perform it. Each step lets the reader of a stream read; the value is the outcome."""
        raise NotImplementedError

    async def perform_async(self, was_read: Callable[[], Awaitable[None]]) -> Any:
        """Perform it in an event loop. `was_read`: wait until the reader of a stream has read everything."""
        raise NotImplementedError


@define(eq=False)
class ModelRequest(Operation):
    """A model request.

    Attributes:
        hear: takes an event of the reply's stream, and returns whether anybody still waits for the reply; None if the
            reply is not streamed.
        around: a context manager of the observers.
        read: the reply as far as it was streamed.
        summary: what is to be made of the reply, if the request is for a summary of the history.

    """

    request: Request = field(kw_only=True)
    provider: Any = field(kw_only=True)
    hear: Callable[[Mapping[str, Any]], bool] | None = field(default=None, kw_only=True)
    around: Callable[[], AbstractContextManager[object]] = field(default=nullcontext, kw_only=True)
    read: Accumulator = field(factory=Accumulator, kw_only=True)
    summary: Any = field(default=None, kw_only=True)

    def perform(self) -> Steps:
        """Send the request, and read the reply."""
        with self.around():
            if self.hear is None:
                return self.provider.send(self.request)
            events = self.provider.stream(self.request)
            try:
                for event in events:
                    if not self.hear(event):
                        break  # nobody waits for it any more
                    yield
                return self._whole(events)
            finally:
                close(events)

    async def perform_async(self, was_read: Callable[[], Awaitable[None]]) -> Any:
        """Send the request, and read the reply."""
        with self.around():
            if self.hear is None:
                return await self.provider.send(self.request)
            events = self.provider.stream(self.request)
            try:
                async for event in events:
                    if not self.hear(event):
                        break
                    await was_read()
                return self._whole(events)
            finally:
                await aclose(events)

    def _whole(self, events: object) -> Reply:
        return built_reply(self.read.message(), getattr(events, "request_id", None))


@define(eq=False)
class ToolRun(Operation):
    """The run of a tool."""

    run: CallRun = field(kw_only=True)

    @property
    def name(self) -> str:
        """Return the name of a thread that runs the tool: the path of the call."""
        return f"toolloop-{'/'.join(self.run.key)}"

    @property
    def runs_in_thread(self) -> bool:
        """Return whether the tool is an ordinary function."""
        return not self.run.tool.is_async

    @property
    def limit(self) -> float | None:
        """Return how many seconds the tool may take."""
        return self.run.limit

    @property
    def deadline(self) -> float | None:
        """Return until when a tool in a thread may take, by `time.monotonic`; an async one is cancelled by its task."""
        in_thread = self.launched and self.thread is not None
        return self.begun + self.run.limit if in_thread and self.run.limit is not None else None

    def perform(self) -> Steps:
        """Run the tool."""
        return outcome(self.run)
        yield

    async def perform_async(self, _was_read: Callable[[], Awaitable[None]]) -> Result | Callable[[], Result]:
        """Run an async tool. If its result takes time to make, return the function that makes it."""
        return await async_outcome(self.run)


@define(eq=False)
class Question(Operation):
    """Functions of the caller are asked: policies, `stop_when`, filters, functions that give parameters.

    Attributes:
        asking: a generator that yields each function with its arguments, and is sent what it returned or raised.
        first: the first of them.
        finish: takes the value of the generator.
        give_up: called if the question was cancelled.

    """

    asking: Questions[Any] = field(kw_only=True)
    first: Asked = field(kw_only=True)
    finish: Callable[[Any], None] = field(kw_only=True)
    give_up: Callable[[], None] = field(default=_nothing, kw_only=True)

    def perform(self) -> Steps:
        """Ask, one function after the other."""
        return ask_each(self.asking, self.first)
        yield

    async def perform_async(self, _was_read: Callable[[], Awaitable[None]]) -> Any:
        """Ask, and await the functions that are declared async."""
        return await await_each(self.asking, self.first)


def close(stream: object) -> None:
    """Close the stream of a provider, if it can be closed. A failure does not change what was read."""
    try:
        getattr(stream, "close", _nothing)()
    except Exception:
        LOG.exception("the stream of a reply could not be closed")


async def aclose(stream: object) -> None:
    """Close an async stream; see `close`."""
    if (closing := getattr(stream, "aclose", None)) is not None:
        try:
            await closing()
        except Exception:
            LOG.exception("the stream of a reply could not be closed")


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
