"""Opening the file of a store: foreign, newer and damaged files, permissions, full disks, locks."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from tests.kit.effort import IS_DEEP
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
        Path(folder).chmod(0o777)


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    with SqliteStore(path, busy_timeout=0.05) as opened:
        opened.create("loop", entries("a"), head=READY)
        yield opened


def log_of(path: Path) -> Path:
    return Path(f"{path}-wal")


def script(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def refuse(path: Path, says: str) -> None:
    """Reading and writing are refused, and the file does not change."""
    before = {file: file.read_bytes() for file in (path, log_of(path)) if file.exists()}
    with SqliteStore(path) as store:
        for act in (lambda: store.create("loop", entries("a"), head=READY), store.list):
            with pytest.raises(UnreadableSnapshot, match=says):
                act()
    assert {file: file.read_bytes() for file in before} == before


# --- foreign and newer files ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"x", b"hello", b"SQLite format 3", b"{}" * 5000, bytes(100), bytes(8192)])
def test_a_file_that_is_not_a_database_is_refused(path: Path, content: bytes) -> None:
    """Short or long, also if its beginning is right."""
    path.write_bytes(content)
    refuse(path, "not an SQLite database. It was not changed")


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_the_database_of_another_program_is_refused(path: Path, mode: str) -> None:
    """It gets no other journal mode, and no table."""
    script(path, f"PRAGMA journal_mode = {mode}", "CREATE TABLE loops (mine)", "INSERT INTO loops VALUES (1)")
    refuse(path, "is an SQLite database of another program .application_id 0.")
    script(path, "PRAGMA application_id = 7", "DROP TABLE loops")
    refuse(path, "application_id 7")


def test_the_database_that_another_program_left_with_a_log_is_refused(path: Path) -> None:
    """The log stays beside the file: only the program that wrote it may take it over."""
    program = (
        "import os, sqlite3, sys\n"
        "connection = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "connection.execute('PRAGMA journal_mode = WAL')\n"
        "connection.execute('CREATE TABLE mine (a)')\n"
        "os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", program, str(path)], check=True)
    kept = log_of(path).read_bytes()
    refuse(path, "another program")
    assert log_of(path).read_bytes() == kept


def test_a_store_of_a_newer_format_is_refused(path: Path, store: SqliteStore) -> None:
    """By number, with what to do."""
    store.close()
    script(path, "PRAGMA user_version = 2")
    refuse(path, "is a store of format 2, but this version of toolloop reads format 1.* or a newer one")


@pytest.mark.parametrize("damage", ["DROP TABLE events", "DROP TABLE tokens"])
def test_a_store_without_one_of_its_tables_is_refused(path: Path, store: SqliteStore, damage: str) -> None:
    """The table is not created again."""
    store.close()
    script(path, damage)
    with pytest.raises(UnreadableSnapshot, match="damaged"):
        store.load("loop") if "events" in damage else store.acquire("loop", "me", until=1.0)


@pytest.mark.parametrize("statements", [[], ["PRAGMA journal_mode = WAL"], ["CREATE TABLE a (b)", "DROP TABLE a"]])
def test_a_database_without_content_becomes_a_store(path: Path, statements: list[str]) -> None:
    """So does an empty file, and one whose creation was cut short."""
    path.touch()
    script(path, *statements)
    with SqliteStore(path) as store:
        store.create("loop", [], head=READY)
        assert [loop.loop_id for loop in store.list()] == ["loop"]


def test_a_file_that_was_cut_off_is_refused(path: Path, store: SqliteStore) -> None:
    """No loop and no event is missing in silence."""
    store.append("loop", [Entry(str(at), "y" * 700) for at in range(50)], expected_rev=1)
    was = contents(store)
    store.close()
    whole = path.read_bytes()
    for size in range(8192, len(whole), 4096):
        path.write_bytes(whole[:size])
        with SqliteStore(path) as cut, pytest.raises(UnreadableSnapshot):
            contents(cut)
    path.write_bytes(whole)
    assert contents(store) == was


# --- permissions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", [0o777, 0o555])
@pytest.mark.parametrize("file", [0o444, 0o666])
def test_reading_needs_no_write_permission(store: SqliteStore, path: Path, folder: int, file: int) -> None:
    """Neither on the file nor on its folder; writing is refused, and nothing is left beside the file."""
    if (folder, file) == (0o777, 0o666):
        return
    store.close()
    path.chmod(file)
    path.parent.chmod(folder)
    before = path.read_bytes()
    with Worker(path, "--as-nobody") as worker:
        assert worker.ask("store.load('loop').rev") == "1"
        assert worker.ask("[loop.loop_id for loop in store.list()]") == "['loop']"
        answer = worker.ask(APPEND_BIG)
        assert answer.startswith("StoreError")
        assert "is read-only" in answer or "cannot be opened" in answer
        assert path.read_bytes() == before
        path.parent.chmod(0o777)
        path.chmod(0o666)
        assert worker.ask(APPEND_BIG) == "2"


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o660])
def test_a_file_that_is_there_keeps_its_mode(path: Path, mode: int) -> None:
    """The log beside it gets the same: who may read one may read the other."""
    path.touch()
    path.chmod(mode)
    with SqliteStore(path) as store:
        store.create("loop", entries("a"), head=READY)
        assert {file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == {mode}
        assert len(list(path.parent.iterdir())) == 3


def test_reading_without_write_permission_creates_nothing(store: SqliteStore, path: Path) -> None:
    """Not even where the folder allows it: a file of another user beside the store would shut its owner out."""
    with tempfile.TemporaryDirectory() as copies:
        Path(copies).chmod(0o777)
        for file in (path, log_of(path)):
            Path(shutil.copy(file, copies)).chmod(0o444)
        before = sorted(Path(copies).iterdir())
        with Worker(Path(copies) / path.name, "--as-nobody", busy_timeout=0.05) as worker:
            assert worker.ask("store.list()").startswith("StoreError")
        assert sorted(Path(copies).iterdir()) == before


def test_a_reader_without_write_permission_reads_while_a_writer_comes_and_goes(path: Path) -> None:
    """The log appears and disappears between its looks: it tries again, and finds nothing damaged."""
    with SqliteStore(path) as store:
        store.create("loop", entries("a"), head=READY)
    path.chmod(0o644)
    path.parent.chmod(0o755)
    with Worker(path, "--as-nobody", busy_timeout=30) as worker, ThreadPoolExecutor(1) as pool:
        reads = pool.submit(
            worker.ask, f"{{type(store.load('loop')).__name__ for _ in range({150 if IS_DEEP else 25})}}"
        )
        rev = 1
        while not reads.done():
            with SqliteStore(path) as store:
                rev = store.append("loop", entries(f"e{rev}"), expected_rev=rev)
        assert reads.result() == "{'StoredJournal'}"


def test_a_missing_folder_is_refused(path: Path) -> None:
    """When it is there, the same store works."""
    with SqliteStore(path.parent / "folder" / "loops.db") as store:
        with pytest.raises(StoreError, match="cannot be opened"):
            store.list()
        (path.parent / "folder").mkdir()
        assert store.list() == []
    shutil.rmtree(path.parent / "folder")


# --- full disks and locks ---------------------------------------------------------------------------------------------


def test_a_full_database_is_refused(store: SqliteStore) -> None:
    """SQLite's own limit of pages. Then it is lifted."""
    was = contents(store)
    store._file.read(lambda db: db.execute("PRAGMA max_page_count = 12").fetchall())
    with pytest.raises(StoreError, match=r"loops\.db cannot grow, because the disk is full: free some"):
        store.append("loop", BIG, expected_rev=1)
    assert contents(store) == was
    store.close()
    assert store.append("loop", BIG, expected_rev=1) == 2


@pytest.mark.parametrize("room", [0, 4_000, 200_000])
def test_a_file_that_may_not_grow_is_refused(store: SqliteStore, path: Path, room: int) -> None:
    """The system's limit, as on a full disk. Then it is lifted."""
    was = contents(store)
    with Worker(path) as worker:
        assert worker.ask("store.load('loop').rev") == "1"
        worker.ask(f"limit({log_of(path).stat().st_size + room})")
        assert worker.ask(APPEND_BIG).startswith("StoreError")
        assert worker.ask("store.load('loop').rev") == "1"
        assert contents(store) == was
        worker.ask("limit(-1)")
        assert worker.ask(APPEND_BIG) == "2"
    assert store.load("loop").entries[1:] == tuple(BIG)


def test_a_lock_of_another_process_is_waited_for(store: SqliteStore, path: Path) -> None:
    """Reading goes on meanwhile. When the other process is done, or dead, writing does too."""
    was = contents(store)
    with Worker(path) as worker:
        worker.ask("held.append(lock(path))")
        with pytest.raises(StoreError, match=r"is locked by another process or connection .gave up after 0\.05 s"):
            store.append("loop", BIG, expected_rev=1)
        assert contents(store) == was
        worker.ask("held.pop().close()")
        assert store.append("loop", entries("b"), expected_rev=1) == 2
        worker.ask("held.append(lock(path))")
        worker.tell("store.append('loop', [], expected_rev=1) if held.pop().close() else None")
        with SqliteStore(path, busy_timeout=30) as patient:
            assert patient.append("loop", entries("c"), expected_rev=2) == 3
        assert worker.answer() == "None"
        worker.ask("held.append(lock(path))")
        worker.kill()
    assert store.acquire("loop", "me", until=1.0).token == 1


def test_a_network_file_system_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite has no write-ahead log where processes cannot share memory, as with this way of locking."""
    connect = sqlite3.connect

    def dotfile(address: str, **options: object) -> sqlite3.Connection:
        return connect(f"{address}&vfs=unix-dotfile", **options)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr(sqlite3, "connect", dotfile)
    with pytest.raises(StoreError, match="network file systems are not supported"):
        SqliteStore(path).list()
    assert not log_of(path).exists()
