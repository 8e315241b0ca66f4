"""A Ctrl-C in the line before a file, wherever it strikes, keeps nobody from writing afterwards."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.stores.support import READY, entries
from toolloop.errors import StoreError
from toolloop.stores import SqliteStore, sqlite_queue
from toolloop.stores.sqlite_queue import Turn, WriteQueue

WAIT = 5  # seconds, which a write has; it takes them only where a place in the line is lost
PATIENCE = 30


@contextmanager
def striking(at: int) -> Iterator[list[str]]:
    """Ctrl-C where the so many-th line of the module is about to run in this thread, the begin of a function included.

    It gives where that was; it is empty if there are fewer lines.
    """
    left, struck = iter(range(at)), list[str]()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != sqlite_queue.__file__ or struck:
            return None
        if event in ("call", "line") and next(left, None) is None:
            struck.append(f"{event} of {frame.f_code.co_name}, line {frame.f_lineno}")
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield struck
    finally:
        sys.settrace(before)


def struck_everywhere(act: Callable[[], object], then: Callable[[str], object]) -> list[str]:
    """Act, with a Ctrl-C at one line after the other. What comes then comes while that exception is still there."""
    places: list[str] = []
    for at in count():
        try:
            with striking(at) as struck:
                act()
        except KeyboardInterrupt:
            places += struck
            then(struck[0])
        else:
            if not struck:
                return places
    raise AssertionError


def in_thread(act: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    """Start a thread that acts; and the list of what comes out."""
    said: list[object] = []

    def run() -> None:
        try:
            said.append(act())
        except Exception as error:  # noqa: BLE001 - whatever it is, the test shows it
            said.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, said


def test_the_next_write_goes_through(tmp_path: Path) -> None:
    """Of another thread, and of the one that was struck."""
    names = iter(map(str, count()))
    with SqliteStore(tmp_path / "loops.db", busy_timeout=WAIT) as store:
        store.create("loop", [], head=READY)

        def write() -> int:
            return store.append("loop", entries(next(names)), expected_rev=None)

        def check(place: str) -> None:
            thread, said = in_thread(write)
            thread.join(PATIENCE)
            assert [type(each) for each in said] == [int], f"{said} after a Ctrl-C at {place}"
            write()

        places = struck_everywhere(write, check)
    for name in ("__enter__", "stand", "__exit__", "leave"):
        assert any(place.startswith(f"call of {name},") for place in places)


def test_whoever_waits_already_gets_its_turn() -> None:
    """Though the one before it left without a word."""
    queue = WriteQueue("loops.db")
    waits: list[tuple[threading.Thread, list[object]]] = []

    def stand_behind() -> str:
        with queue.turn(WAIT) as turn:
            return "in time" if turn.left else "at the last moment"

    def leave() -> None:
        mine = Turn(queue, WAIT)
        with mine.held, mine:
            waits[:] = [in_thread(stand_behind)]
            while len(queue._line) < 2:
                pass

    def check(place: str) -> None:
        for thread, said in waits:
            thread.join(PATIENCE)
            assert said == ["in time"], f"after a Ctrl-C at {place}"
        stand_behind()  # so the next one finds no place that was left behind, and comes by the same lines
        waits.clear()

    places = struck_everywhere(leave, check)
    assert any(place.startswith("call of leave,") for place in places)


def test_whoever_is_struck_while_it_waits_is_passed_over() -> None:
    """By the next in line, which gets its turn when the first one leaves."""
    queue = WriteQueue("loops.db")

    def stand_behind() -> str:
        with queue.turn(WAIT) as turn:
            return "in time" if turn.left else "at the last moment"

    def wait_in_vain() -> None:
        mine = Turn(queue, 0.01)
        with queue.turn(WAIT), suppress(StoreError), mine.held, mine:
            pass

    def check(place: str) -> None:
        thread, said = in_thread(stand_behind)
        thread.join(PATIENCE)
        assert said == ["in time"], f"after a Ctrl-C at {place}"

    places = struck_everywhere(wait_in_vain, check)
    assert any(place.startswith("call of _is_first,") for place in places)


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="signals are sent to threads here")
def test_signals() -> None:
    """After a real one, where Python lets it strike, there is nobody to wait for."""
    queue, main = WriteQueue("loops.db"), threading.get_ident()
    before = signal.signal(signal.SIGUSR1, signal.default_int_handler)
    try:
        for number in range(300):
            begun = threading.Event()

            def hit(begun: threading.Event = begun) -> None:
                begun.wait(PATIENCE)
                signal.pthread_kill(main, signal.SIGUSR1)

            thread = threading.Thread(target=hit)
            thread.start()
            try:
                begun.set()
                while True:
                    mine = Turn(queue, WAIT)
                    with mine.held, mine:
                        pass
            except KeyboardInterrupt:
                pass
            thread.join(PATIENCE)
            try:
                with queue.turn(0):
                    pass
            except StoreError:
                pytest.fail(f"lost a place after {number + 1} strikes")
    finally:
        signal.signal(signal.SIGUSR1, before)
