"""Loops in PostgreSQL, while the server is killed and the network fails: all end, nothing runs twice."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.kit.effort import IS_DEEP, stride
from tests.kit.postgres import Server, database, needs_postgres, own_server
from tests.kit.proxy import Act, Proxy, start_proxy
from tests.kit.tools import STORY
from tests.kit.world import World, approve_all
from toolloop import Completed
from toolloop.errors import StoreError
from toolloop.stores import PostgresStore
from toolloop.testing import call, reply
from toolloop.testing.promises import check_promises

pytestmark = needs_postgres
PATIENCE = 120.0
MOST = 500


@pytest.fixture(scope="module")
def url() -> str:
    return database()


@pytest.fixture
def network(url: str) -> Iterator[tuple[Proxy, str]]:
    with PostgresStore(url) as store:
        store.migrate()
        for loop in store.list():
            store.delete(loop.loop_id)
    with start_proxy(url) as through:
        yield through


def to_the_end(world: World, loop_id: str, on_failure: Callable[[], object]) -> Completed:
    """Drive a loop as a caller does who tries again whatever fails. It never asks about what it did itself."""

    def decide(turn: Any) -> None:
        assert {each.why for each in turn.pending} == {"approval"}
        approve_all(turn)

    until, peer = time.monotonic() + PATIENCE, None
    while time.monotonic() < until:
        try:
            peer = peer or world.open(loop_id)
            done = peer.run(decide)
            peer.close()
        except StoreError:
            on_failure()
        else:
            assert isinstance(done, Completed)
            return done
    raise AssertionError("the story never ends")


def assert_told(world: World, loop_id: str, url: str) -> None:
    with PostgresStore(url) as store:
        row = store.head(loop_id)
        assert (row.status, row.lease) == ("ended", None)
        assert check_promises(store.load(loop_id).entries).broken == ()
    assert sorted(world.ran) == ["t1", "t2", "t3"]


@pytest.mark.parametrize("kind", ["sync", "asyncio"])
def test_a_network_that_is_cut_after_any_piece_of_an_answer_loses_nothing(
    kind: str, url: str, network: tuple[Proxy, str]
) -> None:
    """What was lost is asked for once more on a new connection, or by the caller; the ids tell what was stored."""
    proxy, through = network
    for piece in range(1, MOST, stride(15)):
        proxy.pieces, loop_id = 0, f"{kind}{piece}"
        proxy.judge = lambda number, piece=piece: "cut" if number == piece else "pass"  # type: ignore[misc]
        with PostgresStore(through) as store:
            world = World(kind, store, STORY)
            assert to_the_end(world, loop_id, lambda: None).text == "done"
        assert_told(world, loop_id, url)
        if proxy.pieces < piece:  # the story was over before
            assert piece > 20
            return
    raise AssertionError("it was cut to the last")


@pytest.mark.parametrize("kind", ["sync", "asyncio"])
@pytest.mark.parametrize("scope", ["connection", pytest.param("network", marks=pytest.mark.deep)])
def test_a_network_that_forwards_nothing_in_the_middle_of_an_append_loses_nothing(
    kind: str, scope: str, url: str, network: tuple[Proxy, str]
) -> None:
    """A call gives up in time, and the ids tell what was stored; at once, or when the network works again."""
    proxy, through = network
    failures = 0

    def works_again() -> None:
        nonlocal failures
        failures += 1
        proxy.judge = lambda _: "pass"

    def judge(_: int) -> Act:
        if scope == "connection":
            proxy.judge = lambda _: "pass"
        return "mute"

    with PostgresStore(through, timeout=2) as store:
        world, loop_id = World(kind, store, STORY), f"{kind} {scope}"
        world.on["t1"] = lambda: setattr(proxy, "judge", judge)  # so its end is stored, and the answer is lost
        assert to_the_end(world, loop_id, works_again).text == "done"
    assert failures == (scope == "network")
    assert_told(world, loop_id, url)


def run_many(server: Server, url: str, count: int, down: Callable[[], object]) -> None:
    """Drive loops side by side, and kill the server when a quarter of their tools ran."""
    calls = [call("pay", {"amount": number}, id=f"pay{number}") for number in range(4)]
    ran: Counter[tuple[str, str]] = Counter()
    lock, enough = threading.Lock(), threading.Event()
    failed: list[BaseException] = []

    class Counted(list[str]):
        def __init__(self, loop_id: str) -> None:
            super().__init__()
            self.loop_id = loop_id

        def append(self, call_id: str) -> None:
            with lock:
                ran[self.loop_id, call_id] += 1
                if sum(ran.values()) >= count:
                    enough.set()

    with PostgresStore(url) as store:

        def drive(loop_id: str) -> None:
            world = World("sync", store, (*(reply(calls=[each]) for each in calls), reply("done")))
            world.ran = Counted(loop_id)
            try:
                to_the_end(world, loop_id, lambda: threading.Event().wait(0.05))
            except BaseException as error:  # noqa: BLE001 - the test is to see it
                failed.append(error)

        loop_ids = [f"loop{number}" for number in range(count)]
        threads = [threading.Thread(target=drive, args=(loop_id,)) for loop_id in loop_ids]
        for thread in threads:
            thread.start()
        assert enough.wait(PATIENCE)
        server.stop("immediate")
        down()
        server.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert failed == []
        assert ran == Counter({(loop_id, each["id"]): 1 for loop_id in loop_ids for each in calls})
        for loop_id in loop_ids:
            assert store.head(loop_id).status == "ended"
            assert check_promises(store.load(loop_id).entries).broken == ()


def test_a_server_that_is_killed_and_restarted_loses_nothing() -> None:
    """In the middle of many loops, whose callers try again: all end, no call runs twice, and none is uncertain."""
    with own_server() as server:
        count, seconds = (100, 5.0) if IS_DEEP else (5, 0.0)
        run_many(server, server.database(), count, lambda: threading.Event().wait(seconds))
