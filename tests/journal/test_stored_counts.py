"""What a turn costs a store: how often it is asked, in which order, and how many bytes are written."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest
from attrs import define, evolve, field

from tests.kit import own_threads
from tests.kit.concurrency import either_kind, run_async, wait_for
from tests.kit.failing import Asked, FailingStore, is_beside
from tests.kit.support import expect_yielded
from tests.kit.tools import PAY, SEND, params
from tests.kit.world import AnyHandle, World, approve_all, each_store, store_at
from toolloop import (
    AsyncToolLoopHandle,
    Continue,
    Grant,
    InjectMessages,
    LoopConfig,
    Stop,
    ToolLoopHandle,
    Yielded,
    tool,
)
from toolloop._journal.records import make_id
from toolloop.events import RequestAnswered
from toolloop.machine.record import journal_events as ev
from toolloop.stores.codec import FORMAT, encode_event
from toolloop.stores.memory import MemoryStore
from toolloop.stores.protocol import Head, Lease, Store
from toolloop.stores.sqlite.store import SqliteStore
from toolloop.testing import ScriptedProvider, call, reply

ROUNDS = 4
_POOL = "stores-of-toolloop"
SCRIPT = (*(reply(calls=[call("pay", {"amount": 1}, id=f"t{at}")]) for at in range(ROUNDS)), reply("done"))
BEFORE_THE_REQUEST = ["Continued", "Requested"]
BEFORE_THE_TOOL = ["Replied", "Started"]
AT_THE_END = ["Ended", "TurnEnded"]


@define
class Counted:
    """A loop, and what its store is asked: a list for each turn, which begins where the turn before has ended.

    Attributes:
        asked: the names of the driver's calls, and of an append the events in it.

    """

    world: World
    asked: list[Any] = field(factory=list)

    @classmethod
    def of(cls, kind: str, inner: Store | None = None, **parts: Any) -> Counted:
        store = FailingStore(inner or MemoryStore())
        counted = cls(World(kind, store, **parts))

        def note(asked: Asked) -> None:
            if not is_beside():  # the thread of the leases looks every two seconds
                counted.asked.append(list(asked.events) if asked.name in ("append", "create") else asked.name)

        store.after = note
        return counted

    def take(self) -> list[Any]:
        """What was asked since the last time."""
        asked, self.asked[:] = list(self.asked), []
        return asked


def test_a_turn_of_run_is_stored_twice() -> None:
    """Its end goes with the request that follows. The lease is taken and given back once. Nothing is read."""
    counted = Counted.of("sync", script=SCRIPT)
    assert counted.world.make().text() == "done"
    assert counted.take() == [
        ["Opened"],
        "acquire",
        ["Requested"],
        *[BEFORE_THE_TOOL, AT_THE_END + BEFORE_THE_REQUEST] * ROUNDS,
        ["Replied"],
        "release",
    ]


@either_kind
def test_a_turn_by_hand_takes_the_lease_and_gives_it_back(kind: str) -> None:
    """What is said to a sync handle is stored when it is said; else it goes with the request. Nothing is read."""
    counted = Counted.of(kind, script=SCRIPT)
    peer = counted.world.make()
    peer.next_turn()
    counted.take()
    begin = [["Continued"], "acquire", ["Requested"]] if kind == "sync" else ["acquire", BEFORE_THE_REQUEST]
    for _ in range(ROUNDS - 1):
        own_threads.join()  # the thread of the last tool stores what it finds when it ends
        peer.turn().continue_loop()
        assert isinstance(peer.next_turn(), Yielded)
        assert counted.take() == [*begin, BEFORE_THE_TOOL, AT_THE_END, "release"]


class Silent(MemoryStore):
    """A store that says of no lease at which revision the loop is."""

    def acquire(self, *args: Any, **kwargs: Any) -> Lease:
        return evolve(super().acquire(*args, **kwargs), rev=None)


@either_kind
def test_a_store_that_tells_no_revision_is_read(kind: str) -> None:
    """Others may have added a command since, so the holder of the lease looks."""
    counted = Counted.of(kind, Silent(), script=SCRIPT)
    counted.world.make().next_turn()
    assert counted.take() == [["Opened"], "acquire", "load", ["Requested"], BEFORE_THE_TOOL, AT_THE_END, "release"]


def test_calls_side_by_side_start_in_one_write() -> None:
    """Each end is stored when it comes, the last one with the end of the turn."""
    calls = [call("look", {"path": f"{at}"}, id=f"t{at}") for at in range(3)]
    counted = Counted.of("sync", script=(reply(calls=calls), reply("done")), config={"max_parallel_tools": 3})
    peer = counted.world.make()
    peer.next_turn()
    before, starts, *ends = [each for each in counted.take()[2:] if each != "release"]
    assert (before, starts) == (["Requested"], ["Replied", "Started", "Started", "Started"])
    assert len(ends) <= len(calls)
    assert [name for each in ends for name in each] == ["Ended", "Ended", "Ended", "TurnEnded"]


@either_kind
def test_a_decision_that_waits(kind: str) -> None:
    """What waits is stored before the caller is asked, a decision when it is said; driving goes on with the start."""
    counted = Counted.of(kind, script=(reply(calls=[SEND]), reply("done")))
    peer = counted.world.make()
    peer.next_turn()
    assert counted.take()[3:] == [["Replied", "Judged"], "release"]
    peer.turn().approve("t2", by="ana")
    peer.turn().continue_loop()
    said = [["Decided"], ["Continued"]] if kind == "sync" else []
    assert counted.take() == said
    peer.next_turn()
    start = ["Started"] if kind == "sync" else ["Decided", "Continued", "Started"]
    assert counted.take() == ["acquire", start, AT_THE_END, "release"]


def test_watchers_learn_of_stored_events_before_more_happens() -> None:
    """An observer gets a reply before a tool starts, and may still keep it from starting."""
    peers: list[AnyHandle] = []

    def watches(event: Any) -> None:
        if isinstance(event, RequestAnswered):
            peers[0].handle.resume(Stop("enough"))

    counted = Counted.of("sync", script=SCRIPT, config={"observers": [watches]})
    peers.append(counted.world.make())
    peers[0].run()
    assert counted.world.ran == []


def test_policies_are_asked_about_what_is_stored() -> None:
    """They may take long, and the reply was paid for."""
    journals: list[list[str]] = []
    world = World("sync", MemoryStore(), script=SCRIPT)
    world.config = {"on_tool_call": lambda *_: journals.append(world.journal()), "stop_when": lambda _: False}
    assert world.make().text() == "done"
    assert [names[-1] for names in journals] == ["Replied"] * ROUNDS


def test_an_event_loop_leaves_each_write_to_a_thread_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And asks no thread for anything else, but at the end. The thread of a tool may store its end itself."""
    tasks, by_thread = [0], [0]
    submit = ThreadPoolExecutor.submit

    def count(self: ThreadPoolExecutor, *arguments: Any, **more: Any) -> Any:
        tasks[0] += str(self._thread_name_prefix).startswith(_POOL)
        return submit(self, *arguments, **more)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", count)

    def ask(_: Asked) -> None:
        name = threading.current_thread().name
        assert name.startswith((_POOL, "toolloop-"))
        by_thread[0] += name.startswith(_POOL)

    counted = Counted.of("asyncio", script=SCRIPT)
    peer = counted.world.make()
    counted.world.store.before = ask
    at_requests: list[tuple[int, int]] = []
    counted.world.on["request"] = lambda: at_requests.append((tasks[0], by_thread[0]))
    assert peer.text() == "done"
    turns = [(after[0] - before[0], after[1] - before[1]) for before, after in pairwise(at_requests)]
    assert turns == [(2, 2)] * ROUNDS


@tool
def note(line: int) -> str:
    """Note a line."""
    return f"noted {line}"


def test_a_turn_writes_the_same_bytes_at_round_300_and_at_round_900(tmp_path: Path) -> None:
    """The ids of events grow, so each write changes the last pages of the index and no others."""
    log, head, sizes = tmp_path / "loops.db-wal", Head("ready"), list[int]()
    with SqliteStore(tmp_path / "loops.db") as store:
        rev = store.create("loop", [encode_event(make_id(), ev.Ticked())], head=head)
        store._file.read(lambda connection: connection.execute("PRAGMA wal_autocheckpoint = 0"))
        for _ in range(900):
            sizes.append(log.stat().st_size)
            turn = [encode_event(make_id(), ev.Continued(("x" * 100,))) for _ in range(5)]
            rev = store.append("loop", turn, expected_rev=rev, head=head)
    assert sizes[899] - sizes[800] < 1.02 * (sizes[400] - sizes[301])


def test_a_turn_costs_the_same_at_round_10_and_at_round_150(tmp_path: Path) -> None:
    """The same statements: rows of events are added, and the one row of the loop is written. Checkpoints are seldom."""
    said: list[str] = []
    turns: list[list[str]] = []

    def answer(request: Any) -> Any:
        turns.append(said.copy())
        said.clear()
        at = len(request["messages"])
        return reply(calls=[call("note", {"line": at}, id=f"t{at}")]) if len(turns) <= 151 else reply("done")

    with SqliteStore(tmp_path / "loops.db") as store:
        store._file.read(lambda connection: connection.set_trace_callback(said.append))
        config = LoopConfig(max_iterations=None)
        ToolLoopHandle(ScriptedProvider(answer), params=params(), tools=[note], config=config, store=store).run()
        store._file.read(lambda connection: connection.set_trace_callback(None))
        places = store._file.read(
            lambda connection: connection.execute("SELECT place FROM events ORDER BY rowid").fetchall()
        )
    assert places == sorted(places)
    turns = [[text for text in turn if text != "PRAGMA data_version"] for turn in turns]  # it comes every 50 ms
    (usual, count), *_ = Counter(tuple(map(_shape, turn)) for turn in turns[1:]).most_common()
    assert count >= len(turns) - 7  # but where the lease was renewed meanwhile, or a checkpoint was written
    writes = [text for turn in turns[1:] for text in turn if text.split()[0] in ("INSERT", "UPDATE", "DELETE")]
    assert {_shape(text) for text in writes if "checkpoints" not in text} == {"INSERT INTO events", "UPDATE loops SET"}
    assert sum(text.startswith("INSERT INTO checkpoints") for text in writes) == 1
    assert all(text.endswith("WHERE number = 1") for text in writes if text.startswith("UPDATE"))
    assert [usual.count(name) for name in ("BEGIN IMMEDIATE", "UPDATE loops SET", "INSERT INTO events")] == [2, 2, 6]


def _shape(text: str) -> str:
    return " ".join(text.split()[:3])


@each_store
@either_kind
def test_nothing_is_performed_before_it_is_stored(kind: str, where: str, tmp_path: Path) -> None:
    """The journal of each moment ends with what is going on: the request, the run."""
    world = World(kind, store_at(where, tmp_path), script=(reply(calls=[PAY]), reply(calls=[SEND]), reply("done")))
    seen: list[str] = []
    for where_ in ("request", "t1", "t2"):
        world.on[where_] = lambda: seen.append(world.journal()[-1])
    assert world.open().run(approve_all).unwrap().text == "done"
    assert seen == ["Requested", "Started", "Requested", "Started", "Requested"]


@each_store
def test_what_is_said_is_stored_when_the_call_returns(where: str, tmp_path: Path) -> None:
    """On the sync handle: each word, and each change."""
    world = World("sync", store_at(where, tmp_path))
    handle = world.open().handle
    assert isinstance(handle, ToolLoopHandle)
    turn = expect_yielded(handle.run())

    def last() -> list[str]:
        return world.journal()[-1:]

    handle.update_params(max_tokens=300)
    assert last() == ["Changed"]
    handle.extend(max_iterations=20)
    assert last() == ["Changed"]
    turn.approve("t2", by="ana", remember=Grant())
    assert last() == ["Decided"]
    handle.grants.revoke(handle.grants[0])
    assert last() == ["GrantRevoked"]
    handle.resume(InjectMessages([{"role": "user", "content": "more"}]))
    assert last() == ["Continued"]
    handle.resume(Stop("enough"))
    assert last() == ["Stopped"]
    handle.follow_up([{"role": "user", "content": "and now?"}])
    assert last() == ["FollowedUp"]
    assert world.state() == handle.state


def test_words_of_an_async_handle_are_stored_by_the_next_await() -> None:
    """They are taken at once; `flush()`, the next turn, and leaving `async with` store them before anything else."""
    world = World("asyncio", MemoryStore(), script=(reply(calls=[SEND]), reply("done")))

    async def main() -> None:
        async with AsyncToolLoopHandle.open(
            world.store, "loop", world.provider(), **world.parts(params=params())
        ) as handle:
            turn = expect_yielded(await handle.run())
            turn.approve("t2", by="ana")
            assert handle.pending == ()
            assert "Decided" not in world.journal()
            await handle.flush()
            assert world.journal()[-1] == "Decided"
            handle.resume(Continue())
        assert world.journal()[-1] == "Continued"
        world.on["t2"] = lambda: world.journal().index("Changed")  # raises where it is not there
        handle.extend(max_iterations=9)
        assert (await handle.run()).unwrap().text == "done"
        assert "Changed" in world.journal()

    run_async("asyncio", main)
    world.assert_once()


def test_a_caller_that_only_looks_does_not_query_the_store() -> None:
    """Reads are of what the handle knows."""
    store = FailingStore(MemoryStore())
    peer = World("sync", store).open()
    expect_yielded(peer.run())
    count = len(store.asked)
    handle = peer.handle
    assert handle.pending
    assert handle.pending_turn is not None
    assert handle.messages
    assert handle.view()["pending"]
    assert handle.snapshot()["format"] == FORMAT
    assert list(handle.grants) == []
    assert repr(handle)
    assert len(store.asked) == count


def test_an_event_loop_is_not_held_up_by_a_slow_store() -> None:
    """While the store takes its time, other tasks run, and words are taken."""
    world = World("asyncio", FailingStore(MemoryStore()), script=(reply(calls=[SEND]), reply("done")))
    assert isinstance(world.store, FailingStore)
    store, peer, go = world.store, world.open(), threading.Event()
    turn = expect_yielded(peer.next_turn())

    def wait(asked: Asked) -> None:
        if "Decided" in asked.events:
            wait_for(go)

    store.after = wait

    async def main() -> None:
        assert isinstance(peer.handle, AsyncToolLoopHandle)
        turn.approve("t2", by="ana")
        async with anyio.create_task_group() as group:
            group.start_soon(peer.handle.flush)
            await anyio.lowlevel.checkpoint()
            turn.continue_loop()
            assert peer.handle.pending == ()
            go.set()

    run_async("asyncio", main)
    assert peer.text() == "done"
