"""Checkpoints are a cache: whatever is in one, a loop opens in the state of its journal, or the damage is reported."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.kit.concurrency import either_kind
from tests.kit.failing import Asked, FailingStore
from tests.kit.postgres import database, in_postgres
from tests.kit.restoring import Backups
from tests.kit.tools import SEND, STORED_TOOLS, note
from tests.kit.world import ID, World
from tests.measured.speed.work import counting
from toolloop import Approve, Inbox, MemoryStore, SqliteStore, ToolContext, tool
from toolloop.errors import UnreadableSnapshot
from toolloop.inbox import audit
from toolloop.machine import State
from toolloop.stores import read_journal
from toolloop.stores.checkpoints import MEANING, Checkpoint, read_checkpoint, write_checkpoint
from toolloop.testing import call, reply

LARGE = 120_000  # a checkpoint is due after it


@tool(effect="pure")
def fetch(size: int, context: ToolContext) -> str:
    """Fetch a text."""
    note(context, "fetch", size)
    return "x" * size


def fetch_rounds(*sizes: int) -> tuple[Any, ...]:
    """Rounds that fetch so many characters each."""
    return tuple(reply(calls=[call("fetch", {"size": size}, id=f"f{at}")]) for at, size in enumerate(sizes))


def script_further(*sizes: int) -> tuple[Any, ...]:
    """The script of a loop whose first turns are over: further rounds, and the end."""
    return (*fetch_rounds(*[1] * 3, *sizes), reply("done"))


def world_on(store: Any, *script: Any, kind: str = "sync", **more: Any) -> World:
    config = {"max_iterations": 40, **more}
    return World(
        kind,
        store,
        script=script or (*fetch_rounds(LARGE, 10), reply("done")),
        tools=(*STORED_TOOLS, fetch),
        config=config,
    )


class Place:
    """A file with a store, that can be opened again as another process does, and looked into."""

    def __init__(self, folder: Path, name: str = "loops.db") -> None:
        self.path = folder / name

    def store(self) -> SqliteStore:
        return SqliteStore(self.path)

    def sql(self, query: str, *values: Any) -> list[Any]:
        with closing(sqlite3.connect(self.path)) as db, db:
            return db.execute(query, values).fetchall()

    def revs(self) -> list[int]:
        """The revisions of the checkpoints."""
        return [rev for (rev,) in self.sql("SELECT rev FROM checkpoints ORDER BY meaning")]

    def state(self) -> State:
        """The state that a process opens with that knows nothing."""
        with self.store() as store, world_on(store).open() as handle:
            state: State = handle.state
            return state

    def read_whole(self) -> State:
        """The state of the journal, read from its beginning."""
        with self.store() as store:
            return read_journal(store.load(ID).entries)


class PostgresPlace(Place):
    """Likewise, in a PostgreSQL database."""

    def __init__(self, url: str) -> None:
        self.url = url

    def store(self) -> Any:
        from toolloop.stores import PostgresStore  # noqa: PLC0415 - not every test has psycopg

        return PostgresStore(self.url, pool_size=2)

    def sql(self, query: str, *values: Any) -> list[Any]:
        import psycopg  # noqa: PLC0415 - likewise

        for old, new in _IN_POSTGRES.items():
            query = query.replace(old, new)
        with psycopg.connect(self.url, options="-c search_path=toolloop") as db:
            found = db.execute(query, values)
            return found.fetchall() if found.description else []


_IN_POSTGRES = {
    "?": "%s",
    "place & 4294967295": "seq",
    "place >> 32": "number",
    "CAST(body AS BLOB)": "body",
    "x'00'": r"'\x00'::bytea",
    "x''": "''::bytea",
}


@pytest.fixture(params=["sqlite", in_postgres])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(tmp_path) if request.param == "sqlite" else PostgresPlace(database())


@pytest.fixture
def kept(place: Place) -> Place:
    """A loop with a checkpoint, and events after it."""
    with place.store() as store:
        assert world_on(store).drive().unwrap().text == "done"
    assert len(place.revs()) == 1
    return place


@contextmanager
def expect_log_line(caplog: pytest.LogCaptureFixture, words: str) -> Iterator[None]:
    """One line is logged, which has these words."""
    caplog.clear()
    with caplog.at_level(logging.WARNING, "toolloop"):
        yield
    assert [words in line for line in caplog.messages] == [True], caplog.messages


# --- written ---------------------------------------------------------------------------------------------------------


@either_kind
def test_a_driver_keeps_a_checkpoint_at_the_end_of_a_turn(kind: str, place: Place) -> None:
    """A process that knows nothing reads it, and the events after it, and gets the same state."""
    with place.store() as store:
        assert world_on(store, kind=kind).drive().unwrap().text == "done"
        body = store.checkpoint(ID, meaning=MEANING)
        known = read_checkpoint(ID, body or b"")
        entries = store.load(ID).entries
        assert 0 < known.rev < len(entries)
        assert known.state == read_journal(entries[: known.rev])
    with place.store() as store, counting() as work, world_on(store).open() as handle:
        state = handle.state
    assert work.events == len(entries) - known.rev
    assert state == read_journal(entries)


def test_they_are_kept_during_a_run_and_once_they_are_outweighed(place: Place) -> None:
    """Not after each turn, so that what is written stays a small multiple of the journal."""
    store = FailingStore(place.store(), is_whole=True)
    world = world_on(store, *fetch_rounds(*[30_000] * 30), reply("done"))
    assert world.drive().unwrap().text == "done"
    asked = [name for name in store.asked if name in ("keep_checkpoint", "release")]
    assert 5 <= asked.count("keep_checkpoint") <= 10
    assert asked.index("keep_checkpoint") < asked.index("release")
    (size,), (weight,) = (
        place.sql("SELECT sum(length(body)) FROM checkpoints"),
        place.sql("SELECT sum(length(body) + coalesce(length(text), 0)) FROM events"),
    )
    assert size[0] <= weight[0]
    (read,) = place.sql(
        "SELECT sum(length(body) + coalesce(length(text), 0)) FROM events WHERE place & 4294967295 > ?", *place.revs()
    )
    assert read[0] <= max(100_000, size[0] / 8) + 31_000


def test_short_loops_have_none(place: Place) -> None:
    """Their events are read in milliseconds."""
    with place.store() as store:
        world_on(store, *fetch_rounds(100), reply("done")).drive()
    assert place.revs() == []


@either_kind
def test_a_full_disk_costs_one_line_and_the_next_append_works(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The checkpoint is left out, and the next one is due when as many events are stored again."""
    place = Place(tmp_path)
    store = FailingStore(inner := SqliteStore(place.path), is_whole=True)

    def fill(asked: Asked) -> None:
        if asked.name == "keep_checkpoint":
            (pages,) = inner._file.read(lambda db: db.execute("PRAGMA page_count").fetchone())
            inner._file.read(lambda db: db.execute(f"PRAGMA max_page_count = {pages}"))

    store.before = fill
    world = world_on(store, kind=kind)
    with expect_log_line(caplog, "could not keep a checkpoint"):
        assert world.drive().unwrap().text == "done"
    assert "because the disk is full" in caplog.text
    assert (place.revs(), store.asked.count("keep_checkpoint")) == ([], 1)
    assert place.state() == place.read_whole()


def test_a_store_that_cannot_read_them_reads_the_journal(kept: Place, caplog: pytest.LogCaptureFixture) -> None:
    """As one whose role has no right to their table."""
    store = FailingStore(kept.store(), is_whole=True)
    store.fails = lambda _: "before" if store.asked[-1] == "checkpoint" else None
    with expect_log_line(caplog, "could not use a checkpoint"), world_on(store).open() as handle:
        assert handle.state == kept.read_whole()
    assert store.asked.count("checkpoint") == 1


def test_a_foreign_store_has_none(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is asked of it beside the protocol, and nothing is logged."""
    with caplog.at_level(logging.WARNING, "toolloop"):
        world = world_on(FailingStore(MemoryStore()))
        assert world.drive().unwrap().text == "done"
        world_on(FailingStore(world.store.inner)).open().close()
    assert caplog.messages == []


# --- unusable --------------------------------------------------------------------------------------------------------


UNUSABLE: dict[str, str] = {
    "a changed byte": "UPDATE checkpoints SET body = CAST(body AS BLOB) || x'00'",
    "nothing in it": "UPDATE checkpoints SET body = x''",
    "a number": "UPDATE checkpoints SET body = 7",
    "one of another loop": "UPDATE checkpoints SET number = 1",
}


@pytest.mark.parametrize("how", UNUSABLE)
def test_with_one_that_cannot_be_used_the_journal_is_read(
    how: str, kept: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """From its beginning, and one line is logged."""
    if how == "a number" and isinstance(kept, PostgresPlace):
        pytest.skip("its columns have types")
    if "another" in how:
        with kept.store() as store:
            world_on(store).drive("other")
        kept.sql("DELETE FROM checkpoints WHERE number = 1")
    kept.sql(UNUSABLE[how])
    assert len(kept.revs()) == 1
    with expect_log_line(caplog, "could not use a checkpoint, so the whole journal is read"), counting() as work:
        state = kept.state()
    assert state == kept.read_whole()
    assert work.events == kept.sql("SELECT count(*) FROM events WHERE place >> 32 = 1")[0][0]


@pytest.mark.parametrize("way", ["in place", in_postgres])
def test_one_of_a_lost_branch_is_not_used_and_is_replaced(
    way: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Though its revision is greater than that of the journal, and later that of another event."""
    backups = Backups(way, tmp_path)
    place = PostgresPlace(backups.url) if backups.url else Place(tmp_path, backups.path.name)
    script = (reply(calls=[SEND]), *fetch_rounds(LARGE, LARGE, 10)[1:], reply("done"))
    world_on(backups.store, *script).drive()
    restore = backups.back_up()
    Inbox(backups.store).decide(ID, {"t2": Approve(by="ana")})
    world_on(backups.store, *script).drive()
    (lost,) = place.sql("SELECT * FROM checkpoints")
    restore()
    place.sql("DELETE FROM checkpoints")
    place.sql("INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?)", *lost)
    with expect_log_line(caplog, f"does not contain revision {lost[2]}"):
        assert place.state() == place.read_whole()
    assert audit(place.store(), ID) == ()
    Inbox(place.store()).decide(ID, {"t2": Approve(by="bo")})
    with place.store() as store:
        handle = world_on(store, script[0], *fetch_rounds(LARGE)).open()
        handle.next_turn()
        handle.handle.pending_turn.continue_loop()
        handle.next_turn()
        handle.close()
    ((rev, body),) = place.sql("SELECT rev, body FROM checkpoints")
    assert rev < lost[2]
    assert read_checkpoint(ID, body).state == read_journal(place.store().load(ID).entries[:rev])
    backups.close()


def test_an_older_meaning_stays_beside_a_newer_one(kept: Place) -> None:
    """Each version reads its own. One that no version has written for long goes with the next."""
    ((rev,),) = kept.sql("SELECT rev FROM checkpoints")
    kept.sql("UPDATE checkpoints SET meaning = ?, body = x'00', rev = rev + 5", MEANING - 1)
    assert kept.state() == kept.read_whole()
    world = world_on(kept.store(), *script_further(LARGE))
    Inbox(world.store).say(ID, "More.")
    world.drive()
    assert [meaning for (meaning,) in kept.sql("SELECT meaning FROM checkpoints ORDER BY meaning")] == [
        MEANING - 1,
        MEANING,
    ]
    kept.sql("UPDATE checkpoints SET rev = 1 WHERE meaning = ?", MEANING - 1)
    world = world_on(kept.store(), *script_further(1, 1, LARGE))
    Inbox(world.store).say(ID, "And more.")
    world.drive()
    assert kept.sql("SELECT meaning FROM checkpoints") == [(MEANING,)]
    assert rev < kept.revs()[0]


@pytest.mark.parametrize("version", ["this", "an earlier"])
def test_a_deleted_loop_leaves_none(version: str, kept: Place) -> None:
    """Nor to one that is made again under its id; also if a version deletes it that does not know checkpoints."""
    if version == "this":
        with kept.store() as store:
            store.delete(ID)
    else:
        kept.sql("DELETE FROM events")
        kept.sql("DELETE FROM loops")
    assert kept.revs() == []
    with kept.store() as store:
        assert world_on(store, reply("another")).drive().unwrap().text == "another"
    assert kept.state() == kept.read_whole()


def test_a_fork_begins_without_one(kept: Place) -> None:
    """It has a journal of its own, and keeps its own."""
    with kept.store() as store, world_on(store).open() as handle:
        handle.fork("copy").close()
    assert kept.sql("SELECT loop_id FROM checkpoints JOIN loops USING (number)") == [(ID,)]
    with kept.store() as store, world_on(store).open("copy") as handle:
        assert handle.state == read_journal(store.load("copy").entries)


def test_another_process_may_write_one_meanwhile(kept: Place) -> None:
    """A reader that has read an older one, or none, gets the same state."""
    ((older,),) = kept.sql("SELECT body FROM checkpoints")
    with kept.store() as other:
        world = world_on(other, *script_further(LARGE))
        Inbox(other).say(ID, "More.")

        def go_on(asked: Asked) -> None:
            if asked.name == "load":
                store.before = lambda _: None
                world.drive()

        store = FailingStore(kept.store(), before=go_on, is_whole=True)
        with world_on(store).open() as handle:
            assert handle.state == kept.read_whole()
    assert kept.sql("SELECT body FROM checkpoints") != [(older,)]


def test_a_driver_that_lost_its_lease_keeps_none(kept: Place) -> None:
    """The store has that of the other driver."""
    ((before,),) = kept.sql("SELECT body FROM checkpoints")
    with kept.store() as store:
        lease = store.acquire(ID, "me", until=1e10)
        store.acquire(ID, "you", until=1e10, instead_of=lease.token)
        store.keep_checkpoint(lease, b"mine", rev=store.head(ID).rev, meaning=MEANING)
    assert kept.sql("SELECT body FROM checkpoints") == [(before,)]


# --- found by an audit ------------------------------------------------------------------------------------------------


def test_an_audit_compares_it_with_the_journal(kept: Place) -> None:
    """It reads the whole journal, also what lies before the checkpoint; opening does not."""
    with kept.store() as store:
        assert audit(store, ID) == ()
        known = read_checkpoint(ID, store.checkpoint(ID, meaning=MEANING) or b"")
        root = known.state.root._replace(iterations=7)
        wrong = write_checkpoint(Checkpoint(State({(): root}), known.rev, known.first_id))
    kept.sql("UPDATE checkpoints SET body = ?", wrong)
    with kept.store() as store:
        assert audit(store, ID) == (f"its checkpoint at revision {known.rev} has another state than its journal",)
    kept.sql("UPDATE checkpoints SET body = x'00'")
    with kept.store() as store:
        assert audit(store, ID) == ("its checkpoint cannot be used: its digest does not match its content",)
    kept.sql("DELETE FROM checkpoints")
    kept.sql("UPDATE events SET body = replace(body, 'Requested', 'Resorted') WHERE place & 4294967295 = 2")
    with kept.store() as store, pytest.raises(UnreadableSnapshot):
        world_on(store).open()


def test_damage_before_a_checkpoint_is_found_by_an_audit_only(kept: Place) -> None:
    """SECURITY says so."""
    expected = kept.read_whole()
    kept.sql("UPDATE events SET body = replace(body, 'Requested', 'Resorted') WHERE place & 4294967295 = 2")
    assert kept.state() == expected
    with kept.store() as store:
        assert "entry 2" in audit(store, ID)[0] or "event 2" in audit(store, ID)[0]
