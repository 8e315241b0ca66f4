"""The rules of a store for leases, and for concurrent threads. A rule raises `AssertionError` if it is broken."""

from __future__ import annotations

from functools import partial
from typing import Any

from attrs import evolve

from toolloop.errors import Conflict, StaleRevision
from toolloop.stores.protocol import Entry, Head, Lease, Store
from toolloop.testing.stores.checks import (
    RACERS,
    READY,
    ROUNDS,
    MakeStore,
    at_once,
    check_refused,
    emptied,
    entries,
    ids,
    list_ids,
    same,
    two_stores,
    winner,
    with_loop,
)


def _leased(make: MakeStore) -> tuple[Store, Lease]:
    store = with_loop(make, "a")
    return store, store.acquire("loop", "me", until=1700000000.123456)


def a_lease_is_as_it_was_given(make: MakeStore) -> None:
    """`head` has the lease that `acquire` returned, which may have the loop's revision; a new loop has none."""
    store = with_loop(make, "a", "b")
    same("the lease of a new loop", store.head("loop").lease, None)
    lease = store.acquire("loop", "me", until=1700000000.123456)
    same("acquire()", lease, Lease("loop", "me", lease.token, 1700000000.123456))
    same("the revision in it, if there is one", lease.rev or 2, 2)
    same("the lease after it", store.head("loop").lease, lease)


def a_lease_keeps_others_out(make: MakeStore) -> None:
    """`acquire` of a leased loop raises a `Conflict` that describes the lease, even if the lease has expired."""
    store, lease = _leased(make)
    lease = store.renew(lease, until=-1.0)
    for owner in ("you", "me"):
        act = partial(store.acquire, "loop", owner, until=9.0)
        check_refused(f"acquire() by {owner!r}", Conflict, act, **_parts(lease))
    for token in (lease.token + 1, max(lease.token - 1, 0)):
        act = partial(store.acquire, "loop", "you", until=9.0, instead_of=token)
        check_refused("acquire(instead_of=...) of another token", Conflict, act, **_parts(lease))
    same("the lease after it", store.head("loop").lease, lease)
    store.create("other", [], head=READY)
    same("acquire() of another loop", store.acquire("other", "you", until=9.0).owner, "you")


def a_lease_can_be_taken_over(make: MakeStore) -> None:
    """`acquire(instead_of=token)` replaces only the lease with that token."""
    store, lease = _leased(make)
    taken = store.acquire("loop", "you", until=9.0, instead_of=lease.token)
    same("the lease after it", store.head("loop").lease, taken)
    same("its owner", taken.owner, "you")
    act = partial(store.acquire, "loop", "they", until=9.0, instead_of=lease.token)
    check_refused("the same again", Conflict, act, **_parts(taken))
    store.release(taken)
    again = store.acquire("loop", "they", until=9.0, instead_of=taken.token)
    same("the lease after a lease that was released was taken over", store.head("loop").lease, again)


def tokens_only_grow(make: MakeStore) -> None:
    """Each lease of a loop has a greater token than earlier ones, also after a release, take-over or deletion."""
    store, first = _leased(make)
    second = store.acquire("loop", "me", until=1.0, instead_of=first.token)
    store.release(second)
    third = store.acquire("loop", "me", until=1.0)
    store.delete("loop")
    store.create("loop", [], head=READY)
    tokens = [first.token, second.token, third.token, store.acquire("loop", "me", until=1.0).token]
    same("the tokens", tokens, sorted(set(tokens)))


def a_lease_is_renewed_by_its_holder(make: MakeStore) -> None:
    """`renew` changes the end, and keeps owner and token; for a lease that is not current it raises `Conflict`."""
    store, lease = _leased(make)
    for until in (1800000000.5, 3.0):
        same("renew()", store.renew(lease, until=until), evolve(lease, until=until))
        same("the lease after it", store.head("loop").lease, evolve(lease, until=until))
    taken = store.acquire("loop", "you", until=9.0, instead_of=lease.token)
    act = partial(store.renew, lease, until=99.0)
    check_refused("renew() of a lease that was taken over", Conflict, act, **_parts(taken))
    same("the lease after it", store.head("loop").lease, taken)
    store.release(taken)
    act = partial(store.renew, taken, until=99.0)
    check_refused(
        "renew() of a lease that was released", Conflict, act, loop_id="loop", owner=None, until=None, token=None
    )
    same("the lease after it", store.head("loop").lease, None)


def a_lease_is_given_back(make: MakeStore) -> None:
    """`release` ends a lease; for a lease that is not current it does nothing."""
    store, lease = _leased(make)
    store.release(lease)
    same("the lease after release()", store.head("loop").lease, None)
    taken = store.acquire("loop", "you", until=9.0)
    store.create("other", [], head=READY)
    for void in (lease, evolve(taken, loop_id="other")):
        store.release(void)
        same("the lease after release() of an older one or another loop's", store.head("loop").lease, taken)
    store.release(evolve(taken, until=0.0))
    same("the lease after release() of the lease as it was before it was renewed", store.head("loop").lease, None)


def an_append_may_need_a_lease(make: MakeStore) -> None:
    """`append(lease=...)` raises `Conflict` unless that lease is current, for any events and expected revision."""
    store, lease = _leased(make)
    store.renew(lease, until=2.0)
    same("append() under a lease that was renewed", store.append("loop", entries("b"), expected_rev=1, lease=lease), 2)
    same("append() without one", store.append("loop", entries("c"), expected_rev=2), 3)
    store.create("other", entries("a"), head=READY)
    act = partial(store.append, "other", entries("b"), expected_rev=1, lease=lease)
    check_refused("append() under the lease of another loop", Conflict, act)
    taken = store.acquire("loop", "you", until=9.0, instead_of=lease.token)
    same("append() under the new lease", store.append("loop", entries("d"), expected_rev=3, lease=taken), 4)
    for names, expected in (("x", 4), ("x", 1), ("x", None), ("a", 4), ("", 4)):
        act = partial(store.append, "loop", entries(*names), expected_rev=expected, head=Head("ended"), lease=lease)
        what = f"append({names!r}, expected_rev={expected}) under a lease that was taken over"
        check_refused(what, Conflict, act, **_parts(taken))
    same("the events after it", ids(store), [*"abcd"])
    same("the loops with the new status after it", list_ids(store, "ended"), [])
    store.release(taken)
    act = partial(store.append, "loop", entries("x"), expected_rev=4, lease=taken)
    check_refused("append() under a lease that was released", Conflict, act)


def _parts(lease: Lease) -> dict[str, Any]:
    """Return the attributes of an error that describes a lease."""
    return {"loop_id": lease.loop_id, "owner": lease.owner, "until": lease.until, "token": lease.token}


# --- concurrent threads, and a store that is opened again -------------------------------------------------------------


def one_of_many_creates_a_loop(make: MakeStore) -> None:
    """Of threads that create one loop at the same time, one succeeds, and the others get `Conflict`."""
    stores = two_stores(make)
    for loop_id in map(str, range(ROUNDS)):
        acts = [partial(stores[at % 2].create, loop_id, entries(str(at)), head=READY) for at in range(RACERS)]
        same("create()", winner("create()", acts, Conflict)[1], 1)
        same("the number of its events", len(ids(stores[0], loop_id)), 1)


def one_of_many_appends_at_a_revision(make: MakeStore) -> None:
    """Of threads that append at one revision at the same time, one succeeds, and the others get `StaleRevision`."""
    stores = two_stores(make)
    stored: list[str] = []
    for rev in range(ROUNDS):
        names = [f"{rev}/{at}" for at in range(RACERS)]
        acts = [partial(stores[at % 2].append, "loop", entries(names[at]), expected_rev=rev) for at in range(RACERS)]
        at, new_rev = winner("append()", acts, StaleRevision)
        same("its revision", new_rev, rev + 1)
        stored.append(names[at])
    same("the events after it", ids(stores[0]), stored)


def one_of_many_acquires_a_lease(make: MakeStore) -> None:
    """Of threads that acquire one lease at the same time, one succeeds, and the others get `Conflict`."""
    stores = two_stores(make)
    token = None
    for _ in range(ROUNDS):
        acts = [partial(stores[at % 2].acquire, "loop", str(at), until=1.0, instead_of=token) for at in range(RACERS)]
        _, lease = winner("acquire()", acts, Conflict)
        same("the lease", stores[1].head("loop").lease, lease)
        token = lease.token


def nothing_that_is_merged_is_lost(make: MakeStore) -> None:
    """Threads that merge events at the same time all succeed: each event is stored once, in the order of its thread."""
    stores = two_stores(make)

    def merge(at: int) -> list[int]:
        return [
            stores[at % 2].append("loop", entries(f"{at}/{turn}", f"common/{turn}"), expected_rev=None)
            for turn in range(ROUNDS)
        ]

    for revs in at_once([partial(merge, at) for at in range(RACERS)]):
        same("the revisions that one thread saw", revs, sorted(revs) if isinstance(revs, list) else "revisions")
    names = ids(stores[0])
    for thread in ("common", *map(str, range(RACERS))):
        mine = [name for name in names if name.startswith(f"{thread}/")]
        same("the events of one thread", mine, [f"{thread}/{turn}" for turn in range(ROUNDS)])


def what_is_stored_stays(make: MakeStore) -> None:
    """A store that is opened again has the same loops, or none if it starts empty like a store in memory."""
    store = emptied(make)
    store.create("one", entries("a"), head=READY)
    store.create("two", [Entry("\u00e4", "\U0001f600")], head=Head("needs_decision", 1700000000.123456))
    store.append("one", entries("b", "c"), expected_rev=1, head=Head("ended"))
    store.acquire("two", "me", until=1800000000.654321)
    loops, journals = store.list(), [store.load("one"), store.load("two")]
    again = make()
    if again.list():
        same("list() of the store that was opened again", again.list(), loops)
        same("load() of both loops", [again.load("one"), again.load("two")], journals)
        same("append() to it", again.append("one", entries("c", "d"), expected_rev=3), 4)
        same("the events in the first", ids(store, "one"), [*"abcd"])


LEASE_RULES = (
    a_lease_is_as_it_was_given,
    a_lease_keeps_others_out,
    a_lease_can_be_taken_over,
    tokens_only_grow,
    a_lease_is_renewed_by_its_holder,
    a_lease_is_given_back,
    an_append_may_need_a_lease,
    one_of_many_creates_a_loop,
    one_of_many_appends_at_a_revision,
    one_of_many_acquires_a_lease,
    nothing_that_is_merged_is_lost,
    what_is_stored_stays,
)
