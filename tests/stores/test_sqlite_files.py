"""Foreign, damaged and newer files are refused by name, and nothing of them is changed."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.stores.support import HUMAN, READY, contents, entries
from tests.stores.worker import Worker
from toolloop.errors import StoreError, UnreadableSnapshot
from toolloop.stores import Entry, SqliteStore
from toolloop.stores.sqlite_files import APPLICATION_ID, _try_for, require_wal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "loops.db"


def log_of(path: Path) -> Path:
    return Path(f"{path}-wal")


def script(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def refuse(path: Path, says: str) -> None:
    """Every method refuses the file, and changes nothing of it."""
    before = {file: file.read_bytes() for file in (path, log_of(path)) if file.exists()}
    with SqliteStore(path) as store:
        for act in (
            lambda: store.create("loop", entries("a"), head=READY),
            lambda: store.append("loop", entries("a"), expected_rev=None),
            lambda: store.load("loop"),
            store.list,
        ):
            with pytest.raises(UnreadableSnapshot, match=says):
                act()
    assert {file: file.read_bytes() for file in before} == before


@pytest.mark.parametrize("content", [b"x", b"hello", b"SQLite format 3", b"{}" * 5000, bytes(100), bytes(8192)])
def test_a_file_that_is_no_database_is_refused(path: Path, content: bytes) -> None:
    """Short or long, even if it begins well."""
    path.write_bytes(content)
    refuse(path, "is no SQLite database.*It was left as it is")


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_the_database_of_another_program_is_refused(path: Path, mode: str) -> None:
    """It is not switched to another journal, and gets no table."""
    script(path, f"PRAGMA journal_mode = {mode}", "CREATE TABLE loops (mine)", "INSERT INTO loops VALUES (1)")
    refuse(path, "is an SQLite database of some other program .its application_id is 0.")
    script(path, "PRAGMA application_id = 7", "DROP TABLE loops")
    refuse(path, "application_id is 7")
    script(path, "PRAGMA application_id = 0", "PRAGMA user_version = 3")
    refuse(path, "application_id is 0")


def test_the_open_database_of_another_program_is_refused(path: Path) -> None:
    """What its own log holds stays in its log."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA journal_mode = WAL")
        other.execute("CREATE TABLE mine (a)")
        assert log_of(path).stat().st_size > 0
        refuse(path, "some other program")
        other.execute("INSERT INTO mine VALUES (1)")


def test_a_store_of_a_newer_format_is_refused(path: Path) -> None:
    """By number, with what to do."""
    with SqliteStore(path) as store:
        store.create("loop", [], head=READY)
    script(path, "PRAGMA user_version = 2")
    refuse(path, "is a store of format 2, and this version of toolloop reads format 1.* use a newer toolloop")


@pytest.mark.parametrize("damage", ["PRAGMA user_version = 0", "DROP TABLE events", "DROP TABLE tokens"])
def test_a_store_without_a_part_of_it_is_refused(path: Path, damage: str) -> None:
    """Nothing is made anew in its place."""
    with SqliteStore(path) as store:
        store.create("loop", [], head=READY)
    script(path, damage)
    refuse(path, "is damaged: a part of it is missing")


def test_a_log_without_its_file_is_refused(path: Path) -> None:
    """SQLite would throw the log away, and what was stored with it."""
    with SqliteStore(path) as store:
        store.create("loop", [], head=READY)
        log = log_of(path).read_bytes()
    path.unlink()
    log_of(path).write_bytes(log)
    with pytest.raises(UnreadableSnapshot, match=r"it is gone, and .*-wal, which belongs to it, is there"):
        SqliteStore(path).list()
    assert not path.exists()
    path.touch()
    refuse(path, "it is empty, and .*-wal")


@pytest.mark.parametrize("statements", [[], ["PRAGMA journal_mode = WAL"], ["CREATE TABLE a (b)", "DROP TABLE a"]])
def test_a_database_with_nothing_in_it_becomes_a_store(path: Path, statements: list[str]) -> None:
    """So does the empty file of whoever made a name for it first, and one whose making was cut short."""
    path.touch()
    script(path, *statements)
    with SqliteStore(path) as store:
        store.create("loop", [], head=READY)
    script(path, f"PRAGMA application_id = {APPLICATION_ID}")
    assert [loop.loop_id for loop in SqliteStore(path).list()] == ["loop"]


def test_a_store_that_was_taken_off_its_log_gets_it_back(path: Path) -> None:
    """Somebody switched it over with the shell, and died in the middle of a change: that change never happened."""
    with SqliteStore(path) as store:
        store.create("loop", entries("a"), head=READY)
    with Worker(path) as worker:
        worker.ask("held.append(sqlite3.connect(path, isolation_level=None))")
        for statement in (
            "PRAGMA journal_mode = DELETE",
            "PRAGMA cache_size = 1",
            "BEGIN",
            "UPDATE events SET body = 'changed'",
            "INSERT INTO events SELECT (1 << 32) + value, value, hex(zeroblob(2000)) FROM json_each('[2,3,4,5,6,7,8]')",
        ):
            worker.ask(f'held[0].execute("{statement}").fetchall()')
        worker.kill()
    assert Path(f"{path}-journal").stat().st_size > 0
    with SqliteStore(path) as store:
        assert store.load("loop").entries == tuple(entries("a"))
        with store._reading() as connection:
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_file_system_without_a_log_is_refused(path: Path) -> None:
    """Here one that cannot share memory between processes, as network file systems cannot."""
    with closing(sqlite3.connect(f"{path.as_uri()}?vfs=unix-dotfile", uri=True)) as connection:
        connection.execute("CREATE TABLE a (b)")
        with pytest.raises(StoreError, match="network file systems are unsupported"):
            require_wal(connection, str(path))


def test_a_new_file_that_somebody_looks_at_is_switched_over_when_they_are_done(path: Path) -> None:
    """SQLite itself does not wait for that: it says at once that the file is locked."""
    script(path, "CREATE TABLE a (b)", "DROP TABLE a")
    reader, writer = (sqlite3.connect(path, isolation_level=None, timeout=0) for _ in range(2))
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM sqlite_master")
    tries = []

    def switch() -> None:
        try:
            require_wal(writer, str(path))
        except sqlite3.OperationalError as error:
            tries.append(error.sqlite_errorname)
            reader.close()
            raise

    with closing(writer):
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            _try_for(-1, lambda: require_wal(writer, str(path)))
        _try_for(30, switch)
        assert writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert tries == ["SQLITE_BUSY"]


class Damaged:
    """A store whose every state is known, and copies of its files that end too early."""

    def __init__(self, path: Path, page_size: int) -> None:
        self.path = path
        self.copy = path.parent / "copy" / path.name
        self.copy.parent.mkdir()
        if page_size != 8192:  # a database without content is taken as it is
            script(path, f"PRAGMA page_size = {page_size}", "PRAGMA journal_mode = WAL")
        self.store = SqliteStore(path)
        self.states: list[Any] = [[]]

    def live(self) -> None:
        """Do a little of everything, and remember what is stored after each step."""
        store = self.store
        for step in (
            lambda: store.create("one", entries("a", "b"), head=READY),
            lambda: store.create("two", [Entry("big", "x" * 3000)], head=HUMAN),
            lambda: store.acquire("one", "me", until=1.0),
            lambda: store.append("one", [Entry("c", "y" * 700)], expected_rev=2, head=HUMAN),
            lambda: store.append("two", entries(*"defghi"), expected_rev=None),
            lambda: store.create("three", entries("j"), head=READY),
            lambda: store.append("three", [Entry("k", "z" * 5000)], expected_rev=1),
        ):
            step()
            self.states.append(contents(store))

    def cut(self, name: Path, at: int) -> str:
        """What a copy gives of which one file was cut at this byte: a state that was, or an error and no change."""
        shutil.rmtree(self.copy.parent)
        self.copy.parent.mkdir()
        for file in (self.path, log_of(self.path)):
            if file.exists():
                content = file.read_bytes()
                self.copy.with_name(file.name).write_bytes(content[:at] if file == name else content)
        before = {file: file.read_bytes() for file in self.copy.parent.iterdir()}
        with SqliteStore(self.copy) as store:
            try:
                found = contents(store)
            except (StoreError, UnreadableSnapshot) as error:
                outcome = type(error).__name__
                unchanged = {file: file.read_bytes() for file in before} == before
                return outcome if unchanged else f"{outcome}, and a file was changed"
        if found == self.states[-1]:
            return "as it was"
        return "earlier" if found in self.states else f"garbage after a cut at {at}"


@pytest.fixture(params=[(512, 1), (8192, 61)], ids=["small pages, every byte", "pages as they are, every 61st byte"])
def damaged(path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Damaged, int]]:
    page_size, step = request.param
    made = Damaged(path, page_size)
    yield made, step
    made.store.close()


def last_page(file: Path, size: int, step: int) -> range:
    end = file.stat().st_size
    return range(end - size, end, step)


def page_size(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("PRAGMA page_size").fetchone()[0])


def test_a_file_that_ends_too_early_is_refused(damaged: tuple[Damaged, int]) -> None:
    """Cut in its last page, after it was closed: never a loop too few, an event too few, or zeros in one."""
    store, step = damaged
    store.live()
    store.store.close()
    cuts = last_page(store.path, page_size(store.path), step)
    assert {store.cut(store.path, at) for at in cuts} == {"UnreadableSnapshot"}


def test_a_log_that_ends_too_early_gives_what_was_stored_before(damaged: tuple[Damaged, int]) -> None:
    """Cut in its last page: the last transaction is gone, and all before it are there."""
    store, step = damaged
    store.live()
    log = log_of(store.path)
    assert {store.cut(log, at) for at in last_page(log, page_size(store.path) + 24, step)} == {"earlier"}


def test_a_file_whose_log_has_what_it_lacks_is_whole(damaged: tuple[Damaged, int]) -> None:
    """Cut in its last page while the log still has that page: nothing is lost."""
    store, step = damaged
    store.live()
    with closing(sqlite3.connect(store.path)) as shell:
        assert shell.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[0] == 0
    cuts = last_page(store.path, page_size(store.path), step)
    assert {store.cut(store.path, at) for at in cuts} == {"as it was"}


def test_a_file_that_lacks_what_its_log_does_not_have_is_refused(damaged: tuple[Damaged, int]) -> None:
    """Cut in a page that was written before the log began."""
    store, step = damaged
    store.live()
    store.store.close()
    store.store.append("one", entries("more"), expected_rev=3)
    assert log_of(store.path).stat().st_size > 0
    store.states.append(contents(store.store))
    outcomes = {store.cut(store.path, at) for at in last_page(store.path, page_size(store.path), step)}
    assert outcomes <= {"UnreadableSnapshot", "as it was"}  # the log may just have that page
    assert store.cut(store.path, store.path.stat().st_size // 2) == "UnreadableSnapshot"
