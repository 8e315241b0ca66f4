"""The store in an SQLite file."""

from __future__ import annotations

import gc
import os
import secrets
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.stores.support import HUMAN, READY, contents, entries
from toolloop.errors import Conflict, StoreError
from toolloop.stores import Entry, Head, SqliteStore
from toolloop.testing import check_store

SUFFIXES = ("", "-shm", "-wal")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "loops.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    with SqliteStore(path) as opened:
        yield opened


def test_it_keeps_the_rules_of_a_store(path: Path, store: SqliteStore) -> None:
    """The conformance suite finds nothing: each time opened anew, and all the time the same one."""
    check_store(lambda: SqliteStore(path))
    check_store(lambda: store)


def test_nothing_is_made_before_it_is_needed(path: Path, store: SqliteStore) -> None:
    """Naming a file, and closing it, touches no disk; the first use makes it."""
    store.close()
    assert list(path.parent.iterdir()) == []
    assert store.list() == []
    assert path.exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"path": ":memory:"}, "use MemoryStore"),
        ({"path": ""}, "path is empty"),
        ({"path": "a\0b"}, "NUL"),
        ({"path": b"loops.db"}, "path is a bytes"),
        ({"path": "loops.db", "busy_timeout": -1}, "busy_timeout is -1"),
        ({"path": "loops.db", "busy_timeout": float("nan")}, "busy_timeout is nan"),
        ({"path": "loops.db", "busy_timeout": 1e9}, "busy_timeout is 1000000000.0"),
        ({"path": "loops.db", "busy_timeout": "5"}, "busy_timeout is a str"),
        ({"path": "loops.db", "busy_timeout": None}, "busy_timeout is a NoneType"),
    ],
)
def test_what_cannot_be_a_store_is_refused_by_name(arguments: dict[str, Any], says: str) -> None:
    """When it is made, and not when a loop is to be stored."""
    with pytest.raises((TypeError, ValueError), match=says):
        SqliteStore(**arguments)


@pytest.mark.parametrize("name", ["a b.db", "a%20b?mode=ro#x.db", "file:x", "ünï.db", "'\".db"])
def test_any_name_of_a_file_is_only_a_name(tmp_path: Path, name: str) -> None:
    """SQLite would take some for addresses with options."""
    with SqliteStore(tmp_path / name) as store:
        store.create("loop", [], head=READY)
        assert {file.name for file in tmp_path.iterdir()} == {name, f"{name}-wal", f"{name}-shm"}


def test_a_relative_path_is_where_it_was_when_the_store_was_made(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever folder the process goes to later."""
    monkeypatch.chdir(tmp_path)
    with SqliteStore("loops.db") as store:
        monkeypatch.chdir("/")
        store.create("loop", [], head=READY)
    assert path.exists()


def test_a_link_is_followed_to_the_file(path: Path, tmp_path: Path) -> None:
    """While the log has what the file lacks; and where the store makes the file, it makes the one that is meant."""
    folder = tmp_path / "folder"
    folder.mkdir()
    link = folder / "link.db"
    link.symlink_to(Path("..") / path.name)
    with SqliteStore(link) as linked:
        for at in range(20):
            linked.create(str(at), [Entry("big", "x" * 8000)], head=READY)
        assert path.stat().st_size < 20 * 8000
        with SqliteStore(path) as store, SqliteStore(link) as again:
            assert contents(store) == contents(again) == contents(linked)
        assert sorted(file.name for file in tmp_path.iterdir()) == ["folder", *(f"loops.db{end}" for end in SUFFIXES)]
        assert list(folder.iterdir()) == [link]
    assert link.is_symlink()


def test_a_link_is_followed_from_where_it_is(path: Path, tmp_path: Path) -> None:
    """The parent of a linked folder is that of the folder; a link in a circle is told."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "a" / "b")
    with SqliteStore(tmp_path / "link" / ".." / "loops.db") as store:
        assert store.list() == []
        assert (tmp_path / "a" / "loops.db").exists()
    path.symlink_to(path)
    with pytest.raises(StoreError, match=r"loops\.db cannot be opened"):
        SqliteStore(path).list()


def test_every_connection_writes_ahead_and_through(store: SqliteStore, path: Path) -> None:
    """WAL and synchronous = FULL, asked of the connections themselves."""
    store.list()
    with store._reading() as one, store._reading() as other:
        for connection in (one, other):
            assert [connection.execute(f"PRAGMA {name}").fetchone() for name in ("journal_mode", "synchronous")] == [
                ("wal",),
                (2,),
            ]


def test_one_can_look_into_it_with_the_shell(store: SqliteStore, path: Path) -> None:
    """The view `journal` has every event beside the id of its loop."""
    store.create("one", entries("a"), head=READY)
    store.create("two", entries("b", "c"), head=HUMAN)
    store.append("one", entries("d"), expected_rev=1)
    with closing(sqlite3.connect(path)) as shell:
        assert shell.execute("SELECT * FROM journal").fetchall() == [
            ("one", 1, "a", '{"event":"a"}'),
            ("one", 2, "d", '{"event":"d"}'),
            ("two", 1, "b", '{"event":"b"}'),
            ("two", 2, "c", '{"event":"c"}'),
        ]
        assert shell.execute("SELECT loop_id, rev, status, deadline FROM loops").fetchall() == [
            ("one", 2, "runnable", None),
            ("two", 2, "needs_decision", 1_800_000_000.5),
        ]


def test_nothing_is_searched_for_by_reading_everything(store: SqliteStore) -> None:
    """Each statement of a store finds its rows by an index: a scan is only over loops that are asked for."""
    store.create("loop", entries("a"), head=HUMAN)
    said: list[str] = []
    with store._reading() as connection:
        connection.set_trace_callback(said.append)
    lease = store.acquire("loop", "me", until=1.0)
    store.append("loop", entries("b"), expected_rev=1, head=READY, lease=lease)
    store.renew(lease, until=2.0)
    store.release(lease)
    store.load("loop", after=1)
    store.list("runnable", before="loop")
    store.list("runnable")
    store.delete("loop")
    with store._reading() as connection:
        connection.set_trace_callback(None)
        statements = [text for text in said if text.split()[0] in ("SELECT", "UPDATE", "DELETE")]
        steps = [row[3] for text in statements for row in connection.execute(f"EXPLAIN QUERY PLAN {text}")]
    searches = {
        "SEARCH loops USING INDEX sqlite_autoindex_loops_1 (loop_id=?)",
        "SEARCH loops USING INTEGER PRIMARY KEY (rowid=?)",
        "SEARCH loops USING INDEX loops_by_status (status=?)",
        "SEARCH loops USING INDEX loops_by_status (status=? AND rowid<?)",
        "SEARCH events USING COVERING INDEX events_by_id (<expr>=? AND id=?)",
        "SEARCH events USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
    }
    assert set(steps) - searches == {"SCAN tokens"}  # which has one row
    assert len(set(steps)) > 5


def test_an_event_costs_little_more_than_its_text(store: SqliteStore, path: Path) -> None:
    """Under 110 bytes with its id of 16, whatever the journal's length, in a mix of small events and big ones."""
    store.create("loop", [], head=READY)
    store.close()
    at, text, sizes = 0, 0, [path.stat().st_size]
    for _ in range(3):
        for _ in range(500):
            new = [Entry(secrets.token_hex(8), "x" * length) for length in (60, 75, 640, 130, 1150, 60)]
            text += sum(len(entry.body) for entry in new)
            at = store.append("loop", new, expected_rev=at)
        store.close()
        sizes.append(path.stat().st_size)
    overhead = (sizes[-1] - sizes[0] - text) / at
    assert 0 < overhead < 110
    first, *later = [after - before for before, after in pairwise(sizes)]
    assert all(abs(growth - first) < first / 20 for growth in later)


def test_a_wakening_reads_its_own_loop_only(store: SqliteStore) -> None:
    """SQLite takes as many steps for one loop, whatever else is in the file."""

    def steps() -> int:
        done = [0]
        with store._reading() as connection:
            connection.set_progress_handler(lambda: done.__setitem__(0, done[0] + 1), 1)
        store.load("loop")
        with store._reading() as connection:
            connection.set_progress_handler(None, 1)
        return done[0]

    store.create("loop", entries(*"abcdefgh"), head=READY)
    alone = steps()
    for at in range(300):
        store.create(f"other-{at}", entries(*"abcdefgh"), head=READY)
    assert steps() <= alone + 5  # an index may be deeper


def test_threads_that_end_leave_no_connection(store: SqliteStore) -> None:
    """A hundred of them, and there is one connection; at one moment there are as many as threads that use one."""
    store.create("loop", [], head=READY)
    for at in range(100):
        thread = threading.Thread(target=store.append, args=("loop", entries(str(at))), kwargs={"expected_rev": at})
        thread.start()
        thread.join()
    assert store.load("loop").rev == 100
    assert len(store._connections._idle) == 1
    barrier = threading.Barrier(20, timeout=60)  # seconds; whoever cannot read leaves the others there

    def use() -> None:
        with store._reading():
            barrier.wait()

    threads = [threading.Thread(target=use) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 1 <= len(store._connections._idle) <= 8


def test_a_closed_store_leaves_one_file_and_opens_again(store: SqliteStore, path: Path) -> None:
    """Its log is in the file, nothing is held open, and what was stored is there."""
    store.create("loop", entries("a"), head=READY)
    store.close()
    assert list(path.parent.iterdir()) == [path]
    assert store.load("loop").rev == 1


def test_a_store_that_nobody_has_any_more_is_closed(path: Path) -> None:
    """Without a warning about an open database, and with its log in the file."""
    store = SqliteStore(path)
    store.create("loop", entries("a"), head=READY)
    del store
    gc.collect()
    assert list(path.parent.iterdir()) == [path]


def test_a_refusal_leaves_the_connection_as_it_was(store: SqliteStore) -> None:
    """Whatever is asked in vain, there is one connection, outside of any transaction, and it works."""
    store.create("loop", entries("a"), head=READY)
    (before,) = store._connections._idle
    for _ in range(10):
        with pytest.raises(Conflict):
            store.create("loop", entries("b"), head=READY)
        with pytest.raises(Conflict):
            store.append("loop", entries("b"), expected_rev=7)
    assert store._connections._idle == [before]
    assert not before.in_transaction


def test_an_interrupt_in_the_middle_leaves_the_store_as_it_was(store: SqliteStore) -> None:
    """What was half done is taken back, and the next call works."""
    store.create("loop", entries("a"), head=READY)
    was = contents(store)

    def interrupted() -> None:
        with store._writing() as connection:
            connection.execute("DELETE FROM events")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert contents(store) == was
    assert store.append("loop", entries("b"), expected_rev=1) == 2


def test_a_file_that_was_edited_by_hand_is_not_believed(store: SqliteStore, path: Path) -> None:
    """A missing event, one that is no text, and a column of another kind are named."""
    for loop_id in ("gap", "blob", "kind"):
        store.create(loop_id, entries("a", "b", "c"), head=Head("runnable"))
    with closing(sqlite3.connect(path)) as shell:
        shell.execute("DELETE FROM events WHERE id = 'b' AND place >> 32 = 1")
        shell.execute("UPDATE events SET body = x'00ff' WHERE id = 'b' AND place >> 32 = 2")
        shell.execute("UPDATE loops SET rev = 'three' WHERE number = 3")
        shell.commit()
    for loop_id, says in (("gap", "not all there"), ("blob", "no text"), ("kind", "column")):
        with pytest.raises(StoreError, match=f"damaged: .*{loop_id}.*{says}"):
            store.load(loop_id)
    with closing(sqlite3.connect(path)) as shell:
        shell.execute("UPDATE events SET body = CAST(x'ff' AS TEXT) WHERE id = 'b' AND place >> 32 = 2")
        shell.commit()
    with pytest.raises(StoreError, match="is damaged: a text in it is none"):
        store.load("blob")


def test_an_event_that_is_too_big_for_sqlite_is_refused(store: SqliteStore) -> None:
    """The limit is a billion bytes; here it is lowered. Nothing of the call is stored."""
    store.create("loop", entries("a"), head=READY)
    was = contents(store)
    with store._reading() as connection:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 10_000)
    with pytest.raises(StoreError, match="too big"):
        store.append("loop", [Entry("small", ""), Entry("big", "x" * 20_000)], expected_rev=1)
    assert contents(store) == was
    assert store.append("loop", [Entry("big", "x" * 20_000)], expected_rev=1) == 2


def test_it_says_what_it_is(path: Path, store: SqliteStore) -> None:
    """Its path, for whoever reads a log."""
    assert repr(store) == f"SqliteStore({os.fspath(path)!r})"
