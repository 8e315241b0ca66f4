"""States that a process remembers of stored loops. A loop is never shown, opened or decided from memory alone."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from attrs import define

from tests.kit.concurrency import either_kind
from tests.kit.restoring import Backups, each_restore
from tests.kit.tools import SEND
from tests.kit.world import ID, World, approve_all, store_at
from toolloop import Approve, Deny, Inbox, MemoryStore, SqliteStore
from toolloop._journal.store_access import Known, KnownStates, Weight
from toolloop.errors import LoopNotFound, ToolLoopError
from toolloop.machine import State
from toolloop.stores import Entry, Revision, StoredJournal
from toolloop.testing import call, reply

ONE = (reply(calls=[SEND]), reply("done"))


@either_kind
@each_restore
def test_another_branch_is_read_from_its_beginning(kind: str, way: str, tmp_path: Path) -> None:
    """The store is set back, and another process denies what was approved here: nothing that is known here counts."""
    backups = Backups(way, tmp_path)
    world = World(kind, backups.store, script=ONE)
    world.drive()
    Inbox(world.store).show(ID)
    restore = backups.back_up()
    Inbox(world.store).decide(ID, {"t2": Approve(by="ana")})
    Inbox(world.store).show(ID)
    restore()
    for store in (backups.store, backups.other):
        with suppress(ToolLoopError):
            store.list()  # a file that was replaced is noticed once
    Inbox(backups.other).decide(ID, {"t2": Deny("not today", by="bo")})
    world.drive()
    assert world.ran == []
    assert "not today" in str(Inbox(world.store).show(ID)["messages"])
    assert Inbox(world.store).show(ID) == Inbox(backups.other).show(ID)
    backups.close()


@pytest.mark.parametrize("where", ["memory", "sqlite"])
def test_a_loop_that_was_made_again_under_its_id_is_another_one(where: str, tmp_path: Path) -> None:
    """And one that was deleted is gone, also for who has just seen it."""
    world = World("sync", store_at(where, tmp_path), script=ONE)
    world.drive()
    inbox = Inbox(world.store)
    assert len(inbox.show(ID)["pending"]) == 1
    world.store.delete(ID)
    for look in (lambda: inbox.show(ID), lambda: world.open(params=None)):
        with pytest.raises(LoopNotFound):
            look()
    world.script = (reply("another"),)
    assert world.drive().unwrap().text == "another"
    assert inbox.show(ID)["pending"] == []
    assert inbox.show(ID)["text"] == "another"


@pytest.mark.parametrize("where", ["memory", "sqlite"])
def test_a_fork_shares_nothing_with_its_loop(where: str, tmp_path: Path) -> None:
    """Both go on from the same history, and each has its own."""
    world = World("sync", store_at(where, tmp_path), script=(*ONE, reply("and more")))
    world.drive()
    with world.open() as handle:
        handle.fork("other").close()
    inbox = Inbox(world.store)
    inbox.show("other")
    inbox.decide(ID, {"t2": Deny("never", by="bo")})
    world.drive()
    assert len(inbox.show("other")["pending"]) == 1
    with world.open("other") as handle:
        assert handle.run(approve_all).unwrap().text == "done"
    assert "never" not in str(inbox.show("other")["messages"])


def test_a_person_reads_only_loops_that_the_person_sees(tmp_path: Path) -> None:
    """Though the process knows the state."""
    world = World("sync", SqliteStore(tmp_path / "loops.db"), script=ONE)
    world.drive(metadata={"team": "a"})
    Inbox(world.store).show(ID)
    seen = [{"team": "a"}]
    mine = Inbox(world.store).as_("ana", sees=lambda _: seen)
    mine.show(ID)
    seen[0] = {"team": "b"}
    with pytest.raises(LoopNotFound):
        mine.show(ID)


@define(slots=False)
class Counted:
    """A store of another program, whose revisions are numbers only."""

    inner: Any
    read: int = 0

    def load(self, loop_id: str, *, after: int = 0, first_id: str | None = None) -> StoredJournal:
        journal = self.inner.load(loop_id, after=int(after), first_id=first_id)
        self.read += len(journal.entries)
        return StoredJournal(int(journal.rev), journal.entries)

    def append(self, loop_id: str, entries: Sequence[Entry], **guards: Any) -> int:
        return int(self.inner.append(loop_id, entries, **guards))

    def create(self, loop_id: str, entries: Sequence[Entry], **more: Any) -> int:
        return int(self.inner.create(loop_id, entries, **more))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def test_of_a_store_without_digests_nothing_is_remembered() -> None:
    """A number does not tell two branches apart."""
    world = World("sync", Counted(MemoryStore()), script=ONE)
    world.drive()
    before = world.store.read
    Inbox(world.store).show(ID)
    Inbox(world.store).show(ID)
    assert world.store.read - before == 2 * len(world.store.load(ID).entries)


def test_many_threads_read_on_from_one_state(tmp_path: Path) -> None:
    """Each gets the whole history, though all of them continue the same known one."""
    store = SqliteStore(tmp_path / "loops.db")
    rounds = [reply(calls=[call("look", {"path": "a.txt"}, id=f"t{number}")]) for number in range(6)]
    world = World("sync", store, script=(*rounds, reply("done")))
    with world.open() as handle, ThreadPoolExecutor(4) as pool:
        expected = 1
        while (turn := handle.next_turn()).text is None:
            gate = threading.Barrier(4)
            shown = pool.map(lambda _, gate=gate: (gate.wait(), Inbox(store).show(ID)["messages"])[1], range(4))
            expected += 2
            assert [len(each) for each in shown] == [expected] * 4
            turn.continue_loop()


def test_a_forked_child_knows_nothing(tmp_path: Path) -> None:
    """It reads the journal, and its parent goes on with what it knows."""
    world = World("sync", store_at("sqlite", tmp_path), script=ONE)
    world.drive()
    shown = Inbox(world.store).show(ID)
    child = os.fork()
    if not child:
        is_same = Inbox(world.store).show(ID) == shown
        os._exit(0 if is_same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert Inbox(world.store).show(ID) == shown


class Empty:
    """Something that states belong to."""


def make_known(state: State, loop_id: str, size: int = 1) -> Known:
    from attrs import evolve  # noqa: PLC0415 - one use

    root = state.root._replace(setup=evolve(state.root.setup, loop_id=loop_id))
    return Known(State({(): root}), Revision(1, "aa"), "first", Weight(size))


def test_the_number_and_the_size_of_what_is_remembered_are_bounded() -> None:
    """The oldest are forgotten first, and all of a store that is gone."""
    world = World("sync", MemoryStore(), script=ONE)
    world.drive()
    with world.open() as handle:
        state = handle.state
    store: Any = Empty()
    states: KnownStates[Known] = KnownStates()
    for number in range(300):
        states.keep(store, make_known(state, f"{number}"))
    assert states.find(store, "43") is None
    assert states.find(store, "44") is not None
    states.keep(store, make_known(state, "large", 63_999_990))
    assert [states.find(store, name) is not None for name in ("large", "299", "289", "288")] == [
        True,
        True,
        False,
        False,
    ]
    states.keep(store, make_known(state, "too large", 64_000_001))
    assert states.find(store, "too large") is None
    states.keep(store, make_known(state, "44"))
    assert states.find(Empty(), "44") is None  # type: ignore[arg-type]  # likewise
    number = id(store)
    del store
    assert not any(key[0] == number for key in states._known)
    states.keep(object(), make_known(state, "44"))  # type: ignore[arg-type]  # its end would not be noticed
    assert not states._known
