"""A full disk, a read-only file, a locked database: a clear error, and the store as it was before."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.stores.support import READY, contents, entries
from tests.stores.worker import Worker
from toolloop.errors import StoreError, UnreadableSnapshot
from toolloop.stores import Entry, SqliteStore

BIG = [Entry("big", "x" * 400_000)]
APPEND_BIG = "store.append('loop', [Entry('big', 'x' * 400_000)], expected_rev=1)"


@pytest.fixture
def path() -> Iterator[Path]:
    """A file in a folder that other users can reach."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        yield Path(folder) / "loops.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    with SqliteStore(path, busy_timeout=0.05) as opened:
        opened.create("loop", entries("a"), head=READY)
        yield opened


def test_a_full_database_is_told(store: SqliteStore) -> None:
    """SQLite's own limit of pages. Then it is lifted."""
    was = contents(store)
    with store._reading() as connection:
        connection.execute("PRAGMA max_page_count = 12")
    with pytest.raises(StoreError, match=r"there is no room left for .*loops\.db\. Make room"):
        store.append("loop", BIG, expected_rev=1)
    assert contents(store) == was
    assert store.append("loop", BIG, expected_rev=1) == 2


@pytest.mark.parametrize("room", [0, 1, 4_000, 33_333, 200_000])
def test_a_file_that_may_not_grow_is_told(store: SqliteStore, path: Path, room: int) -> None:
    """The system's limit, wherever in the log it strikes: a full disk is no different. Then it is lifted."""
    was = contents(store)
    with Worker(path) as worker:
        assert worker.ask("store.load('loop').rev") == "1"
        worker.ask(f"limit({Path(f'{path}-wal').stat().st_size + room})")
        assert worker.ask(APPEND_BIG).startswith("StoreError")
        assert worker.ask("store.load('loop').rev") == "1"
        assert contents(store) == was
        worker.ask("limit(-1)")
        assert worker.ask(APPEND_BIG) == "2"
    assert store.load("loop").entries[1:] == tuple(BIG)


def test_a_new_store_that_finds_no_room_can_be_made_later(path: Path) -> None:
    """At every limit from nothing to more than it needs, it is told, or works; then there is room, and it works."""
    outcomes = set()
    with Worker(path) as worker:
        for room in [*range(0, 40_000, 1_111), 200_000]:
            worker.ask(f"held.append(SqliteStore(path + '-{room}'))")
            worker.ask(f"limit({room})")
            outcomes.add(worker.ask("held[-1].create('loop', [], head=Head('ended'))").split("(")[0])
            worker.ask("limit(-1)")
            assert worker.ask("[loop.loop_id for loop in held[-1].list()]") in ("[]", "['loop']")
            assert worker.ask("held[-1].create('later', [], head=Head('ended'))") == "0"
    assert outcomes == {"StoreError", "0"}


def test_a_log_that_could_not_be_brought_into_the_file_is_kept(store: SqliteStore, path: Path) -> None:
    """The disk is full when the log is written back, in the middle of a page: what was stored is there all the same."""
    for at in range(1, 30):
        store.append("loop", [Entry(f"old{at}", "y" * 20_000)], expected_rev=at)
    store.close()
    with Worker(path) as worker:
        worker.ask(f"limit({path.stat().st_size + 12_345})")
        for at in range(30, 33):
            assert worker.ask(f"store.append('loop', [Entry('{at}', 'z' * 20_000)], expected_rev={at})") == str(at + 1)
        worker.ask("store.close()")
        assert path.stat().st_size % 4096 != 0
        assert Path(f"{path}-wal").stat().st_size > 0
        worker.kill()
    assert [entry.id for entry in store.load("loop", after=30).entries] == ["30", "31", "32"]
    assert store.append("loop", BIG, expected_rev=33) == 34


def test_a_locked_database_is_waited_for_and_then_told(store: SqliteStore, path: Path) -> None:
    """Reading goes on meanwhile. When the other process is done, or dead, writing does too."""
    was = contents(store)
    with Worker(path) as worker:
        worker.ask("held.append(lock(path))")
        with pytest.raises(StoreError, match=r"waited 0\.05 seconds, and at every try another process held it"):
            store.append("loop", BIG, expected_rev=1)
        assert contents(store) == was
        worker.ask("held.pop().close()")
        assert store.append("loop", entries("b"), expected_rev=1) == 2
        worker.ask("held.append(lock(path))")
        with pytest.raises(StoreError, match="another process held it"):
            store.release(store.acquire("loop", "me", until=1.0))
        worker.kill()
    assert store.acquire("loop", "me", until=1.0).token == 1


def test_a_database_that_is_let_go_in_time_is_written_to(path: Path, store: SqliteStore) -> None:
    """A writer waits as long as it was told to, and then gets its turn."""
    with Worker(path) as worker:
        worker.ask("held.append(lock(path))")
        worker.tell("store.append('loop', [], expected_rev=1) if held.pop().close() else None")
        with SqliteStore(path, busy_timeout=30) as patient:
            assert patient.append("loop", entries("b"), expected_rev=1) == 2
        assert worker.answer() == "None"


def test_a_read_only_file_is_told(store: SqliteStore, path: Path) -> None:
    """It stays as it is, and leaves nothing beside it that would be in the way later."""
    was = contents(store)
    store.close()
    path.chmod(0o444)
    before = path.read_bytes()
    with Worker(path, "--as-nobody") as worker:
        for act in (APPEND_BIG, "store.load('loop')"):
            answer = worker.ask(act)
            assert answer.startswith("StoreError")
            assert "can only be read" in answer
        assert path.read_bytes() == before
        assert list(path.parent.iterdir()) == [path]
        path.chmod(0o666)
        assert worker.ask("store.append('loop', [], expected_rev=1)") == "1"
        assert contents(store) == was
        assert worker.ask(APPEND_BIG) == "2"


def test_a_read_only_folder_is_told(store: SqliteStore, path: Path) -> None:
    """The log cannot be made beside the file. The file stays as it is."""
    store.close()
    path.chmod(0o666)
    path.parent.chmod(0o555)
    before = path.read_bytes()
    with Worker(path, "--as-nobody") as worker:
        for act in (APPEND_BIG, "store.load('loop')"):
            answer = worker.ask(act)
            assert answer.startswith("StoreError")
            assert "may this process write to both" in answer or "can only be read" in answer
        path.parent.chmod(0o777)
        assert path.read_bytes() == before
        assert worker.ask(APPEND_BIG) == "2"


def test_a_new_file_in_a_read_only_folder_is_told(path: Path) -> None:
    """Nothing is made there; when it may be, it is."""
    path.parent.chmod(0o555)
    with Worker(path, "--as-nobody") as worker:
        answer = worker.ask("store.create('loop', [], head=Head('ended'))")
        assert answer.startswith("StoreError")
        assert "cannot be opened" in answer
        path.parent.chmod(0o777)
        assert worker.ask("store.create('loop', [], head=Head('ended'))") == "0"


def test_a_folder_that_is_not_there_is_told(path: Path) -> None:
    """And nothing is made; when it is there, the same store works."""
    store = SqliteStore(path.parent / "folder" / "loops.db")
    with pytest.raises(StoreError, match="Is its folder there"):
        store.list()
    (path.parent / "folder").mkdir()
    assert store.list() == []
    store.close()
    shutil.rmtree(path.parent / "folder")


def test_a_folder_in_place_of_the_file_is_told(path: Path) -> None:
    """By its name, and so is one in place of the log."""
    path.mkdir()
    with pytest.raises(StoreError, match=r"loops\.db is no file, but a folder\. Give the store a file"):
        SqliteStore(path).list()
    path.rmdir()
    path.with_name("loops.db-wal").mkdir()
    with pytest.raises(StoreError, match=r"loops\.db-wal is no file, but a folder"):
        SqliteStore(path).list()
    assert not path.exists()


def test_what_is_no_file_is_told(path: Path) -> None:
    """A device, also by a link, and a pipe, on which nobody waits."""
    path.symlink_to(os.devnull)
    with pytest.raises(StoreError, match=rf"{os.devnull} is no file, but a device, a pipe or the like"):
        SqliteStore(path).list()
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(StoreError, match=r"loops\.db is no file, but a device, a pipe or the like"):
        SqliteStore(path).create("loop", [], head=READY)


def test_a_failure_while_opening_leaves_no_connection_behind(path: Path) -> None:
    """However often it is tried."""
    path.write_bytes(b"nonsense" * 1000)
    descriptors = Path("/proc/self/fd")
    before = len(list(descriptors.glob("*")))  # where there is no such folder, none
    store = SqliteStore(path)
    for _ in range(20):
        with pytest.raises(UnreadableSnapshot):
            store.list()
    assert len(list(descriptors.glob("*"))) == before


def test_a_database_that_is_damaged_while_it_is_open_is_told(store: SqliteStore, path: Path) -> None:
    """Not by a traceback from below."""
    with closing(sqlite3.connect(path)) as shell:
        shell.execute("PRAGMA writable_schema = ON")
        shell.execute("UPDATE sqlite_master SET rootpage = 3 WHERE name = 'events'")
        shell.execute("UPDATE sqlite_master SET rootpage = 99 WHERE name = 'loops'")
        shell.commit()
        shell.execute("PRAGMA writable_schema = RESET")
    store.close()
    with pytest.raises(UnreadableSnapshot, match="damaged"):
        store.list()
