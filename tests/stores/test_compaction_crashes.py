"""A loop that compacts its history may be killed at any moment: each process that wakes it sends the same requests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.stores.compaction_worker import PAGES, Worker, each_strategy
from toolloop import MemoryStore, SqliteStore
from toolloop.machine.record import journal_events as ev
from toolloop.stores.codec import decode_event
from toolloop.stores.protocol import Entry
from toolloop.testing import crash_everywhere


def drop_repeats(bodies: list[bytes]) -> list[bytes]:
    return list(dict.fromkeys(bodies))


def hold(worker: Worker, make_store: Callable[[], Any]) -> None:
    """Kill it everywhere: a request may be sent again, but no other is, and in no other order."""
    wanted = worker.run_undisturbed()
    assert drop_repeats(wanted) == wanted

    def check(_store: Any) -> None:
        assert drop_repeats(worker.bodies) == wanted
        again = len(worker.bodies) - len(wanted)
        assert 0 <= again <= 1

    report = crash_everywhere(worker.program, worker.start_again(make_store), check=check)
    assert report.waiting == ()
    assert report.boundaries > 20


@pytest.mark.parametrize(
    "name",
    [
        "together",
        *(pytest.param(name, marks=pytest.mark.deep) for name in ("drop", "a function", "mask", "summarize")),
    ],
)
def test_killed_anywhere(name: str) -> None:
    hold(Worker(name), MemoryStore)


@pytest.mark.deep
def test_killed_anywhere_in_a_file(tmp_path: Path) -> None:
    numbers = iter(range(100_000))
    hold(Worker("summarize"), lambda: SqliteStore(tmp_path / f"{next(numbers)}.db"))


@pytest.mark.parametrize("name", ["summarize", pytest.param("mask", marks=pytest.mark.deep)])
def test_killed_anywhere_in_tasks(name: str) -> None:
    hold(Worker(name, is_async=True), MemoryStore)


# --- what the journal says -------------------------------------------------------------------------------------------


def journal_of(name: str, store: Any) -> tuple[Entry, ...]:
    Worker(name).program(store)
    entries: tuple[Entry, ...] = store.load("book").entries
    return entries


def is_compaction(entry: Entry) -> bool:
    event = decode_event(entry)
    return isinstance(event, ev.HistoryEdited) and event.strategy is not None


@each_strategy
def test_a_compaction_stores_what_is_new(name: str) -> None:
    """A mask of each result, a summary: no message that stays is written again."""
    entries = journal_of(name, MemoryStore())
    compactions = [entry.body for entry in entries if is_compaction(entry)]
    assert compactions
    assert max(map(len, compactions)) < 1200
    assert sum("dark and stormy" in (entry.text or entry.body) for entry in entries) == PAGES
