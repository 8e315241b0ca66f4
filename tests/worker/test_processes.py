"""Workers as processes, on one SQLite file or one database: drained by a signal, killed with SIGKILL, side by side."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field

from tests.inbox.page.visitor import Visitor
from tests.inbox.support import desk_of
from tests.kit.fork_server import Child, ForkServer
from tests.kit.postgres import database, in_postgres_deep, needs_postgres
from tests.kit.warm_python import warm
from tests.promises.processes.programs import ONCE, PARAMS, TOOLS, store_of
from toolloop import Answer, Approve, Inbox, LoopConfig, ToolLoopHandle
from toolloop.inbox import InboxCall
from toolloop.inbox.items import notification_id
from toolloop.inbox.shown.keys import key_of
from toolloop.machine.values.calls import Decision
from toolloop.stores import Store
from toolloop.testing import ScriptedProvider
from toolloop.testing.promises import check_promises

KINDS = ("sync", "asyncio", "trio")


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    with ForkServer(warm("tests.worker.programs")) as fork_server:
        yield fork_server


@define
class Site:
    """A store on which processes work, a person who decides, and a witness."""

    fork_server: ForkServer
    folder: Path
    place: str
    store: Store = field()

    @store.default
    def _store(self) -> Store:
        return store_of(self.place)

    def create(self, count: int = 1, agent: str | None = None) -> list[str]:
        """Loops without a driver; they make their calls one after the other."""
        loop_ids = [f"{agent or 'loop'}{number}" for number in range(count)]
        parts: dict[str, Any] = {"params": PARAMS, "tools": TOOLS, "config": LoopConfig(max_parallel_tools=1)}
        parts["metadata"] = {} if agent is None else {"agent": agent}
        for loop_id in loop_ids:
            ToolLoopHandle.open(self.store, loop_id, ScriptedProvider([]), **parts).close()
        return loop_ids

    def start(self, **given: Any) -> Child:
        return self.fork_server.start("work", path=self.place, witness=str(self.folder / "witness"), **given)

    def witnessed(self, what: str) -> list[list[str]]:
        file = self.folder / "witness"
        lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
        return [line[2:] for line in lines if line[1] == what]

    @staticmethod
    def stop(worker: Child, number: signal.Signals = signal.SIGTERM, *, stands: bool = False) -> str:
        """Stop a worker by a signal. `stands`: it goes on once it has noticed that."""
        worker.signal(number)
        worker.hear("ends")
        if stands:
            worker.go()
        return str(worker.end())

    def decide(self, loop_id: str, call_id: str, decision: Decision) -> None:
        Inbox(self.store).decide(loop_id, {call_id: decision})

    def statuses(self) -> Counter[str]:
        return Counter(loop.status for loop in self.store.list(limit=1000))


@pytest.fixture(params=["sqlite", in_postgres_deep])
def site(request: pytest.FixtureRequest, fork_server: ForkServer, tmp_path: Path) -> Iterator[Site]:
    with _site(
        fork_server, tmp_path, database() if request.param == "postgres" else str(tmp_path / "loops.db")
    ) as site:
        yield site


@pytest.fixture
def database_site(fork_server: ForkServer, tmp_path: Path) -> Iterator[Site]:
    """A store in PostgreSQL."""
    with _site(fork_server, tmp_path, database()) as site:
        yield site


@contextmanager
def _site(fork_server: ForkServer, folder: Path, place: str) -> Iterator[Site]:
    site = Site(fork_server, folder, place)
    try:
        yield site
    finally:
        fork_server.clear_away()
        site.store.close()  # type: ignore[attr-defined] # it is one of the two that have it


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("number", "end"), [(signal.SIGTERM, "drained"), (signal.SIGINT, "interrupted")])
def test_a_signal_drains_a_worker(site: Site, kind: str, number: signal.Signals, end: str) -> None:
    """The running tool ends, no further request is made, and the lease is given back."""
    site.create(1)
    worker = site.start(kind=kind, hold={"at": "before", "call": "look1"})
    worker.hear("stands")
    assert site.stop(worker, number, stands=True) == end
    loop = site.store.head("loop0")
    assert (loop.status, loop.lease) == ("runnable", None)
    assert sorted(call_id for call_id, _ in site.witnessed("ran")) == ["look1", "pay1"]
    assert site.witnessed("asked") == [["0"]]


def test_a_worker_that_is_killed_in_a_tool_leaves_an_uncertain_call_of_which_the_next_one_notifies(site: Site) -> None:
    """It is a tool that may run once only: no worker runs it again."""
    site.create(1)
    first = site.start(tells=True, hold={"at": "after", "call": "send1"})
    assert first.hear("told")["told"] == ["loop0", "send1", "approval"]
    site.decide("loop0", "send1", Approve(by="ana"))
    first.hear("stands")
    first.kill()
    second = site.start(tells=True, hold={"at": "request", "number": 2})
    assert second.hear("told")["told"] == ["loop0", "send1", "uncertain"]
    site.decide("loop0", "send1", Answer("it was sent", by="ana"))
    second.hear("stands")
    assert site.stop(second, stands=True) == "drained"
    assert site.statuses() == {"ended": 1}
    assert sorted(call_id for call_id, _ in site.witnessed("ran")) == ["log1", "look1", "pay1", "send1"]
    assert len({wait for *_, wait in site.witnessed("told")}) == 2


@pytest.mark.parametrize("price", [1.0, None])
def test_a_worker_that_is_killed_in_a_request_leaves_a_cost_of_at_least_what_is_known(
    site: Site, price: float | None
) -> None:
    """Also in the first request of a loop. Without prices, there is no cost."""
    site.create(1)
    first = site.start(price=price, hold={"at": "request", "number": 0})
    first.hear("stands")
    first.kill()
    second = site.start(price=price, hold={"at": "request", "number": 1})
    second.hear("stands")
    inbox = Inbox(site.store)
    cost, known = inbox.show("loop0")["cost"], inbox.statistics().cost
    assert (cost is not None and cost["is_partial"], known.is_partial) == (price is not None,) * 2
    assert site.stop(second, stands=True) == "drained"


def test_a_worker_that_is_killed_in_notify_is_followed_by_one_that_notifies_again(site: Site) -> None:
    """With the same id, and of no other call twice: here of a reminder, after the first notification was sent."""
    site.create(1)
    first = site.start(hold={"at": "notify", "number": 1}, remind_after=[0.1])
    first.hear("stands")
    (row,) = site.store.list()
    first.kill()
    second = site.start(tells=True, remind_after=[0.1])
    second.hear("told")
    assert site.stop(second) == "drained"
    ids = [notification_id(row, row.pending[0], number) for number in (0, 1)]
    told = [["loop0", "send1", "approval", each] for each in ids]
    assert site.witnessed("told") in (told, told[1:])  # on a slow machine, the reminder is due before the first one


def decide_by_inbox(site: Site, call: InboxCall) -> None:
    is_lost = call.why == "uncertain"
    Inbox(site.store).decide(call.loop_id, {call: Answer("it happened") if is_lost else Approve(by="ana")})


def decide_in_browser(site: Site, call: InboxCall) -> None:
    with (visitor := Visitor(desk_of(site.store, now=time.time()))).http:
        key = key_of(call.loop_id, call.path)
        is_lost = call.why == "uncertain"
        sent = visitor.decide("answer", key, content="it happened") if is_lost else visitor.decide("approve", key)
        assert sent.status_code == 303


def decide_until_ended(
    site: Site,
    workers: list[Child],
    count: int,
    decide: Callable[[Site, InboxCall], None],
    kill: Any = None,
    *,
    agents: tuple[str | None, str | None] = (None, None),
    most: float = inf,
) -> int:
    """Decide each call of which a person was notified, until all loops have ended. Return how many workers were killed.

    `agents`: those of the workers in turn. `most`: so many kills at most.
    """
    killed, inbox = 0, Inbox(site.store)
    while site.statuses() != {"ended": count}:
        told = {wait for *_, wait in site.witnessed("told")}
        for call in inbox.pending(limit=1000):
            if call.notification_id in told:
                decide(site, call)
        for number, worker in enumerate(workers):
            assert not worker.line.says_within(0.02), worker.hear()
            if kill is not None and killed < most and kill.random() < 0.6:
                worker.kill()
                workers[number] = site.start(kind=kill.choice(KINDS), agent=agents[number % 2])
                killed += 1
    return killed


def check(site: Site, loop_ids: list[str]) -> None:
    """No call that may run once ran twice, and every loop keeps the promises."""
    runs = Counter((call_id, key) for call_id, key in site.witnessed("ran"))
    assert [each for each, count in runs.items() if each[0] in ONCE and count > 1] == []
    for loop_id in loop_ids:
        assert check_promises(site.store.load(loop_id).entries).broken == ()


def test_two_workers_share_a_file(site: Site) -> None:
    """Each loop is driven by one of them at a time: each tool runs once, and each call is notified of once."""
    loop_ids = site.create(8)
    workers = [site.start(kind="sync"), site.start(kind="asyncio")]
    decide_until_ended(site, workers, len(loop_ids), decide_by_inbox)
    for worker in workers:
        assert site.stop(worker) == "drained"
    check(site, loop_ids)
    assert set(Counter(map(tuple, site.witnessed("ran"))).values()) == {1}
    assert Counter(loop_id for loop_id, *_ in site.witnessed("told")) == dict.fromkeys(loop_ids, 1)


@needs_postgres
@pytest.mark.parametrize(
    ("drivers", "count"), [(3, 6), pytest.param(8, 200, marks=pytest.mark.deep)], ids=["few", "many"]
)
def test_processes_share_a_database(database_site: Site, drivers: int, count: int) -> None:
    """Each tool runs once, each call is notified of once, and no decision is lost."""
    site, loop_ids = database_site, database_site.create(count)
    workers = [site.start(kind=KINDS[number % 3]) for number in range(drivers)]
    decide_until_ended(site, workers, count, decide_by_inbox)
    for worker in workers:
        assert site.stop(worker) == "drained"
    check(site, loop_ids)
    assert set(Counter(map(tuple, site.witnessed("ran"))).values()) == {1}
    assert Counter(loop_id for loop_id, *_ in site.witnessed("told")) == dict.fromkeys(loop_ids, 1)
    decided = [entry for loop_id in loop_ids for entry in Inbox(site.store).trail(loop_id) if entry.by == "ana"]
    assert len(decided) == count


@pytest.mark.deep
def test_workers_that_are_killed_at_random_lose_nothing(site: Site) -> None:
    """200 loops, decided on the page: all end, no call that may run once runs twice, only kills repeat notices."""
    loop_ids = site.create(200)
    workers = [site.start(kind="sync"), site.start(kind="asyncio")]
    killed = decide_until_ended(site, workers, len(loop_ids), decide_in_browser, kill=random.Random(7))
    check(site, loop_ids)
    told = Counter(wait for *_, wait in site.witnessed("told"))
    assert len(told) >= len(loop_ids)
    assert told.total() - len(told) <= killed
    assert killed > 20


@pytest.mark.parametrize("count", [6, pytest.param(200, marks=pytest.mark.deep)])
def test_two_kinds_of_workers_take_only_their_own_loops(site: Site, count: int) -> None:
    """They share a store, and are killed at random: no loop is driven, and no person notified, by the wrong kind."""
    agents = ("desk", "night")
    loop_ids = [loop_id for agent in agents for loop_id in site.create(count // 2, agent)]
    workers = [site.start(kind=kind, agent=agent) for kind, agent in zip(("sync", "asyncio"), agents, strict=True)]
    decide_until_ended(site, workers, count, decide_by_inbox, random.Random(3), agents=agents, most=count / 2)
    check(site, loop_ids)
    driven = site.witnessed("drives")
    assert [each for each in driven if not each[1].startswith(each[0])] == []
    assert {loop_id for _, loop_id in driven} == set(loop_ids)
