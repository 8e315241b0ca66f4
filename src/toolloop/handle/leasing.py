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
from datetime import UTC, datetime
from functools import partial

from attrs import define

from toolloop.core.errors import Conflict, StoreError
from toolloop.handle.recording import LOG
from toolloop.handle.staged import safely
from toolloop.stores.owners import describe, standing, this_process
from toolloop.stores.protocol import Lease, Store

LEASE_SECONDS = 60.0
_RENEW_EVERY = LEASE_SECONDS / 3


@define(eq=False)
class Held:
    """A lease that a handle of this process holds. `done`: it is to be given back."""

    store: Store
    lease: Lease
    done: bool = False


_HELD: dict[str, Held] = {}  # by owner; an owner is one handle's, so each has one lease
_LOCK = threading.Lock()
_KEEPER: list[threading.Thread] = []
_NEVER = threading.Event()


def new_owner() -> str:
    """A name for one more owner in this process."""
    return f"{this_process()} {uuid.uuid4().hex[:12]}"


def claim(store: Store, loop_id: str, owner: str, *, take_over: bool = False) -> Lease:
    """Take the lease of a loop, if nobody holds it who may still be at work.

    Args:
        store: where the loop is.
        loop_id: which.
        owner: who asks; see `new_owner`.
        take_over: take it from an owner that lives, too.

    Raises:
        Conflict: names the owner, and until when.
        StoreError: the store failed.

    """
    instead_of: int | None = None
    while True:
        try:
            lease = safely(loop_id, partial(store.acquire, loop_id, owner, until=_soon(), instead_of=instead_of))
        except Conflict as held:
            if held.token is None or held.owner is None or held.until is None:
                raise
            if not (take_over or has_ended(held.owner, held.until)):
                raise _refused(held, loop_id, held.owner, held.until) from None
            instead_of = held.token
            continue
        _keep(owner, Held(store, lease))
        return lease


def _soon() -> float:
    return time.time() + LEASE_SECONDS


def has_ended(owner: str, until: float) -> bool:
    """Whether a lease that was never given back is over."""
    process, _, _nonce = owner.rpartition(" ")
    if process == this_process():
        with _LOCK:
            held = _HELD.get(owner)
        return held is None or held.done
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


def give_back(store: Store, lease: Lease) -> None:
    """End a lease. If the store fails, the keeper tries again."""
    with _LOCK:
        held = _HELD.get(lease.owner)
        if held is not None:
            held.done = True
    try:
        safely(lease.loop_id, partial(store.release, lease))
    except StoreError:
        LOG.warning("a lease could not be given back now; it is tried again", extra={"loop_id": lease.loop_id})
        return
    _forget(lease.owner)


def _keep(owner: str, held: Held) -> None:
    with _LOCK:
        _HELD[owner] = held
        if not _KEEPER or not _KEEPER[0].is_alive():
            _KEEPER[:] = [threading.Thread(target=_renew_all, name="toolloop-leases", daemon=True)]
            _KEEPER[0].start()


def _forget(owner: str) -> None:
    with _LOCK:
        _HELD.pop(owner, None)


def _renew_all() -> None:
    """Renew what is held, until nothing is."""
    while True:
        _NEVER.wait(_RENEW_EVERY)
        with _LOCK:
            if not _HELD:
                _KEEPER.clear()
                return
            held = list(_HELD.values())
        for each in held:
            renew(each)


def renew(held: Held) -> None:
    """Renew one lease, or give it back if it is done. What fails is tried again the next time."""
    lease = held.lease
    try:
        if held.done:
            safely(lease.loop_id, partial(held.store.release, lease))
            _forget(lease.owner)
        else:
            held.lease = safely(lease.loop_id, partial(held.store.renew, lease, until=_soon()))
    except Conflict:  # somebody took it over; the driver is told when it stores its next event
        _forget(lease.owner)
    except StoreError:
        LOG.warning("a lease could not be renewed now; it is tried again", extra={"loop_id": lease.loop_id})


def _after_fork() -> None:
    """In a child: nothing is held here, and the parent's threads are not here either."""
    global _LOCK  # noqa: PLW0603 - a lock that another thread held at the fork would stay held for ever
    _LOCK = threading.Lock()
    _HELD.clear()
    _KEEPER.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
