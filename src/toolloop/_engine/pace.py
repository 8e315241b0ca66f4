"""The pace of the requests of one worker: after a refusal with 429 or 529, all its loops wait, and then go on slower.

A pause ends a stretch of time in which requests began. The number that the API accepted in it, divided by the seconds
of the stretch and of the pause after it, is a pace that the API allows. It may allow more, because it may not count
during a pause. The next requests begin one by one, and the pace grows tenfold in 15 seconds, until the API refuses one.
From then on it is known at which pace the API refuses. The next stretch begins at 0.85 of that, or at half of it if the
stretch was short (multiplicative decrease, as in TCP: RFC 5681 and RFC 9438). The pace then grows, slowly at first: by
a tenth in 14 seconds, to double the pace in 37 seconds, to ten times the pace in 68. After long pauses it grows slower,
because each refusal costs a pause.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from math import exp, inf

from attrs import define, frozen

from toolloop.errors import ToolLoopError
from toolloop.machine.record.effects import Effect
from toolloop.machine.record.loop import State

LOG = logging.getLogger("toolloop.worker")
_REFUSED = (429, 529)
# In seconds: after t seconds without a refusal, the pace is exp((t / growth)^2) times as fast.
_GROWTH = 45.0
_GROWTH_OF_PAUSE = 10.0  # at least so many times the pause, because each refusal costs one
_PROBING = 10.0  # if the API accepted no request in the stretch, or all began at once, which tells little
# What is kept of the pace at which a request was refused. After a pause, a bucket accepts more than it does for long.
_KEPT = 0.85
_KEPT_IF_SHORT = 0.5
_SHORT = 5.0  # in seconds
_SHORT_OF_PAUSE = 0.9  # of the pause; a stretch just as long is not short: an API that counts by the second gives such
_MOST_OF_AVERAGE = 4.0  # fewer requests may have begun than the pace allowed
_MOST = 50.0  # of the exponent
_LOOK = 0.5  # seconds between two looks whether a worker that waits has been stopped


class WorkerStopped(ToolLoopError):
    """The worker stops, so a request that waits does not begin. Any driver may continue the loop."""

    def __init__(self) -> None:
        """Make the error."""
        super().__init__("the worker stops while a request waits for the API; the loop can be driven again")


@define(eq=False)
class _Stretch:
    """The time from the end of a pause to the next refusal.

    Attributes:
        begins: by `time.monotonic`.
        begun: how many requests began in it.
        refused: how many of them were refused.
        seconds: its length, once it is over.
        pause: the seconds of the pause after it.
        planned: the pace, in requests a second, at which the refused request began; infinite without a limit.

    """

    begins: float
    begun: int = 0
    refused: int = 0
    seconds: float = inf
    pause: float = 0.0
    planned: float = inf

    @property
    def accepted(self) -> int:
        return self.begun - self.refused

    @property
    def growth(self) -> float:
        is_known = self.accepted > 0 and self.planned < inf
        return max(_GROWTH, _GROWTH_OF_PAUSE * self.pause) if is_known else _PROBING

    @property
    def per_second(self) -> float:
        """What the API allows, as far as the stretch shows it; later refusals of its requests correct it."""
        with_pause = max(0.5, self.accepted) / (self.seconds + self.pause)
        if self.planned < inf:
            kept = _KEPT_IF_SHORT if self.seconds <= min(_SHORT_OF_PAUSE * self.pause, _SHORT) else _KEPT
            return max(with_pause, min(kept * self.planned, _MOST_OF_AVERAGE * self.accepted / self.seconds))
        # The API may have kept the first request of the stretch for it, as a bucket does that fills during a pause.
        return max(with_pause, (self.accepted - 1) / self.seconds) if self.seconds > self.pause else with_pause


@define(eq=False)
class Slot:
    """The place of one request among those of a worker.

    Attributes:
        refused: how often the API has refused the request.
        plan: the number of the plan by which it has a time; 0 before it has asked.
        at: when it may begin, by `time.monotonic`.
        stretch: the stretch in which it began; None before that.

    """

    refused: int = 0
    plan: int = 0
    at: float = 0.0
    stretch: _Stretch | None = None

    @property
    def waits(self) -> bool:
        """Whether it has asked and has not begun."""
        return self.plan > 0 and self.stretch is None


class Pace:
    """Decides when each request of a worker may begin. Any thread may ask."""

    def __init__(self, backoff: Callable[[int], float], most: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin without a limit.

        Args:
            backoff: takes how many pauses follow one another without an accepted request, from 1; returns the seconds
                of a pause for which the API gives no `retry-after`.
            most: the number of such pauses after which a refusal is a failure of the loop. So is a further refusal of a
                request that was refused so often, for the API may never accept it, and it delays all others.
            clock: returns seconds that only grow.

        """
        self._backoff = backoff
        self._most = most
        self._clock = clock
        self._lock = threading.Lock()
        self._stretch = _Stretch(0.0)
        self._earlier: _Stretch | None = None  # the one before the last pause
        self._in_vain = 0  # pauses in a row between which no request was accepted
        self._plan = 1  # each refusal makes a new one, by which all that wait get other times
        self._next = 0.0  # when the next request may begin

    def ask(self, slot: Slot) -> float:
        """Return the seconds until a request may begin, or must ask again; 0 if it begins now."""
        with self._lock:
            now, stretch = self._clock(), self._stretch
            if slot.stretch is stretch and slot.plan == self._plan:
                return 0.0
            if slot.stretch is not None:  # a pause began, or became longer, between its slot and its launch
                slot.stretch.begun -= 1
                slot.stretch = None
            if slot.plan != self._plan:
                slot.plan, slot.at = self._plan, max(now, stretch.begins, self._next)
                self._next = slot.at + 1 / self._estimate_rate(slot.at)
            if now < slot.at:
                return min(_LOOK, slot.at - now)
            if not stretch.begun:
                stretch.begins = now
            stretch.begun += 1
            slot.stretch = stretch
            return 0.0

    def _estimate_rate(self, at: float) -> float:
        if (earlier := self._earlier) is None:
            return inf
        quiet = at - self._stretch.begins
        return earlier.per_second * exp(min(_MOST, (quiet / earlier.growth) ** 2))

    def must_wait(self, slot: Slot, error: Exception) -> bool:
        """Return whether a request that failed waits, and is then sent again: the API refused it with 429 or 529.

        It returns False if the API has accepted no request between the last pauses, or refused this one too often: then
        the request has failed.
        """
        if getattr(error, "status", None) not in _REFUSED or (stretch := slot.stretch) is None:
            return False
        with self._lock:
            now = self._clock()
            stretch.refused += 1
            slot.refused += 1
            is_first = stretch is self._stretch
            if is_first:
                stretch.planned = self._estimate_rate(slot.at)
                was_in_vain = self._earlier is not None and not self._earlier.accepted
                self._in_vain = self._in_vain + 1 if was_in_vain else 0
                self._earlier, self._stretch = stretch, _Stretch(now)
            wait = self._wait(error)
            self._stretch.begins = max(self._stretch.begins, now + wait)
            self._plan, self._next = self._plan + 1, self._stretch.begins
            if is_first:
                stretch.seconds, stretch.pause = max(0.001, now - stretch.begins), wait
                LOG.warning("the API refuses requests: no request of this worker begins for %.1f s (%s)", wait, error)
            return self._in_vain < self._most and slot.refused <= self._most

    def _wait(self, error: Exception) -> float:
        after: float | None = getattr(error, "retry_after", None)
        return self._backoff(self._in_vain + 1) if after is None else after


@frozen
class DriveOptions:
    """How a loop is driven. The defaults are those of a handle.

    Attributes:
        pace: decides when each request may begin; None means at once.
        is_over: returns whether requests that wait for the pace are given up, because their worker stops.
        live: if given, request streamed replies, and show other processes their text, every so many seconds.
        leaves_behind: whether a stop ends a turn though a single tool or request goes on: it gets a thread.
        holds: returns whether an effect waits for a runner's caller; None if none does.

    """

    pace: Pace | None = None
    is_over: Callable[[], bool] = bool
    live: float | None = None
    leaves_behind: bool = False
    holds: Callable[[State, Effect], bool] | None = None
