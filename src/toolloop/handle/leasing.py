"""The right to drive a stored loop: taken when a driver starts to work, given back when it is done.

A lease names its owner: a process, and in it a handle. It ends when it is given back; when its owner is a process of
this machine that is gone; when somebody takes it over by name; and by time, where nobody can tell whether its owner
lives. An owner of this machine that lives is slow, not dead, however long it takes. While a lease is held, a thread of
this process renews it.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
import weakref
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from attrs import define, field

from toolloop.core.errors import Conflict, LoopNotFound, StoreError, ToolLoopError
from toolloop.handle.recording import LOG
from toolloop.handle.staged import safely
from toolloop.stores.owners import describe, standing, this_process
from toolloop.stores.protocol import Lease

if TYPE_CHECKING:
    from toolloop.handle.storing import StoringRecorder

LEASE_SECONDS = 60.0
_RENEW_EVERY = LEASE_SECONDS / 3
_LOOK_EVERY = 2.0


@define(eq=False)
class Held:
    """A lease that a handle of this process holds.

    Attributes:
        recorder: of the handle; what it has not stored yet is stored before the lease is given back.
        driver: the handle. When it is gone, nobody drives.
        done: nobody drives any more.
        given_back: perhaps; the store failed when it was asked to.
        lock: whoever ends it, or takes it up again, has it.

    """

    recorder: StoringRecorder
    driver: weakref.ref[Any]
    lease: Lease
    done: bool = False
    given_back: bool = False
    lock: threading.RLock = field(factory=threading.RLock)

    @property
    def is_over(self) -> bool:
        """Whether nobody drives any more."""
        return self.done or self.driver() is None


_HELD: dict[str, Held] = {}  # by owner; an owner is one handle's, so each has one lease
_LOCK = threading.RLock()
_KEEPER: list[threading.Thread] = []
_NEVER = threading.Event()


def new_owner() -> str:
    """A name for one more owner in this process."""
    return f"{this_process()} {uuid.uuid4().hex[:12]}"


def claim(recorder: StoringRecorder, owner: str, driver: object, *, take_over: bool = False) -> Lease:
    """Take the lease of a loop, if nobody holds it who may still be at work.

    Args:
        recorder: of the handle that wants to drive.
        owner: a name for it; see `new_owner`.
        driver: the handle.
        take_over: take it from an owner that lives, too.

    Raises:
        Conflict: names the owner, and until when.
        StoreError: the store failed.

    """
    store, loop_id = recorder.store, recorder.loop_id
    instead_of: int | None = None
    while True:
        try:
            lease = safely(loop_id, partial(store.acquire, loop_id, owner, until=_soon(), instead_of=instead_of))
        except Conflict as held:
            if held.token is None or held.owner is None or held.until is None:
                raise
            if not (take_over or has_ended(held.owner, held.until, driver)):
                raise _refused(held, loop_id, held.owner, held.until) from None
            instead_of = held.token
            continue
        _keep(owner, Held(recorder, weakref.ref(driver), lease))
        return lease


def _soon() -> float:
    return time.time() + LEASE_SECONDS


def has_ended(owner: str, until: float, driver: object = None) -> bool:
    """Whether a lease that was never given back is over. `driver`: who asks; it cannot be at work elsewhere."""
    process, _, _nonce = owner.rpartition(" ")
    if process == this_process():
        with _LOCK:
            held = _HELD.get(owner)
        return held is None or held.is_over or held.driver() is driver
    match standing(process):
        case "gone":
            return True
        case "alive":
            return False
    return until <= time.time()


def _refused(held: Conflict, loop_id: str, owner: str, until: float) -> Conflict:
    moment = datetime.fromtimestamp(until, UTC).isoformat(timespec="seconds")
    return Conflict(
        f"the loop {loop_id!r} is being driven by {describe(owner.rpartition(' ')[0])}, with a lease until {moment}. "
        "Its calls can be decided meanwhile; drive it when that one is done, or open it with take_over=True if you "
        "know that it will never be",
        loop_id=loop_id,
        owner=owner,
        until=until,
        token=held.token,
    )


def is_held(lease: Lease) -> bool:
    """Whether this process holds the lease: a child of a fork holds nothing that its parent does."""
    return lease.owner.rpartition(" ")[0] == this_process()


def hold_on(owner: str | None, *, waits: bool = True) -> bool:
    """Take a lease up again that this process still holds. False: it was given back meanwhile.

    Args:
        owner: whose it is.
        waits: wait for whoever is about to give it back, which may take as long as a store does. If not: False, too,
            if somebody is.

    """
    with _LOCK:
        held = _HELD.get(owner or "")
    if held is None or not held.lock.acquire(blocking=waits):
        return False
    try:
        if held.given_back:
            _forget(held.lease.owner)
        held.done = False
        return _HELD.get(owner or "") is held
    finally:
        held.lock.release()


def end(owner: str | None) -> None:
    """Nobody drives any more: what happened is stored, then the lease is given back. What fails is tried again."""
    with _LOCK:
        held = _HELD.get(owner or "")
    if held is not None:
        held.done = True
        _finish(held)


def abandon(owner: str | None) -> None:
    """The same where nothing can wait for a store: the keeper does it."""
    with _LOCK:
        held = _HELD.get(owner or "")
    if held is not None:
        held.done = True


def _finish(held: Held) -> None:
    recorder, lease = held.recorder, held.lease
    with held.lock:
        if not held.is_over:
            return
        try:
            recorder.flush()
            if not recorder.waits:
                held.given_back = True
                safely(lease.loop_id, partial(recorder.store.release, lease))
                with recorder.lock:
                    if recorder.lease is not None and recorder.lease.token == lease.token:  # else it has another by now
                        recorder.lease = None
                _forget(lease.owner)
        except LoopNotFound:
            _forget(lease.owner)
        except ToolLoopError:
            LOG.warning("a lease could not be given back now; it is tried again", extra={"loop_id": lease.loop_id})


def _keep(owner: str, held: Held) -> None:
    with _LOCK:
        _HELD[owner] = held
        if not _KEEPER or not _KEEPER[0].is_alive():
            _KEEPER[:] = [threading.Thread(target=_renew_all, name="leases-of-toolloop", daemon=True)]
            _KEEPER[0].start()


def _forget(owner: str) -> None:
    with _LOCK:
        _HELD.pop(owner, None)


def _renew_all() -> None:
    """Renew what is held, until nothing is."""
    while True:
        _NEVER.wait(_LOOK_EVERY)
        with _LOCK:
            if not _HELD:
                _KEEPER.clear()
                return
            held = list(_HELD.values())
        for each in held:
            try:
                renew(each)
            except BaseException:  # noqa: BLE001 - whatever a store may do: other leases are still to be kept
                LOG.exception("a lease is no longer kept", extra={"loop_id": each.lease.loop_id})
                _forget(each.lease.owner)


def renew(held: Held) -> None:
    """Renew one lease, or give it back if nobody drives. What fails is tried again the next time."""
    if held.is_over:
        _finish(held)
        return
    lease = held.lease
    if lease.until - time.time() > LEASE_SECONDS - _RENEW_EVERY:
        return
    try:
        held.lease = safely(lease.loop_id, partial(held.recorder.store.renew, lease, until=_soon()))
    except (Conflict, LoopNotFound):  # somebody took it over; the driver is told when it stores its next event
        _forget(lease.owner)
    except StoreError:
        LOG.warning("a lease could not be renewed now; it is tried again", extra={"loop_id": lease.loop_id})


def _after_fork() -> None:
    """In a child: nothing is held here, and the parent's threads are not here either."""
    global _LOCK  # noqa: PLW0603 - a lock that another thread held at the fork would stay held for ever
    _LOCK = threading.RLock()
    _HELD.clear()
    _KEEPER.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
