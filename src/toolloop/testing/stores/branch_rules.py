"""The rules of a store for revisions with a digest, which tell two histories of one loop apart."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial

from attrs import evolve

from toolloop.errors import Conflict, StaleRevision
from toolloop.stores.revisions import Revision
from toolloop.testing.stores.checks import READY, MakeStore, check_refused, entries, ids, same, with_loop


def another_history_is_refused(make: MakeStore) -> None:
    """`append` and `load` refuse a revision whose digest is not that of the journal, as after a restore."""
    store = with_loop(make, "a", "b")
    ours = store.load("loop").rev
    if Revision.of(ours).digest is None:
        warnings.warn(
            "this store returns revisions without a digest, so a process may not notice that the store was restored "
            "from a backup: return toolloop.stores.Revision",
            stacklevel=2,
        )
        return
    same("head().rev", store.head("loop").rev, ours)
    same("list()[0].rev", store.list()[0].rev, ours)
    store.delete("loop")
    created = store.create("loop", entries("a"), head=READY)
    theirs = store.append("loop", entries("c"), expected_rev=created)
    same("the numbers of the revisions of two histories", int(theirs), int(ours))
    same("append() and load().rev", store.load("loop").rev, theirs)
    act: Callable[[], object] = partial(store.append, "loop", entries("d"), expected_rev=ours)
    check_refused("append(expected_rev=...) of another history", StaleRevision, act, rev=2)
    for first_id in (None, "a"):
        act = partial(store.load, "loop", after=ours, first_id=first_id)
        check_refused("load(after=...) of another history", StaleRevision, act, rev=2)
    later = Revision(3, Revision.of(theirs).digest)
    check_refused("load(after=...) of no revision", StaleRevision, partial(store.load, "loop", after=later))
    same("the events after it", ids(store), ["a", "c"])
    same("load(after=...) of the first revision", store.load("loop", after=created).entries, tuple(entries("c")))
    lease = store.acquire("loop", "me", until=1.0)
    same("acquire().rev", lease.rev, theirs)
    another = evolve(lease, owner="you")  # as a restored store gives a token again
    check_refused("renew() by another owner", Conflict, partial(store.renew, another, until=2.0))
    act = partial(store.append, "loop", entries("d"), expected_rev=theirs, lease=another)
    check_refused("append(lease=...) of another owner", Conflict, act)
    store.release(another)
    same("the lease after release() by another owner", store.head("loop").lease, lease)
    same("append(expected_rev=...)", store.append("loop", entries("d"), expected_rev=theirs, lease=lease), 3)


BRANCH_RULES = (another_history_is_refused,)
