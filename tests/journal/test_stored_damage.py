"""Damage to the file of a stored loop: no call runs twice, whatever was changed in it and whenever."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
from attrs import evolve, frozen

from tests.kit.each import each
from tests.kit.effort import IS_DEEP
from tests.kit.world import World, approve_all
from toolloop import Completed, Deny, MemoryStore, SqliteStore, Yielded
from toolloop.errors import AlreadyDecided, Conflict, StoreError, UnreadableSnapshot
from toolloop.stores import Store, StoredJournal

_SEEDS = range(500 if IS_DEEP else 60)
_COLUMNS = {
    "events": ("place", "id", "digest", "body", "text"),
    "loops": ("number", "loop_id", "rev", "digest", "status", "deadline", "lease_owner", "lease_token", "lease_until"),
    "tokens": ("last",),
}
_ROWS = (
    "DELETE FROM {table} WHERE rowid = {row}",
    "DELETE FROM {table} WHERE rowid >= {row}",
    "UPDATE {table} SET {column} = NULL WHERE rowid = {row}",
    "UPDATE {table} SET {column} = '' WHERE rowid = {row}",
    "UPDATE {table} SET {column} = {column} - 1 WHERE rowid = {row}",
    "UPDATE {table} SET {column} = {column} + 1 WHERE rowid = {row}",
    "UPDATE {table} SET {column} = (SELECT {column} FROM {table} WHERE rowid = {other}) WHERE rowid = {row}",
    "UPDATE {table} SET ({columns}) = (SELECT {columns} FROM {table} WHERE rowid = {other}) WHERE rowid = {row}",
    (
        "UPDATE {table} SET rowid = -1 WHERE rowid = {row}; UPDATE {table} SET rowid = {row} WHERE rowid = {other}; "
        "UPDATE {table} SET rowid = {other} WHERE rowid = -1"
    ),
)


@frozen
class Moment:
    """The file of a loop as it was when its process died, and the calls that had run by then."""

    content: bytes
    ran: tuple[str, ...]


@pytest.fixture(scope="module")
def moments(tmp_path_factory: pytest.TempPathFactory) -> list[Moment]:
    """Each request and each call of a loop is a moment, and so is its end."""
    folder = tmp_path_factory.mktemp("moments")
    found: list[Moment] = []

    def note() -> None:
        copy = folder / f"{len(found)}.db"
        with closing(sqlite3.connect(folder / "loops.db")) as here, closing(sqlite3.connect(copy)) as there:
            here.backup(there)
            there.execute("PRAGMA journal_mode = DELETE")
            there.executescript("UPDATE loops SET lease_owner = NULL, lease_token = NULL, lease_until = NULL")
        found.append(Moment(copy.read_bytes(), tuple(world.ran)))

    with SqliteStore(folder / "loops.db") as store:
        world = World("sync", store, on=dict.fromkeys(("request", "t1", "t2", "t3"), note))
        assert isinstance(world.open().run(approve_all), Completed)
        note()
    return found


def harm(path: Path, random: Random) -> None:
    """Change anything in a file: a statement that no constraint refuses, or a bit anywhere."""
    if random.random() < 0.3:
        content = bytearray(path.read_bytes())
        content[random.randrange(len(content))] ^= 1 << random.randrange(8)
        path.write_bytes(content)
        return
    table = random.choice([*("events",) * 4, *("loops",) * 3, "tokens"])
    column = random.choice(_COLUMNS[table])
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA ignore_check_constraints = 1")
        rows = [row for (row,) in db.execute(f"SELECT rowid FROM {table}")]
        row, other = random.choice(rows), random.choice(rows)
        if random.random() < 0.5:
            (value,) = db.execute(f"SELECT CAST({column} AS BLOB) FROM {table} WHERE rowid = {row}").fetchone()
            if value:
                flipped = bytearray(value)
                flipped[random.randrange(len(flipped))] ^= 1 << random.randrange(8)
                with suppress(sqlite3.Error):
                    kind = "BLOB" if column == "digest" else "TEXT"
                    db.execute(f"UPDATE {table} SET {column} = CAST(? AS {kind}) WHERE rowid = ?", (flipped, row))
        else:
            change = random.choice(_ROWS).format(
                table=table, column=column, columns=", ".join(_COLUMNS[table][1:] or ("last",)), row=row, other=other
            )
            with suppress(sqlite3.Error):
                db.executescript(change)
        db.commit()


def deny_what_is_uncertain(turn: Yielded) -> None:
    """What had run is not to run again; what never ran may."""
    for each_call in turn.pending:
        if each_call.why == "uncertain":
            turn.deny(each_call, "it ran")
        else:
            turn.approve(each_call)


def go_on(path: Path, moment: Moment) -> tuple[World, Any]:
    """Open the loop in a file, and go on to its end. Return also its history.

    Raises:
        StoreError: the file is not as it was stored.

    """
    world = World("sync", SqliteStore(path), ran=[*moment.ran])
    try:
        party = world.open(params=None)
        assert isinstance(party.run(deny_what_is_uncertain), Completed)
        return world, list(party.handle.messages)
    finally:
        assert len(once(world)) == len({*once(world)}), "a call ran twice"
        world.store.close()


def once(world: World) -> list[str]:
    """Return the calls that ran and may not be repeated: all but the look, which is pure."""
    return [call_id for call_id in world.ran if call_id != "t3"]


@pytest.fixture(scope="module")
def histories(moments: list[Moment], tmp_path_factory: pytest.TempPathFactory) -> dict[Moment, Any]:
    """What the loop comes to from each moment, if its file is not damaged: each call runs."""
    found: dict[Moment, Any] = {}
    for moment in moments:
        path = tmp_path_factory.mktemp("unharmed") / "loops.db"
        path.write_bytes(moment.content)
        world, found[moment] = go_on(path, moment)
        assert sorted(once(world)) == ["t1", "t2"]
    return found


@each("seed", _SEEDS)
def test_no_call_runs_twice_whatever_was_damaged(seed: int, histories: dict[Moment, Any], tmp_path: Path) -> None:
    """The loop is refused as unreadable; or it is unharmed, and comes to the same end."""
    random = Random(seed)
    moment, expected = random.choice([*histories.items()])
    path = tmp_path / "loops.db"
    path.write_bytes(moment.content)
    harm(path, random)
    with suppress(StoreError):
        assert go_on(path, moment)[1] == expected


def test_a_lost_end_of_the_journal_is_found(moments: list[Moment], tmp_path: Path) -> None:
    """However much is missing, and though the number of events fits: else a call would run a second time."""
    path = tmp_path / "loops.db"
    for moment in moments:
        path.write_bytes(moment.content)
        with closing(sqlite3.connect(path)) as db:
            ((rev,),) = db.execute("SELECT rev FROM loops")
            for left in reversed(range(1, rev)):
                db.execute("DELETE FROM events WHERE place & 0xffffffff > ?", (left,))
                db.execute("UPDATE loops SET rev = ?", (left,))
                db.commit()
                with pytest.raises(UnreadableSnapshot, match=f"event {left} of loop 'loop'"):
                    go_on(path, moment)


def test_a_file_that_is_replaced_by_an_older_copy_stops_its_driver(moments: list[Moment], tmp_path: Path) -> None:
    """A process that knows more events than the file has believes nothing of it, and runs nothing."""
    path = tmp_path / "loops.db"
    path.write_bytes(moments[-2].content)
    store = SqliteStore(path)
    world = World("sync", store, ran=[*moments[-2].ran])
    handle = world.open(params=None)
    store.close()
    path.write_bytes(moments[1].content)
    with pytest.raises(Conflict, match="the store of the loop 'loop' was restored from a backup"), store:
        handle.run(deny_what_is_uncertain)
    assert world.ran == list(moments[-2].ran)


def test_a_late_decision_is_refused_as_such_over_a_damaged_journal() -> None:
    """The decision of the call is looked up in the journal. If that is damaged, the error does not name it."""
    inner, damaged = MemoryStore(), threading.Event()

    class Damaged:
        """Loses the second event of a journal, which only a reader from the beginning notices."""

        def __getattr__(self, name: str) -> Any:
            return getattr(inner, name)

        def load(self, loop_id: str, *, after: int = 0, **more: Any) -> StoredJournal:
            found = inner.load(loop_id, after=after, **more)
            is_lost = damaged.is_set() and not after
            return evolve(found, entries=(found.entries[0], *found.entries[2:])) if is_lost else found

    world = World("sync", cast("Store", Damaged()))
    world.open().run(approve_all)
    handle = world.open(params=None)
    damaged.set()
    with pytest.raises(AlreadyDecided) as caught:
        handle.decide(t2=Deny("no"))
    assert caught.value.decision is None
