"""How soon an idle worker in another process learns of a loop, a decision and a stop; and what it reads for that."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from attrs import evolve

from tests.kit.fork_server import Child, ForkServer
from tests.kit.postgres import database, in_postgres_deep, needs_postgres
from tests.kit.warm_python import warm
from tests.promises.processes.programs import store_of
from tests.worker.support import place_of
from toolloop import Approve, Inbox, ToolLoopHandle, tool
from toolloop.stores import SqliteStore, StoredLoop
from toolloop.testing import ScriptedProvider

KINDS = ("sync", "asyncio", "trio")
NEVER = 600.0  # seconds, so that nothing but the watch can have brought it
SOON = 2.0
ROUNDS = 20  # on each store
PARAMS = {"model": "claude-opus-5-5", "max_tokens": 100, "messages": [{"role": "user", "content": "Go"}]}


@tool(needs_approval=True)
def hold() -> str:
    """Wait for a stop."""
    return ""


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    with ForkServer(warm("tests.worker.programs")) as fork_server:
        yield fork_server


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "loops.db") if request.param == "sqlite" else database()


def seconds_to_reach(worker: Child, place: str, rounds: int) -> dict[str, list[float]]:
    """For each round, create a loop, approve its call, and stop it; return how long each took to reach the worker."""
    taken: dict[str, list[float]] = {"loop": [], "decision": [], "stop": []}
    with store_of(place) as store:
        inbox = Inbox(store)
        for number in range(rounds):
            loop_id, given = f"loop{number}", {"tools": [hold], "params": PARAMS}
            ToolLoopHandle.open(store, loop_id, ScriptedProvider([]), **given).close()  # type: ignore[arg-type]  # what it takes
            for what, seconds in taken.items():
                begun = time.monotonic()
                assert worker.hear("reached")["reached"] == what
                seconds.append(time.monotonic() - begun)
                if what == "loop":
                    inbox.decide(loop_id, {"hold": Approve(by="ana")})
                elif what == "decision":
                    inbox.stop(loop_id, "enough", by="ana")
    return taken


@pytest.mark.parametrize(
    ("place", "kind", "rounds"),
    [
        *(("sqlite", kind, ROUNDS // 3 + 1) for kind in KINDS),
        pytest.param("postgres", "sync", ROUNDS, marks=needs_postgres),
        *(pytest.param("postgres", kind, 7, marks=[needs_postgres, pytest.mark.deep]) for kind in ("asyncio", "trio")),
    ],
    indirect=["place"],
)
def test_what_another_process_says_reaches_a_worker_that_never_polls(
    fork_server: ForkServer, place: str, kind: str, rounds: int
) -> None:
    """A new loop, a decision, and a stop while the tool runs."""
    worker = fork_server.start("stand_by", path=place, kind=kind, poll=NEVER)
    taken = seconds_to_reach(worker, place, rounds)
    worker.kill()
    assert max(map(median, taken.values())) < SOON, taken


@pytest.mark.parametrize("place", ["sqlite", in_postgres_deep], indirect=True)
def test_without_a_watch_it_reaches_a_worker_within_the_poll(fork_server: ForkServer, place: str) -> None:
    """What tells of changes may fail without a word."""
    worker = fork_server.start("stand_by", path=place, kind="sync", poll=0.5, deaf=True)
    taken = seconds_to_reach(worker, place, 2)
    worker.kill()
    assert max(map(median, taken.values())) < SOON, taken


class Counting:
    """A store that counts the rows of its lists."""

    def __init__(self, store: SqliteStore) -> None:
        self.rows: list[StoredLoop] = []
        self._store = store

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not name.startswith("list"):
            return found

        def counted(*arguments: Any, **more: Any) -> Any:
            result = found(*arguments, **more)
            self.rows += result[0] if isinstance(result, tuple) else result
            return result

        return counted


def test_an_idle_poll_reads_no_row_and_a_change_at_most_three(tmp_path: Path) -> None:
    """Beside twenty loops that wait, of which all persons were notified; also for a worker that notifies."""
    with SqliteStore(tmp_path / "loops.db") as inner:
        store: Any = Counting(inner)
        place = place_of(store=store)
        place.create()
        worker = place.worker(notify=place.notified.append)
        assert place.work(worker) == 1
        row, entries = inner.head("loop"), inner.load("loop").entries
        for number in range(20):
            inner.create(f"other-{number}", entries, head=evolve(row.head, deadline=9e9, notified=None))
        place.work(worker)
        assert len(place.notified) == 21
        place.work(worker)  # it marks the loops of which it has notified
        store.rows.clear()
        assert (place.work(worker), store.rows) == (0, [])
        place.inbox.decide("loop", {"c1": Approve(by="ana")})
        assert place.work(worker) == 1
        assert 1 <= len(store.rows) <= 3
        assert place.status() == "ended"
