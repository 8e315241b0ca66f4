"""Records of a journal: kinds, turns, ends that come late or again, and starts that may be stored."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kit.each import each
from tests.kit.failing import FailingStore, Moment
from tests.kit.journals import (
    RUNNING,
    STORY,
    Driver,
    assert_sound,
    make_first,
    make_journal,
    make_running_loop,
    names,
    open_journal,
    read_stored_state,
    take_over,
)
from tests.kit.warm_python import run
from toolloop._journal.journal import Journal, LocalJournal
from toolloop._journal.records import PendingRecord, make_id
from toolloop.errors import CallerError, Conflict, StoreError
from toolloop.events import RequestStarted
from toolloop.machine.message_ids import derive_reply_id
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import round_of
from toolloop.machine.tree import begin
from toolloop.machine.values.calls import DecisionRecord, Result, Wait, Why
from toolloop.machine.values.jsontext import encode
from toolloop.machine.values.splicing import Splice
from toolloop.stores import MemoryStore


def journal(clock: Callable[[], Any] = lambda: 5.0) -> Journal:
    return LocalJournal(begin(make_first()), clock)


# --- recording -------------------------------------------------------------------------------------------------------


def test_what_is_recorded_counts_at_once() -> None:
    """Nothing has to be stored, so nothing can wait for it, or be lost."""
    own = journal()
    seen: list[Any] = []
    own.bus.reader = seen.append
    name = derive_reply_id(own.state.root)
    record = own.record(ev.Requested())
    assert (record.stored, record.rejection, record.kind) == (True, None, "step")
    assert seen == [RequestStarted(1, message_id=name)]
    own.drop_steps()
    own.commit()
    assert own.lost is None
    own.tell()
    assert (own.is_behind, own.refresh(), own.remote_drives, own.is_stored) == (False, False, 0, False)


def test_an_illegal_command_changes_nothing() -> None:
    """It is refused, as a fact and as a command."""
    own = journal()
    before = (own.state, own.turn)
    with pytest.raises(CallerError):
        own.record(ev.TurnEnded())
    with pytest.raises(CallerError):
        own.issue(lambda _: ev.Continued())
    own.issue(lambda _: None)
    assert (own.state, own.turn) == before


@each(
    ("event", "kind"),
    [(ev.Requested(), "step"), (ev.TurnEnded(), "step"), (ev.Replied(STORY[0]), "fact"), (ev.Ticked(), "fact")],
)
def test_the_kind_of_a_record_goes_by_the_class_of_its_event(event: ev.Event, kind: str) -> None:
    """Unless a caller decides otherwise."""
    own = journal()
    if isinstance(event, (ev.Replied, ev.TurnEnded)):
        own.record(ev.Requested())
    if isinstance(event, ev.TurnEnded):
        for each in (ev.Replied(STORY[0]), ev.Judged(), ev.Started("t1"), ev.Started("t2")):
            own.record(each)
        for call_id in ("t1", "t2"):
            own.record(ev.Ended(call_id, Result(encode("ok"))))
    assert own.record(event).kind == kind


# --- turns -----------------------------------------------------------------------------------------------------------


def waits() -> Journal:
    """A loop that waits for a decision on `t3`, and one of whose calls is not judged to need one."""
    own = journal()
    for event in (ev.Requested(), ev.Replied(STORY[1]), ev.Judged((("t3", Wait(Why.APPROVAL)),))):
        own.record(event)
    return own


STAY: dict[str, ev.Event] = {
    "a decision": ev.Decided((("t3", DecisionRecord("deny", reason="no")),)),
    "time": ev.Ticked(at=9.0, seconds=1.0),
    "an edit": ev.HistoryEdited((Splice(0, 1, (make_first().messages[0],)),)),
    "other parameters": ev.Changed(params="{}"),
    "another driver": ev.Woken(),
    "an end that is late": ev.Ended("t9", Result(encode("late")), iteration=1, attempt=1),
}


@each("event", STAY.values())
def test_what_happens_while_a_loop_waits_belongs_to_that_wait(event: ev.Event) -> None:
    """So what it returned is still true, or is looked up again."""
    own = waits()
    before = own.turn
    own.record(event)
    assert own.turn == before


def test_a_wait_and_a_result_are_turns_of_their_own() -> None:
    """However they end."""
    own = waits()
    turns = [own.turn]
    own.record(STAY["a decision"])
    for event in (ev.Continued(), ev.Stopped("enough"), ev.FollowedUp((encode({"role": "user", "content": "on"}),))):
        own.record(event)
        turns.append(own.turn)
    assert turns == sorted(set(turns))


# --- the clock -------------------------------------------------------------------------------------------------------


def fail_clock() -> float:
    raise OSError("no clock")


@each(
    "clock",
    [
        fail_clock,
        *(lambda said=said: said for said in (float("nan"), float("inf"), -1e300, 10**400, None, "noon", 3e11)),
    ],
)
def test_a_clock_that_fails_stands_still(clock: Callable[[], Any]) -> None:
    """Nothing that happened is lost for it, and no such time gets into a journal."""
    own = journal(clock)
    own.record(ev.Ticked(at=7.0))
    assert own.now() == 7.0


def test_ids_grow() -> None:
    """So an index grows at its end."""
    ids = [make_id() for _ in range(300)]
    assert ids == sorted(set(ids))
    assert len({each[:6] for each in ids}) == 1


FORKING = """
import os, sys, threading, warnings
from functools import partial
from tests.kit.journals import *
from tests.kit.journals import assert_sound, encode, ev, make_journal, names, open_journal
from toolloop.errors import IllegalCommand
from toolloop._journal.records import make_id
from toolloop.machine.values.calls import Result
from toolloop.stores import SqliteStore

warnings.simplefilter("ignore")  # that a process with threads forks
store = SqliteStore(sys.argv[1])
driver = Driver(make_journal(store))
journal, lease = driver.journal, driver.lease
driver.hold()
driver.record(*RUNNING)
held, forked = threading.Event(), threading.Event()

def hold():
    with journal.io, journal.lock:
        held.set()
        forked.wait(30)

thread = threading.Thread(target=hold)
thread.start()
held.wait(30)
before = make_id()
child = os.fork()
if child:
    forked.set()
    thread.join()
    print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    end = journal.record(ev.Ended("t1", Result(encode("paid")), iteration=1, attempt=1))
    journal.record(ev.Ended("t2", Result(encode("looked")), iteration=1, attempt=1))
    journal.commit()
    assert journal.lost is None
    driver.release()
    print(end.stored, names(store).count("Ended"), store.head("loop").lease, os.getpid() != child)
    assert_sound(store)
else:
    code = 1
    try:
        assert make_id()[:6] != before[:6]
        end = ev.Ended("t1", Result(encode("paid")), iteration=1, attempt=1)
        for act in (partial(journal.record, end), journal.commit, journal.refresh, lease.acquire):
            try:
                act()
            except IllegalCommand:
                code += 1
        assert store.head("loop").lease is not None, "it gave back what its parent holds"
    finally:
        os._exit(code)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork() on this system")
def test_the_child_of_a_fork_holds_nothing_of_its_parent(tmp_path: Path) -> None:
    """It waits for no lock, and records nothing: what its parent began is not there."""
    (program := tmp_path / "program.py").write_text(FORKING)
    done = run([str(program), str(tmp_path / "loops.db")])
    assert (done.stdout.split("\n"), done.stderr) == (["child 5", "True 2 None True", ""], "")


def change(_: Any) -> ev.Changed:
    return ev.Changed(params='{"model":"m","max_tokens":8}', names=("max_tokens",))


# --- ends of runs ----------------------------------------------------------------------------------------------------


END = ev.Ended("t1", Result(encode("paid")), iteration=1, attempt=1)


def test_the_end_of_a_run_is_recorded_with_any_later_driver() -> None:
    """And it counts if no other decision was recorded. Everything else that the old driver records is rejected."""
    store = MemoryStore()
    first = make_running_loop(store)
    take_over(store)
    end = first.journal.record(END)
    other = first.journal.record(ev.Ended("t2", None))
    first.journal.commit()
    assert (end.stored, end.rejection, other.stored, type(other.rejection)) == (True, None, False, Conflict)
    assert names(store)[-1] == "Ended"
    assert round_of(read_stored_state(store).root).find("t1").result.content == encode("paid")  # type: ignore[union-attr] # it has one
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
    first = make_running_loop(store)
    assert first.journal.remote_drives == 0
    take_over(store)
    assert first.journal.lost is None
    assert first.journal.refresh()
    assert first.journal.remote_drives > 0
    assert isinstance(first.journal.lost, Conflict)


def test_two_processes_that_saw_one_run_end_store_it_once() -> None:
    """A fork inside a tool ends it twice."""
    store = MemoryStore()
    first = make_running_loop(store)
    second = open_journal(store)
    for journal in (second, first.journal):
        assert journal.record(END).id.startswith("end00001")
        journal.commit()
    assert names(store).count("Ended") == 1
    assert first.journal.state == second.state == read_stored_state(store)


def test_a_second_end_of_a_run_is_kept_under_an_id_of_its_own() -> None:
    """The first one is the result: a call that timed out ends once more when its tool is back."""
    store = MemoryStore()
    driver = make_running_loop(store)
    both = [driver.journal.record(END), driver.journal.record(END)]
    driver.journal.commit()
    assert len({each.id for each in both}) == 2
    assert names(store)[-2:] == ["Ended", "Ended"]
    assert_sound(store)


# --- what may be stored all the same ---------------------------------------------------------------------------------


def make_unsure(fails: Moment) -> tuple[FailingStore, Driver, PendingRecord]:
    """A driver that recorded a start; it is unknown whether it is stored, for the store fails altogether."""
    store = FailingStore(MemoryStore())
    driver = Driver(make_journal(store))
    driver.hold()
    driver.record(*RUNNING[:3])
    start = driver.journal.record(ev.Started("t1", "digest"))
    appended = len(store.asked) + 1
    store.fails = lambda at: fails if at == appended else "before" if at > appended else None
    with pytest.raises(StoreError):
        driver.journal.commit()
    assert (start.stored, start.sent) == (False, True)
    store.fails = lambda _: None
    return store, driver, start


def test_a_start_that_was_dropped_and_is_stored_counts_after_all() -> None:
    """The driver that recorded it may still perform it."""
    store, driver, start = make_unsure("after")
    assert driver.journal.refresh()
    assert (start.stored, driver.journal.remote_drives) == (True, 0)
    assert driver.journal.lost is None
    assert driver.journal.state == read_stored_state(store.inner)


@each("fails", ["before", "after"])
def test_a_start_that_is_recorded_again_keeps_its_id(fails: Moment) -> None:
    """So it is stored once, whether the first one was or not."""
    store, driver, start = make_unsure(fails)
    again = driver.journal.record(ev.Started("t1", "digest", at=7.0))
    assert again.id == start.id
    driver.journal.commit()
    assert again.stored
    assert names(store.inner).count("Started") == 1
    assert driver.journal.state == read_stored_state(store.inner)


@each("id", ["its own", "the first one's"])
def test_a_start_of_another_input_is_not_taken_for_the_one_that_is_stored(id: str) -> None:  # noqa: A002 - what it is about
    """It must not run because of the first decision; then its end is unknown."""
    store, driver, start = make_unsure("after")
    again = driver.journal.record(ev.Started("t1", "other"), id=start.id if id != "its own" else None)
    driver.journal.commit()
    assert (again.stored, again.rejection is None) == (False, False)
    assert driver.journal.lost is None
    assert driver.journal.state == read_stored_state(store.inner)


def test_a_start_that_is_certainly_not_stored_is_forgotten() -> None:
    """A look at the store says so."""
    _, driver, start = make_unsure("before")
    driver.journal.refresh()
    assert (start.stored, start.sent) == (False, False)


def test_a_deferred_command_whose_fate_is_unknown_is_said_once() -> None:
    """It is repeated with its id."""
    store = FailingStore(MemoryStore())
    journal = make_journal(store, defers=True)
    journal.commit()
    journal.issue(lambda state: ev.Changed(params="{}", at=state.root.now + len(store.asked)))
    appended = len(store.asked) + 1
    store.fails = lambda at: "after" if at == appended else "before" if at > appended else None
    with pytest.raises(StoreError):
        journal.commit()
    store.fails = lambda _: None
    journal.commit()
    assert names(store.inner) == ["Opened", "Changed"]
    assert journal.state == read_stored_state(store.inner)


def test_a_refused_command_that_is_still_stored_is_not_given_twice() -> None:
    """The caller got the store's error, and gives the command again: the loop has moved on since they looked."""
    store = FailingStore(MemoryStore())
    journal = make_journal(store)
    journal.commit()
    appended = len(store.asked) + 1
    store.fails = lambda at: "after" if at == appended else "before" if at > appended else None
    with pytest.raises(StoreError, match="the disk is gone"):
        journal.issue(change)
    store.fails = lambda _: None
    with pytest.raises(Conflict, match="continued elsewhere"):
        journal.issue(change)
    assert names(store.inner) == ["Opened", "Changed"]
    assert journal.state == read_stored_state(store.inner)
