"""The spans of one loop tree, as they are under way: each of them ends, whatever becomes of the loop."""

from __future__ import annotations

import atexit
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from functools import cache
from queue import Empty, SimpleQueue
from typing import Any
from weakref import WeakSet

from attrs import define, field
from opentelemetry.metrics import Histogram, Meter
from opentelemetry.trace import Span, SpanContext, Status, StatusCode, set_span_in_context

from toolloop.core.usage import Usage
from toolloop.handle import tracing_words as words
from toolloop.handle.recording import Path

# The name of an event, its attributes, and when it was.
Early = tuple[str, dict[str, Any], int]
_EARLY = 128  # as many events as a span takes by default


class Instruments:
    """What is counted."""

    def __init__(self, meter: Meter) -> None:
        def histogram(named: tuple[str, str, str], bounds: Sequence[float]) -> Histogram:
            return meter.create_histogram(*named, explicit_bucket_boundaries_advisory=bounds)

        self.tokens = histogram(words.TOKEN_USAGE, words.TOKEN_BOUNDS)
        self.requests = histogram(words.REQUEST_SECONDS, words.SECOND_BOUNDS)
        self.first = histogram(words.FIRST_SECONDS, words.SECOND_BOUNDS)
        self.loops = histogram(words.LOOP_SECONDS, words.SECOND_BOUNDS)
        self.tools = histogram(words.TOOL_SECONDS, words.SECOND_BOUNDS)


@define(eq=False)
class Work:
    """Something under way: a loop, a request, a tool's run.

    Attributes:
        common: what is said of it in metrics, too.
        seconds: the instrument that counts how long it took.
        begun: when, in nanoseconds since the epoch.
        inside: somebody is at work on it, and will leave it.
        left: when that one left it.
        error: what it failed with.
        usage: of a loop: what was used in it since the span began.

    """

    span: Span
    common: dict[str, Any]
    seconds: Histogram
    begun: int
    inside: bool = False
    left: int | None = None
    error: str | None = None
    is_streamed: bool = False
    usage: Usage = field(factory=Usage)
    is_over: bool = False

    def end(self, at: int | None = None) -> None:
        """It is over, since a moment ago if that is given. Only the first time counts."""
        if self.is_over:
            return
        self.is_over = True
        if self.error is not None:
            self.span.set_status(Status(StatusCode.ERROR))
            self.span.set_attribute(words.ERROR, self.error)
        over = max(self.begun, self.left or at or time.time_ns())
        self.span.end(over)
        attributes = self.common if self.error is None else {**self.common, words.ERROR: self.error}
        self.seconds.record((over - self.begun) / 1e9, attributes, context=set_span_in_context(self.span))


@define(eq=False)
class UnderWay:
    """What is under way in a tree of loops.

    Attributes:
        loops, requests: by the path of the loop.
        tools: by the path of the call.
        started: the names of the calls that were started, by their paths.
        before: of each loop the span that went before.
        early: what happened in a loop while it had no span, to be told in its next one.
        last: when something happened the last time.

    """

    loops: dict[Path, Work] = field(factory=dict)
    requests: dict[Path, Work] = field(factory=dict)
    tools: dict[Path, Work] = field(factory=dict)
    started: dict[Path, str] = field(factory=dict)
    before: dict[Path, SpanContext] = field(factory=dict)
    early: deque[tuple[Path, Early]] = field(factory=lambda: deque(maxlen=_EARLY))
    last: int = 0
    lock: threading.RLock = field(factory=threading.RLock)

    def __attrs_post_init__(self) -> None:
        _at_exit()
        _ALL.add(self)

    def above(self, path: Path) -> Iterator[Work]:
        """The loop at a path, and those that it is in, the innermost first."""
        for depth in range(len(path), -1, -1):
            if path[:depth] in self.loops:
                yield self.loops[path[:depth]]

    def take_early(self, path: Path) -> list[Early]:
        """What happened in the loop at a path while it had no span; it is told now."""
        kept = [each for where, each in self.early if where == path]
        self.early = deque((item for item in self.early if item[0] != path), maxlen=_EARLY)
        return kept

    def end_loop(self, path: Path, *, at: int | None = None, by_force: bool = False) -> None:
        """The loop at a path is over, or rests: so does what is inside of it, but what somebody is still at work on.

        `at`: since when; `by_force`: all of it, for nobody will leave it any more.
        """
        with self.lock:
            inside = [(self.requests, where) for where in self.requests if where[: len(path)] == path]
            inside += [(self.tools, where) for where in self.tools if where[:-1][: len(path)] == path]
            for kept, where in inside:
                if by_force or not kept[where].inside:
                    kept.pop(where).end(at)
            for where in [where for where in self.loops if where[: len(path)] == path]:
                work = self.loops.pop(where)
                work.span.set_attributes(words.used(work.usage))
                work.end(at)
                self.before[where] = work.span.get_span_context()
            for where in [where for where in self.started if where[:-1][: len(path)] == path]:
                del self.started[where]

    def end_all(self) -> None:
        """Nobody watches the loop any more: what is under way has been over since something last happened."""
        self.end_loop((), at=self.last, by_force=True)


_ALL: WeakSet[UnderWay] = WeakSet()
# What nobody watches any more. It may be noticed in the middle of anything, where no lock may be taken; so it is put
# here, and looked after when next something happens to any loop.
LEFT: SimpleQueue[UnderWay] = SimpleQueue()


def sweep() -> None:
    """End the spans of the loops that were dropped."""
    while True:
        try:
            dropped = LEFT.get_nowait()
        except Empty:
            return
        dropped.end_all()


@cache
def _at_exit() -> None:
    """From now on the end of the process ends all spans, before the exporters of a provider made earlier go."""
    atexit.register(_end_all)


def _end_all() -> None:
    for each in tuple(_ALL):
        each.end_all()
