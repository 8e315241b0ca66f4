"""The rules of a store: leases. Each is a function that fails where the rule is broken."""

from __future__ import annotations

from functools import partial

from attrs import evolve

from toolloop.core.errors import Conflict
from toolloop.stores.protocol import Head, Lease, Store
from toolloop.testing.store_checks import READY, MakeStore, emptied, entries, names, parts, refused, same

_PARTS = ("loop_id", "owner", "until", "token")


def _leased(make: MakeStore) -> tuple[Store, Lease]:
    store = emptied(make)
    store.create("loop", entries("a"), head=READY)
    return store, store.acquire("loop", "me", until=1700000000.123456)


def a_lease_is_as_it_was_given(make: MakeStore) -> None:
    """`lease` tells the owner, the token and the moment of the lease that `acquire` gave; at first there is none."""
    store = emptied(make)
    store.create("loop", entries("a"), head=READY)
    same("lease() of a new loop", store.lease("loop"), None)
    lease = store.acquire("loop", "me", until=1700000000.123456)
    same("acquire()", lease, Lease("loop", "me", lease.token, 1700000000.123456))
    same("lease() after it", store.lease("loop"), lease)


def a_new_lease_may_tell_the_revision(make: MakeStore) -> None:
    """`acquire` gives the loop's revision, if it gives any: whoever has the lease reads nothing more then."""
    store = emptied(make)
    for loop_id, ids in (("short", "a"), ("long", "abc")):
        store.create(loop_id, entries("a"), head=READY)
        store.append(loop_id, entries(*ids), expected_rev=None)
        rev = store.acquire(loop_id, "me", until=9.0).rev
        if rev is not None:
            same("the revision that a new lease tells", rev, len(ids))


def a_lease_keeps_others_out(make: MakeStore) -> None:
    """`acquire` of a leased loop raises `Conflict` with the owner, moment and token; the time makes no difference."""
    store, _ = _leased(make)
    store.renew(_current(store), until=-1.0)  # long over, if a store had a clock
    lease = _current(store)
    for owner in ("you", "me"):
        error = refused(f"acquire() by {owner!r}", Conflict, partial(store.acquire, "loop", owner, until=9.0))
        same("the error's parts", parts(error, *_PARTS), ["loop", "me", -1.0, lease.token])
    for other in (lease.token + 1, lease.token - 1):
        act = partial(store.acquire, "loop", "you", until=9.0, instead_of=max(other, 0))
        refused("acquire(instead_of=...) of another token", Conflict, act)
    same("lease() after it", store.lease("loop"), lease)
    store.create("other", [], head=READY)
    same("acquire() of another loop", store.acquire("other", "you", until=9.0).owner, "you")


def a_lease_can_be_taken_over(make: MakeStore) -> None:
    """`acquire(instead_of=token)` takes the lease from the one of that token, and from nobody."""
    store, lease = _leased(make)
    taken = store.acquire("loop", "you", until=9.0, instead_of=lease.token)
    same("lease() after it", store.lease("loop"), taken)
    same("its owner", taken.owner, "you")
    refused("the same again", Conflict, lambda: store.acquire("loop", "they", until=9.0, instead_of=lease.token))
    store.release(taken)
    again = store.acquire("loop", "they", until=9.0, instead_of=taken.token)
    same("lease() after it was given back meanwhile", store.lease("loop"), again)


def tokens_only_grow(make: MakeStore) -> None:
    """Each lease of a loop has a greater token than all before: after a release, a take-over, and a deletion too."""
    store, lease = _leased(make)
    tokens = [lease.token]

    def take(instead_of: int | None = None) -> Lease:
        got = store.acquire("loop", "me", until=1.0, instead_of=instead_of)
        tokens.append(got.token)
        same("the tokens", tokens, sorted(set(tokens)))
        return got

    lease = take(instead_of=lease.token)
    store.release(lease)
    lease = take()
    store.release(lease)
    store.delete("loop")
    store.create("loop", [], head=READY)
    take()


def a_lease_is_renewed_by_its_holder(make: MakeStore) -> None:
    """`renew` moves its end, and keeps owner and token; of a lease that is not the loop's it raises `Conflict`."""
    store, lease = _leased(make)
    for until in (1800000000.5, 3.0):
        renewed = store.renew(lease, until=until)  # the first form of it will do
        same("renew()", renewed, evolve(lease, until=until))
        same("lease() after it", store.lease("loop"), renewed)
    taken = store.acquire("loop", "you", until=9.0, instead_of=lease.token)
    error = refused("renew() of a lease that was taken over", Conflict, lambda: store.renew(lease, until=99.0))
    same("the error's parts", parts(error, *_PARTS), ["loop", "you", 9.0, taken.token])
    same("lease() after it", store.lease("loop"), taken)
    store.release(taken)
    error = refused("renew() of a lease that was given back", Conflict, lambda: store.renew(taken, until=99.0))
    same("the error's parts", parts(error, *_PARTS), ["loop", None, None, None])
    same("lease() after it", store.lease("loop"), None)


def a_lease_is_given_back(make: MakeStore) -> None:
    """`release` ends a lease; of a lease that is not the loop's it does nothing."""
    store, lease = _leased(make)
    store.release(lease)
    same("lease() after release()", store.lease("loop"), None)
    taken = store.acquire("loop", "you", until=9.0)
    store.release(lease)
    same("lease() after release() of an older one", store.lease("loop"), taken)
    store.create("other", [], head=READY)
    store.release(evolve(taken, loop_id="other"))
    same("lease() after release() of another loop's", store.lease("loop"), taken)
    store.release(evolve(taken, until=0.0))
    same("lease() after release() of an earlier form of it", store.lease("loop"), None)


def an_append_may_need_a_lease(make: MakeStore) -> None:
    """`append(lease=...)` is done only under that lease; else it raises `Conflict`, whatever it adds or expects."""
    store, lease = _leased(make)
    store.renew(lease, until=2.0)
    same("append() under a lease that was renewed", store.append("loop", entries("b"), expected_rev=1, lease=lease), 2)
    same("append() without one", store.append("loop", entries("c"), expected_rev=2), 3)
    store.create("other", entries("a"), head=READY)
    refused(
        "append() under the lease of another loop",
        Conflict,
        lambda: store.append("other", entries("b"), expected_rev=1, lease=lease),
    )
    taken = store.acquire("loop", "you", until=9.0, instead_of=lease.token)
    same("append() under the new lease", store.append("loop", entries("d"), expected_rev=3, lease=taken), 4)
    for what, ids, expected in (
        ("a new event", "x", 4),
        ("a new event at a stale revision", "x", 1),
        ("a new event at any revision", "x", None),
        ("a known event", "a", 4),
        ("nothing", "", 4),
    ):
        error = refused(
            f"append() of {what} under a lease that was taken over",
            Conflict,
            partial(store.append, "loop", entries(*ids), expected_rev=expected, head=Head("ended"), lease=lease),
        )
        same("the error's parts", parts(error, *_PARTS), ["loop", "you", 9.0, taken.token])
    same("load() after it", names(store.load("loop")), ["a", "b", "c", "d"])
    same("its status after it", store.list("ended"), [])
    store.release(taken)
    refused(
        "append() under a lease that was given back",
        Conflict,
        lambda: store.append("loop", entries("x"), expected_rev=4, lease=taken),
    )


def _current(store: Store) -> Lease:
    lease = store.lease("loop")
    if lease is None:
        raise AssertionError("lease() is None, though the loop was leased")
    return lease


RULES = (
    a_lease_is_as_it_was_given,
    a_new_lease_may_tell_the_revision,
    a_lease_keeps_others_out,
    a_lease_can_be_taken_over,
    tokens_only_grow,
    a_lease_is_renewed_by_its_holder,
    a_lease_is_given_back,
    an_append_may_need_a_lease,
)
