"""Damage in the file of a store: the loop and the event are named, and nothing else is harmed."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.stores.support import READY, entries
from toolloop.errors import UnreadableSnapshot
from toolloop.stores import Entry, SqliteStore
from toolloop.testing import check_store

PLACE = (1 << 32) | 3  # of the third event of the first loop

# What is done to the third of five events, and which event does not fit its place then.
DAMAGES = {
    "a bit of the id": (f"UPDATE events SET id = 'b' WHERE place = {PLACE}", 3),
    "a bit of the body": (f"UPDATE events SET body = replace(body, 'c', 'b') WHERE place = {PLACE}", 3),
    "a bit of the text": (f"UPDATE events SET text = 'tfxt' WHERE place = {PLACE}", 3),
    "a bit of the digest": (f"UPDATE events SET digest = x'0011223344556677' WHERE place = {PLACE}", 3),
    "no text": (f"UPDATE events SET text = NULL WHERE place = {PLACE}", 3),
    "an empty body": (f"UPDATE events SET body = '' WHERE place = {PLACE}", 3),
    "the text in the body": (f"UPDATE events SET body = body || text, text = '' WHERE place = {PLACE}", 3),
    "no UTF-8": (f"UPDATE events SET body = CAST(x'ff' AS TEXT) WHERE place = {PLACE}", 3),
    "a number": (f"UPDATE events SET body = x'00', digest = 7 WHERE place = {PLACE}", 3),
    "the event is gone": (f"DELETE FROM events WHERE place = {PLACE}", 3),
    "a gap is closed": (
        (
            f"DELETE FROM events WHERE place = {PLACE}; UPDATE events SET place = place - 1 WHERE place > {PLACE}; "
            "UPDATE loops SET rev = 4"
        ),
        3,
    ),
    "the last ones are gone": (f"DELETE FROM events WHERE place > {PLACE} AND place < {2 << 32}", 4),
    "the last ones are gone, and the head is set back": (
        f"DELETE FROM events WHERE place > {PLACE} AND place < {2 << 32}; UPDATE loops SET rev = 3",
        3,
    ),
    "all are gone": (f"DELETE FROM events WHERE place < {2 << 32}", 1),
    "the head is set back": ("UPDATE loops SET rev = 4 WHERE number = 1", 4),
    "the head is set forward": ("UPDATE loops SET rev = 6 WHERE number = 1", 6),
    "the digest of the head": ("UPDATE loops SET digest = x'00' WHERE number = 1", 5),
    "two are swapped": (
        (
            f"UPDATE events SET place = -1 WHERE place = {PLACE}; UPDATE events SET place = {PLACE} WHERE place = "
            f"{PLACE + 1}; UPDATE events SET place = {PLACE + 1} WHERE place = -1"
        ),
        3,
    ),
    "one of another loop": (
        (
            "UPDATE events SET (id, digest, body, text) = (SELECT id || ' ', digest, body, text FROM events "
            f"WHERE place = {2 << 32 | 3}) WHERE place = {PLACE}"
        ),
        3,
    ),
    "the journals of two loops are exchanged": (
        "UPDATE loops SET number = -number; UPDATE loops SET number = number + 3",
        1,
    ),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with two loops of five events each, of which the first will be damaged."""
    with SqliteStore(tmp_path / "loops.db") as store:
        for loop_id in ("loop", "other"):
            store.create(
                loop_id, [Entry(f"{name}{loop_id}", f'{{"event":"{name}"}}', "text") for name in "ab"], head=READY
            )
            store.append(
                loop_id, [Entry(f"{name}{loop_id}", f'{{"event":"{name}"}}', "text") for name in "cde"], expected_rev=2
            )
    return tmp_path / "loops.db"


def damage(path: Path, statements: str) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.executescript(statements)


@pytest.mark.parametrize(("statements", "entry"), DAMAGES.values(), ids=DAMAGES)
def test_damage_is_found_and_named(path: Path, statements: str, entry: int) -> None:
    """From the beginning, and by a process that knows the events before it. It is left as it is."""
    damage(path, statements)
    content = path.read_bytes()
    with SqliteStore(path) as store:
        for after in (0, min(entry - 1, 2)):
            with pytest.raises(UnreadableSnapshot, match=f"event {entry} of loop 'loop' is not the one") as caught:
                store.load("loop", after=after)
            assert caught.value.entry == entry  # type: ignore[attr-defined]  # errors keep their parts
    assert path.read_bytes() == content


@pytest.mark.parametrize("after", [2, 5, 9])
def test_what_was_read_before_is_not_read_again(path: Path, after: int) -> None:
    """An event that a process knows already may be damaged; the ones after it are found right by its digest."""
    damage(path, f"UPDATE events SET body = '' WHERE place = {1 << 32 | 1}")
    with SqliteStore(path) as store:
        assert len(store.load("loop", after=after).entries) == max(0, 5 - after)
        assert store.append("loop", entries("f"), expected_rev=5) == 6
        assert len(store.load("other").entries) == 5
        with pytest.raises(UnreadableSnapshot, match="event 1"):
            store.load("loop")


def test_a_store_that_finds_damage_keeps_the_rule_of_the_suite(tmp_path: Path) -> None:
    """And one that does not gets an error."""
    path = tmp_path / "loops.db"
    change = f"UPDATE events SET body = '{{}}' WHERE id = 'b' AND place > {1 << 32}"
    with SqliteStore(path) as store:
        check_store(lambda: store, damage=lambda: damage(path, change))
        with pytest.raises(AssertionError, match="broken rule: damage is found"):
            check_store(lambda: store, damage=lambda: None)
