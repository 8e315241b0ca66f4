"""A journal without a store; and what every journal does: turns, clocks, ids, and its locks in the child of a fork."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.each import each
from tests.loop.journals import ID, STORY, first
from toolloop.errors import CallerError
from toolloop.face.watch_events import RequestStarted
from toolloop.loop.event_bus import EventBus
from toolloop.loop.journal import Journal, new_id
from toolloop.machine import events as ev
from toolloop.machine.jsontext import encode
from toolloop.machine.splicing import Splice
from toolloop.machine.tree import begin
from toolloop.machine.values import DecisionRecord, Result, Wait, Why

ROOT = Path(__file__).parents[2]


def journal(clock: Callable[[], Any] = lambda: 5.0) -> Journal:
    return Journal(begin(first()), clock, EventBus(ID))


# --- recording -------------------------------------------------------------------------------------------------------


def test_what_is_recorded_counts_at_once() -> None:
    """Nothing has to be stored, so nothing can wait for it, or be lost."""
    own = journal()
    seen: list[Any] = []
    own.bus.reader = seen.append
    record = own.record(ev.Requested())
    assert (record.stored, record.rejection, record.kind) == (True, None, "step")
    assert seen == [RequestStarted(1)]
    own.drop_steps()
    own.commit()
    assert own.lost is None
    own.tell()
    assert (own.is_behind, own.refresh(), own.remote_drives, own.store) == (False, False, 0, None)


def test_what_is_not_possible_changes_nothing() -> None:
    """It is refused, as a fact and as a command."""
    own = journal()
    before = (own.state, own.turn)
    with pytest.raises(CallerError):
        own.record(ev.TurnEnded())
    with pytest.raises(CallerError):
        own.say(lambda _: ev.Continued())
    own.say(lambda _: None)
    assert (own.state, own.turn) == before


@each(
    ("event", "kind"),
    [(ev.Requested(), "step"), (ev.TurnEnded(), "step"), (ev.Replied(STORY[0]), "fact"), (ev.Ticked(), "fact")],
)
def test_the_kind_of_a_record_goes_by_the_class_of_its_event(event: ev.Event, kind: str) -> None:
    """Unless somebody says otherwise."""
    own = journal()
    if isinstance(event, ev.Replied | ev.TurnEnded):
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
    "an edit": ev.HistoryEdited((Splice(0, 1, (first().messages[0],)),)),
    "other parameters": ev.Changed(params="{}"),
    "another driver": ev.Woken(),
    "an end that is late": ev.Ended("t9", Result(encode("late")), iteration=1, attempt=1),
}


@each("event", STAY.values())
def test_what_happens_while_a_loop_waits_belongs_to_that_wait(event: ev.Event) -> None:
    """So what was shown of it is still true, or is looked up anew."""
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


def broken() -> float:
    raise OSError("no clock")


@each(
    "clock",
    [broken, *(lambda said=said: said for said in (float("nan"), float("inf"), -1e300, 10**400, None, "noon", 3e11))],
)
def test_a_clock_that_fails_stands_still(clock: Callable[[], Any]) -> None:
    """Nothing that happened is lost for it, and no such time gets into a journal."""
    own = journal(clock)
    own.record(ev.Ticked(at=7.0))
    assert own.now() == 7.0


def test_a_clock_tells_milliseconds() -> None:
    """Each event carries the time, so it is short."""
    assert journal(lambda: 1_800_000_000.123456).now() == 1_800_000_000.123


# --- ids and locks ---------------------------------------------------------------------------------------------------


def test_ids_grow() -> None:
    """So an index grows at its end."""
    ids = [new_id() for _ in range(300)]
    assert ids == sorted(set(ids))
    assert len({each[:6] for each in ids}) == 1


FORKING = """
import os, sys, threading
from tests.loop.journals import *
from tests.loop.journals import assert_sound, encode, ev, names, new_journal, open_journal
from toolloop.errors import Conflict, StoreError
from toolloop.loop.journal import new_id
from toolloop.loop.lease import DriverLease
from toolloop.machine.values import Result
from toolloop.stores import SqliteStore

store = SqliteStore(sys.argv[1])
driver = Driver(new_journal(store))
journal, lease = driver.journal, driver.lease
lease.acquire()
for event in (ev.Requested(), ev.Replied(STORY[0]), ev.Judged(), ev.Started("t1"), ev.Started("t2")):
    journal.record(event)
journal.commit()
held, forked = threading.Event(), threading.Event()

def hold():
    with journal.io, journal.lock:
        held.set()
        forked.wait(30)

thread = threading.Thread(target=hold)
thread.start()
held.wait(30)
before = new_id()
child = os.fork()
if child:
    forked.set()
    thread.join()
    print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    end = journal.record(ev.Ended("t1", Result(encode("paid")), iteration=1, attempt=1))
    journal.record(ev.Ended("t2", Result(encode("looked")), iteration=1, attempt=1))
    journal.commit()
    assert journal.lost is None
    lease.release()
    print(end.stored, names(store).count("Ended"), store.lease("loop"), os.getpid() != child)
    assert_sound(store)
else:
    code = 1
    try:
        assert new_id()[:6] != before[:6]
        end = journal.record(ev.Ended("t1", Result(encode("paid")), iteration=1, attempt=1))
        other = journal.record(ev.Ended("t2", None))
        journal.commit()
        assert end.stored and not other.stored and isinstance(other.rejection, Conflict)
        lease.release()
        assert store.lease("loop") is not None, "it gave back what its parent holds"
        try:
            DriverLease(journal).acquire()
        except Conflict:
            code = 7
    finally:
        os._exit(code)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork() on this system")
def test_the_child_of_a_fork_holds_nothing_of_its_parent(tmp_path: Path) -> None:
    """It has no lease and waits for no lock. An end that both saw is stored once."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    program = [sys.executable, "-W", "ignore", "-c", FORKING, str(tmp_path / "loops.db")]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert (done.stdout.split("\n"), done.stderr) == (["child 7", "True 2 None True", ""], "")


def test_threads_record_in_one_order() -> None:
    """None of them is lost, and those who watch are told in that order."""
    own = journal()
    threads = [
        threading.Thread(target=lambda: [own.record(ev.Ticked(seconds=1.0)) for _ in range(50)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert own.state.root.active == 200.0
