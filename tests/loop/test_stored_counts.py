"""How often a turn is stored: before its request, before its tools run, at its end. Counted, not timed."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from attrs import define, evolve, field

from tests.loop.concurrency import either_kind
from tests.loop.stored import LOOK, PAY, SEND, AnyHandle, Faulty, World, approve_all
from tests.loop.support import params
from toolloop import LoopConfig, Stop, ToolLoopHandle, Yielded, tool
from toolloop.errors import Conflict, StoreError
from toolloop.face.watch_events import RequestAnswered
from toolloop.loop.journal import new_id
from toolloop.machine import events as ev
from toolloop.stores.codec import encode_event
from toolloop.stores.memory import MemoryStore
from toolloop.stores.protocol import Entry, Head, Lease, Store
from toolloop.stores.sqlite import SqliteStore
from toolloop.testing import ScriptedProvider, call, reply

ROUNDS = 4
SCRIPT = (*(reply(calls=[call("pay", {"amount": 1}, id=f"t{at}")]) for at in range(ROUNDS)), reply("done"))

BEFORE_THE_REQUEST = ["Continued", "Requested"]
BEFORE_THE_TOOL = ["Replied", "Started"]
AT_THE_END = ["Ended", "TurnEnded"]


@define
class Counted:
    """A loop, and what its store is asked: a list for each turn, which begins where the turn before has ended.

    Attributes:
        asked: the names of the calls, and of an append the events in it.

    """

    world: World
    asked: list[Any] = field(factory=list)

    @classmethod
    def of(cls, kind: str, inner: Store | None = None, **parts: Any) -> Counted:
        store = Faulty(inner or MemoryStore())
        counted = cls(World(kind, store, **parts))

        def ask(number: int) -> None:
            if (name := store.asked[number - 1]) not in ("append", "create"):
                counted.asked.append(name)

        store.fails = ask
        store.on_stored = lambda entries: counted.asked.append([_name(entry) for entry in entries])
        return counted

    def take(self) -> list[Any]:
        """What was asked since the last time."""
        asked, self.asked[:] = list(self.asked), []
        return asked


def _name(entry: Entry) -> str:
    return entry.body.partition('"event":"')[2].partition('"')[0]


def test_a_turn_of_run_is_stored_three_times() -> None:
    """And the lease is taken and given back once for all of them. Nothing is read."""
    counted = Counted.of("sync", script=SCRIPT)
    assert counted.world.new().text() == "done"
    turn = [BEFORE_THE_REQUEST, BEFORE_THE_TOOL, AT_THE_END]
    assert counted.take() == [
        ["Opened"],
        "acquire",
        ["Requested"],
        BEFORE_THE_TOOL,
        AT_THE_END,
        *turn * (ROUNDS - 1),
        BEFORE_THE_REQUEST,
        ["Replied"],
        "release",
    ]


@either_kind
def test_a_turn_by_hand_takes_the_lease_and_gives_it_back(kind: str) -> None:
    """What is said to a sync handle is stored when it is said; else it goes with the request. Nothing is read."""
    counted = Counted.of(kind, script=SCRIPT)
    peer = counted.world.new()
    peer.next_turn()
    counted.take()
    begin = [["Continued"], "acquire", ["Requested"]] if kind == "sync" else ["acquire", BEFORE_THE_REQUEST]
    for _ in range(ROUNDS - 1):
        peer.turn().continue_loop()
        assert isinstance(peer.next_turn(), Yielded)
        assert counted.take() == [*begin, BEFORE_THE_TOOL, AT_THE_END, "release"]


class Silent(MemoryStore):
    """A store that says of no lease at which revision the loop is."""

    def acquire(self, loop_id: str, owner: str, *, until: float, instead_of: int | None = None) -> Lease:
        return evolve(super().acquire(loop_id, owner, until=until, instead_of=instead_of), rev=None)


@either_kind
def test_a_store_that_tells_no_revision_is_read(kind: str) -> None:
    """Somebody may have said something since, so whoever has the lease looks."""
    counted = Counted.of(kind, Silent(), script=SCRIPT)
    counted.world.new().next_turn()
    assert counted.take() == [["Opened"], "acquire", "load", ["Requested"], BEFORE_THE_TOOL, AT_THE_END, "release"]


def test_calls_side_by_side_start_in_one_write() -> None:
    """Each end is stored when it comes, the last one with the end of the turn."""
    calls = [call("look", {"path": f"{at}"}, id=f"t{at}") for at in range(3)]
    counted = Counted.of("sync", script=(reply(calls=calls), reply("done")), config={"max_parallel_tools": 3})
    peer = counted.world.new()
    peer.next_turn()
    before, starts, *ends = [each for each in counted.take()[2:] if each != "release"]
    assert (before, starts) == (["Requested"], ["Replied", "Started", "Started", "Started"])
    assert len(ends) <= len(calls)
    assert [name for each in ends for name in each] == ["Ended", "Ended", "Ended", "TurnEnded"]


def test_calls_one_after_the_other() -> None:
    """The end of one is stored with the start of the next."""
    script = (reply(calls=[PAY, LOOK]), reply("done"))
    counted = Counted.of("sync", script=script, config={"max_parallel_tools": 1})
    counted.world.new().next_turn()
    assert counted.take()[3:] == [BEFORE_THE_TOOL, ["Ended", "Started"], AT_THE_END, "release"]


@either_kind
def test_a_decision_that_waits(kind: str) -> None:
    """What waits is stored before the caller is asked, a decision when it is said; driving goes on with the start."""
    counted = Counted.of(kind, script=(reply(calls=[SEND]), reply("done")))
    peer = counted.world.new()
    peer.next_turn()
    assert counted.take()[3:] == [["Replied", "Judged"], "release"]
    peer.turn().approve("t2", by="ana")
    peer.turn().continue_loop()
    said = [["Decided"], ["Continued"]] if kind == "sync" else []
    assert counted.take() == said
    peer.next_turn()
    start = ["Started"] if kind == "sync" else ["Decided", "Continued", "Started"]
    assert counted.take() == ["acquire", start, AT_THE_END, "release"]


def test_run_that_asks() -> None:
    """The lease goes back while somebody is asked, and what others said meanwhile is read once."""
    counted = Counted.of("sync", script=(reply(calls=[SEND]), reply("done")))
    assert counted.world.new().run(approve_all).unwrap().text == "done"
    asking = [["Replied", "Judged"], "release", ["Decided"], "load", "acquire", ["Continued", "Started"], AT_THE_END]
    assert counted.take()[3:] == [*asking, BEFORE_THE_REQUEST, ["Replied"], "release"]


def test_who_watches_is_told_of_what_is_stored_before_more_happens() -> None:
    """An observer hears of a reply before a tool starts, and may still keep it from starting."""
    peers: list[AnyHandle] = []

    def watches(event: Any) -> None:
        if isinstance(event, RequestAnswered):
            peers[0].handle.resume(Stop("enough"))

    counted = Counted.of("sync", script=SCRIPT, config={"observers": [watches]})
    peers.append(counted.world.new())
    peers[0].run()
    assert counted.world.ran == []


def test_policies_are_asked_about_what_is_stored() -> None:
    """They may take long, and the reply was paid for."""
    journals: list[list[str]] = []
    world = World("sync", MemoryStore(), script=SCRIPT)
    world.config = {"on_tool_call": lambda *_: journals.append(world.journal()), "stop_when": lambda _: False}
    assert world.new().text() == "done"
    assert [names[-1] for names in journals] == ["Replied"] * ROUNDS


def test_an_event_loop_leaves_each_write_to_a_thread_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And asks no thread for anything else, but at the end."""
    tasks = [0]
    submit = ThreadPoolExecutor.submit

    def counting(self: ThreadPoolExecutor, *arguments: Any, **more: Any) -> Any:
        tasks[0] += str(self._thread_name_prefix).startswith("stores-of-toolloop")
        return submit(self, *arguments, **more)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", counting)
    counted = Counted.of("asyncio", script=SCRIPT)
    at_requests: list[tuple[int, int]] = []
    counted.world.on["request"] = lambda: at_requests.append((tasks[0], len(counted.asked)))
    assert counted.world.new().text() == "done"
    turns = [(after[0] - before[0], after[1] - before[1]) for before, after in pairwise(at_requests)]
    assert turns == [(3, 3)] * ROUNDS


def test_a_turn_writes_the_same_bytes_at_round_300_and_at_round_900(tmp_path: Path) -> None:
    """The ids of events grow, so each write changes the last pages of the index and no others."""
    log, head, sizes = tmp_path / "loops.db-wal", Head("ready"), list[int]()
    with SqliteStore(tmp_path / "loops.db") as store:
        rev = store.create("loop", [encode_event(new_id(), ev.Ticked())], head=head)
        store._file.read(lambda connection: connection.execute("PRAGMA wal_autocheckpoint = 0"))
        for _ in range(900):
            sizes.append(log.stat().st_size)
            turn = [encode_event(new_id(), ev.Continued(("x" * 100,))) for _ in range(5)]
            rev = store.append("loop", turn, expected_rev=rev, head=head)
    assert sizes[899] - sizes[800] < 1.02 * (sizes[400] - sizes[301])


def test_ids_of_events_grow_and_a_forked_process_has_its_own() -> None:
    """The random prefix is drawn once for each process."""
    code = (
        "import os\nfrom toolloop.loop.journal import new_id\n"
        "print(new_id(), new_id(), flush=True)\nchild = os.fork()\n"
        "if child: os.waitpid(child, 0)  # so that their lines do not mix\n"
        "print(new_id(), flush=True)\n"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert len(told) == len(set(told)) == 4
    assert told[0] < told[1]
    assert len({name[:6] for name in told}) == 2


@tool
def note(line: int) -> str:
    """Note a line."""
    return f"noted {line}"


def test_a_turn_costs_the_same_at_round_10_and_at_round_150(tmp_path: Path) -> None:
    """The same statements: rows of events are added, and the one row of the loop is written. Nothing is rewritten."""
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
    (usual, count), *_ = Counter(tuple(map(_shape, turn)) for turn in turns[1:]).most_common()
    assert count >= len(turns) - 5  # but where the lease was renewed meanwhile
    writes = [text for turn in turns[1:] for text in turn if text.split()[0] in ("INSERT", "UPDATE", "DELETE")]
    assert {_shape(text) for text in writes} == {"INSERT INTO events", "UPDATE loops SET"}
    assert all(text.endswith("WHERE number = 1") for text in writes if text.startswith("UPDATE"))
    assert [usual.count(name) for name in ("BEGIN IMMEDIATE", "UPDATE loops SET", "INSERT INTO events")] == [3, 3, 6]


def _shape(text: str) -> str:
    return " ".join(text.split()[:3])


@either_kind
def test_what_run_says_is_stored_before_it_is_done(kind: str) -> None:
    """It goes with the next request; where that cannot be stored, nothing is sent, and `run()` says why."""
    store = Faulty(MemoryStore())
    world = World(kind, store, script=SCRIPT)

    def break_after_the_turn(entries: Iterable[Entry]) -> None:
        if [_name(entry) for entry in entries] == AT_THE_END:
            store.fails = lambda _: "before"

    store.on_stored = break_after_the_turn
    peer = world.new()
    with pytest.raises(StoreError):
        peer.run()
    assert len(world.requests) == 1
    store.fails, store.on_stored = lambda _: None, lambda _: None
    peer.flush()
    assert world.journal()[-1] == "TurnEnded"
    assert peer.text() == "done"
    assert (len(world.requests), len(world.ran)) == (ROUNDS + 1, ROUNDS)


def test_what_run_says_is_stored_though_it_may_not_go_on() -> None:
    """Somebody else took the lease while the caller was asked."""
    world = World("sync", MemoryStore(), script=(reply(calls=[SEND]), reply("done")))

    def ask(turn: Yielded) -> None:
        approve_all(turn)
        world.store.acquire("loop", "somebody else", until=world.now() + 3600)

    with pytest.raises(Conflict):
        world.new().run(ask)
    assert world.journal()[-2:] == ["Decided", "Continued"]
    assert world.ran == []
