"""The store in an SQLite file: what it keeps, and what it costs."""

from __future__ import annotations

import gc
import os
import random
import signal
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from tests.stores.support import HUMAN, READY, entries
from toolloop.errors import Conflict, StoreError, UnreadableSnapshot
from toolloop.stores import Head, PendingCall, SqliteStore
from toolloop.stores.sqlite.file import _CONNECTIONS
from toolloop.testing import check_store

CALL = PendingCall(("c1",), ("pay",), "approval", ("approve",), "12ab")
SUFFIXES = ("", "-shm", "-wal")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "loops.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    with SqliteStore(path) as opened:
        yield opened


def test_it_keeps_the_rules_of_a_store(path: Path, store: SqliteStore) -> None:
    """Opened again for each rule, and as one object."""
    check_store(lambda: SqliteStore(path))
    check_store(lambda: store)


# --- the file ---------------------------------------------------------------------------------------------------------


def test_the_file_is_created_at_the_first_use(path: Path, store: SqliteStore) -> None:
    """Naming a file, and closing it, touches no disk."""
    store.close()
    assert list(path.parent.iterdir()) == []
    assert store.list() == []
    assert path.exists()


def test_only_the_owner_has_access_to_the_file(path: Path, store: SqliteStore) -> None:
    """Also to the two files that SQLite keeps beside it, whatever the umask is."""
    before = os.umask(0)
    try:
        store.create("loop", entries("a"), head=READY)
    finally:
        os.umask(before)
    assert {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == {
        f"loops.db{suffix}": 0o600 for suffix in SUFFIXES
    }


def test_bad_arguments_are_refused_by_name() -> None:
    """At the construction, not when a loop is to be stored."""
    cases: list[tuple[dict[str, Any], str]] = [
        ({"path": ":memory:"}, "use MemoryStore"),
        ({"path": ""}, "path is empty"),
        ({"path": "a\0b"}, "NUL"),
        ({"path": b"loops.db"}, "path is a bytes"),
        ({"path": "loops.db", "busy_timeout": -1}, "busy_timeout is -1"),
        ({"path": "loops.db", "busy_timeout": float("nan")}, "busy_timeout is nan"),
        ({"path": "loops.db", "busy_timeout": "5"}, "busy_timeout is a str"),
        ({"path": "loops.db", "busy_timeout": None}, "busy_timeout is None"),
    ]
    for arguments, says in cases:
        with pytest.raises((TypeError, ValueError), match=says):
            SqliteStore(**arguments)


def test_a_file_may_have_any_name(tmp_path: Path) -> None:
    """SQLite would take some for addresses with options."""
    for name in ("a b.db", "a%20b?mode=ro#x.db", "file:x", "ünï.db", "'\".db"):
        with SqliteStore(tmp_path / name) as store:
            store.create("loop", [], head=READY)
            assert {file.name for file in tmp_path.iterdir()} == {name, f"{name}-wal", f"{name}-shm"}
        (tmp_path / name).unlink()


def test_each_connection_writes_ahead_and_through(store: SqliteStore) -> None:
    """WAL and synchronous = FULL, read from the connection."""
    names = ("journal_mode", "synchronous")
    assert store._file.read(lambda db: [db.execute(f"PRAGMA {name}").fetchone()[0] for name in names]) == ["wal", 2]


def test_a_closed_store_leaves_one_file_and_opens_again(store: SqliteStore, path: Path) -> None:
    """Its log is merged into the file."""
    store.create("loop", entries("a"), head=READY)
    store.close()
    assert list(path.parent.iterdir()) == [path]
    assert store.load("loop").rev == 1


# --- what it costs ----------------------------------------------------------------------------------------------------


def test_each_statement_uses_an_index(store: SqliteStore) -> None:
    """The only scan is of the table of one row."""
    store.create("loop", entries("a"), head=HUMAN)
    said: list[str] = []
    store._file.read(lambda db: db.set_trace_callback(said.append))
    lease = store.acquire("loop", "me", until=1.0)
    store.append("loop", entries("b"), expected_rev=1, head=READY, lease=lease)
    store.renew(lease, until=2.0)
    store.release(lease)
    store.load("loop", after=1)
    store.list("runnable", before="7")
    store.list("runnable")
    store.list_due(1.0)
    store.mark_notified(store.list_unnotified())
    store.delete("loop")
    store._file.read(lambda db: db.set_trace_callback(None))
    statements = [text for text in said if text.split()[0] in ("SELECT", "UPDATE", "DELETE")]
    plans = store._file.read(
        lambda db: [row[3] for text in statements for row in db.execute(f"EXPLAIN QUERY PLAN {text}")]
    )
    assert {plan for plan in plans if not plan.startswith(("SEARCH", "LIST SUBQUERY"))} == {
        "SCAN tokens",
        "SCAN loops USING INDEX loops_unnotified",  # which holds only what it returns
    }
    assert "SEARCH loops USING COVERING INDEX loops_by_status (status=? AND rowid<?)" in plans  # so nothing is sorted


def steps(store: SqliteStore, act: Callable[[], object]) -> int:
    """Count the instructions of SQLite's virtual machine."""
    done = [0]
    store._file.read(lambda db: db.set_progress_handler(lambda: done.__setitem__(0, done[0] + 1), 1))
    act()
    store._file.read(lambda db: db.set_progress_handler(None, 1))
    return done[0]


def test_an_idle_poll_costs_the_same_beside_any_number_of_loops(store: SqliteStore) -> None:
    """Loops that wait, with or without a deadline, all of them notified of; failed ones; and those that ended."""
    heads = [HUMAN, evolve(HUMAN, deadline=None), Head("failed", retry_at=9e9), Head("failed"), Head("ended")]
    costs = list[int]()
    for loops in (10, 500):
        for at in range(loops):
            store.create(f"{loops}-{at}", [], head=evolve(heads[at % 5], pending=(CALL,) if at % 5 < 4 else ()))
        store.mark_notified(store.list_unnotified())
        assert (store.list_due(1.0), store.list_unnotified()) == (([], HUMAN.deadline), [])
        costs.append(steps(store, lambda: store.list_due(1.0)) + steps(store, store.list_unnotified))
    assert costs[0] == costs[1]


def test_a_page_and_a_journal_cost_what_is_in_them(store: SqliteStore) -> None:
    """Whatever else is in the file: a page of waiting loops, and the journal of one loop."""

    def fill(loops: range) -> None:
        for at in loops:
            store.create(f"loop-{at}", entries(*"abcdefgh"), head=(HUMAN, READY)[at % 2])

    def costs() -> list[int]:
        acts: list[Callable[[], object]] = [
            lambda: store.list(HUMAN.status, limit=10),
            lambda: store.list(HUMAN.status, limit=10, before="24"),
            lambda: store.load("loop-7"),
        ]
        return [steps(store, act) for act in acts]

    fill(range(40))
    before = costs()
    fill(range(40, 400))
    assert all(after <= few + 10 for few, after in zip(before, costs(), strict=True))  # an index may be deeper


# --- refusals, interrupts and threads ---------------------------------------------------------------------------------


def test_a_refusal_leaves_the_connection_as_it_was(store: SqliteStore) -> None:
    """Outside of any transaction."""
    store.create("loop", entries("a"), head=READY)
    before = _CONNECTIONS[id(store._file)]
    with pytest.raises(Conflict):
        store.create("loop", entries("b"), head=READY)
    with pytest.raises(Conflict):
        store.append("loop", entries("b"), expected_rev=7)
    assert _CONNECTIONS[id(store._file)] is before
    assert not before.in_transaction


@pytest.fixture
def strike() -> Iterator[Callable[[float, Callable[[], object]], bool]]:
    """Give a function that acts, and does what Ctrl-C does after so many seconds: whether the act was interrupted."""
    armed = [False]

    def interrupt(*_: object) -> None:
        if armed[0]:
            armed[0] = False
            raise KeyboardInterrupt

    def act_under_fire(after: float, act: Callable[[], object]) -> bool:
        gc.disable()  # a callback of the collector, such as Hypothesis has, would swallow the interrupt
        try:
            armed[0] = True
            signal.setitimer(signal.ITIMER_REAL, after)
            act()
            armed[0] = False
        except KeyboardInterrupt:
            return True
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            gc.enable()
        return False

    usual = signal.signal(signal.SIGALRM, interrupt)
    yield act_under_fire
    signal.signal(signal.SIGALRM, usual)


def test_an_interrupt_leaves_no_transaction_and_no_lock(
    path: Path, strike: Callable[[float, Callable[[], object]], bool]
) -> None:
    """Another connection and another thread can write, and the act happened as a whole or not at all."""
    chance, outcomes = random.Random(1), set()
    with SqliteStore(path) as store, SqliteStore(path) as other, ThreadPoolExecutor(1) as pool:
        other.create("loop", [], head=READY)
        rev = 0
        for number in range(400):
            if number % 2:
                store.close()
            new = entries(f"a{number}", f"b{number}")
            was_struck = strike(chance.uniform(1e-6, 2e-3), partial(store.append, "loop", new, expected_rev=None))
            with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as shell:
                shell.execute("BEGIN IMMEDIATE")
            now = pool.submit(other.append, "loop", entries(f"c{number}"), expected_rev=None).result(60)
            assert now - rev in ((1, 3) if was_struck else (3,))
            outcomes.add((was_struck, now - rev))
            rev = now
    assert (True, 1) in outcomes


def test_a_signal_handler_cannot_use_the_store_in_the_middle_of_its_transaction(store: SqliteStore) -> None:
    """The handler gets an error, and the transaction goes on."""
    store.create("loop", entries("a"), head=READY)

    def change(connection: sqlite3.Connection) -> None:
        connection.execute("UPDATE loops SET status = 'changed'")
        with pytest.raises(StoreError, match="do not use a store in a signal handler"):
            store.list()

    store._file.write(change)
    assert store.list()[0].status == "changed"


# --- damage -----------------------------------------------------------------------------------------------------------


def test_a_file_that_was_edited_by_hand_is_not_trusted(store: SqliteStore, path: Path) -> None:
    """A missing event, one that is not a text, and a column of another type are refused."""
    for loop_id in ("gap", "blob", "kind", "utf8"):
        store.create(loop_id, entries("a", "b", "c"), head=Head("runnable"))
    with closing(sqlite3.connect(path)) as shell:
        shell.execute("DELETE FROM events WHERE id = 'b' AND place >> 32 = 1")
        shell.execute("UPDATE events SET body = x'00ff' WHERE id = 'b' AND place >> 32 = 2")
        shell.execute("UPDATE loops SET rev = 'three' WHERE number = 3")
        shell.execute("UPDATE events SET body = CAST(x'ff' AS TEXT) WHERE id = 'b' AND place >> 32 = 4")
        shell.commit()
    for loop_id in ("gap", "blob", "kind", "utf8"):
        with pytest.raises(UnreadableSnapshot, match="damaged"):
            store.load(loop_id)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("number", 2**62),
        ("created", "now"),
        ("created", float("inf")),
        ("metadata", "[1]"),
        ("metadata", '{"owner": 1}'),
        ("pending", "[" * 50_000),
        ("notified", "[" * 50_000),
        ("named", "[" * 50_000),
        ("named", "[1]"),
        ("named", '{"a": 1}'),
    ],
)
def test_a_row_with_a_value_that_no_loop_has_is_unreadable(
    store: SqliteStore, path: Path, column: str, value: object
) -> None:
    """However its loop is looked at, nothing but an error of ours comes out."""
    store.create("loop", entries("a"), head=Head("needs_decision", pending=(CALL,)))  # `named` is about a call
    with closing(sqlite3.connect(path)) as shell:
        shell.execute(f"UPDATE loops SET {column} = ?", (value,))
        shell.commit()
    with pytest.raises(UnreadableSnapshot, match="damaged"):
        store.load("loop")
    if column != "number":
        with pytest.raises(UnreadableSnapshot, match="damaged"):
            store.list()
