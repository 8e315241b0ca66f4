"""Many processes and one file; and what happens to a store in a process that forks."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.fork_server import ROOT
from tests.kit.warm_python import run
from tests.stores.support import READY, entries
from tests.stores.worker import PATIENCE, Worker, workers
from toolloop.stores import SqliteStore

ROUNDS = 25


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "loops.db"


def at_once(racers: list[Worker], line: str) -> list[str]:
    for number, racer in enumerate(racers):
        racer.tell(line.replace("MY_NUMBER", str(number)))
    return [racer.answer() for racer in racers]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shared") / "loops.db"


@pytest.fixture(scope="module")
def racers(shared: Path) -> Iterator[list[Worker]]:
    """Eight processes with one file, which each of them makes when it is first needed."""
    with workers(shared, 8) as racers:
        yield racers


def test_of_eight_processes_one_appends_at_a_revision(shared: Path, racers: list[Worker]) -> None:
    """Round after round; they made the file together, too, each of them when it was first needed, and 20 more."""
    files = ["store", *(f"SqliteStore(path + '-{number}', busy_timeout=30)" for number in range(20))]
    for file in files:
        made = at_once(racers, f"{file}.create('loop', [], head=Head('ended'))")
        assert sorted(answer.split("(")[0] for answer in made) == ["0", *["Conflict"] * 7]
    for rev in range(ROUNDS):
        done = at_once(racers, f"store.append('loop', [Entry('{rev}/MY_NUMBER', '')], expected_rev={rev})")
        assert sorted(answer.split("(")[0] for answer in done) == [str(rev + 1), *["StaleRevision"] * 7]
    with SqliteStore(shared) as store:
        journal = store.load("loop")
    assert [entry.id.split("/")[0] for entry in journal.entries] == [str(rev) for rev in range(ROUNDS)]


def test_of_eight_processes_one_gets_a_lease(shared: Path, racers: list[Worker]) -> None:
    """And the next round one takes it over from that one."""
    with SqliteStore(shared) as store:
        store.create("leased", [], head=READY)
    for token in range(ROUNDS):
        done = at_once(racers, f"store.acquire('leased', 'MY_NUMBER', until=1.0, instead_of={token}).token")
        assert sorted(answer.split("(")[0] for answer in done) == [str(token + 1), *["Conflict"] * 7]


def test_what_eight_processes_merge_is_all_there(shared: Path, racers: list[Worker]) -> None:
    """Each event once, each process's in its order, while another process reads."""
    with SqliteStore(shared) as store:
        store.create("merged", [], head=READY)
        append = "store.append('merged', [Entry(f'MY_NUMBER/{at}', '')], expected_rev=None)"
        line = f"[{append} for at in range({ROUNDS})]"
        for number, racer in enumerate(racers):
            racer.tell(line.replace("MY_NUMBER", str(number)))
        until = time.monotonic() + PATIENCE
        while (journal := store.load("merged")).rev < 8 * ROUNDS and time.monotonic() < until:
            assert len(journal.entries) == journal.rev
        assert not any(racer.answer().startswith("StoreError") for racer in racers)
        assert journal.rev == 8 * ROUNDS
        for number in range(8):
            mine = [entry.id for entry in journal.entries if entry.id.startswith(f"{number}/")]
            assert mine == [f"{number}/{at}" for at in range(ROUNDS)]


def test_a_process_that_is_killed_in_the_middle_of_a_write_leaves_no_trace(path: Path) -> None:
    """Its lock is gone with it, and what it had not committed."""
    with SqliteStore(path, busy_timeout=30) as store:
        store.create("loop", entries("a"), head=READY)
        with Worker(path) as worker:
            worker.ask("held.append(lock(path))")
            assert worker.ask("held[0].execute('DELETE FROM events').rowcount") == "1"
            worker.kill()
        assert store.load("loop").entries == tuple(entries("a"))
        assert store.append("loop", entries("b"), expected_rev=1) == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize(
    ("way", "tells"),
    [
        (
            "connections",
            [
                "the child begins with {}",
                "the parent sees 1",
                "the child's log is there: True",
                "child ended with 0",
                "the parent sees ['child', 'child again']",
            ],
        ),
        ("transaction", ["['written'] ['written']", "child ended with 0"]),
        ("locked", [*["child ended with 0"] * 20, "fast: True", "the parent sees 1"]),
        ("memory", ["the parent has the children's: False"]),
        ("owner", ["True alive alive", "child ended with 0", "True"]),
    ],
)
def test_a_store_lives_through_a_fork(path: Path, way: str, tells: list[str]) -> None:
    """No connection is carried over, no lock stays closed, and nothing is half done. See the program."""
    done = run(["-m", "tests.stores.sqlite.forking_program", way, str(path)], cwd=ROOT)
    assert (done.stdout.splitlines(), done.stderr) == (tells, "")
