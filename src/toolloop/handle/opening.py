"""A stored loop: loaded or created, driven by one at a time, woken where nobody drives it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Self

from attrs import evolve, fields

from toolloop.core import events as ev
from toolloop.core.errors import Conflict, Drift, LoopNotFound, ToolLoopError, UnreadableSnapshot
from toolloop.core.machine import under_way
from toolloop.core.setup import Setup
from toolloop.handle.config import DEFAULT_CONFIG, LoopConfig, LoopContext
from toolloop.handle.leasing import abandon, claim, end, hold_on, new_owner
from toolloop.handle.recording import LOG
from toolloop.handle.staged import safely
from toolloop.handle.storing import StoringRecorder
from toolloop.handle.tooling import facts_in_order
from toolloop.handle.waking import Waking
from toolloop.stores.protocol import Store
from toolloop.tools import ToolContext, ToolRegistry

_AT_ONCE = nullcontext()


class Opening(Waking):
    """What both handles do with a store. All of it blocks while the store works."""

    @classmethod
    def _from_store(  # noqa: PLR0913 - the parts of a loop that no journal can hold
        cls,
        store: Store,
        loop_id: str,
        provider: Any,
        *,
        tools: Iterable[Any] | ToolRegistry = (),
        params: Mapping[str, Any] | None = None,
        config: LoopConfig | None = None,
        context: LoopContext | ToolContext | None = None,
        on_drift: str = "raise",
        take_over: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> Self:
        """Load a loop, or create it where it is not there and `params` are given. See `ToolLoopHandle.open`."""
        from toolloop.stores.events import read_journal  # noqa: PLC0415 - cattrs is loaded when it is first needed

        while True:
            try:
                journal = safely(loop_id, partial(store.load, loop_id))
            except LoopNotFound:
                if params is None:
                    raise
                new = cls(  # type: ignore[call-arg]  # both handles are made of these
                    provider,
                    params=params,
                    tools=tools,
                    config=DEFAULT_CONFIG if config is None else config,
                    context=context,
                    store=store,
                    loop_id=loop_id,
                    clock=clock,
                )
                try:
                    new._recorder.flush()
                except Conflict:
                    continue  # somebody created it in this very moment
                return new
            state = read_journal([entry.body for entry in journal.entries])
            if (found := state.ledger.setup.loop_id) != loop_id:
                raise UnreadableSnapshot(
                    f"the journal that is stored as {loop_id!r} is of the loop {found!r}: it was copied. Open that "
                    "loop, or use fork() to go on with a copy of its own"
                )
            awake = cls._wakes(
                state, tools=tools, params=params, config=config, context=context, on_drift=on_drift, asked="open()"
            )
            handle = cls._made(provider, state, **awake.parts(), clock=clock, store=store, rev=journal.rev)
            handle._fall_asleep(state.ledger.setup, awake.setup, take_over=take_over)  # noqa: SLF001 - its own class
            return handle

    def _fall_asleep(self, found: Setup, wanted: Setup, *, take_over: bool) -> None:
        """As a loop is that was just loaded. What was under way wakes up at once, if nobody can be at work on it."""
        self._asleep = True
        self._take_over = take_over
        self._tick()
        self._drifted = _differences(found, wanted)
        if not under_way(self._state) and not self._take_over:
            return
        try:
            self._take_lease()
        except Conflict:
            return  # its owner lives: this handle reads and decides
        try:
            with self._recorder.lock:
                if take_over or under_way(self._state):  # else its owner has ended its turn meanwhile
                    self._wake_up()
            self._recorder.flush()
        finally:
            self._end_lease()

    def _waking(self) -> ev.Woken:
        if self._stored is None:
            return super()._waking()
        setup, now = self._state.ledger.setup, self._recorder.now()
        # What this handle has said since it was opened, or others have, stands; but these are the tools it has.
        changes = {name: new for name, (old, new) in self._drifted.items() if getattr(setup, name) == old}
        woken = evolve(setup, **changes)
        if woken.tools != facts_in_order(woken, self._tools):
            raise Drift(
                "the loop was opened elsewhere meanwhile, and goes on with other tools there than here: open it again",
                changes=("the tools",),
            )
        self._drifted = {}
        return ev.Woken(woken if changes else None, driver=self._owner, at=now)

    # --- the lease ---

    def _take_lease(self) -> None:
        """Take the lease of a stored loop, and read what happened since.

        Raises:
            Conflict: another driver has it.
            StoreError: the store failed.

        """
        stored = self._stored
        if stored is None:
            return
        with self._lease_lock:
            if stored.lease is None or not hold_on(self._owner):
                self._claim(stored)
            self._leased, self._is_abandoned = True, False
        stored.settle()
        stored.check()

    def _claim(self, stored: StoringRecorder) -> None:
        if stored.lags:
            stored.flush()
        owner = new_owner()
        try:
            lease = claim(stored, owner, self, take_over=self._take_over)
        except ToolLoopError:
            stored.flush()  # what the caller said is stored, whoever drives
            raise
        try:
            if lease.rev != stored.rev:
                stored.read_on()  # what was said before this lease is no sign that it was taken over
        except BaseException:
            end(owner)
            raise
        stored.drive_with(lease)
        self._owner, self._take_over = owner, False

    def _holds_on(self) -> bool:
        """Take the lease up again, if that takes no store. Nothing is waited for, so an event loop does it itself."""
        stored = self._stored
        if stored is None:
            return True
        if stored.lease is None or stored.lags or not self._lease_lock.acquire(blocking=False):
            return False
        try:
            if not hold_on(self._owner, waits=False):
                return False
            self._leased, self._is_abandoned = True, False
            return True
        finally:
            self._lease_lock.release()

    def _end_lease(self) -> None:
        """Nobody drives any more. A tool that still runs keeps the lease until it is back."""
        with self._lease_lock:
            self._leased = False
        self._let_go()

    def _lets_be(self) -> bool:
        """The same, if the lease stays with this handle all the same. Nothing is waited for."""
        if not self._lease_lock.acquire(blocking=False):
            return False
        try:
            if stays := self._keeps_lease():
                self._leased = False
            return stays
        finally:
            self._lease_lock.release()

    def _keeps_lease(self) -> bool:
        """Whether there is no lease to give back, though nobody drives in this very moment."""
        return self._stays or self._stored is None or self._stored.lease is None or self._has_running_jobs()

    def _let_go(self) -> None:
        if self._stored is None:
            return
        with self._lease_lock:
            if not (self._leased or self._keeps_lease()):
                end(self._owner)

    def _pause(self) -> None:
        """The caller is asked, and may take long."""
        self._stays = False
        if self._stored is not None and self._stored.waits:  # what was said in passing, and did not go on
            self._flush_quietly()
        self._let_go()

    def _passing(self) -> AbstractContextManager[None]:
        """What `run()` says in here, it may store with what it does next."""
        return _AT_ONCE if self._stored is None else self._stored.in_passing()

    def _abandon(self) -> None:
        """The event loop of a driver is gone, and nothing can wait any more: somebody else sees to what is left."""
        self._leased, self._is_abandoned = False, True
        abandon(self._owner)

    def _has_running_jobs(self) -> bool:
        """Whether a tool still runs whose end may count: its driver knows."""
        return False

    def _flush_quietly(self) -> None:
        """Store what happened while another error is on its way out; that one is told, not this."""
        try:
            self._recorder.forget_intents()
            self._recorder.flush()
        except ToolLoopError:
            LOG.exception("not everything is stored yet", extra={"loop_id": self.loop_id})

    def _close_quietly(self) -> None:
        """The same, and the lease goes back."""
        self._flush_quietly()
        self._let_go()


def _differences(old: Setup, new: Setup) -> dict[str, tuple[Any, Any]]:
    """What of a set-up is another, by field: as it was, and as it is to be."""
    pairs = {item.name: (getattr(old, item.name), getattr(new, item.name)) for item in fields(Setup)}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
