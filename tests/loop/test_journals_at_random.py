"""Drivers and callers of one stored loop at random: they take over, are refused, fail at the store, and are cut off."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any

from attrs import define, field
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.loop.journals import (
    ALLOWED,
    Driver,
    FailingStore,
    assert_sound,
    decide,
    driver_of,
    go_on,
    new_journal,
    stop,
    stored_state,
)
from toolloop.errors import StoreError
from toolloop.machine import events as ev
from toolloop.machine.queries import waiting
from toolloop.machine.values import Why
from toolloop.stores import MemoryStore

PEERS = 3


@define(eq=False)
class Crowd:
    """Several drivers of one loop, each in a process of its own as far as the journal can tell.

    Attributes:
        seen: by peer, the turn that it saw last, and the state in which it saw it.

    """

    store: FailingStore
    peers: list[Driver] = field(factory=list)
    begun: list[bool] = field(factory=lambda: [False] * PEERS)
    asked: int = 0
    plan: list[Any] = field(factory=list)

    def fails(self, _: int) -> Any:
        return self.plan.pop() if self.plan else None

    def do(self, what: str, who: int) -> None:
        peer = self.peers[who]
        journal = peer.journal
        before, turn = journal.state, journal.turn
        with suppress(*ALLOWED):
            getattr(self, what)(peer, who)
        if journal.turn == turn:
            assert journal.state.root.phase == before.root.phase
        if not journal.is_behind and journal.rev:
            assert journal.state == self.state_at(journal.rev)

    def state_at(self, rev: int) -> Any:
        from toolloop.stores.codec import read_journal  # noqa: PLC0415 - kept beside its one use

        return read_journal(self.store.inner.load("loop").entries[:rev])

    # --- what they do: each step may be the last one for long ---

    def begin(self, peer: Driver, who: int) -> None:
        if not self.begun[who]:
            peer.lease.acquire(who)
            self.begun[who] = True
            peer.wake()

    def take_over(self, peer: Driver, who: int) -> None:
        if not self.begun[who]:
            self.peers[who] = driver_of(self.store, take_over=True, defers=bool(who % 2))
            self.peers[who].ran, self.peers[who].uncertain = peer.ran, peer.uncertain
            self.begin(self.peers[who], who)

    def poll(self, peer: Driver, who: int) -> None:
        if self.begun[who]:
            if peer.journal.lost is not None:
                raise peer.journal.lost
            peer.poll()

    def commit(self, peer: Driver, who: int) -> None:
        peer.journal.commit()
        peer.journal.tell()

    def launch(self, peer: Driver, who: int) -> None:
        if self.begun[who]:
            for key in [key for key, each in peer.operations.items() if not each.launched][:1]:
                peer.launch(key)

    def end(self, peer: Driver, who: int) -> None:
        if self.begun[who]:
            self.begun[who] = False
            peer.leave()
            peer.lease.release(who)

    def drive(self, peer: Driver, who: int) -> None:
        if not self.begun[who]:
            peer.turn()

    def approve(self, peer: Driver, who: int) -> None:
        for _, call in waiting(peer.journal.state):
            kind = "rerun" if call.why is Why.UNCERTAIN else "approve"
            peer.journal.say(decide((call.id, kind)), firm=False)

    def deny(self, peer: Driver, who: int) -> None:
        for _, call in waiting(peer.journal.state):
            peer.journal.say(decide((call.id, "deny")), firm=False)

    def go_on(self, peer: Driver, who: int) -> None:
        peer.journal.say(go_on)

    def go_on_in_passing(self, peer: Driver, who: int) -> None:
        peer.journal.record(go_on(peer.journal.state), "step")

    def stop(self, peer: Driver, who: int) -> None:
        peer.journal.say(stop, firm=False)

    def tick(self, peer: Driver, who: int) -> None:
        peer.journal.say(lambda _: ev.Ticked(at=1.0), firm=False)

    def change(self, peer: Driver, who: int) -> None:
        peer.journal.say(lambda _: ev.Changed(params="{}"))

    def refresh(self, peer: Driver, who: int) -> None:
        peer.journal.refresh()

    def break_store(self, peer: Driver, who: int) -> None:
        self.plan = [["before", "after", None][(len(self.store.asked) + at) % 3] for at in range(who + 1)]


_DRIVING = ("begin", "poll", "commit", "launch", "poll", "commit", "launch", "end", "drive")
_ACTIONS = (
    *_DRIVING,
    "take_over",
    "approve",
    "deny",
    "go_on",
    "go_on_in_passing",
    "stop",
    "tick",
    "change",
    "refresh",
    "break_store",
)


@settings(max_examples=100)
@given(
    steps=st.lists(st.tuples(st.sampled_from(_ACTIONS), st.sampled_from([0, 0, 0, 1, 2])), max_size=80),
    defers=st.booleans(),
)
def test_drivers_and_callers_at_random_break_no_promise(steps: list[tuple[str, int]], defers: bool) -> None:
    """Whatever they do, and wherever the store fails: no run of a call is performed twice, and all of them agree."""
    store = FailingStore(MemoryStore())
    crowd = Crowd(store)
    first = Driver(new_journal(store, defers=defers))
    first.journal.commit()
    ran: Counter[tuple[int, str, int]] = first.ran
    crowd.peers = [first, *(driver_of(store, defers=bool(who % 2)) for who in range(1, PEERS))]
    for peer in crowd.peers:
        peer.ran = ran
    store.fails = crowd.fails
    for what, who in steps:
        crowd.do(what, who)
        assert_sound(store.inner)
        assert max(ran.values(), default=1) == 1, (ran, steps)
    crowd.plan = []
    for who, peer in enumerate(crowd.peers):
        with suppress(*ALLOWED):
            crowd.end(peer, who)
        while peer.journal.is_behind:
            with suppress(*ALLOWED):
                peer.journal.commit()
                peer.journal.tell()
    last = driver_of(store.inner)
    last.ran = ran
    last.to_the_end(*ALLOWED)
    assert_sound(store.inner)
    assert max(ran.values(), default=1) == 1
    for peer in crowd.peers:
        with suppress(StoreError):
            peer.journal.refresh()
        assert peer.journal.state == stored_state(store.inner)
        peer.lease.give_back_if_free()
    assert store.inner.lease("loop") is None
