"""What listing and waking cost in a file of many loops: counted in SQLite's own steps, not timed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.stores.support import HUMAN, READY, entries
from toolloop import ToolLoopHandle
from toolloop.stores import SqliteStore, StoredLoop
from toolloop.testing import ScriptedProvider

FEW, MANY = 100, 20_000
WAITS = HUMAN.status


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with SqliteStore(tmp_path / "loops.db") as opened:
        yield opened


def fill(store: SqliteStore, loops: range) -> None:
    """Loops of one event each; every second one waits for a human."""
    for at in loops[:2]:
        store.create(f"loop-{at}", entries("a"), head=(HUMAN, READY)[at % 2])
    with store._writing() as connection:  # the others at once
        for at in loops[2:]:
            made = connection.execute(
                "INSERT INTO loops (loop_id, rev, status, deadline) VALUES (?, 1, ?, ?)",
                (f"loop-{at}", (HUMAN, READY)[at % 2].status, (HUMAN, READY)[at % 2].deadline),
            )
            place = (made.lastrowid or 0) << 32 | 1
            connection.execute("INSERT INTO events (place, id, body) VALUES (?, 'a', '{}')", (place,))


def steps(store: SqliteStore, act: Callable[[], object]) -> int:
    """How many instructions SQLite's machine takes."""
    done = [0]
    with store._reading() as connection:
        connection.set_progress_handler(lambda: done.__setitem__(0, done[0] + 1), 1)
    act()
    with store._reading() as connection:
        connection.set_progress_handler(None, 1)
    return done[0]


def statements(store: SqliteStore, act: Callable[[], object]) -> list[str]:
    """What SQLite is asked, with its values."""
    said: list[str] = []
    with store._reading() as connection:
        connection.set_trace_callback(said.append)
    act()
    with store._reading() as connection:
        connection.set_trace_callback(None)
    return said[1:-1]  # without the COMMIT and the BEGIN of what this function does itself


def test_a_page_of_loops_that_wait_for_a_human_costs_what_is_on_it(store: SqliteStore) -> None:
    """Whatever sleeps beside them in the file, and however far back the page is."""
    fill(store, range(FEW))
    page = steps(store, lambda: store.list(WAITS, limit=40))
    fill(store, range(FEW, MANY))
    assert steps(store, lambda: store.list(WAITS, limit=40)) == page
    middle = f"loop-{MANY // 2}"
    assert steps(store, lambda: store.list(WAITS, limit=40, before=middle)) <= page + 60


def test_ten_thousand_of_twenty_thousand_loops(store: SqliteStore) -> None:
    """A list of all that wait for a human takes the same steps for each, and no sorting: an index has them in order."""
    fill(store, range(MANY))
    listed: list[StoredLoop] = []
    taken = steps(store, lambda: listed.extend(store.list(WAITS, limit=MANY)))
    assert len(listed) == MANY // 2
    assert [each.loop_id for each in listed[:2]] == [f"loop-{MANY - 2}", f"loop-{MANY - 4}"]
    assert taken / len(listed) < 20
    (asked,) = [text for text in statements(store, lambda: store.list(WAITS)) if text.startswith("SELECT")]
    with store._reading() as connection:
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {asked}")]
    assert plan == ["SEARCH loops USING INDEX loops_by_status (status=?)"]


def test_waking_reads_one_loop(store: SqliteStore) -> None:
    """Among many loops as among few, by two statements: the row of the loop, by its id; its events, by their places."""
    provider = ScriptedProvider([])
    parameters = {"model": "claude-opus-4-8", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]}

    def wake() -> None:
        ToolLoopHandle.open(store, "mine", provider)

    fill(store, range(FEW))
    ToolLoopHandle.open(store, "mine", provider, params=parameters)
    among_few = steps(store, wake)
    fill(store, range(FEW, MANY))
    assert steps(store, wake) <= among_few + 5  # an index may be deeper
    begin, loop, events, commit = statements(store, wake)
    assert (begin, commit) == ("BEGIN DEFERRED", "COMMIT")
    assert loop.endswith("FROM loops WHERE loop_id = 'mine'")
    number = FEW + 1
    first, last = number << 32 | 1, number << 32 | 0xFFFFFFFF
    assert events.endswith(f"FROM events WHERE place BETWEEN {first} AND {last} ORDER BY place")
