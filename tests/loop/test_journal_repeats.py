"""Records that come late or again: ends of runs, starts whose fate is unknown, what is told, and what is damaged."""

from __future__ import annotations

from typing import Any

import pytest

from tests.each import each
from tests.loop.journals import (
    ALLOWED,
    STORY,
    Driver,
    FailingStore,
    Moment,
    assert_sound,
    driver_of,
    names,
    new_journal,
    open_journal,
    stored_state,
)
from toolloop.errors import Conflict, StoreError, UnreadableSnapshot
from toolloop.face.watch_events import CallFinished
from toolloop.loop.journal import PendingRecord
from toolloop.machine import events as ev
from toolloop.machine.jsontext import encode
from toolloop.machine.loop import round_of
from toolloop.machine.values import Result
from toolloop.stores import MemoryStore
from toolloop.stores.protocol import Entry, Store


def change(_: Any) -> ev.Changed:
    return ev.Changed(params='{"model":"m","max_tokens":8}', names=("max_tokens",))


# --- ends of runs ----------------------------------------------------------------------------------------------------

END = ev.Ended("t1", Result(encode("paid")), iteration=1, attempt=1)


def running_loop(store: Store) -> Driver:
    """A loop whose first round runs; its driver holds the lease."""
    driver = Driver(new_journal(store))
    driver.lease.acquire()
    for event in (ev.Requested(), ev.Replied(STORY[0]), ev.Judged(), ev.Started("t1"), ev.Started("t2")):
        driver.journal.record(event)
    driver.journal.commit()
    return driver


def test_the_end_of_a_run_gets_in_whoever_drives_by_then() -> None:
    """And it counts if nobody has decided otherwise. Everything else that the old driver records is rejected."""
    store = MemoryStore()
    first = running_loop(store)
    driver_of(store, take_over=True).turn()
    end = first.journal.record(END)
    other = first.journal.record(ev.Ended("t2", None))
    first.journal.commit()
    assert (end.stored, end.rejection, other.stored, type(other.rejection)) == (True, None, False, Conflict)
    assert names(store)[-1] == "Ended"
    assert round_of(stored_state(store).root).find("t1").result.content == encode("paid")  # type: ignore[union-attr] # it has one
    assert isinstance(first.journal.lost, Conflict)
    for event in (ev.Replied(STORY[0]), ev.TurnEnded(), ev.Ticked(at=9.0), ev.Ended("t2", None)):
        record = first.journal.record(event)
        assert (record.stored, type(record.rejection)) == (False, Conflict)
    late = first.journal.record(END)
    first.journal.commit()
    assert late.stored
    assert names(store)[-2:] == ["Ended", "Ended"]
    assert_sound(store)


def test_a_driver_learns_of_a_take_over_from_what_it_reads() -> None:
    """It may read before it stores."""
    store = MemoryStore()
    first = running_loop(store)
    assert first.journal.remote_drives == 0
    driver_of(store, take_over=True).turn()
    assert first.journal.lost is None
    assert first.journal.refresh()
    assert first.journal.remote_drives > 0
    assert isinstance(first.journal.lost, Conflict)


def test_two_processes_that_saw_one_run_end_store_it_once() -> None:
    """A fork inside a tool ends it twice."""
    store = MemoryStore()
    first = running_loop(store)
    second = open_journal(store)
    for journal in (second, first.journal):
        assert journal.record(END).id.startswith("end00001")
        journal.commit()
    assert names(store).count("Ended") == 1
    assert first.journal.state == second.state == stored_state(store)


def test_a_second_end_of_a_run_is_kept_under_an_id_of_its_own() -> None:
    """The first one is the result: a call that timed out ends once more when its tool is back."""
    store = MemoryStore()
    driver = running_loop(store)
    both = [driver.journal.record(END), driver.journal.record(END)]
    driver.journal.commit()
    assert len({each.id for each in both}) == 2
    assert names(store)[-2:] == ["Ended", "Ended"]
    assert_sound(store)


# --- what may be stored all the same ---------------------------------------------------------------------------------


def unsure(fails: Moment) -> tuple[FailingStore, Driver, PendingRecord]:
    """A driver that recorded a start; nobody knows whether it is stored, for the store fails altogether."""
    store = FailingStore(MemoryStore())
    driver = Driver(new_journal(store))
    driver.lease.acquire()
    for event in (ev.Requested(), ev.Replied(STORY[0]), ev.Judged()):
        driver.journal.record(event)
    driver.journal.commit()
    start = driver.journal.record(ev.Started("t1", "digest"))
    appended = len(store.asked) + 1
    store.fails = lambda at: fails if at == appended else "before" if at > appended else None
    with pytest.raises(StoreError):
        driver.journal.commit()
    assert (start.stored, start.sent) == (False, True)
    store.fails = lambda _: None
    return store, driver, start


def test_a_start_that_was_dropped_and_is_stored_counts_after_all() -> None:
    """Whoever recorded it may still perform it."""
    store, driver, start = unsure("after")
    assert driver.journal.refresh()
    assert (start.stored, driver.journal.remote_drives) == (True, 0)
    assert driver.journal.lost is None
    assert driver.journal.state == stored_state(store.inner)


@each("fails", ["before", "after"])
def test_a_start_that_is_recorded_again_keeps_its_id(fails: Moment) -> None:
    """So it is stored once, whether the first one was or not."""
    store, driver, start = unsure(fails)
    again = driver.journal.record(ev.Started("t1", "digest", at=7.0))
    assert again.id == start.id
    driver.journal.commit()
    assert again.stored
    assert names(store.inner).count("Started") == 1
    assert driver.journal.state == stored_state(store.inner)


@each("id", ["its own", "the first one's"])
def test_a_start_of_another_input_is_not_taken_for_the_one_that_is_stored(id: str) -> None:  # noqa: A002 - what it is about
    """It must not run on the word of the first one; nobody knows then how that ended."""
    store, driver, start = unsure("after")
    again = driver.journal.record(ev.Started("t1", "other"), id=start.id if id != "its own" else None)
    driver.journal.commit()
    assert (again.stored, again.rejection is None) == (False, False)
    assert driver.journal.lost is None
    assert driver.journal.state == stored_state(store.inner)


def test_a_start_that_is_certainly_not_stored_is_forgotten() -> None:
    """A look at the store says so."""
    _, driver, start = unsure("before")
    driver.journal.refresh()
    assert (start.stored, start.sent) == (False, False)


def test_a_deferred_command_whose_fate_is_unknown_is_said_once() -> None:
    """It is repeated with its id."""
    store = FailingStore(MemoryStore())
    journal = new_journal(store, defers=True)
    journal.commit()
    journal.say(lambda state: ev.Changed(params="{}", at=state.root.now + len(store.asked)))
    appended = len(store.asked) + 1
    store.fails = lambda at: "after" if at == appended else "before" if at > appended else None
    with pytest.raises(StoreError):
        journal.commit()
    store.fails = lambda _: None
    journal.commit()
    assert names(store.inner) == ["Opened", "Changed"]
    assert journal.state == stored_state(store.inner)


def test_a_refused_command_that_is_stored_all_the_same_is_not_said_twice() -> None:
    """The caller was told that the store failed, and says it again: the loop has moved on since they looked."""
    store = FailingStore(MemoryStore())
    journal = new_journal(store)
    journal.commit()
    appended = len(store.asked) + 1
    store.fails = lambda at: "after" if at == appended else "before" if at > appended else None
    with pytest.raises(StoreError, match="the disk is gone"):
        journal.say(change)
    store.fails = lambda _: None
    with pytest.raises(Conflict, match="went on elsewhere"):
        journal.say(change)
    assert names(store.inner) == ["Opened", "Changed"]
    assert journal.state == stored_state(store.inner)


# --- what those who watch are told -----------------------------------------------------------------------------------


def test_those_who_watch_are_told_each_event_once() -> None:
    """Whoever stored it; and of a loop that others drive likewise."""
    store = FailingStore(MemoryStore())
    driver = Driver(new_journal(store))
    driver.journal.commit()
    watcher = open_journal(store)
    store.fails = lambda at: "after" if at % 5 == 0 else None
    driver.to_the_end(*ALLOWED)
    store.fails = lambda _: None
    watcher.refresh()
    mine, theirs = driver.journal.bus.drain(), watcher.bus.drain()
    assert mine == theirs
    assert [each.call_id for each in mine if isinstance(each, CallFinished)] == ["t1", "t2", "t3", "t4"]


# --- damage ----------------------------------------------------------------------------------------------------------


@each("body", ['{"format":1,"event":"TurnEnded"}', '{"format":1,"event":"Nothing"}', "{"])
def test_a_journal_that_says_what_cannot_be_is_unreadable(body: str) -> None:
    """Nothing of it is believed, and what was recorded here waits."""
    store = MemoryStore()
    journal = new_journal(store)
    journal.commit()
    before = journal.state
    store.append("loop", [Entry("x", body)], expected_rev=None)
    for ask in (journal.refresh, lambda: journal.say(change)):
        with pytest.raises(UnreadableSnapshot):
            ask()
    assert journal.state == before


@each("seconds", [float("nan"), float("inf")])
def test_what_no_store_can_keep_does_not_enter_the_journal(seconds: float) -> None:
    """It would be in everybody's way for ever."""
    journal = new_journal(MemoryStore())
    before = journal.state
    with pytest.raises(ValueError, match=r"float|JSON"):
        journal.record(ev.Ticked(seconds=seconds))
    assert journal.state is before
    journal.commit()
    assert not journal.is_behind
