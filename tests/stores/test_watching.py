"""What a store tells of the changes of others: the functions that watch it, and the thread that calls them."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.kit.postgres import database, in_postgres
from tests.promises.processes.programs import store_of
from tests.stores.support import READY, entries
from tests.stores.worker import PATIENCE, Worker
from toolloop.stores import Head, SqliteStore
from toolloop.stores.sqlite.file import _CONNECTIONS
from toolloop.stores.watchers import QUIET, Watchers

RUNNING = Head("running")
THREAD = "changes-of-toolloop"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "loops.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    with SqliteStore(path) as store:
        store.create("loop", entries("a"), head=READY)
        yield store


class Changes:
    """A function that watches, and waits for calls of it."""

    def __init__(self) -> None:
        self._told = threading.Semaphore(0)

    def __call__(self) -> None:
        self._told.release()

    def settle(self) -> None:
        """Wait for a call, and until none follows for some time."""
        assert self._told.acquire(timeout=PATIENCE)
        while self._told.acquire(timeout=4 * QUIET):
            pass

    def come(self) -> bool:
        return self._told.acquire(timeout=PATIENCE)

    def stay_away(self) -> bool:
        return not self._told.acquire(timeout=4 * QUIET)


def own_threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == THREAD]


def test_another_process_is_noticed(path: Path, store: SqliteStore) -> None:
    """Each kind of change, once each; reading is none."""
    changes = Changes()
    with Worker(path) as other, store.watch(changes):
        changes.settle()
        for line in (
            "store.create('other', [], head=Head('runnable'))",
            "store.append('other', [Entry('b', '')], expected_rev=0)",
            "store.append('other', [], expected_rev=1, head=Head('ended'))",
            "store.acquire('other', 'me', until=3.0)",
            "store.append('other', [Entry('c', '')], expected_rev=1, lease=store.head('other').lease)",
            "store.delete('other')",
        ):
            other.ask(line)
            assert changes.come(), line
        while not changes.stay_away():
            pass
        other.ask("store.list()")
        assert changes.stay_away()


def test_own_writes_are_noticed_but_for_the_steps_of_a_driver(store: SqliteStore) -> None:
    """Another part of the same program may watch; but a driver does not need its own changes."""
    changes = Changes()
    with store.watch(changes):
        changes.settle()
        store.append("loop", entries("b"), expected_rev=1)
        assert changes.come()
        lease = store.renew(store.acquire("loop", "me", until=3.0), until=4.0)
        store.append("loop", entries("c"), expected_rev=2, head=READY, lease=lease)
        assert changes.stay_away()
        store.release(lease)
        assert changes.come()


def test_looking_reads_no_row_and_holds_no_transaction(path: Path, store: SqliteStore) -> None:
    """It asks for one number, so a checkpoint by another process gets through."""
    changes, said = Changes(), list[str]()
    with store.watch(changes), SqliteStore(path) as other:
        changes.settle()
        store._file.read(lambda db: db.set_trace_callback(said.append))
        said.clear()
        other.append("loop", entries("b"), expected_rev=1)
        assert changes.come()
        with closing(sqlite3.connect(path)) as shell:
            assert shell.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
        store._file.read(lambda db: db.set_trace_callback(None))
    assert {*said} - {"BEGIN", "COMMIT"} == {"PRAGMA data_version"}


def test_one_thread_looks_for_all_who_watch(store: SqliteStore) -> None:
    """And it ends some time after the last of them."""
    before = set(own_threads())
    with ExitStack() as stack:
        changes = [Changes() for _ in range(20)]
        for each in changes:
            stack.enter_context(store.watch(each))
        store.append("loop", entries("b"), expected_rev=1)
        for each in changes:
            assert each.come()
        (thread,) = {*own_threads()} - before
    thread.join(PATIENCE)
    assert not thread.is_alive()
    with store.watch(again := Changes()):
        assert again.come()


def test_a_closed_store_is_opened_again(store: SqliteStore) -> None:
    """A connection that was opened again counts as a change, because it cannot tell what changed before."""
    changes = Changes()
    with store.watch(changes):
        changes.settle()
        store.close()
        assert changes.come()
        store.append("loop", entries("b"), expected_rev=1)
        assert changes.come()


def test_a_file_that_comes_late_or_is_replaced_is_noticed(path: Path) -> None:
    """So is one that is gone: the watchers look, and get the error. The watch creates no file."""
    changes = Changes()
    with SqliteStore(path) as early, early.watch(changes):
        assert changes.stay_away()
        with SqliteStore(path) as store:
            store.create("loop", [], head=READY)
        changes.settle()
        with SqliteStore(path.with_name("other.db")) as other:
            other.create("other", [], head=READY)
        path.with_name("other.db").replace(path)
        changes.settle()
        path.unlink()
        changes.settle()
        assert not path.exists()
        path.touch()
        assert changes.stay_away()
        assert path.stat().st_size == 0


def test_a_store_without_references_closes_its_file(path: Path) -> None:
    """Without the garbage collector, as soon as no reader looks any more."""
    store, changes, before = SqliteStore(path), Changes(), set(own_threads())
    with store.watch(changes):
        store.create("loop", [], head=READY)
        assert changes.come()
        (thread,) = {*own_threads()} - before
    known = id(store._file)
    assert known in _CONNECTIONS
    del store
    thread.join(PATIENCE)
    assert known not in _CONNECTIONS


def test_a_failure_ends_no_watch() -> None:
    """Whatever is raised: it is tried again, after a while."""
    changes, tries = Changes(), list[None]()

    def look(watchers: Watchers) -> None:
        tries.append(None)
        if len(tries) == 1:
            raise ZeroDivisionError
        watchers.tell()
        over.wait(PATIENCE)

    over = threading.Event()
    with Watchers().watch(changes, look):
        assert changes.come()
        over.set()
    assert len(tries) == 2


def test_a_fork_ends_no_watch_and_the_child_has_its_own(path: Path, store: SqliteStore) -> None:
    """The child inherits neither the functions nor the connection of its parent."""
    changes = Changes()
    with store.watch(changes):
        changes.settle()
        child = os.fork()
        if not child:
            mine = Changes()
            is_clean = not _CONNECTIONS
            with store.watch(mine):
                mine.settle()
                store.append("loop", entries("child"), expected_rev=1)
                os._exit(0 if is_clean and mine.come() else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        changes.settle()
        with SqliteStore(path) as other:
            other.append("loop", entries("b"), expected_rev=2)
        assert changes.come()


@pytest.mark.parametrize("kind", ["sqlite", in_postgres])
def test_a_driver_is_notified_of_commands_of_others_while_it_runs(kind: str, path: Path) -> None:
    """An append without a lease is of another process: a decision, a message, a stop. Its own steps need no notice."""
    where, changes = str(path) if kind == "sqlite" else database(), Changes()
    with store_of(where) as store, store_of(where) as other:
        store.create("loop", entries("a"), head=READY)
        with store.watch(changes):
            changes.settle()
            other.append("loop", entries("b"), expected_rev=1, head=RUNNING)
            assert changes.come()
