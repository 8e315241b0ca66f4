"""Sleep, wake, copy, kill: how a loop under test comes to another handle."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from tests.properties.bench import EVERY_TOOL
from tests.properties.checks import Checked
from tests.properties.settings import copy_loop
from toolloop import ToolLoopHandle
from toolloop.core import events as ev
from toolloop.core.states import Deciding, Judging, Requesting, Running, State
from toolloop.core.values import Status
from toolloop.errors import Conflict, Drift
from toolloop.stores.codec import load
from toolloop.stores.protocol import Store


class Sleeping(Checked):
    """A loop that falls asleep and wakes up."""

    #: The snapshot, or the store, that a killed process left; the state after the kill; and the call that ran.
    asleep: tuple[Any, State, str | None] | None = None
    left: tuple[Any, str | None]

    def opened(self, store: Store | None = None, **more: Any) -> ToolLoopHandle:
        """A handle of the loop in the store."""
        assert self.store is not None
        more = {
            "config": self.config,
            "tools": [EVERY_TOOL[facts.name] for facts in self.truth.ledger.setup.tools],
            "context": self.context,
            "clock": self.clock,
            **more,
        }
        return ToolLoopHandle.open(store or self.store, self.handle.loop_id, self.client, **more)

    def restore(self) -> None:
        """Go on with a copy: in another store, if the loop is in one."""
        if self.store is not None:
            self.store = self.new_store()
        self.take(self.restored(self.client, store=self.store))

    def reopen(self, *, closed: bool) -> None:
        """Go on with a handle that was opened anew, whether the old one was closed or just forgotten."""
        if closed:
            self.handle.close()
        truth = self.truth
        opened = self.opened()
        assert not _is_under_way(truth)
        assert opened.state == truth
        self._sit(opened)

    def open_beside(self) -> None:
        """Have a second handle of the same loop."""
        self.beside = self.opened()

    def change_seats(self) -> None:
        """Go on with the other handle, which may have missed a lot."""
        assert self.beside is not None
        handle, self.beside = self.beside, self.handle
        self._sit(handle)

    def _sit(self, handle: ToolLoopHandle) -> None:
        self.handle = self.driver = handle

    def fork(self) -> None:
        """Go on with a copy; in it, every open call asks again."""
        before, copy = self.handle.state, self.handle.fork()
        assert self.handle.state is before
        assert copy.loop_id != self.handle.loop_id
        self.taken[type(before), ev.Forked, type(copy.state)] += 1
        self.bench.approved.clear()
        self.bench.grants.clear()
        self.take(copy)

    def copy_in_flight(self) -> None:
        """A copy of a loop that waits for a reply is one that has not asked."""
        handle = self.driver
        before = handle.state
        for event, copy in ((ev.Forked, handle.fork()), (ev.Woken, self.restored(self.client))):
            self.taken[type(before), event, type(copy.state)] += 1
            assert copy.iterations == handle.iterations
        assert handle.state is before

    def wake_with(self, parallel: int) -> None:
        """Wake up under other limits."""
        before = self.handle.state
        self.setting = evolve(self.setting, parallel=parallel)
        self.config = evolve(self.config, max_parallel_tools=parallel, max_iterations=5)
        if self.is_stored:
            self._sit(self.opened())
            return
        self.take(self.restored(self.client, config=self.config, store=self.store))
        self.taken[type(before), ev.Woken, type(self.handle.state)] += 1

    def drift(self, names: list[str]) -> None:
        """Wake up with other tools: that is said, and taken if one says so."""
        tools = [EVERY_TOOL[name] for name in names]
        now = {facts.name for facts in self.truth.ledger.setup.tools}
        wake = self.opened if self.is_stored else self._restored_here
        if now != set(names):
            before = self.truth
            with pytest.raises(Drift) as told:
                wake(tools=tools)
            assert all(any(repr(name) in change for change in told.value.changes) for name in now ^ set(names))
            assert self.truth == before
        handle = wake(tools=tools, on_drift="accept")
        if self.is_stored:
            self._sit(handle)
            return
        if now != set(names):
            self.taken[type(self.handle.state), ev.Woken, type(handle.state)] += 1
        self.take(handle)

    def _restored_here(self, **more: Any) -> ToolLoopHandle:
        return self.restored(self.client, store=self.store, **more)

    # --- killed -------------------------------------------------------------------------------------------------

    def leave(self, call_id: str | None) -> None:
        """What another process would find if this one were killed now."""
        found: Any = self.driver.snapshot()
        if self.is_stored and self.store is not None:
            found = self.new_store()
            copy_loop(self.store, self.driver.loop_id, found)
        self.left = (found, call_id)

    @property
    def was_killed(self) -> bool:
        """Whether the last thing that happened is that the process was killed in the middle of something."""
        return self.asleep is not None and self.asleep[1] is self.handle.state and not self.is_behind

    def wake_up_after_a_kill(self) -> None:
        """What was left wakes up in another process: a pure call runs again, another one that ran is uncertain."""
        assert self.asleep is not None
        (found, _, call_id), self.asleep = self.asleep, None
        self.lost(call_id)
        if isinstance(found, dict):
            before = load(found)
            self.take(self.restored(self.client, found, store=None if self.store is None else self.new_store()))
            if self.handle._stored is not None:
                self.store = self.handle._stored.store
            self.taken[type(before), ev.Woken, type(self.handle.state)] += 1
        else:
            rev = found.load(self.handle.loop_id).rev
            self.store = found
            self.take(self.opened(), counted=rev)
        assert not _is_under_way(self.handle.state)

    def lost(self, call_id: str | None) -> None:
        """Nobody will see that run of a call end, so it may run again if it is pure."""
        if call_id is not None:
            self.bench.reruns[call_id] += call_id in self.bench.pure_calls

    # --- two drivers --------------------------------------------------------------------------------------------

    def knock(self) -> None:
        """While one handle drives, another may look, but not drive."""
        if not self.is_stored:
            return
        other = self.opened()
        assert other.state == self.driver.state
        with pytest.raises(Conflict):
            other.next_turn()


def _is_under_way(state: State) -> bool:
    """Whether somebody must be at work on a loop that stands so."""
    if isinstance(state, Judging | Deciding | Running):
        return bool(state.round.having(Status.RUNNING))
    return isinstance(state, Requesting)
