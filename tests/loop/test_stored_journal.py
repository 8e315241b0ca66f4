"""The journal: nothing is performed before it is stored, nothing that happened is lost, and nothing happens twice."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.loop.journals import (
    ALLOWED,
    STORY,
    Driver,
    FailingStore,
    Moment,
    assert_sound,
    decide,
    driver_of,
    names,
    new_journal,
    open_journal,
    stop,
    stored_state,
)
from toolloop.errors import CallerError, Conflict, StoreError
from toolloop.machine import events as ev
from toolloop.machine.loop import Finished
from toolloop.machine.splicing import Splice
from toolloop.stores import MemoryStore, SqliteStore
from toolloop.stores.protocol import Store


def assert_told_once(driver: Driver) -> None:
    """The story came to its end, every call ran once, and what the driver knows is what is stored."""
    store = driver.journal.store
    assert isinstance(driver.journal.state.root.phase, Finished)
    assert sorted(driver.ran.items()) == [((1, "t1", 1), 1), ((1, "t2", 1), 1), ((2, "t3", 1), 1), ((2, "t4", 1), 1)]
    assert driver.uncertain == []
    assert_sound(store)
    assert driver.journal.state == stored_state(store)


def told(inner: Store, plan: dict[int, Moment], *, defers: bool = False) -> FailingStore:
    """Drive the whole story on a store that fails by a plan; the caller tries again whatever fails."""
    store = FailingStore(inner, plan.get)
    driver = Driver(new_journal(store, defers=defers))
    driver.to_the_end(*ALLOWED)
    store.fails = lambda _: None
    driver.lease.give_back_if_free()
    assert inner.lease("loop") is None
    assert_told_once(driver)
    return store


# --- a store that fails ----------------------------------------------------------------------------------------------


either_way = pytest.mark.parametrize("defers", [False, True])
each_moment = pytest.mark.parametrize("moments", [*itertools.product(("before", "after"), repeat=2)])


def fail_twice(moments: tuple[Moment, Moment], *, defers: bool, apart: int) -> None:
    most = len(told(MemoryStore(), {}, defers=defers).asked) + 6  # an error makes a few more
    for one, other in itertools.combinations(range(1, most), 2):
        if other - one <= apart:
            told(MemoryStore(), {one: moments[0], other: moments[1]}, defers=defers)


@each_moment
@either_way
def test_two_failures_of_the_store_lose_nothing_and_do_nothing_twice(
    moments: tuple[Moment, Moment], defers: bool
) -> None:
    """At any of its calls and at one of the next two, before or after they were obeyed."""
    fail_twice(moments, defers=defers, apart=2)


@pytest.mark.deep
@each_moment
@either_way
def test_any_two_failures_of_the_store_lose_nothing(moments: tuple[Moment, Moment], defers: bool) -> None:
    """However far they are apart."""
    fail_twice(moments, defers=defers, apart=99)


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("long", [1, 4])
def test_a_file_that_cannot_be_written_for_a_while_loses_nothing(moment: Moment, long: int, tmp_path: Path) -> None:
    """However long it takes, and whichever call is the first that fails."""
    for start in range(1, 24):
        with SqliteStore(tmp_path / f"{start}.db") as store:
            told(store, dict.fromkeys(range(start, start + long), moment))


@given(
    plan=st.dictionaries(st.integers(1, 60), st.sampled_from(["before", "after"]), max_size=20), defers=st.booleans()
)
def test_a_store_that_fails_now_and_then_loses_nothing(plan: dict[int, Moment], defers: bool) -> None:
    """Any number of times."""
    told(MemoryStore(), plan, defers=defers)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_exit_out_of_the_store_makes_no_call_uncertain(moment: Moment) -> None:
    """At whichever of its calls a Ctrl-C strikes: whoever drives next knows what ran."""
    for number in range(1, 30):
        store = FailingStore(MemoryStore(), {number: moment}.get)
        store.error = KeyboardInterrupt
        driver = Driver(new_journal(store))
        driver.to_the_end(*ALLOWED, KeyboardInterrupt)
        store.fails = lambda _: None
        assert_told_once(driver)


# --- others ----------------------------------------------------------------------------------------------------------


def edit(state: Any) -> ev.HistoryEdited:
    return ev.HistoryEdited((Splice(0, 1, (state.root.messages[0],)),))


def change(_: Any) -> ev.Changed:
    return ev.Changed(params='{"model":"m","max_tokens":8}', names=("max_tokens",))


def drive_once(store: Store) -> None:
    driver_of(store, take_over=True).turn()


WORDS: dict[str, Callable[[Store], object]] = {
    "decide": lambda store: open_journal(store).say(decide(("t3", "deny")), firm=False),
    "continue": lambda store: open_journal(store).say(lambda _: ev.Continued()),
    "edit": lambda store: open_journal(store).say(edit),
    "change": lambda store: open_journal(store).say(change),
    "tick": lambda store: open_journal(store).say(lambda _: ev.Ticked(at=1.0), firm=False),
    "stop": lambda store: open_journal(store).say(stop, firm=False),
    "take over": drive_once,
}


@pytest.mark.parametrize("defers", [False, True])
@pytest.mark.parametrize("word", WORDS)
def test_somebody_else_may_come_between_any_decision_and_its_append(word: str, defers: bool) -> None:
    """What they say counts; what was about to be done is looked at again."""
    for number in range(1, 16):
        inner, refused = MemoryStore(), list[Exception]()

        def speak(at: int, number: int = number, inner: MemoryStore = inner, refused: Any = refused) -> None:
            if at == number:
                try:
                    WORDS[word](inner)
                except ALLOWED as error:
                    refused.append(error)

        store = FailingStore(inner)
        store.before_append = speak
        driver = Driver(new_journal(store, defers=defers))
        driver.to_the_end(*ALLOWED)
        assert_sound(inner)
        assert driver.journal.state == stored_state(inner)
        assert max(driver.ran.values(), default=1) == 1
        if word != "take over":
            assert driver.uncertain == []
            assert names(inner).count("Requested") == driver.sent + names(inner).count("RequestFailed")


# --- batches ---------------------------------------------------------------------------------------------------------


def test_a_turn_is_stored_three_times() -> None:
    """Before its request, before its tools run, and at its end. A judgement that lets all run is in no journal."""
    store = FailingStore(MemoryStore())
    batches: list[int] = []
    store.before_append = lambda _: batches.append(len(store.inner.load("loop").entries))
    driver = Driver(new_journal(store))
    driver.turn()
    stored = names(store.inner)
    assert [stored[at:end] for at, end in itertools.pairwise([*batches, len(stored)])] == [
        ["Requested"],
        ["Replied", "Started", "Started"],
        ["Ended", "Ended", "TurnEnded"],
    ]
    assert store.asked == ["create", "acquire", "append", "append", "append", "release"]


# --- the three kinds -------------------------------------------------------------------------------------------------


def waiting_loop(store: Store) -> Driver:
    """A loop that waits for a decision on `t3`."""
    driver = Driver(new_journal(store), story=STORY[1:])
    driver.turn()
    return driver


def test_a_fact_is_recorded_again_behind_what_others_stored() -> None:
    """It happened."""
    store = MemoryStore()
    driver = Driver(new_journal(store))
    with driver.lease.held():
        request = driver.journal.record(ev.Requested())
        driver.journal.commit()
        open_journal(store).say(stop, firm=False)
        reply = driver.journal.record(ev.Replied(STORY[0]))
        driver.journal.commit()
    assert (request.stored, reply.stored) == (True, True)
    assert names(store) == ["Opened", "Requested", "Stopped", "Replied"]
    assert isinstance(driver.journal.state.root.phase, Finished)


def test_a_step_is_dropped_when_others_were_first() -> None:
    """It was made of the loop as it was, so the engine looks again."""
    store = MemoryStore()
    driver = Driver(new_journal(store))
    driver.journal.commit()
    open_journal(store).say(change)
    with driver.lease.held():
        open_journal(store).say(change)
        step = driver.journal.record(ev.Requested())
        driver.journal.commit()
    assert (step.stored, type(step.rejection)) == (False, Conflict)
    assert not driver.journal.is_behind
    assert names(store) == ["Opened", "Changed", "Changed"]


def test_a_step_is_dropped_when_a_command_before_it_was_refused() -> None:
    """The request was made of the messages that were refused."""
    store = MemoryStore()
    first = waiting_loop(store)
    journal = open_journal(store, defers=True)
    journal.say(decide(("t3", "approve")), firm=False)
    step = journal.record(ev.Continued(), "step")
    first.journal.say(decide(("t3", "deny")), firm=False)
    journal.commit()
    assert (step.stored, step.rejection is None) == (False, False)
    with pytest.raises(CallerError, match="t3"):
        journal.tell()


def test_a_command_is_asked_again_of_the_state_as_it_is() -> None:
    """Somebody else has decided one of two calls meanwhile, so only the other one is left to decide."""
    store = MemoryStore()
    waiting_loop(store)
    mine, theirs = open_journal(store), open_journal(store)
    theirs.say(decide(("t3", "approve")), firm=False)
    asked: list[Any] = []
    decide_all = decide(("t3", "approve"))

    def command(state: Any) -> Any:
        asked.append(state)
        return decide_all(state)

    mine.say(command, firm=False)
    assert len(asked) == 2
    assert names(store)[-1] == "Decided"
    assert names(store).count("Decided") == 1
    assert mine.state == theirs.state


@pytest.mark.parametrize("defers", [False, True])
def test_a_command_that_others_made_impossible_is_refused_and_leaves_no_trace(defers: bool) -> None:
    """Where commands are deferred, it is told once, after the commit that found it out."""
    store = MemoryStore()
    waiting_loop(store)
    mine, theirs = open_journal(store, defers=defers), open_journal(store)
    theirs.say(decide(("t3", "deny")), firm=False)
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
    waiting_loop(store)
    mine, theirs = open_journal(store, defers=defers), open_journal(store)
    theirs.say(lambda _: ev.Ticked(at=1.0), firm=False)
    _say(mine, change)
    theirs.refresh()
    theirs.say(change)
    with pytest.raises(Conflict, match="went on elsewhere"):
        _say(mine, change)
    assert names(store).count("Changed") == 2


def test_a_command_that_could_not_be_stored_leaves_the_turn_as_it_was() -> None:
    """What was shown of it is still true, so the caller may say it once more with what they have in hand."""
    store = FailingStore(MemoryStore())
    driver = waiting_loop(store)
    before = (driver.journal.turn, driver.journal.state)
    store.fails = lambda _: "before"
    with pytest.raises(StoreError):
        driver.journal.say(stop, firm=False)
    assert (driver.journal.turn, driver.journal.state) == before
    store.fails = lambda _: None
    driver.journal.say(stop, firm=False)
    assert driver.journal.turn > before[0]


def test_several_commands_that_are_superseded_at_once_are_told_as_one_conflict() -> None:
    """And every other refusal is told, one by each await."""
    store = MemoryStore()
    waiting_loop(store)
    mine, theirs = open_journal(store, defers=True), open_journal(store)
    for _ in range(2):
        mine.say(change)
    for _ in range(2):
        mine.say(decide(("t3", "approve")), firm=False)
    theirs.say(change)
    theirs.say(decide(("t3", "deny")), firm=False)
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
    driver = Driver(new_journal(store), story=STORY[1:])
    driver.journal.commit()
    other = open_journal(store)
    driver.turn()
    other.say(decide(("t3", "approve")), firm=False)
    assert names(store)[-1] == "Decided"
    with pytest.raises(CallerError, match="t9"):
        other.say(decide(("t9", "approve")), firm=False)


def _say(journal: Any, command: Any, *, firm: bool = True) -> None:
    journal.say(command, firm=firm)
    journal.commit()
    journal.tell()


# --- the store and the loop are damaged ------------------------------------------------------------------------------


def test_a_name_that_is_taken_is_refused_each_time() -> None:
    """Nothing of the second loop goes into the journal of the first."""
    store = MemoryStore()
    new_journal(store).commit()
    second = new_journal(store)
    for _ in range(2):
        with pytest.raises(Conflict):
            second.say(change)
        with pytest.raises(Conflict):
            second.commit()
    assert names(store) == ["Opened"]


def test_nothing_waits_for_the_lock_of_a_journal_that_defers_while_the_store_works() -> None:
    """An event loop takes that lock."""
    store = FailingStore(MemoryStore())
    journal = new_journal(store, defers=True)
    journal.commit()
    free: list[bool] = []

    def take() -> None:
        free.append(journal.lock.acquire(timeout=10))
        journal.lock.release()

    def look(_: int) -> None:
        thread = threading.Thread(target=take)
        thread.start()
        thread.join()

    store.before_append = look
    journal.say(change)
    journal.commit()
    assert free == [True]


def test_the_store_is_never_asked_forever() -> None:
    """A store that says that there is something new, and has nothing, is told so."""

    class Contrary(MemoryStore):
        def append(self, *args: Any, **kwargs: Any) -> int:
            return super().append(*args, **{**kwargs, "expected_rev": 99})

    journal = new_journal(Contrary())
    journal.commit()
    with pytest.raises(StoreError):
        journal.say(change)
