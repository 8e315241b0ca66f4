"""The journal: nothing is performed before it is stored, nothing that happened is lost, and nothing happens twice."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.kit.each import each
from tests.kit.failing import FailingStore
from tests.kit.journals import (
    STORY,
    WAITING,
    Driver,
    decide,
    hold_lease,
    make_journal,
    make_waiting_loop,
    names,
    open_journal,
    stop,
)
from toolloop.errors import CallerError, Conflict, StoreError, UnreadableSnapshot
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import Finished
from toolloop.stores import MemoryStore
from toolloop.stores.protocol import Entry


def change(_: Any) -> ev.Changed:
    return ev.Changed(params='{"model":"m","max_tokens":8}', names=("max_tokens",))


# --- the three kinds -------------------------------------------------------------------------------------------------


def test_a_fact_is_recorded_again_behind_what_others_stored() -> None:
    """It happened."""
    store = MemoryStore()
    driver = Driver(make_journal(store))
    with hold_lease(driver.lease):
        request = driver.journal.record(ev.Requested())
        driver.journal.commit()
        open_journal(store).issue(stop, firm=False)
        reply = driver.journal.record(ev.Replied(STORY[0]))
        driver.journal.commit()
    assert (request.stored, reply.stored) == (True, True)
    assert names(store) == ["Opened", "Requested", "Stopped", "Replied"]
    assert isinstance(driver.journal.state.root.phase, Finished)


def test_a_step_is_dropped_when_others_were_first() -> None:
    """It was made of the loop as it was, so the engine looks again."""
    store = MemoryStore()
    driver = Driver(make_journal(store))
    driver.journal.commit()
    open_journal(store).issue(change)
    with hold_lease(driver.lease):
        open_journal(store).issue(change)
        step = driver.journal.record(ev.Requested())
        driver.journal.commit()
    assert (step.stored, type(step.rejection)) == (False, Conflict)
    assert not driver.journal.is_behind
    assert names(store) == ["Opened", "Changed", "Changed"]


def test_a_step_is_dropped_when_a_command_before_it_was_refused() -> None:
    """The request was made of the messages that were refused."""
    store = MemoryStore()
    first = make_waiting_loop(store)
    journal = open_journal(store, defers=True)
    journal.issue(decide(("t3", "approve")), firm=False)
    step = journal.record(ev.Continued(), "step")
    first.journal.issue(decide(("t3", "deny")), firm=False)
    journal.commit()
    assert (step.stored, step.rejection is None) == (False, False)
    with pytest.raises(CallerError, match="t3"):
        journal.tell()


def test_a_command_is_asked_again_of_the_state_as_it_is() -> None:
    """Another handle has decided one of two calls meanwhile, so only the other one is left to decide."""
    store = MemoryStore()
    make_waiting_loop(store)
    mine, theirs = open_journal(store), open_journal(store)
    theirs.issue(decide(("t3", "approve")), firm=False)
    asked: list[Any] = []
    decide_all = decide(("t3", "approve"))

    def command(state: Any) -> Any:
        asked.append(state)
        return decide_all(state)

    mine.issue(command, firm=False)
    assert len(asked) == 2
    assert names(store)[-1] == "Decided"
    assert names(store).count("Decided") == 1
    assert mine.state == theirs.state


@pytest.mark.parametrize("defers", [False, True])
def test_a_command_that_others_made_impossible_is_refused_and_leaves_no_trace(defers: bool) -> None:
    """Where commands are deferred, it is reported once, after the commit that found it out."""
    store = MemoryStore()
    make_waiting_loop(store)
    mine, theirs = open_journal(store, defers=defers), open_journal(store)
    theirs.issue(decide(("t3", "deny")), firm=False)
    with pytest.raises(CallerError, match="t3"):
        _say(mine, decide(("t3", "approve")), firm=False)
    assert not mine.is_behind
    mine.commit()
    mine.tell()
    assert mine.state == theirs.state


@pytest.mark.parametrize("defers", [False, True])
def test_a_firm_command_is_refused_when_the_loop_moved_on(defers: bool) -> None:
    """It was said of the loop as it was shown; but decisions, time and late ends do not move it."""
    store = MemoryStore()
    make_waiting_loop(store)
    mine, theirs = open_journal(store, defers=defers), open_journal(store)
    theirs.issue(lambda _: ev.Ticked(at=1.0), firm=False)
    _say(mine, change)
    theirs.refresh()
    theirs.issue(change)
    with pytest.raises(Conflict, match="continued elsewhere"):
        _say(mine, change)
    assert names(store).count("Changed") == 2


def test_a_command_that_could_not_be_stored_leaves_the_turn_as_it_was() -> None:
    """What it returned is still true, so the caller may give the command again with the same turn."""
    store = FailingStore(MemoryStore())
    driver = make_waiting_loop(store)
    before = (driver.journal.turn, driver.journal.state)
    store.fails = lambda _: "before"
    with pytest.raises(StoreError):
        driver.journal.issue(stop, firm=False)
    assert (driver.journal.turn, driver.journal.state) == before
    store.fails = lambda _: None
    driver.journal.issue(stop, firm=False)
    assert driver.journal.turn > before[0]


def test_several_commands_that_are_superseded_at_once_raise_one_conflict() -> None:
    """And every other refusal is reported, one by each await."""
    store = MemoryStore()
    make_waiting_loop(store)
    mine, theirs = open_journal(store, defers=True), open_journal(store)
    for _ in range(2):
        mine.issue(change)
    for _ in range(2):
        mine.issue(decide(("t3", "approve")), firm=False)
    theirs.issue(change)
    theirs.issue(decide(("t3", "deny")), firm=False)
    mine.commit()
    for error in (Conflict, CallerError):
        assert mine.is_behind
        with pytest.raises(error):
            mine.tell()
    mine.tell()
    assert not mine.is_behind


def test_a_command_that_seems_impossible_is_asked_again_after_a_look_at_the_store() -> None:
    """The caller may know more than this handle does."""
    store = MemoryStore()
    driver = Driver(make_journal(store))
    driver.journal.commit()
    other = open_journal(store)
    with hold_lease(driver.lease):
        driver.record(*WAITING)
    other.issue(decide(("t3", "approve")), firm=False)
    assert names(store)[-1] == "Decided"
    with pytest.raises(CallerError, match="t9"):
        other.issue(decide(("t9", "approve")), firm=False)


def _say(journal: Any, command: Any, *, firm: bool = True) -> None:
    journal.issue(command, firm=firm)
    journal.commit()
    journal.tell()


def test_nothing_waits_for_the_lock_of_a_journal_that_defers_while_the_store_works() -> None:
    """An event loop takes that lock."""
    store = FailingStore(MemoryStore())
    journal = make_journal(store, defers=True)
    journal.commit()
    free: list[bool] = []

    def take() -> None:
        with journal.lock:
            pass

    def look(_: object) -> None:
        thread = threading.Thread(target=take)
        thread.start()
        thread.join(10)
        free.append(not thread.is_alive())

    store.before = look
    journal.issue(change)
    journal.commit()
    assert free == [True]


def test_the_store_is_never_asked_forever() -> None:
    """A store that says that there is something new, and has nothing, gets an error."""

    class Contrary(MemoryStore):
        def append(self, *args: Any, **kwargs: Any) -> int:
            return super().append(*args, **{**kwargs, "expected_rev": 99})

    journal = make_journal(Contrary())
    journal.commit()
    with pytest.raises(StoreError):
        journal.issue(change)


@each("body", ['{"format":1,"event":"TurnEnded"}', '{"format":1,"event":"Nothing"}', "{"])
def test_a_journal_that_says_what_cannot_be_is_unreadable(body: str) -> None:
    """Nothing of it is believed, and what was recorded here waits."""
    store = MemoryStore()
    journal = make_journal(store)
    journal.commit()
    before = journal.state
    store.append("loop", [Entry("x", body)], expected_rev=None)
    for ask in (journal.refresh, lambda: journal.issue(change)):
        with pytest.raises(UnreadableSnapshot):
            ask()
    assert journal.state == before


@each("seconds", [float("nan"), float("inf")])
def test_what_no_store_can_keep_does_not_enter_the_journal(seconds: float) -> None:
    """It would block every caller for ever."""
    journal = make_journal(MemoryStore())
    before = journal.state
    with pytest.raises(ValueError, match=r"float|JSON"):
        journal.record(ev.Ticked(seconds=seconds))
    assert journal.state is before
    journal.commit()
    assert not journal.is_behind
