"""The benchmark of the stores: its conversation, and the targets for sizes. Times are not asserted here."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.benchmarks import peers, rounds
from tests.benchmarks.journal import BY_HAND, LOOP, advance, begin, drive, kept, seconds_per_turn, seconds_to_open
from tests.benchmarks.listing import seconds_to_list
from tests.benchmarks.sizes import checkpointed_size, commits, per_turn
from tests.benchmarks.targets import PER_EVENT
from toolloop import MemoryStore, SqliteStore
from toolloop.stores import Entry, Head

ROUNDS, FEW = 1000, 110


@pytest.fixture(scope="module")
def journal() -> tuple[Entry, ...]:
    """The journal of a loop of 1,000 rounds."""
    store = MemoryStore()
    handle = begin(store)
    for _ in range(ROUNDS):
        advance(handle)
    handle.close()
    return store.load(LOOP).entries


def filed(path: Path, entries: tuple[Entry, ...]) -> int:
    """The size of an SQLite file with a journal in it: copied, for a thousand rounds with their syncs take long."""
    with SqliteStore(path) as store:
        store.create(LOOP, entries[:1], head=Head("needs_command"))
        store.append(LOOP, entries[1:], expected_rev=1)
        assert seconds_to_open(store, sum('"Replied"' in entry.body for entry in entries)) > 0
        return checkpointed_size(path)


def test_the_conversation_is_as_big_as_it_says() -> None:
    """200 bytes of input and 1 KB of result in each round, and the raw JSON is that of the loop's own messages."""
    for turn in (1, 10, 1000):
        assert len(rounds.encode(rounds.arguments(turn))) == 200
        assert len(rounds.look_up(turn).encode()) == 1024
    handle = begin(None)
    for _ in range(3):
        advance(handle)
    assert rounds.raw_bytes(3) == len(rounds.encode(list(handle.messages)))


def test_a_journal_is_at_most_the_raw_json_and_250_bytes_per_event(journal: tuple[Entry, ...], tmp_path: Path) -> None:
    """The file of 1,000 rounds, indexes, names and all."""
    beyond = filed(tmp_path / "loops.db", journal) - rounds.raw_bytes(ROUNDS)
    assert beyond / len(journal) <= PER_EVENT


def test_what_a_turn_hands_to_the_store_does_not_grow(tmp_path: Path) -> None:
    """A late turn stores as many bytes as an early one; and a copied journal is as big as a driven one."""
    own = kept(tmp_path, FEW)
    assert (own.rounds, own.events) == (FEW, FEW * 6)
    assert own.handed[100] <= 1.05 * own.handed[10]
    assert own.written.keys() == own.by_hand.keys()
    assert all(own.written[mark] < own.by_hand[mark] for mark in own.written)
    assert own.waking > 0
    assert own.commits >= 1
    with SqliteStore(tmp_path / "loops.db") as store:
        copied = filed(tmp_path / "copy.db", store.load(LOOP).entries)
    assert abs(copied - own.file) <= 4 * 8192


@pytest.mark.bench
def test_a_turn_is_measured_with_each_store_and_without(tmp_path: Path) -> None:
    """Each has its figure, and it is more than nothing."""
    figures = seconds_per_turn(tmp_path, turns=2, runs=1)
    assert list(figures) == ["no store", "MemoryStore", "SqliteStore", BY_HAND]
    assert all(seconds > 0 for seconds in figures.values())


@pytest.mark.bench
def test_a_conversation_that_ends_early_is_caught() -> None:
    """It is an error, and no good figure."""
    with pytest.raises(TypeError, match="ended after 2 of 3 turns"):
        drive(begin(None, 2), 3)


@pytest.mark.bench
def test_bytes_per_turn_are_those_of_the_last_turns() -> None:
    """A store that keeps the whole history anew in each turn is seen to grow; one that keeps what is new is not."""
    assert per_turn([5 * turn for turn in range(201)]) == {10: 5, 100: 5}
    growing = per_turn([turn * turn for turn in range(101)])
    assert growing[100] > 10 * growing[10]


@pytest.mark.bench
def test_the_loops_that_wait_for_a_human_are_listed(tmp_path: Path) -> None:
    """All of them and no others; another listing would have raised."""
    assert seconds_to_list(tmp_path, loops=11, runs=1) > 0


@pytest.mark.bench
def test_transactions_are_counted_in_the_log_of_the_file(tmp_path: Path) -> None:
    """Each that wrote, one page or many; after a checkpoint those of the new log, though the old one lies behind it."""
    path = tmp_path / "counted.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE words (word TEXT)")
        for size in (10, 100_000, 20):
            connection.execute("INSERT INTO words VALUES (?)", ("x" * size,))
        assert commits(path) == 4
        connection.execute("PRAGMA wal_checkpoint(RESTART)")
        connection.execute("INSERT INTO words VALUES ('y')")
        connection.execute("SELECT count(*) FROM words").fetchone()
        assert commits(path) == 1


@pytest.mark.bench
def test_a_peer_that_is_not_set_up_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is made unless asked for; one that was made for other packages is made anew."""
    monkeypatch.setattr(peers, "ENVIRONMENT", tmp_path)
    with pytest.raises(peers.NotThere, match="not set up"):
        peers.python(make=False)
    (tmp_path / ".ready").write_text("langgraph==0.1")
    with pytest.raises(peers.NotThere, match="not set up"):
        peers.python(make=False)
    (tmp_path / ".ready").write_text(" ".join(peers.PACKAGES))
    assert peers.python(make=False).is_relative_to(tmp_path)


@pytest.mark.bench
@pytest.mark.parametrize("kind", peers.KINDS)
def test_the_peer_keeps_the_same_conversation(kind: str, tmp_path: Path) -> None:
    """LangGraph holds it too, in its own environment; it raises where it does not wake up with all of it."""
    python = peers.python(make=True)
    assert set(peers.versions(python)) == set(peers.NAMED)
    other = peers.measure(python, kind, 12, tmp_path, turns=3, runs=2)
    assert list(tmp_path.iterdir()) == []
    assert other.cpu > 0
    assert other.file > rounds.raw_bytes(12)
    assert list(other.written) in ([10], [])
