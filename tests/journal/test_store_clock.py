"""Clients with wrong clocks: drivers, decisions and retries use the clock of the store, if it has one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest
from attrs import define, field
from hypothesis import given, strategies as st

from tests.kit.concurrency import either_kind
from tests.kit.each import each
from tests.kit.effort import examples
from tests.kit.failing import FailingStore
from tests.kit.postgres import database, needs_postgres
from tests.kit.support import expect_yielded
from tests.kit.tools import SEND, params
from tests.kit.world import APPROVED, World
from tests.worker.support import place_of
from toolloop import Approve, Ask, AsyncInbox, AsyncToolLoopHandle, Grant, Inbox
from toolloop.errors import AlreadyDecided, LinkExpired, ModelError
from toolloop.stores import MemoryStore, PostgresStore, Store
from toolloop.stores.codec import decode_event
from toolloop.testing import AsyncScriptedProvider, reply

START = 1_800_000_000.0
AN_HOUR = 3600.0
SCRIPT = (reply(calls=[SEND]), reply("done"))
# Not a refusal with 429 or 529, which a worker waits out without an attempt.
BROKEN = ModelError("internal server error", retryable=True, status=500)
wrong_clock = each("wrong", [AN_HOUR, -AN_HOUR])


@define
class Clocked(FailingStore):
    """A store with a clock, which goes when the test lets it."""

    inner: Store = field(factory=MemoryStore)
    time: float = START

    def now(self) -> float:
        return self.time

    def make_clock(self, seconds: float) -> Callable[[], float]:
        """A clock of a client."""
        return lambda: self.time + seconds


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresStore]:
    with PostgresStore(database()) as store:
        yield store


def make_clock(store: PostgresStore, seconds: float) -> Callable[[], float]:
    return lambda: store.now() + seconds


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(START, UTC) + timedelta(seconds=seconds)


@examples(40)
@given(
    driver=st.sampled_from([-AN_HOUR, 0.0, AN_HOUR]),
    decider=st.sampled_from([-AN_HOUR, 0.0, AN_HOUR]),
    waits=st.sampled_from([0.0, 30.0, 59.9, 60.0, 61.0, 2 * AN_HOUR]),
    through=st.sampled_from(["handle", "async handle", "inbox", "async inbox", "link"]),
)
def test_a_decision_is_accepted_exactly_until_its_deadline(
    driver: float, decider: float, waits: float, through: str
) -> None:
    """By the clock of the store, whatever the clocks of the driver and of the deciding process show."""
    store = Clocked()
    world = World("sync", store, SCRIPT, config={"decision_timeout": 60.0}, clock=store.make_clock(driver))
    (waiting,) = expect_yielded(world.make().run()).pending
    assert waiting.expires_at == moment(60)
    link = Inbox(store, "secret", clock=store.make_clock(driver)).link("loop", "t2", expires_in=60.0)
    store.time += waits
    clock = store.make_clock(decider)
    inbox = Inbox(store, "secret", clock=clock)
    other = World("asyncio" if "async" in through else "sync", store, SCRIPT, clock=clock, ran=world.ran)

    def decide() -> None:
        match through:
            case "inbox":
                inbox.decide("loop", {"t2": APPROVED})
            case "async inbox":
                anyio.run(AsyncInbox(store, clock=clock).decide, "loop", {"t2": APPROVED})
            case "link":
                inbox.redeem(link, Approve())
            case _:
                other.open().decide(t2=APPROVED)

    assert len(inbox.pending()) == (waits < 60)
    if waits < 60:
        decide()
    else:
        with pytest.raises((AlreadyDecided, LinkExpired)):
            decide()
    assert other.open().text() == "done"
    assert world.ran == ["t2"] * (waits < 60)


@wrong_clock
@either_kind
def test_a_new_loop_is_dated_by_the_clock_of_its_store(kind: str, wrong: float) -> None:
    """Also what was recorded before the store was asked for the first time."""
    store = Clocked()
    world = World(kind, store, (reply("done"),), clock=store.make_clock(wrong))
    peer = world.make(params=params(messages=[]))
    peer.handle.follow_up("hi", by="ana")
    assert peer.text() == "done"
    events = [decode_event(entry) for entry in store.load("loop").entries]
    assert {at for event in events for at in (event.at, event.said_at) if at} == {START}
    assert (store.head("loop").created, store.head("loop").head.changed) == (START, START)
    assert {entry.at for entry in Inbox(store).trail("loop")} == {moment(0)}


@wrong_clock
def test_a_grant_ends_by_the_clock_of_the_store(wrong: float) -> None:
    store = Clocked()
    calls = [SEND, {**SEND, "id": "t3"}, {**SEND, "id": "t4"}]
    world = World(
        "sync", store, (*[reply(calls=[each]) for each in calls], reply("done")), clock=store.make_clock(wrong)
    )

    def expire() -> None:
        store.time += 2

    world.on["t3"] = expire
    peer = world.open()
    expect_yielded(peer.run())
    peer.decide(t2=Approve(remember=Grant(expires_at=moment(60))))
    store.time += 59
    assert len(peer.handle.grants) == len(Inbox(store, clock=store.make_clock(wrong)).grants("loop")) == 1
    (waiting,) = expect_yielded(peer.run()).pending
    assert (waiting.id, world.ran) == ("t4", ["t2", "t3"])
    assert len(peer.handle.grants) == len(Inbox(store, clock=store.make_clock(wrong)).grants("loop")) == 0


@wrong_clock
@either_kind
def test_a_worker_retries_by_the_clock_of_the_store(kind: str, wrong: float) -> None:
    """Not before `retry_at`, and then at once."""
    store = Clocked()
    place = place_of(kind, store, script=[BROKEN])
    place.create(clock=store.make_clock(wrong))
    worker = place.worker(clock=store.make_clock(wrong))
    assert place.work(worker) == 1
    retry_at = store.head("loop").head.retry_at
    assert retry_at is not None
    assert START < retry_at <= START + 10
    place.script = [reply("done")]
    store.time = retry_at - 0.1
    assert (place.work(worker), store.head("loop").status) == (0, "failed")
    store.time = retry_at + 1
    assert (place.work(worker), store.head("loop").status) == (1, "ended")


# --- PostgreSQL ------------------------------------------------------------------------------------------------------


@needs_postgres
@wrong_clock
@either_kind
def test_in_postgres_no_wrong_clock_lets_a_call_expire(kind: str, wrong: float, postgres: PostgresStore) -> None:
    """Neither that of the driver, nor that of a person, nor that of a worker; and the call runs."""
    loop_id, clock = f"kept {kind} {wrong}", make_clock(postgres, wrong)
    world = World(kind, postgres, SCRIPT, config={"decision_timeout": 60.0}, clock=clock)
    peer = world.make(loop_id)
    (waiting,) = expect_yielded(peer.run()).pending
    assert waiting.expires_at is not None
    assert abs(waiting.expires_at.timestamp() - postgres.now() - 60) < 30
    expect_yielded(peer.run())
    place = place_of(kind, postgres)
    assert place.work(clock=clock) == 0
    inbox = Inbox(postgres, clock=clock)
    assert loop_id in [call.loop_id for call in inbox.pending()]
    inbox.decide(loop_id, {"t2": APPROVED})
    assert world.open(loop_id).text() == "done"
    assert world.ran == ["t2"]


@needs_postgres
@wrong_clock
def test_in_postgres_no_decision_is_accepted_after_its_deadline(wrong: float, postgres: PostgresStore) -> None:
    """Of a person whose clock is behind, too; for the driver whose clock is behind, the call has expired."""
    loop_id, clock = f"late {wrong}", make_clock(postgres, wrong)
    world = World("sync", postgres, SCRIPT, config={"on_tool_call": lambda *_: Ask(expires_in=0.5)}, clock=clock)
    peer = world.make(loop_id)
    (waiting,) = expect_yielded(peer.run()).pending
    assert waiting.expires_at is not None
    assert waiting.expires_at.timestamp() < postgres.now() + 30  # else the loop below takes an hour
    while postgres.now() < waiting.expires_at.timestamp():
        pass
    inbox = Inbox(postgres, clock=clock)
    assert loop_id not in [call.loop_id for call in inbox.pending()]
    with pytest.raises(AlreadyDecided, match="expired"):
        inbox.decide(loop_id, {"t2": APPROVED})
    with pytest.raises(AlreadyDecided, match="expired"):
        peer.decide(t2=APPROVED)
    assert peer.text() == "done"
    assert world.ran == []


@needs_postgres
@wrong_clock
def test_in_postgres_a_worker_retries_by_the_clock_of_the_server(wrong: float, postgres: PostgresStore) -> None:
    """A loop that failed a moment ago is not due, though the clock of the worker is an hour ahead."""
    place, clock = place_of("sync", postgres, script=[BROKEN]), make_clock(postgres, wrong)
    loop_id = f"failed {wrong}"
    place.create(loop_id, clock=clock)
    worker: Any = place.worker(clock=clock)
    row = worker.drive(loop_id)
    assert row.head.retry_at is not None
    assert 0 < row.head.retry_at - postgres.now() <= 10
    before = len(place.requests)
    assert worker.drive(loop_id).status == "failed"
    assert len(place.requests) == before
    due = PostgresStore.list_due(postgres, row.head.retry_at)[0]
    assert loop_id in [each.loop_id for each in due]
    postgres.delete(loop_id)


@needs_postgres
def test_in_postgres_the_clock_is_read_with_what_is_read_anyway(postgres: PostgresStore) -> None:
    """Once the store was used, asking for the time asks no server: it works though the server is gone."""
    url = database()
    with PostgresStore(url) as store:
        AsyncToolLoopHandle(AsyncScriptedProvider([]), params=params(), store=store)  # asks for nothing
        store.list()
        store._db.run = None  # type: ignore[method-assign,assignment]  # asking the server fails
        first = store.now()
        assert first <= store.now()
        assert abs(first - postgres.now()) < 1
