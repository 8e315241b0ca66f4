"""Handles of all kinds on one loop, that say and do what they like in any order, over a store that fails now and then.

Whatever they do: the journal keeps the promises, no call that may run once runs twice, and a handle gets to the end.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.kit.effort import examples
from tests.kit.failing import FailingStore, Moment
from tests.kit.world import AnyHandle, World
from toolloop import Answer, Approve, Deny, Grant, InjectMessages, Rerun, Stop
from toolloop.errors import CallerError, ModelError, OutsideError
from toolloop.machine import Failed, Finished
from toolloop.machine.values.calls import Decision
from toolloop.stores.memory import MemoryStore
from toolloop.testing import call, reply
from toolloop.testing.promises import check_promises

KINDS = ("sync", "asyncio", "trio")
START = 1_800_000_000.0
SCRIPT = (
    reply(calls=[call("pay", {"amount": 1}, id="a1"), call("look", {"path": "a"}, id="a2")]),
    reply(calls=[call("send", {"to": "ana"}, id="b1"), call("pay", {"amount": 2}, id="b2")]),
    reply(calls=[call("send", {"to": "ana"}, id="c1"), call("send", {"to": "ben"}, id="c2")]),
    reply("done"),
)
MORE = [{"role": "user", "content": "and?"}]
DECISIONS: dict[str, Decision] = {
    "approve": Approve(by="ana"),
    "remember": Approve(by="ana", remember=Grant(uses=1)),
    "deny": Deny("no"),
    "answer": Answer("done by hand"),
    "rerun": Rerun(),
}
OFTEN = ("go on", "turn", "continue", "take over", *DECISIONS) * 3
RARELY = ("edit", "open", "params", "extend", "inject", "stop", "retry", "follow up", "revoke", "tick")
PLACES = ("request", "a1", "a2", "b1", "b2", "c1", "c2")
who = st.integers(0, 2)
actions = st.sampled_from(OFTEN + RARELY)


class Crowd(RuleBasedStateMachine):
    """Three handles on a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.now = START
        self.store = FailingStore(MemoryStore())
        self.down: list[Moment] = []
        self.fails_next = False
        self.worlds: list[World] = []
        self.peers: list[AnyHandle] = []
        self.coming: dict[str, tuple[int, str]] = {}
        self.reruns = 0

    @initialize(
        kinds=st.tuples(*[st.sampled_from(KINDS)] * 3),
        execution=st.sampled_from(["barrier", "ready"]),
        ahead=st.integers(0, 12),
    )
    def begin(self, kinds: tuple[str, str, str], execution: str, ahead: int) -> None:
        ran: list[str] = []
        requests: list[Any] = []
        for kind in kinds:
            world = World(kind, self.store, script=SCRIPT, ran=ran, requests=requests, clock=lambda: self.now)
            world.config = {"execution": execution, "decision_timeout": 100.0, "max_iterations": 50}
            world.on |= {place: partial(self.happen, place) for place in PLACES}
            self.worlds.append(world)
            self.peers.append(world.open())
        for _ in range(ahead):
            self.act(0, "go on")
        self.store.fails = lambda _: self.down.pop() if self.down else None

    # --- what happens in the middle of a request, or of a call ---

    @rule(place=st.sampled_from(PLACES), at=who, what=actions)
    def meanwhile(self, place: str, at: int, what: str) -> None:
        self.coming[place] = (at, what)

    @rule()
    def break_the_model(self) -> None:
        self.fails_next = True

    def happen(self, place: str) -> None:
        if place in self.coming:
            self.act(*self.coming.pop(place))
        if place == "request" and self.fails_next:
            self.fails_next = False
            raise ModelError("overloaded", retryable=True)

    # --- what a handle is asked for ---

    @rule(at=who, what=actions)
    def act(self, at: int, what: str) -> None:
        """Whatever is refused or fails, the others go on."""
        with suppress(CallerError, OutsideError):
            self.peers[at].say(partial(self.word, at, what))

    def word(self, at: int, what: str) -> None:
        peer = self.peers[at]
        handle, turn = peer.handle, peer.handle.pending_turn
        if what in DECISIONS and (waiting := handle.pending):
            self.reruns += what == "rerun"
            handle.decide({waiting[-1]: DECISIONS[what]})
        match what:
            case "go on" if turn is not None and turn.pending:
                _decide_all(turn)
            case "go on" | "continue" if turn is not None:
                turn.continue_loop()
            case "edit" if turn is not None:
                handle.messages_mut().insert(0, {"role": "user", "content": "before all"})
                turn.continue_loop()
            case "go on" | "turn":
                peer.next_turn()
            case "open" | "take over":
                self.peers[at] = self.worlds[at].open(take_over=what == "take over", on_drift="accept")
            case "params":
                handle.update_params(max_tokens=100 + len(self.worlds[0].requests))
            case "extend":
                handle.extend(max_iterations=60)
            case "inject":
                handle.resume(InjectMessages(MORE))
            case "stop":
                handle.resume(Stop())
            case "retry":
                handle.retry()
            case "follow up":
                handle.follow_up(MORE)
            case "revoke" if handle.grants:
                handle.grants.revoke(handle.grants[0])
            case "tick":
                self.now += 60
                handle.tick(self.now)

    @rule(how=st.lists(st.sampled_from(["before", "after"]), min_size=1, max_size=3))
    def break_the_store(self, how: list[Moment]) -> None:
        self.down = how

    @invariant()
    def the_journal_is_sound(self) -> None:
        if not self.worlds:
            return
        journal = World("sync", self.store.inner)
        assert check_promises(self.store.inner.load("loop").entries).broken == ()
        journal.assert_head()
        ran = self.worlds[0].ran
        if not self.reruns:
            for call_id in ("a1", "b1", "b2", "c1", "c2"):
                assert ran.count(call_id) <= 1 + journal.state().root.iterations // len(SCRIPT)

    def teardown(self) -> None:
        if not self.worlds:
            return
        self.down, self.fails_next, self.coming = [], False, {}
        for peer in self.peers:
            with suppress(CallerError, OutsideError):
                peer.flush()  # what an async handle still kept
        peer = self.worlds[0].open(on_drift="accept")
        for _ in range(30):
            if isinstance(peer.handle.state.root.phase, Finished):
                break
            with suppress(CallerError, OutsideError):
                if isinstance(peer.handle.state.root.phase, Failed):
                    peer.say(peer.handle.retry)
                peer.run(_decide_all)
        assert isinstance(peer.handle.state.root.phase, Finished)
        assert World("sync", self.store.inner).state() == peer.handle.state
        self.the_journal_is_sound()


def _decide_all(turn: Any) -> None:
    for each in turn.pending:
        if each.why == "uncertain":
            turn.deny(each, "the result is unknown")
        else:
            turn.approve(each)


Crowd.TestCase.settings = examples(6, stateful_step_count=40)
test_whatever_several_handles_do_the_promises_hold = Crowd.TestCase
