"""What the loops of one worker share after a 429 or 529: a pause that binds them all, and then the pace of the API."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field
from hypothesis import example, given, strategies as st

from tests.kit.concurrency import Background, either_kind, wait_for
from tests.kit.world import wait
from tests.worker.support import ADD, place_of, workplace
from toolloop._engine.pace import Pace, Slot
from toolloop._worker import desk
from toolloop.errors import ModelError
from toolloop.testing import reply

DONE = (reply(calls=[ADD]), reply("Seen."))


def refusal(retry_after: float | None, status: int = 429) -> ModelError:
    return ModelError("too many", status=status, retryable=True, retry_after=retry_after)


@define
class Limit:
    """An API that accepts so many requests in each second: by the second, or as fast as a bucket is filled.

    The bucket holds `most` requests; None means those of a second.
    """

    rate: float
    by_second: bool
    retry_after: float = 1.0
    most: float | None = None
    tokens: float = 0.0
    filled: float = -1.0
    accepted: int = 0

    def accepts(self, now: float) -> bool:
        if self.by_second:
            is_new = int(now) != int(self.filled)
            self.tokens = self.rate if is_new or self.filled < 0 else self.tokens
        else:
            most, full = self.most or self.rate, self.filled < 0
            self.tokens = most if full else min(most, self.tokens + (now - self.filled) * self.rate)
        self.filled = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        self.accepted += 1
        return True


@define
class Simulation:
    """Loops that each make some requests, one after the other, each with a latency. No time passes."""

    limit: Limit
    requests: int
    latency: float
    now: float = 100.0
    sent: int = 0
    pauses: list[tuple[float, float]] = field(factory=list)
    failures: int = 0

    def run(self, loops: int) -> float:
        """Let all loops make their requests; return how long that took."""
        begun, pace = self.now, Pace(lambda _: 1.0, 5, lambda: self.now)
        number = iter(range(10**9))
        ready: list[tuple[float, int, Any]] = []
        for _ in range(loops):
            heappush(ready, (self.now, next(number), self.loop(pace)))
        while ready:
            self.now, _, loop = heappop(ready)
            if (seconds := next(loop, None)) is not None:
                heappush(ready, (self.now + seconds, next(number), loop))
        return self.now - begun

    def loop(self, pace: Pace) -> Iterator[float]:
        for _ in range(self.requests):
            turn = Slot()
            while True:
                while (seconds := pace.ask(turn)) > 0:
                    yield seconds
                assert not any(begins <= self.now < ends - 1e-6 for begins, ends in self.pauses), "it did not wait"
                self.sent += 1
                is_accepted = self.limit.accepts(self.now)
                yield self.latency
                if is_accepted:
                    break
                self.pauses.append((self.now, self.now + self.limit.retry_after))
                if not pace.must_wait(turn, refusal(self.limit.retry_after)):
                    self.failures += 1
                turn = Slot(turn.refused)


@given(
    rate=st.integers(1, 50),
    by_second=st.booleans(),
    loops=st.integers(2, 120),
    latency=st.floats(0.001, 0.5),
)
@example(rate=8, by_second=True, loops=200, latency=0.01)
@example(rate=8, by_second=False, loops=200, latency=0.01)
@example(rate=1, by_second=False, loops=114, latency=0.001)  # a bucket that holds one request
@example(rate=16, by_second=True, loops=120, latency=0.001)  # a stretch exactly as long as the pause
def test_no_request_begins_in_a_pause_and_most_of_what_the_api_allows_is_used(
    *, rate: int, by_second: bool, loops: int, latency: float
) -> None:
    """No request fails, few are refused after the first stretch, and it takes at most 1.3 times as long as it must."""
    limit = Limit(rate, by_second)
    simulation = Simulation(limit, 2, latency)
    took, least = simulation.run(loops), (2 * loops - rate) / rate
    assert (simulation.limit.accepted, simulation.failures) == (2 * loops, 0)
    assert took <= 1.3 * max(least, 2 * latency) + 5 * (latency + 1)
    assert simulation.sent <= 3 * loops + 30  # what begins at once is refused, and later one of fifty


@pytest.mark.parametrize(
    ("limit", "most"),
    [
        (Limit(8, by_second=False, most=1), 75),
        (Limit(8, by_second=False, most=2), 70),
        (Limit(8, by_second=True, retry_after=5), 95),
        (Limit(8, by_second=False, retry_after=5), 82),
        (Limit(8, by_second=False, retry_after=20), 150),
        (Limit(2, by_second=True, retry_after=20), 330),
        (Limit(3, by_second=False, retry_after=60, most=10), 340),
    ],
    ids=str,
)
def test_the_pace_recovers_soon_from_a_pause_that_says_little(limit: Limit, most: float) -> None:
    """A bucket that accepts one request of the first ones, or a pause that is longer than the limit needs."""
    simulation = Simulation(limit, 2, 0.05)
    assert simulation.run(200) <= most
    assert (simulation.limit.accepted, simulation.failures) == (400, 0)
    assert simulation.sent <= 640


def test_a_request_that_is_about_to_begin_waits_for_a_pause_that_becomes_longer() -> None:
    """It is stored first, and meanwhile the API refuses an older one."""
    now = 0.0
    pace = Pace(lambda _: 1.0, 5, lambda: now)
    first, older, new = Slot(), Slot(), Slot()
    assert (pace.ask(first), pace.ask(older)) == (0.0, 0.0)
    assert pace.must_wait(first, refusal(1.0))
    now = 1.0
    assert pace.ask(new) == 0.0
    assert pace.must_wait(older, refusal(3.0))
    assert pace.ask(new) > 0
    now = 4.0
    assert pace.ask(new) == 0.0


@given(
    loops=st.integers(1, 60), latency=st.floats(0.01, 0.5), refused_after=st.floats(0.01, 2.0), most=st.integers(1, 8)
)
def test_a_request_that_the_api_never_accepts_fails_while_it_accepts_others(
    *, loops: int, latency: float, refused_after: float, most: int
) -> None:
    """Otherwise all loops would wait again and again for one request that is too large for the limit."""
    now, number = 0.0, iter(range(10**9))
    pace = Pace(lambda _: 1.0, most, lambda: now)
    refusals = list[bool]()

    def others() -> Iterator[float]:
        while True:
            turn = Slot()
            while (seconds := pace.ask(turn)) > 0:
                yield seconds
            yield latency

    def refused() -> Iterator[float]:
        turn = Slot()
        while True:
            while (seconds := pace.ask(turn)) > 0:
                yield seconds
            yield refused_after
            refusals.append(pace.must_wait(turn, refusal(1.0)))
            turn = Slot(turn.refused)

    ready = [(now, next(number), each) for each in (refused(), *(others() for _ in range(loops)))]
    while len(refusals) <= most and all(refusals):
        now, _, loop = heappop(ready)
        heappush(ready, (now + next(loop), next(number), loop))
    assert not refusals[-1]


@either_kind
@pytest.mark.parametrize("live", [None, 0.25])
def test_a_request_that_is_refused_is_sent_again_and_is_not_an_attempt(kind: str, live: float | None) -> None:
    """The loop never fails meanwhile, and its journal has no failure."""
    place = place_of(kind, script=DONE)
    place.create("one", "two")
    refused, statuses = [refusal(0.05), refusal(None, 529), refusal(0.0)], list[str]()

    def refuse() -> None:
        statuses.extend(place.status(each) for each in ("one", "two"))
        if refused:
            raise refused.pop()

    place.on["request"] = refuse
    assert place.work(live=live, backoff=lambda _: 0.01, max_attempts=3) == 2
    assert [(row.status, row.head.attempts) for row in place.store.list()] == [("ended", 0)] * 2
    assert (len(place.requests), "failed" in statuses) == (7, False)


@either_kind
def test_an_api_that_accepts_nothing_fails_a_loop_in_the_end(kind: str) -> None:
    """After `max_attempts` pauses, between which it accepted nothing, a refusal is a failure as any other."""
    place = place_of(kind, script=(refusal(0.0),))
    place.create()
    worker = place.worker(max_attempts=2)
    for attempts, requests in ((1, 3), (2, 4)):
        assert place.work(worker) == 1
        assert (place.row().head.attempts, len(place.requests)) == (attempts, requests)
        place.now = place.row().head.retry_at or 0.0
    assert (place.status(), place.row().head.retry_at) == ("failed", None)


@either_kind
@pytest.mark.parametrize("live", [None, 0.25])
def test_a_stop_ends_a_loop_in_a_pause_at_once(kind: str, live: float | None, tmp_path: Path) -> None:
    """The request is not sent again, though the pause would take an hour."""
    place, refused = workplace(kind, "sqlite", tmp_path, script=(refusal(3600.0),)), threading.Event()
    place.create()
    place.on["request"] = refused.set
    run = Background(lambda: place.work(live=live))
    wait_for(refused)
    place.inbox.stop("loop", "enough", by="ana")
    assert (run.result(), place.status(), len(place.requests)) == (1, "ended", 1)


@either_kind
def test_a_worker_that_stops_gives_up_the_requests_in_a_pause(
    kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The loop is due at once for any worker, without an attempt, and this one logs no error."""
    monkeypatch.setattr(desk, "POLL", 0.05)
    place, refused, stop = place_of(kind, script=(refusal(3600.0),)), threading.Event(), threading.Event()
    place.create()
    place.on["request"] = refused.set
    run = Background(lambda: wait(kind, place.worker().run(stop)))  # type: ignore[arg-type]  # it is only asked
    wait_for(refused)
    stop.set()
    run.result()
    row = place.row()
    assert (row.due_at, row.lease, row.head.attempts, len(place.requests)) == (0.0, None, 0, 1)
    assert [each.levelname for each in caplog.records] == ["WARNING"]  # of the pause
    place.script = DONE
    assert (place.work(), place.status()) == (1, "ended")


@either_kind
def test_a_request_in_a_pause_is_given_up_for_the_one_that_drives(kind: str) -> None:
    """Also without `run`: by the `until` of `drive`. What ended one use of a worker does not end the next."""
    place, refused = place_of(kind, script=(refusal(3600.0),)), threading.Event()
    place.create()
    place.on["request"] = refused.set
    row = wait(kind, place.worker().drive("loop", refused.is_set))
    assert (row.due_at, row.lease, len(place.requests)) == (0.0, None, 1)
    worker, script = place.worker(), [refusal(0.01)]
    place.script, place.on["request"] = DONE, lambda: _raise(script)
    wait(kind, worker.run(_set()))  # type: ignore[arg-type]  # it is only asked
    assert (place.work(worker), place.status()) == (1, "ended")


def _raise(errors: list[ModelError]) -> None:
    if errors:
        raise errors.pop()


def _set() -> threading.Event:
    event = threading.Event()
    event.set()
    return event
