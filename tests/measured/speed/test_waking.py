"""A process that knows a loop reads what is new of it, and a list of loops reads their rows. Nothing is read again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kit.failing import FailingStore
from tests.kit.postgres import in_postgres_deep
from tests.kit.world import ID, World, each_store, store_at
from tests.measured.benchmarks.stored import begin, drive
from tests.measured.speed.work import Work, counting
from toolloop import Deny, Inbox, SqliteStore
from toolloop._journal.store_access import load_state
from toolloop.stores import read_journal
from toolloop.stores.checkpoints import MEANING, read_checkpoint
from toolloop.testing import call, reply

ROUNDS = 30
SCRIPT = (*(reply(calls=[call("look", {"path": "a.txt"}, id=f"t{number}")]) for number in range(ROUNDS)), reply("done"))


def driven(store: object) -> World:
    """A loop of some rounds, of which this process has no handle any more."""
    world = World("sync", store, script=SCRIPT, config={"max_iterations": ROUNDS + 1})
    assert world.drive().unwrap().text == "done"
    return world


def shown(world: World) -> Work:
    """What `Inbox.show` takes."""
    with counting() as work:
        loop = Inbox(world.store).show(ID)
    assert len(loop["messages"]) == 2 * ROUNDS + 2
    return work


@each_store
def test_to_show_a_loop_again_reads_no_event(where: str, tmp_path: Path) -> None:
    """By whatever inbox of the store, also that of a person."""
    world = driven(store_at(where, tmp_path))
    shown(world)
    assert (shown(world).events, shown(world).folded) == (0, 0)
    assert shown(world).decoded.total() < ROUNDS  # the conversation is decoded as a whole
    mine = Inbox(world.store).as_("ana", sees=lambda _: [{}])
    with counting() as work:
        mine.show(ID)
    assert work.events == 0


@each_store
def test_to_open_a_loop_again_reads_what_is_new(where: str, tmp_path: Path) -> None:
    """In the process that drove it, nothing; after two commands of an inbox, these."""
    world = driven(store_at(where, tmp_path))
    world.open().close()
    with counting() as work:
        world.open().close()
    assert (work.events, work.folded) == (0, 0)
    inbox = Inbox(world.store)
    inbox.say(ID, "And then?")
    with counting() as work, world.open() as handle:
        assert handle.messages[-1]["content"] == "And then?"
    assert (work.events, work.folded) == (1, 1)


@each_store
def test_to_decide_reads_what_is_new(where: str, tmp_path: Path) -> None:
    """Of a loop that is known to wait, nothing; and the first decision of a round is known to the second one."""
    calls = [call("send", {"to": "ana"}, id="a"), call("send", {"to": "bo"}, id="b")]
    store = store_at(where, tmp_path)
    world = World("sync", store, script=(*SCRIPT[:-1], reply(calls=calls)), config={"max_iterations": ROUNDS + 1})
    assert world.drive().pending
    inbox = Inbox(store)
    for decided in ("a", "b"):
        with counting() as work:
            inbox.decide(ID, {decided: Deny("no")})
        assert work.events == 0


def check_cold_open(inner: Any, asked: list[str], most: int) -> None:
    """A process that knows nothing of the loop reads one checkpoint and what it outweighs, in one statement each."""
    assert 3 <= asked.count("keep_checkpoint") <= most
    body = inner.checkpoint(ID, meaning=MEANING)
    kept, entries = read_checkpoint(ID, body), inner.load(ID).entries
    cold = FailingStore(inner, is_whole=True)
    with counting() as work:
        state = load_state(cold, ID).state
    assert state == read_journal(entries)
    assert (cold.asked, work.events) == (["checkpoint", "load"], len(entries) - kept.rev)
    weights = [len(entry.body) + len(entry.text or "") for entry in entries]
    assert sum(weights[kept.rev :]) <= max(100_000, len(body) / 8) + 2 * sum(weights) / state.root.iterations


@pytest.mark.parametrize("where", ["sqlite", in_postgres_deep])
def test_to_open_a_loop_cold_reads_one_checkpoint_and_what_it_outweighs(where: str, tmp_path: Path) -> None:
    """At its end and just before a checkpoint is due."""
    inner, rounds = store_at(where, tmp_path), 120
    store = FailingStore(inner, is_whole=True)
    script = [reply("x" * 4000, calls=[call("look", {"path": "a.txt"}, id=f"t{at}")]) for at in range(rounds)]
    World("sync", store, script=(*script, reply("done")), config={"max_iterations": rounds + 1}).drive()
    check_cold_open(inner, store.asked, 15)


@pytest.mark.deep
def test_to_open_5000_rounds_cold_reads_one_checkpoint_and_what_it_outweighs(tmp_path: Path) -> None:
    """As in the shorter test."""
    with SqliteStore(tmp_path / "loops.db") as inner:
        store = FailingStore(inner, is_whole=True)
        drive(begin(store, 5000), 5000)
        check_cold_open(inner, store.asked, 60)


def test_a_list_of_500_waiting_calls_is_one_query_and_folds_nothing(tmp_path: Path) -> None:
    """It reads the rows of the loops; no journal."""
    with SqliteStore(tmp_path / "loops.db") as store:
        World("sync", store, script=(reply(calls=[call("send", {"to": "ana"}, id="a")]),)).drive()
        entries, head = store.load(ID).entries, store.head(ID).head
        for number in range(499):
            store.create(f"loop-{number}", entries, head=head)
        said: list[str] = []
        store._file.read(lambda db: db.set_trace_callback(said.append))
        with counting() as work:
            page = Inbox(store).pending(limit=500)
        store._file.read(lambda db: db.set_trace_callback(None))
        assert len(page) == 500
        assert (work.events, work.folded) == (0, 0)
        assert sum(each.startswith("SELECT") for each in said) == 1
        assert not any("events" in each for each in said)
