"""The threads of one process stand in line to write, and only the first of them asks SQLite."""

from __future__ import annotations

import gc
import math
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.stores.support import READY, entries
from tests.stores.worker import PATIENCE, Worker
from toolloop.errors import StoreError, UnreadableSnapshot
from toolloop.stores import SqliteStore
from toolloop.stores.sqlite_queue import _QUEUES

ONE_OF_US = "other threads of this process, which came first, still write to it"
SOMEBODY_ELSE = "at every try another process held it"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "loops.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    with SqliteStore(path, busy_timeout=PATIENCE) as opened:
        opened.create("loop", [], head=READY)
        yield opened


class InLine(threading.Thread):
    """A thread that does something when it gets its turn. It is made when it stands in line."""

    def __init__(self, store: SqliteStore, act: Callable[[], object]) -> None:
        super().__init__()
        self._act = act
        self._outcome: object = "hangs"
        before = length_of_line(store)
        self.start()
        wait_until(lambda: length_of_line(store) == before + 1)

    def run(self) -> None:
        try:
            self._outcome = self._act()
        except (StoreError, UnreadableSnapshot) as error:
            self._outcome = str(error)

    def outcome(self) -> object:
        self.join(PATIENCE)
        return self._outcome


def length_of_line(store: SqliteStore) -> int:
    return len(store._connections._queue._line)


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline, "it never came to that"


def append(store: SqliteStore, name: str) -> Callable[[], object]:
    return lambda: store.append("loop", entries(name), expected_rev=None)


def names(store: SqliteStore) -> list[str]:
    return [entry.id for entry in store.load("loop").entries]


def test_fifty_threads_write_in_the_order_they_came_in(path: Path, store: SqliteStore, tmp_path: Path) -> None:
    """Over three stores of one file, one of them by a link, when the other process that held the lock lets it go."""
    link = tmp_path / "link.db"
    link.symlink_to(path)
    with SqliteStore(path, busy_timeout=PATIENCE) as again, SqliteStore(link, busy_timeout=PATIENCE) as linked:
        stores = (store, again, linked)
        with Worker(path) as worker:
            worker.ask("held.append(lock(path))")
            threads = [InLine(store, append(stores[at % 3], str(at))) for at in range(50)]
            assert [names(each) for each in stores] == [[], [], []]  # reading stands in no line
            with SqliteStore(path) as new:
                assert names(new) == []
            worker.ask("held.pop().close()")
            assert [thread.outcome() for thread in threads] == list(range(1, 51))
        assert names(store) == [str(at) for at in range(50)]
        assert length_of_line(store) == 0
        # The second of the first one is that reader's. Who stands in line has none.
        assert [len(each._connections._idle) for each in stores] == [2, 1, 1]


def test_while_another_process_holds_the_lock_every_thread_says_so(path: Path, store: SqliteStore) -> None:
    """The one that asks SQLite, and one that waits for that one. Both had their time, and it is all theirs again."""
    with SqliteStore(path, busy_timeout=0.05) as hasty, Worker(path) as worker:
        worker.ask("held.append(lock(path))")
        first = InLine(store, append(store, "first"))
        second = InLine(store, append(hasty, "second"))
        said = str(second.outcome())
        assert f"loops.db is locked: waited 0.05 seconds, and {SOMEBODY_ELSE}" in said
        assert said.endswith("Nothing was stored")
        worker.ask("held.pop().close()")
        assert first.outcome() == 1
        worker.ask("held.append(lock(path))")
        with pytest.raises(StoreError, match=rf"waited 0\.05 seconds, and {SOMEBODY_ELSE}"):
            append(hasty, "third")()
        worker.ask("held.pop().close()")
        assert append(hasty, "fourth")() == 2
    assert names(store) == ["first", "fourth"]


def test_while_another_thread_writes_the_error_says_so(path: Path, store: SqliteStore) -> None:
    """Whoever gives up leaves the line, and the next in it gets its turn."""
    with SqliteStore(path, busy_timeout=0.05) as hasty:
        with store._writing():
            gives_up = InLine(store, append(hasty, "a"))
            waits = InLine(store, append(store, "b"))
            said = str(gives_up.outcome())
            assert f"loops.db is locked: waited 0.05 seconds, and {ONE_OF_US}" in said
            assert said.endswith("Nothing was stored")
        assert waits.outcome() == 1
        assert append(hasty, "c")() == 2
    assert names(store) == ["b", "c"]


def test_a_thread_that_wrote_meanwhile_is_not_taken_for_another_process(path: Path, store: SqliteStore) -> None:
    """Though nobody of this process has the lock at the moment when the waiting ends."""
    enough = threading.Event()

    def have_a_turn() -> None:
        with store._connections._queue.turn(PATIENCE):
            enough.wait(PATIENCE)

    with SqliteStore(path, busy_timeout=0.2) as hasty:
        with store._writing():
            between = InLine(store, have_a_turn)
            gives_up = InLine(store, append(hasty, "a"))
        assert ONE_OF_US in str(gives_up.outcome())
        enough.set()
        assert between.outcome() is None


def test_the_time_in_line_counts(store: SqliteStore) -> None:
    """SQLite gets the rest of it; the next reader and the next writer have all of theirs."""

    def timeout(*, reads: bool = False) -> int:
        with store._reading() if reads else store._writing() as connection:
            return int(connection.execute("PRAGMA busy_timeout").fetchone()[0])

    with store._writing():
        waits = InLine(store, timeout)
        began = time.monotonic()
        wait_until(lambda: time.monotonic() > began + 0.1)
    left = waits.outcome()
    assert isinstance(left, int)
    assert 0 <= left <= math.ceil((PATIENCE - 0.1) * 1000)
    assert timeout(reads=True) == PATIENCE * 1000
    assert timeout() > left


def test_a_reader_stands_in_line_only_to_make_the_file(path: Path) -> None:
    """Nobody is in the way of whoever makes it; and who finds it made goes on."""
    with SqliteStore(path, busy_timeout=PATIENCE) as store, SqliteStore(path) as other:
        with store._connections._queue.turn(PATIENCE):
            reads = InLine(store, store.list)
            assert not path.exists()
        assert reads.outcome() == []
        with other._connections._queue.turn(0):
            assert other.list() == []


def test_what_somebody_put_there_meanwhile_is_looked_at(path: Path) -> None:
    """A file that came while a thread stood in line to make it is not taken for its own."""
    with SqliteStore(path, busy_timeout=PATIENCE) as store:
        with store._connections._queue.turn(PATIENCE):
            reads = InLine(store, store.list)
            with closing(sqlite3.connect(path)) as other:
                other.execute("CREATE TABLE theirs (a)")
        assert "is an SQLite database of some other program" in str(reads.outcome())


def test_each_file_has_a_line_of_its_own(path: Path, store: SqliteStore) -> None:
    """As long as a store of it is there; two files do not wait for each other."""
    real = os.path.realpath(path)
    other = SqliteStore(path.with_name("other.db"), busy_timeout=0)
    with store._writing():
        assert other.create("loop", [], head=READY) == 0
    theirs = os.path.realpath(path.with_name("other.db"))
    assert {real, theirs} <= set(_QUEUES)
    del other
    gc.collect()
    assert real in _QUEUES
    assert theirs not in _QUEUES


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), StoreError("no"), sqlite3.OperationalError("no"), OSError("no")]
)
def test_whatever_ends_a_turn_the_next_one_comes(store: SqliteStore, error: BaseException) -> None:
    """An interrupt, a refusal, or a failure."""
    threads = []

    def fail() -> None:
        with store._writing():
            threads.append(InLine(store, append(store, "a")))
            raise error

    with pytest.raises((KeyboardInterrupt, StoreError)):
        fail()
    assert threads[0].outcome() == 1


FORKS = """
import os, sys, threading
from toolloop.stores import Entry, Head, SqliteStore

store = SqliteStore(sys.argv[1], busy_timeout=60)
store.create("loop", [], head=Head("ended"))
line, forking = store._connections._queue._line, threading.Event()

def add(name):
    return store.append("loop", [Entry(name, "")], expected_rev=None)

def write():
    with store._writing():
        forking.wait()

# The hooks before a fork run in the reverse order of their making: this one before the store's.
os.register_at_fork(before=forking.set)
threads = [threading.Thread(target=write), *[threading.Thread(target=add, args=(name,)) for name in "ab"]]
for at, thread in enumerate(threads, 1):
    thread.start()
    while len(line) < at:
        pass
child = os.fork()
if not child:
    print("the child begins with a line of", len(line), flush=True)
    os._exit(add("child"))
print("child ended with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
for thread in threads:
    thread.join()
print(add("parent"), [entry.id for entry in store.load("loop").entries])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_finds_no_line(path: Path) -> None:
    """A fork waits for who is in it; the child writes at once, and so does the parent."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKS, str(path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    tells = ["the child begins with a line of 0", "child ended with 3", "4 ['a', 'b', 'child', 'parent']"]
    assert (done.stdout.splitlines(), done.stderr) == (tells, "")
