"""The right to drive a stored loop: taken for the first who needs it, given back after the last.

The owner of a lease is a process, and in it a handle. A lease ends when it is given back; when its owner is a process
of this machine that is gone; when it is taken over by name; and by time, where it is unknown whether its owner
lives. An owner of this machine that lives is slow, not dead, however long it takes. While a process holds leases, one
thread of it renews them, and gives back those that could not be given back at once.
"""

from __future__ import annotations

import inspect
import os
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Coroutine, Generator
from datetime import UTC, datetime
from functools import partial
from typing import Any

from toolloop.loop.journal import LOG
from toolloop.loop.store_access import safely
from toolloop.loop.stored_journal import StoredJournal
from toolloop.machine.errors import Conflict, LoopNotFound, StoreError, ToolLoopError
from toolloop.stores.optional import lease_seconds, now_at
from toolloop.stores.process import describe, standing, this_process
from toolloop.stores.protocol import Lease

Steps = Generator[Any, Any, Any] | Coroutine[Any, Any, Any]

_RENEWALS = 3  # in the time of a lease
_LOOK_EVERY = 2.0

_LEASES: dict[str, DriverLease] = {}  # by owner; each may hold a lease in its store
# A signal handler may close a handle, in a thread that holds this.
_lock = threading.RLock()
_KEEPER: list[threading.Thread] = []
_NEVER = threading.Event()


class DriverLease:
    """The lease of one handle.

    It is needed as long as something is on its way that `keep` was told of: a turn, a `run()`. So nothing has to be
    undone after an interrupt, or where the garbage collector closes a turn. `acquire` and `give_back_if_free` block
    while the store works; the other methods never wait.

    Attributes:
        in_use: whether something else needs it, such as a tool that still runs.

    """

    def __init__(self, journal: StoredJournal, *, take_over: bool = False) -> None:
        """Hold nothing yet. `take_over`: take the lease the first time although a driver that lives has it."""
        self.in_use: Callable[[], bool] = bool
        self._journal = journal
        self._take_over = take_over
        self._name = uuid.uuid4().hex[:12]
        self._holders: list[weakref.ref[Steps]] = []  # each leaves the list when it is gone
        self._lease: Lease | None = None  # the one that is in the store, as far as is known
        self._renew_at = (
            0.0  # by `time.monotonic`: the clock of this machine may be set, and the store may have its own
        )
        self._is_late = False  # whether it is known that it could not be given back when it should

    @property
    def owner(self) -> str:
        """The name of this handle in the store. In the child of a fork it is another one."""
        return f"{this_process()} {self._name}"

    @property
    def is_needed(self) -> bool:
        """Whether the lease is needed."""
        return self._count_holders() > 0 or self.in_use()

    @property
    def is_shared(self) -> bool:
        """Whether it is taken, and two need it: so it is not about to be given back when one of them looks."""
        return self._journal.lease is not None and self._count_holders() > 1

    def _count_holders(self) -> int:
        holders = [holder() for holder in tuple(self._holders)]  # a copy: any moment one may leave the list
        return sum(steps is not None and is_on_its_way(steps) for steps in holders)

    def keep(self, steps: Steps) -> None:
        """Keep the lease, once it is taken, while a generator or coroutine is on its way."""
        self._holders.append(weakref.ref(steps, self._holders.remove))

    def acquire(self) -> None:
        """Take the lease if this handle does not have it.

        Raises:
            Conflict: another driver has it; names the owner, and until when.
            StoreError: the store failed.

        """
        with self._journal.io:
            if self._journal.lease is None:
                self._claim()

    def give_back_if_free(self) -> None:
        """Give the lease back if it is not needed, once what happened under it is stored.

        If the store fails, the thread that renews leases tries again.
        """
        if self.is_needed or _LEASES.get(self.owner) is not self:
            return
        journal = self._journal
        with journal.io:
            if self.is_needed:
                return
            is_known = self._is_late or journal.is_failing
            try:
                journal.commit()
                journal.lease = None
                lease = self._lease or safely(journal.loop_id, partial(journal.store.lease, journal.loop_id))
                if lease is not None and lease.owner == self.owner:
                    safely(journal.loop_id, partial(journal.store.release, lease))
            except LoopNotFound:
                pass
            except ToolLoopError:
                self._is_late = True
                if not is_known:
                    text = "a lease could not be given back now; it is tried again"
                    LOG.warning(text, extra={"loop_id": journal.loop_id})
                return
            self._lease, self._is_late = None, False
            _forget(self.owner)
        journal.bus.tell()

    def _claim(self) -> None:
        journal, instead_of = self._journal, None
        if journal.rev == 0:
            journal.commit()
        self._lease = None
        _keep(self)  # from here on the store may have given it, whatever else happens
        while True:
            wanted: dict[str, Any] = {"until": self._end(), "instead_of": instead_of, "first_id": journal.first_id}
            ask = partial(journal.store.acquire, journal.loop_id, self.owner, **wanted)
            try:
                self._lease = lease = safely(journal.loop_id, ask)
                self._plan_renewal()
                break
            except Conflict as held:
                if held.token is None or held.owner is None or held.until is None:
                    raise
                is_void = self._take_over or held.owner == self.owner
                if not (is_void or has_ended(held.owner, held.until, self._now())):
                    _forget(self.owner)
                    raise _refused(held, held.owner, held.until) from None
                instead_of = held.token
        self._take_over = False
        if lease.rev != journal.rev:
            journal.refresh()  # what was stored before this lease is no sign that it was taken over
        journal.drive_with(lease)

    def renew(self) -> None:
        """Renew the lease if it is time to, or give it back if it is not needed. What fails is tried again."""
        lease = self._lease
        if not self.is_needed:
            self.give_back_if_free()
        elif lease is not None and self._renew_at <= time.monotonic():
            try:
                safely(lease.loop_id, partial(self._journal.store.renew, lease, until=self._end()))
            except (Conflict, LoopNotFound):  # another driver took it over: this one learns that with its next event
                if self._lease is lease:
                    _forget(self.owner)
            except StoreError:
                LOG.warning("a lease could not be renewed now; it is tried again", extra={"loop_id": lease.loop_id})
            else:
                self._plan_renewal()

    def _now(self) -> float:
        """Return the time by the clock of the store."""
        return safely(self._journal.loop_id, partial(now_at, self._journal.store))

    def _end(self) -> float:
        """Return when a lease ends that begins now."""
        return self._now() + lease_seconds(self._journal.store)

    def _plan_renewal(self) -> None:
        self._renew_at = time.monotonic() + lease_seconds(self._journal.store) / _RENEWALS


def is_on_its_way(steps: Steps) -> bool:
    """Return whether a generator or coroutine has begun, and has not ended."""
    if inspect.isgenerator(steps):
        return inspect.getgeneratorstate(steps) in (inspect.GEN_RUNNING, inspect.GEN_SUSPENDED)
    if inspect.iscoroutine(steps):
        return inspect.getcoroutinestate(steps) in (inspect.CORO_RUNNING, inspect.CORO_SUSPENDED)
    return False


def has_ended(owner: str, until: float, now: float) -> bool:
    """Return whether a lease is over that was never given back, as far as that is certain.

    Args:
        owner: of the lease.
        until: when it ends.
        now: the time by the clock of the store, see `now_at`.

    """
    process = owner.rpartition(" ")[0]
    if process == this_process():
        lease = _LEASES.get(owner)
        return lease is None or not lease.is_needed
    match standing(process):
        case "gone":
            return True
        case "alive":
            return False
    return until <= now


def renew_all() -> None:
    """Renew the leases of this process that are needed, and give the others back."""
    for lease in tuple(_LEASES.values()):
        try:
            lease.renew()
        except Exception:  # noqa: BLE001 - whatever a store may do: other leases are still to be kept
            LOG.exception("a lease is no longer kept", extra={"loop_id": lease.owner})
            _forget(lease.owner)


def _refused(held: Conflict, owner: str, until: float) -> Conflict:
    moment = datetime.fromtimestamp(until, UTC).isoformat(timespec="seconds")
    return Conflict(
        f"the loop {held.loop_id!r} is being driven by {describe(owner.rpartition(' ')[0])}, with a lease until "
        f"{moment}. Its calls can be decided meanwhile. Drive it when that driver is done, or open it with "
        "take_over=True if you are sure that it never will be",
        loop_id=held.loop_id,
        owner=owner,
        until=until,
        token=held.token,
    )


def _keep(lease: DriverLease) -> None:
    with _lock:
        _LEASES[lease.owner] = lease
        if not _KEEPER or not _KEEPER[0].is_alive():
            _KEEPER[:] = [threading.Thread(target=_renew_until_free, name="leases-of-toolloop", daemon=True)]
            _KEEPER[0].start()


def _forget(owner: str) -> None:
    with _lock:
        _LEASES.pop(owner, None)


def _renew_until_free() -> None:
    while True:
        _NEVER.wait(_LOOK_EVERY)
        with _lock:
            if not _LEASES:
                _KEEPER.clear()
                return
        renew_all()


def _after_fork() -> None:
    """In a child: nothing is held here, and the parent's threads are not here either."""
    global _lock  # noqa: PLW0603 - a lock that another thread held at the fork would stay held for ever
    _lock = threading.RLock()
    _LEASES.clear()
    _KEEPER.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
