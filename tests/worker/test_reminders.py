"""Reminders of calls that wait long: at least once each, told apart by their ids, and none after the deadline."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.kit.concurrency import either_kind
from tests.kit.effort import examples
from tests.kit.world import World, each_store
from tests.worker.support import PAY, PAY_BO, place_of, workplace
from toolloop import Approve, Ask, LoopConfig
from toolloop.inbox import InboxCall
from toolloop.testing import reply

BOTH = (reply(calls=[PAY, PAY_BO]), reply("Paid."))


def notified(place: World) -> list[tuple[str, int]]:
    return [(each.id, each.reminder) for each in place.notified]


@either_kind
def test_a_call_that_waits_is_reminded_of(kind: str) -> None:
    """Once after each time, with an id of its own; a call that was decided is not."""
    place = place_of(kind, script=BOTH)
    place.create()
    worker = place.worker(notify=place.notifier(), remind_after=(600, 3600))
    place.work(worker)
    place.now += 599
    place.work(worker)
    assert notified(place) == [("c1", 0), ("c3", 0)]
    place.inbox.decide("loop", {"c1": Approve(by="ana")})
    for seconds in (1, 10, 2990, 10, 10_000):
        place.now += seconds
        place.work(worker)
    assert notified(place) == [("c1", 0), ("c3", 0), ("c3", 1), ("c3", 2)]
    assert len({each.notification_id for each in place.notified}) == 4
    assert place.inbox.pending()[0].notification_id == place.notified[1].notification_id


def test_of_several_missed_reminders_only_the_newest_is_sent() -> None:
    """A worker that slept, and one that never was there before."""
    place = place_of()
    place.create()
    place.work()
    place.now += 5000
    place.work(notify=place.notifier(), remind_after=(600, 1200, 3600, 9000))
    place.work(notify=place.notifier(), remind_after=(600, 1200, 3600, 9000))
    assert notified(place) == [("c1", 3)]


def test_no_reminder_is_sent_at_the_deadline_or_after_it() -> None:
    """There is nothing to decide then."""
    place = place_of()
    place.create(config=LoopConfig(decision_timeout=600.0))
    worker = place.worker(notify=place.notifier(), remind_after=(300, 600, 700))
    for _ in range(8):
        place.work(worker)
        place.now += 100
    assert notified(place) == [("c1", 0), ("c1", 1)]


def test_a_notification_that_takes_long_does_not_make_the_next_one_late() -> None:
    """They are sent one at a time: a call whose deadline passes meanwhile needs none."""
    place, sent = place_of(), list[float]()
    for loop_id in "abc":
        place.create(loop_id, config=LoopConfig(decision_timeout=130.0))
    begun = place.now

    def notify(item: InboxCall) -> None:
        if item.reminder:
            sent.append(place.now - begun)
            place.now += 25

    worker = place.worker(notify=notify, remind_after=(100,))
    place.work(worker)
    place.now += 101
    place.work(worker)
    assert sent == [101, 126]


@pytest.mark.parametrize("asks", [Ask(remind_after=(60,)), [Ask(remind_after=(60,)), Ask(remind_after=(90,))]])
def test_a_rule_says_when_to_remind(asks: Any) -> None:
    """The times of its `Ask`s together, whatever the worker says."""
    place = place_of()
    place.create(config=LoopConfig(on_tool_call=lambda *_: asks))
    config = LoopConfig(on_tool_call=lambda *_: asks)
    worker = place.worker(notify=place.notifier(), remind_after=(10,), config=config)
    for _ in range(10):
        place.work(worker)
        place.now += 15
    number = 1 if isinstance(asks, Ask) else 2
    assert notified(place) == [("c1", each) for each in range(number + 1)]


def test_a_worker_refuses_times_that_are_none() -> None:
    """At once."""
    for bad, error in (((-1,), ValueError), (("soon",), TypeError), (("10",), TypeError)):
        with pytest.raises(error, match="remind_after"):
            place_of().worker(remind_after=bad)


STEPS = st.lists(
    st.tuples(st.sampled_from(["look", "claim", "wait", "decide"]), st.integers(0, 1), st.integers(0, 30)), max_size=14
)


@examples(40)
@given(STEPS, st.lists(st.integers(0, 60), max_size=3), st.none() | st.integers(1, 90))
def test_each_reminder_is_sent_at_least_once_and_is_the_newest(steps: Any, after: Any, timeout: Any) -> None:
    """By two workers in any order, one of which may stop between its claim and its notification."""
    place = place_of(script=BOTH)
    place.create(config=LoopConfig(decision_timeout=timeout))
    begun = place.now
    workers: Any = [place.worker(notify=place.notifier(), remind_after=tuple(after)) for _ in range(2)]
    place.work(workers[0])
    claimed = set[str]()
    for what, number, seconds in steps:
        if what == "claim":  # by a worker that stands still from here on
            claimed |= {each[1] for each in workers[number]._desk.unnotified() if workers[number]._desk.claim(*each)}
        elif what == "wait":
            place.now += seconds
        elif what == "decide":
            waits = place.inbox.pending()[:1]
            for each in waits:
                place.inbox.decide("loop", {each: Approve(by="ana")})
        before = len(place.notified)
        place.work(workers[number])
        late = timeout is not None and place.now >= begun + timeout
        assert not late or len(place.notified) == before
        for each in place.notified[before:]:
            assert each.reminder == sum(begun + time <= place.now for time in after if not timeout or time < timeout)
        known = {each.notification_id for each in place.notified} | claimed
        for row in place.inbox.pending():
            due = sum(begun + time <= place.now for time in after if not timeout or time < timeout)
            ids = {each.notification_id for each in place.notified if (each.id, each.reminder) == (row.id, due)}
            assert ids <= known
            assert ids or claimed
    assert max(Counter(each.notification_id for each in place.notified).values(), default=0) <= 1


@each_store
def test_a_worker_that_gets_times_later_reminds_of_calls_that_wait(where: str, tmp_path: Path) -> None:
    """Also if another worker, which has none, has marked the loop before and marks it again."""
    place = workplace("sync", where, tmp_path)
    if hasattr(place.store, "now"):
        place.store.now = place.clock
    place.create()
    plain = place.worker(notify=place.notifier())
    place.work(plain)
    place.now += 700
    place.work(plain)
    late = place.worker(notify=place.notifier(), remind_after=(600, 1200))
    for worker in (late, plain, late):
        place.work(worker)
    assert notified(place) == [("c1", 0), ("c1", 1)]
    place.create("other")
    for seconds in (0, 500, 200, 600):
        place.now += seconds
        for worker in (plain, late, plain):
            place.work(worker)
    assert Counter((each.loop_id, each.reminder) for each in place.notified) == {
        (loop_id, number): 1 for loop_id in ("loop", "other") for number in range(3)
    }
    place.work(place.worker(notify=place.notifier(), remind_after=(600, 1200, 1201)))
    assert sorted((each.loop_id, each.reminder) for each in place.notified[-2:]) == [("loop", 3), ("other", 3)]


@examples(15)
@given(
    st.lists(st.tuples(st.sampled_from([0, 1]), st.integers(0, 40)), max_size=12),
    st.lists(st.integers(1, 60), min_size=1, max_size=3),
    st.booleans(),
)
def test_it_is_enough_that_one_worker_has_the_times(steps: Any, after: Any, asks: bool) -> None:
    """In any order, after its next look; the other one goes by the times of a rule. Each reminder is sent once."""
    ask = Ask(remind_after=(15,))
    config = LoopConfig(on_tool_call=lambda call, _: ask if asks and call.id == "c1" else None)
    with TemporaryDirectory() as folder:
        check_one_with_times(workplace("sync", "sqlite", Path(folder), script=BOTH), config, steps, after, asks=asks)


def check_one_with_times(place: World, config: LoopConfig, steps: Any, after: Any, *, asks: bool) -> None:
    place.create(config=config)
    place.work(place.worker(config=config))  # from now on the calls wait
    begun = place.now
    times: tuple[Any, ...] = ((), after)
    workers = [place.worker(notify=place.notifier(), config=config, remind_after=each) for each in times]
    for number, seconds in steps:
        place.now += seconds
        place.work(workers[number])
        for call_id, times_of in (("c1", (15,) if asks else times[number]), ("c3", times[number])):
            due = sum(begun + time <= place.now for time in times_of)
            sent = [number for of, number in notified(place) if of == call_id]
            assert len({*sent}) == len(sent)
            assert due in sent if times_of else sent  # the first look may come after the first time
    assert max(Counter(notified(place)).values(), default=0) <= 1


@each_store
def test_the_store_says_when_the_next_reminder_is_due(where: str, tmp_path: Path) -> None:
    """Between two of them, an idle poll reads no row, also in a worker that has just started."""
    place = workplace("sync", where, tmp_path)
    place.create()
    store: Any = place.store
    for name in ("now",):
        if hasattr(store, name):
            setattr(store, name, place.clock)
    place.now = float(store.head("loop").created)
    worker = place.worker(notify=place.notifier(), remind_after=(600,))
    place.work(worker)
    place.work(worker)
    if not hasattr(store, "list_reminders"):
        return
    assert (store.list_unnotified(), store.list_reminders(place.now + 599)) == ([], [])
    assert [row.loop_id for row in store.list_reminders(place.now + 601)] == ["loop"]
    place.now += 601
    place.work(place.worker(notify=place.notifier(), remind_after=(600,)))
    place.work(place.worker(notify=place.notifier(), remind_after=(600,)))
    assert notified(place) == [("c1", 0), ("c1", 1)]
    assert store.list_reminders(place.now + 1e6) == []  # none is left
