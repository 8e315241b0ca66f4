"""A store that is restored from a backup under a handle: no call runs that the journal denies, or its trail says so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.kit.concurrency import either_kind
from tests.kit.effort import examples
from tests.kit.failing import FailingStore
from tests.kit.postgres import needs_postgres
from tests.kit.restoring import Backups, each_restore
from tests.kit.tools import PAY, SEND
from tests.kit.world import ID, AnyHandle, World, approve_all
from toolloop import Answer, Approve, Deny, Inbox, LoopContext, Worker, Yielded
from toolloop.errors import BadLink, Conflict, StoreError, ToolLoopError
from toolloop.inbox import mark_restored
from toolloop.machine.record import journal_events as ev
from toolloop.stores import Head, Store, decode_event, read_journal
from toolloop.testing import reply

ONE = (reply(calls=[SEND]), reply("done"))
LOST = ["restored", "uncertain"]


@contextmanager
def at_approval(kind: str, way: str, folder: Path) -> Iterator[tuple[World, AnyHandle, Backups]]:
    """A handle whose call waits for approval, and its store."""
    backups = Backups(way, folder)
    world = World(kind, backups.store, script=ONE)
    handle = world.open()
    handle.next_turn()
    yield world, handle, backups
    backups.close()


def decide(store: Store, decision: Any) -> None:
    inbox = Inbox(store)
    with suppress(ToolLoopError):
        inbox.pending()  # a file that was replaced is noticed once
    inbox.decide(ID, dict.fromkeys(inbox.pending(), decision))


def judge(world: World, store: Store) -> None:
    """Each journal is readable, and no call ran that it denies, unless the trail shows it as uncertain."""
    with suppress(ToolLoopError):
        store.list()  # likewise
    state = read_journal(store.load(ID).entries)
    trail = Inbox(store).trail(ID)
    started = {name.rpartition("/")[2] for name in state.root.started}
    unknown = {entry.path[-1] for entry in trail if entry.kind == "uncertain"}
    assert {*world.ran} <= started | unknown
    Inbox(store).show(ID)


@either_kind
@each_restore
def test_a_handle_that_knows_another_branch_runs_nothing(kind: str, way: str, tmp_path: Path) -> None:
    """Backup; approve; restore; another process denies, so that the number of the revision is the same."""
    with at_approval(kind, way, tmp_path) as (world, handle, backups):
        restore = backups.back_up()
        handle.decide(t2=Approve(by="ana"))
        restore()
        decide(backups.other, Deny("not today", by="bo"))
        for _ in range(3):
            with pytest.raises(ToolLoopError) as caught:
                handle.say(lambda: handle.turn().continue_loop())
        assert isinstance(caught.value, Conflict)
        assert "was restored from a backup" in str(caught.value)
        assert world.ran == []
        judge(world, backups.store)
        assert world.journal()[-2:] == ["Decided", "Continued"]
        again = world.open()
        assert again.text() == "done"
        assert world.ran == []


@either_kind
@each_restore
def test_a_call_whose_start_is_lost_is_uncertain(kind: str, way: str, tmp_path: Path) -> None:
    """The handle that ran it records that, before it refuses every call. Then the call waits for a person."""
    with at_approval(kind, way, tmp_path) as (world, handle, backups):
        restore = backups.back_up()
        world.on["t2"] = restore
        handle.decide(t2=Approve(by="ana"))
        for _ in range(3):
            with pytest.raises(ToolLoopError) as caught:
                handle.run()
        assert isinstance(caught.value, Conflict)
        assert world.ran == ["t2"]
        assert world.journal()[-1] == "Restored"
        (waiting,) = Inbox(backups.other).pending()
        assert (waiting.why, waiting.takes) == ("uncertain", ("rerun", "answer", "deny"))
        last = Inbox(backups.other).trail(ID)[-1]
        assert (last.kind, last.path, last.name) == ("uncertain", ("t2",), "send")
        judge(world, backups.other)
        decide(backups.other, Deny("it may have been sent", by="bo"))
        del world.on["t2"]
        assert world.open().text() == "done"
        assert world.ran == ["t2"]


@either_kind
@each_restore
def test_a_call_that_ran_and_was_denied_meanwhile_is_uncertain(kind: str, way: str, tmp_path: Path) -> None:
    """As long as its round is open."""
    with at_approval(kind, way, tmp_path) as (world, handle, backups):
        restore = backups.back_up()

        def restore_and_deny() -> None:
            restore()
            with suppress(ToolLoopError):
                decide(backups.other, Deny("not today", by="bo"))

        world.on["t2"] = restore_and_deny
        handle.decide(t2=Approve(by="ana"))
        for _ in range(2):
            with pytest.raises(ToolLoopError):
                handle.run()
        told = [entry.kind for entry in Inbox(backups.other).trail(ID)]
        # If the handle noticed the restore first, the denial was refused, or is one of the uncertain call.
        assert told in (["deny", *LOST], [*LOST, "deny"], LOST)
        waiting = [call.why for call in Inbox(backups.other).pending()]
        assert waiting == ([] if told[-1] == "deny" else ["uncertain"])
        judge(world, backups.other)


@define
class Interrupted:
    """A store in which something happens before the call of this number.

    Attributes:
        at: the number; the calls are counted from 1.
        act: what happens.

    """

    inner: Store
    at: int
    act: Callable[[], object]
    faulty: FailingStore = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.faulty = FailingStore(self.inner, self._look)

    def _look(self, number: int) -> None:
        if number == self.at:
            self.act()


DENY, APPROVE = Deny("not today", by="bo"), Approve(by="cy")


@pytest.mark.parametrize(
    ("way", "answer"),
    [
        ("memory", DENY),
        ("memory", APPROVE),
        ("in place", DENY),
        ("replaced", APPROVE),
        pytest.param("postgres", DENY, marks=needs_postgres),
        pytest.param("replaced", DENY, marks=pytest.mark.deep),
        pytest.param("in place", APPROVE, marks=pytest.mark.deep),
        pytest.param("postgres", APPROVE, marks=[needs_postgres, pytest.mark.deep]),
    ],
    ids=lambda value: getattr(value, "kind", value),
)
def test_a_restore_between_any_two_calls_of_the_store(way: str, answer: Any, tmp_path: Path) -> None:
    """Of a handle that decides and drives: another process goes on from the backup; then both come to an end."""
    number, is_last = 0, False
    while not is_last:
        number += 1
        backups = Backups(way, tmp_path)
        first = World("sync", backups.store, script=ONE)
        first.open().next_turn()
        restore = backups.back_up()

        def go_on(restore: Any = restore, backups: Backups = backups) -> None:
            restore()
            decide(backups.other, answer)

        store = Interrupted(backups.store, number, go_on).faulty
        world = World("sync", store, script=ONE)
        handle = _run_to_the_end(world)
        is_last = len(store.asked) < number
        store.fails = lambda _: None
        for _ in range(2):  # it uses the store once more, and a file that was replaced is noticed once
            with suppress(ToolLoopError):
                handle.flush()
        judge(world, backups.other)
        other = World("sync", backups.other, script=ONE, ran=world.ran)
        for _ in range(3):
            with suppress(ToolLoopError):
                other.open().run(approve_all)
        judge(world, backups.other)
        assert read_journal(backups.other.load(ID).entries).root.iterations == 2
        backups.close()
    assert number > 6


def _run_to_the_end(world: World) -> AnyHandle:
    while True:
        with suppress(ToolLoopError):
            handle = world.open()
            break
    with suppress(ToolLoopError):
        handle.run(approve_all)
    return handle


# --- random lives -----------------------------------------------------------------------------------------------------


class Lives(RuleBasedStateMachine):
    """One loop that handles, workers and people use, with backups and restores at any moment.

    A handle stays open, and so can report what it has started. A worker forgets its loop when it has driven it: a call
    that it started is lost with the journal, and only `mark_restored` helps.
    """

    folder: Path

    def __init__(self) -> None:
        super().__init__()
        self.excused: Counter[str] = Counter()
        self.by_workers: Counter[str] = Counter()

    @initialize(way=st.sampled_from(["memory", "in place", "replaced"]))
    def begin(self, way: str) -> None:
        self.backups = Backups(way, self.folder)
        self.world = World("sync", self.backups.store, script=(reply(calls=[PAY, SEND]), reply("done")))
        self.handles = [self.world.open()]
        self.handles[0].next_turn()
        self.restores = [self.backups.back_up()]

    @rule()
    def back_up(self) -> None:
        self.restores.append(self.backups.back_up())

    @rule(which=st.integers(0, 9), is_reported=st.booleans())
    def restore(self, which: int, is_reported: bool) -> None:
        self.excused += self.by_workers
        self.restores[which % len(self.restores)]()
        if is_reported:
            self._settle()
            mark_restored(self.backups.other, by="ana")
            with suppress(ToolLoopError):
                assert not Inbox(self.backups.other).pending() or self._status() in ("needs_decision", "failed")

    @rule()
    def open(self) -> None:
        with suppress(ToolLoopError):
            self.handles.append(self.world.open())

    @rule(which=st.integers(0, 9), decision=st.sampled_from(["approve", "deny", None]))
    def drive(self, which: int, decision: str | None) -> None:
        handle = self.handles[which % len(self.handles)]
        with suppress(ToolLoopError):
            handle.run(None if decision is None else approve_all if decision == "approve" else _deny_all)

    @rule(decision=st.sampled_from([Approve(by="cy"), Deny("no", by="bo"), Answer("mine", by="cy")]))
    def decide(self, decision: Any) -> None:
        with suppress(ToolLoopError):
            decide(self.backups.other, decision)

    @rule()
    def work(self) -> None:
        before = Counter(self.world.ran)
        world, store = self.world, self.backups.other
        with suppress(ToolLoopError):
            Worker(store, world.provider(), world.tools, context=LoopContext(state=world)).run_once()
        self.by_workers += Counter(world.ran) - before

    def _status(self) -> str:
        return self.backups.other.head(ID).status

    def _settle(self) -> None:
        """A file that was replaced is noticed once by each store."""
        for store in (self.backups.store, self.backups.other):
            with suppress(StoreError):
                store.list()

    @invariant()
    def the_journal_is_readable(self) -> None:
        if hasattr(self, "backups"):
            self._settle()
            Inbox(self.backups.other).show(ID)

    def teardown(self) -> None:
        if not hasattr(self, "backups"):
            return
        for handle in self.handles * 2:
            with suppress(ToolLoopError):
                handle.flush()
        self._settle()
        entries = self.backups.other.load(ID).entries
        known = Counter(event.call_id for event in map(decode_event, entries) if isinstance(event, ev.Started))
        known += Counter(each.path[-1] for each in Inbox(self.backups.other).trail(ID) if each.kind == "uncertain")
        assert Counter(self.world.ran) <= known + self.excused
        self.backups.close()


def _deny_all(turn: Yielded) -> None:
    for each in turn.pending:
        turn.deny(each, "no", by="bo")


def test_no_call_runs_that_the_journal_denies_in_any_life(tmp_path: Path) -> None:
    """Unless its trail shows it as uncertain; and the journal is readable at every moment."""
    Lives.folder = tmp_path
    run_state_machine_as_test(Lives, settings=examples(12, stateful_step_count=15, deadline=None))


# --- a worker, an inbox, a link, and the report -----------------------------------------------------------------------


@each_restore
def test_a_decision_reads_the_loop_again(way: str, tmp_path: Path) -> None:
    """If the store is restored between what an inbox reads and what it stores."""
    with at_approval("sync", way, tmp_path) as (world, handle, backups):
        restore = backups.back_up()
        handle.close()
        Inbox(backups.other).say(ID, "hurry", by="ana", key="1")
        asked: list[int] = []

        def look(number: int) -> None:
            asked.append(number)
            if number == 2:
                restore()
                with suppress(StoreError):
                    backups.other.list()
                Inbox(backups.other).say(ID, "slowly", by="bo", key="2")

        with suppress(StoreError):
            Inbox(FailingStore(backups.store, look)).decide(ID, {"t2": Deny("no", by="ana")})
        with suppress(StoreError):
            Inbox(backups.store).decide(ID, {"t2": Deny("no", by="ana")})
        trail = [(entry.kind, entry.by) for entry in Inbox(backups.other).trail(ID)]
        assert trail == [("say", "bo"), ("deny", "ana")]
        assert len(asked) > 2 or way == "replaced"
        assert world.open().text() == "done"


@each_restore
def test_a_link_of_another_branch_is_dead(way: str, tmp_path: Path) -> None:
    """Though its call waits in both with the same input; one from before the backup is alive."""
    with at_approval("sync", way, tmp_path) as (world, handle, backups):
        early = Inbox(backups.store).link(ID, "t2")
        restore = backups.back_up()
        Inbox(backups.store).say(ID, "hurry", by="ana")
        late = Inbox(backups.store).link(ID, "t2")
        restore()
        Inbox(backups.other).say(ID, "slowly", by="bo")
        with suppress(StoreError):
            backups.store.list()
        inbox = Inbox(backups.store)
        for use in (inbox.linked, lambda token: inbox.redeem(token, Approve())):
            with pytest.raises(BadLink, match="the store was restored from a backup after it was made"):
                use(late)
        inbox.redeem(early, Deny("no", by="cy"))
        handle.close()
        assert world.open().text() == "done"


@each_restore
def test_a_reported_restore_leaves_everything_to_people(way: str, tmp_path: Path) -> None:
    """Open calls wait again, though they were approved; links are dead, and no worker drives."""
    with at_approval("sync", way, tmp_path) as (world, handle, backups):
        store = backups.store
        link = Inbox(store).link(ID, "t2")
        handle.decide(t2=Approve(by="ana"))
        handle.say(handle.turn().continue_loop)
        assert world.status() == "runnable"
        assert mark_restored(store, by="ana", via="command") == (ID,)
        assert world.status() == "needs_decision"
        assert Worker(store, world.provider(), world.tools).run_once() == 0
        assert [each.why for each in handle.run().pending] == ["approval"]
        with pytest.raises(BadLink, match="was restored"):
            Inbox(store).redeem(link, Approve(by="ana"))
        assert [(each.kind, each.by) for each in Inbox(store).trail(ID)][-1] == ("restored", "ana")
        assert world.ran == []
        Inbox(store).redeem(Inbox(store).link(ID, "t2"), Approve(by="cy"))
        assert world.open().text() == "done"
        assert world.ran == ["t2"]
        assert mark_restored(store) == ()


def test_a_loop_without_an_open_call_waits_for_a_command(tmp_path: Path) -> None:
    """And one whose request failed is not retried by itself."""
    backups = Backups("memory", tmp_path)
    store = backups.store
    world = World("sync", store, script=ONE)
    world.open().close()
    world.open("failed").close()
    store.append("failed", [], expected_rev=None, head=Head("failed", retryable=True, retry_at=1.0))
    mark_restored(store)
    assert {row.loop_id: (row.status, row.due_at) for row in store.list()} == {
        ID: ("needs_command", None),
        "failed": ("needs_command", None),
    }
    Inbox(store).say(ID, "go on", by="ana")
    assert store.head(ID).status == "runnable"
