"""Processes that DBOS dispatches: killed with SIGKILL, side by side, and of two versions."""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field

from tests.dbos.support import DEADLINE, addresses, opened, until
from tests.kit.fork_server import Child, ForkServer
from tests.kit.postgres import needs_postgres
from tests.kit.warm_python import warm
from tests.promises.processes.programs import CALLS, ONCE, PARAMS, ROUNDS, TOOLS, Worker as Part
from toolloop import Answer, Approve, Inbox, LoopContext, SqliteStore, Worker
from toolloop.dbos import DurableLoops
from toolloop.stores import PostgresStore
from toolloop.testing import ScriptedProvider
from toolloop.testing.promises import check_promises

PLACES: list[dict[str, Any]] = [
    *({"at": at, "call": call} for at in ("before", "after") for call in CALLS),
    *({"at": "request", "number": number} for number in (0, 1, 2)),
]


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    with ForkServer(warm("tests.dbos.programs")) as fork_server:
        yield fork_server


@define
class Site:
    """A store and a DBOS that processes share, a client that decides, and a witness."""

    fork_server: ForkServer
    folder: Path
    address: str
    url: str
    store: PostgresStore | SqliteStore = field()
    client: DurableLoops = field()

    @property
    def witness(self) -> Path:
        return self.folder / "witness"

    @store.default
    def _open(self) -> PostgresStore | SqliteStore:
        return opened(self.address)

    @client.default
    def _connect(self) -> DurableLoops:
        return DurableLoops(self.store, dbos=self.settings())  # type: ignore[arg-type] # JSON for the processes

    def settings(self, **more: Any) -> dict[str, Any]:
        return {"name": "toolloop-tests", "system_database_url": self.url, "log_level": "CRITICAL", **more}

    def process(self, executor: str, hold: dict[str, Any] | None = None, **settings: Any) -> Child:
        """One that drives. `hold`: until it stands there."""
        dbos = self.settings(executor_id=executor, **settings)
        child = self.fork_server.start("drive", store=self.address, dbos=dbos, witness=str(self.witness), hold=hold)
        child.hear("stands" if hold else "launched")
        return child

    def start(self, count: int) -> list[str]:
        loop_ids = [f"loop{number}" for number in range(count)]
        for loop_id in loop_ids:
            self.client.start(loop_id, PARAMS)
        return loop_ids

    def decide(self) -> None:
        """Approve waiting calls, and answer that uncertain ones have happened; here, while no process may drive."""
        for call in Inbox(self.store).pending(limit=1000):
            is_lost = call.why == "uncertain"
            self.client.decide(call.loop_id, {call: Answer("it happened") if is_lost else Approve(by="ana")})

    def drive_to_the_end(self, loop_ids: list[str]) -> None:
        def have_ended() -> bool:
            self.decide()
            return all(self.store.head(loop_id).status == "ended" for loop_id in loop_ids)

        until(have_ended, every=0.05)

    def witnessed(self, what: str) -> list[list[str]]:
        text = self.witness.read_text() if self.witness.exists() else ""
        lines = [line.split() for line in text.splitlines()]
        return [line[2:] for line in lines if line[1] == what]

    def check(self, loop_ids: list[str]) -> None:
        """No call that may run once ran twice, and every loop keeps the promises."""
        runs = Counter((call_id, key) for call_id, key in self.witnessed("ran"))
        assert [each for each, count in runs.items() if each[0] in ONCE and count > 1] == []
        for loop_id in loop_ids:
            assert check_promises(self.store.load(loop_id).entries).broken == ()

    def over(self, *processes: Child) -> None:
        for process in processes:
            process.go()
        assert [process.end() for process in processes] == ["closed"] * len(processes)


@pytest.fixture(params=[pytest.param("sqlite", marks=pytest.mark.deep), pytest.param("postgres", marks=needs_postgres)])
def site(request: pytest.FixtureRequest, fork_server: ForkServer, tmp_path: Path) -> Iterator[Site]:
    site = Site(fork_server, tmp_path, *addresses(request.param, tmp_path))
    try:
        yield site
    finally:
        fork_server.clear_away()
        site.client.close()
        site.store.close()


def live(site: Site, seed: int) -> None:
    """Three loops, and one to three kills: at a drawn place, or at a drawn moment."""
    draw = random.Random(seed)
    loop_ids = site.start(3)
    for number in range(draw.randint(1, 3)):
        executor = draw.choice(["a", "b", f"c{number}"])
        if draw.random() < 0.5:
            child = site.fork_server.start(
                "drive",
                store=site.address,
                dbos=site.settings(executor_id=executor),
                witness=str(site.witness),
                hold=draw.choice(PLACES),
            )
        else:
            child = site.process(executor)
        # It stands at its place; or whatever it does now is cut off, if it never comes there.
        child.line.says_within(draw.uniform(0.0, 2.0))
        child.kill()
        site.decide()
    last = site.process("a")
    site.drive_to_the_end(loop_ids)
    site.over(last)
    site.check(loop_ids)


def test_a_process_that_is_killed_in_a_tool_is_followed_by_one_of_a_newer_version(site: Site) -> None:
    """DBOS recovers only what an executor of the same name and version left; the sweep of any process does the rest.

    The decision was made while none lived. The tool may run once: a person says how it ended.
    """
    (loop_id,) = site.start(1)
    Worker(site.store, ScriptedProvider(ROUNDS), TOOLS, context=LoopContext(state=Part(None, str(site.witness)))).drive(
        loop_id
    )
    site.decide()
    first = site.process("a", hold={"at": "after", "call": "send1"}, application_version="one")
    first.kill()
    second = site.process("b", application_version="two")
    until(lambda: {call.why for call in Inbox(site.store).pending()} == {"uncertain"})
    site.drive_to_the_end([loop_id])
    second.kill()
    site.check([loop_id])


@pytest.mark.deep
def test_a_process_that_ends_leaves_its_loops_to_others(site: Site) -> None:
    """The running tool ends, and another process makes the next request."""
    (loop_id,) = site.start(1)
    first = site.process("a", hold={"at": "after", "call": "look1"})
    first.signal(signal.SIGTERM)
    first.hear("closing")
    first.go()
    assert first.end() == "closed"
    loop = site.store.head(loop_id)
    assert (loop.status, loop.lease, site.witnessed("asked")) == ("runnable", None, [["0"]])
    second = site.process("b")
    site.drive_to_the_end([loop_id])
    site.over(second)
    site.check([loop_id])
    assert set(Counter(map(tuple, site.witnessed("ran"))).values()) == {1}


@pytest.mark.deep
def test_two_processes_share_the_loops(site: Site) -> None:
    """One of them drives a loop at a time: each tool runs once."""
    both = [site.process("a"), site.process("b")]
    loop_ids = site.start(8)
    site.drive_to_the_end(loop_ids)
    site.over(*both)
    site.check(loop_ids)
    assert set(Counter(map(tuple, site.witnessed("ran"))).values()) == {1}


@pytest.mark.deep
def test_decisions_and_deploys_while_none_lives_count(site: Site) -> None:
    """Each process is of another version than the one that enqueued what it finds."""
    (loop_id,) = site.start(1)
    site.process("a", hold={"at": "request", "number": 0}, application_version="one").kill()
    second = site.process("b", application_version="two")
    assert site.client.result(loop_id, DEADLINE)["status"] == "needs_decision"
    site.over(second)
    site.decide()
    site.process("c", hold={"at": "after", "call": "send1"}, application_version="two").kill()
    last = site.process("d", application_version="three")
    until(lambda: {call.why for call in Inbox(site.store).pending()} == {"uncertain"})
    site.drive_to_the_end([loop_id])
    site.over(last)
    site.check([loop_id])


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(50))
def test_processes_that_are_killed_at_random_lose_nothing(site: Site, seed: int) -> None:
    """In requests, in tools, between stretches: every loop ends, and no call that may run once runs twice."""
    live(site, seed)
