"""A Ctrl-C at any line of the journal: the next `commit` finds the truth, and no lock is left behind."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, Self

from attrs import define, field

import toolloop.loop.journal
import toolloop.loop.stored_journal
from tests.each import each
from tests.loop.journals import (
    ALLOWED,
    SHORT,
    Driver,
    FailingStore,
    assert_sound,
    decide,
    is_free,
    names,
    new_journal,
    open_journal,
    stored_state,
)
from toolloop.errors import StoreError
from toolloop.machine import events as ev
from toolloop.machine.loop import Finished
from toolloop.stores import MemoryStore

FILES = {
    module.__file__: Path(str(module.__file__)).read_text().split("\n")
    for module in (toolloop.loop.journal, toolloop.loop.stored_journal)
}
_STRIKES = 3  # at each line: the first times that it is run


@define(eq=False)
class Strike:
    """Raises KeyboardInterrupt where a line of the journal is run for a certain time.

    Lines with `with` and `try` are left out. A tracer can raise there outside of the block that releases a lock;
    Python handles no signal at such a place.

    Attributes:
        at: the file and the line; None only counts.
        time: the how many-th time.
        seen: how often each line was run.

    """

    at: tuple[str, int] | None = None
    time: int = 0
    seen: dict[tuple[str, int], int] = field(factory=dict)
    struck: bool = False

    def __enter__(self) -> Self:
        sys.settrace(self.trace)
        return self

    def __exit__(self, *error: object) -> None:
        sys.settrace(None)

    def trace(self, frame: FrameType, what: str, _: Any) -> Any:
        return self.look if frame.f_code.co_filename in FILES else None

    def look(self, frame: FrameType, what: str, _: Any) -> Any:
        here = (frame.f_code.co_filename, frame.f_lineno)
        if what != "line" or FILES[here[0]][here[1] - 1].lstrip().startswith(("with ", "try:")):
            return self.look
        self.seen[here] = self.seen.get(here, 0) + 1
        if here == self.at and self.seen[here] == self.time and not self.struck:
            self.struck = True
            raise KeyboardInterrupt
        return self.look


def strikes(play: Callable[[Strike], None], least: int = 30) -> Iterator[Strike]:
    """Play once to see which lines are run; then give a strike for each of them, and for each of the first times."""
    counting = Strike()
    play(counting)
    assert len(counting.seen) > least
    for at, times in counting.seen.items():
        for time in range(1, min(times, _STRIKES) + 1):
            yield Strike(at, time)


def assert_found(driver: Driver, where: object) -> None:
    """The story came to its end, its one call ran once, and nothing was uncertain."""
    journal = driver.journal
    assert (where, is_free(journal)) == (where, True)
    assert isinstance(journal.state.root.phase, Finished), where
    assert (where, dict(driver.ran), driver.uncertain) == (where, {(1, "t1", 1): 1}, [])
    assert (where, names(journal.store).count("Decided")) == (where, 1)
    assert_sound(journal.store)
    assert journal.state == stored_state(journal.store)


@each("defers", [False, True])
def test_a_whole_story_that_is_struck_at_any_line(defers: bool) -> None:
    """The caller presses Ctrl-C once, and goes on."""

    def play(strike: Strike) -> None:
        driver = Driver(new_journal(MemoryStore(), defers=defers), story=SHORT)
        with strike:
            driver.to_the_end(*ALLOWED, KeyboardInterrupt)
        driver.journal.commit()
        assert_found(driver, (strike.at, strike.time))

    for strike in strikes(play):
        play(strike)
        assert strike.struck, strike.at


@each("defers", [False, True])
def test_a_story_on_a_store_that_fails_and_is_struck_at_any_line(defers: bool) -> None:
    """The strike may come while an error is looked into."""

    def play(strike: Strike) -> None:
        store = FailingStore(MemoryStore(), lambda at: "after" if at in (7, 8, 13, 17) else None)
        driver = Driver(new_journal(store, defers=defers), story=SHORT)
        with strike:
            driver.to_the_end(*ALLOWED, KeyboardInterrupt)
        store.fails = lambda _: None
        driver.journal.commit()
        assert_found(driver, (strike.at, strike.time))

    for strike in strikes(play):
        play(strike)


@each("defers", [False, True])
def test_a_rebase_that_is_struck_at_any_line(defers: bool) -> None:
    """Others were first, and a fact and a command wait here."""

    def play(strike: Strike) -> None:
        store = MemoryStore()
        driver = Driver(new_journal(store), story=SHORT)
        driver.turn()
        journal, other = open_journal(store, defers=defers), open_journal(store)
        other.say(lambda _: ev.Ticked(at=1.0), firm=False)
        journal.record(ev.Ticked(at=2.0))
        with strike:
            for _ in range(2):
                try:
                    journal.say(decide(("t1", "approve")), firm=False)
                    journal.commit()
                    journal.refresh()
                except KeyboardInterrupt:
                    pass
        journal.commit()
        journal.refresh()
        assert is_free(journal)
        assert not journal.is_behind
        assert names(store).count("Decided") == 1
        assert names(store).count("Ticked") == 2
        assert journal.state == stored_state(store)

    for strike in strikes(play):
        play(strike)


def test_a_command_that_is_struck_was_said_or_was_not_and_nothing_is_in_between() -> None:
    """The same one, said again, is said once."""

    def play(strike: Strike) -> None:
        store = FailingStore(MemoryStore())
        Driver(new_journal(store), story=SHORT).turn()
        journal = open_journal(store)
        turn = journal.turn
        with strike:
            try:
                journal.say(decide(("t1", "approve")), firm=False)
            except KeyboardInterrupt:
                store.fails = lambda _: "before"
                with suppress(StoreError):
                    journal.say(decide(("t1", "approve")), firm=False)
        store.fails = lambda _: None
        journal.say(decide(("t1", "approve")), firm=False)
        journal.commit()
        assert is_free(journal)
        assert names(store.inner).count("Decided") == 1
        assert journal.state == stored_state(store.inner)
        assert journal.turn == turn

    for strike in strikes(play):
        play(strike)


def test_a_step_that_the_engine_gave_up_is_not_stored_whatever_strikes_while_it_is_dropped() -> None:
    """Also if nobody drops it again."""

    def play(strike: Strike) -> None:
        store = MemoryStore()
        journal = new_journal(store)
        journal.commit()
        step = journal.record(ev.Requested())
        with strike, suppress(KeyboardInterrupt):
            journal.drop_steps()
        journal.commit()
        assert names(store) == ["Opened", "Requested"][: 1 + step.stored]
        assert (step.stored, step.rejection is None) in ((True, True), (False, False))
        assert journal.state == stored_state(store)

    for strike in strikes(play, least=10):
        play(strike)
