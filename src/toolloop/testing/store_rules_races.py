"""The rules of a store: threads that do something at one moment, and a store that is opened again."""

from __future__ import annotations

from functools import partial

from toolloop.core.errors import Conflict, StaleRevision
from toolloop.stores.protocol import Entry, Head, Lease
from toolloop.testing.store_checks import (
    RACERS,
    READY,
    ROUNDS,
    MakeStore,
    at_once,
    emptied,
    entries,
    names,
    one_wins,
    same,
    two_stores,
)


def one_of_many_creates_a_loop(make: MakeStore) -> None:
    """Of threads that create one loop at one moment, one does, and the others get `Conflict`."""
    stores = two_stores(make)
    for turn in range(ROUNDS):
        loop_id = f"loop-{turn}"
        done = at_once([partial(stores[at % 2].create, loop_id, entries(str(at)), head=READY) for at in range(RACERS)])
        one_wins("create()", done, Conflict)
        same("load()", names(stores[0].load(loop_id)), [str(at) for at in range(RACERS) if done[at] == 1])


def one_of_many_appends_at_a_revision(make: MakeStore) -> None:
    """Of threads that append at one revision at one moment, one does, and the others get `StaleRevision`."""
    stores = two_stores(make)
    stores[0].create("loop", [], head=READY)
    winners: list[str] = []
    for turn in range(ROUNDS):
        acts = [
            partial(stores[at % 2].append, "loop", entries(f"{turn}/{at}"), expected_rev=turn) for at in range(RACERS)
        ]
        done = at_once(acts)
        same("its revision", one_wins("append()", done, StaleRevision), turn + 1)
        winners += [f"{turn}/{at}" for at in range(RACERS) if done[at] == turn + 1]
    same("load()", names(stores[0].load("loop")), winners)


def one_of_many_acquires_a_lease(make: MakeStore) -> None:
    """Of threads that acquire one lease, or take it over, at one moment, one does, and the others get `Conflict`."""
    stores = two_stores(make)
    stores[0].create("loop", [], head=READY)
    held: Lease | None = None
    for _ in range(ROUNDS):
        token = None if held is None else held.token
        acts = [partial(stores[at % 2].acquire, "loop", str(at), until=1.0, instead_of=token) for at in range(RACERS)]
        held = one_wins("acquire()", at_once(acts), Conflict)
        same("lease()", stores[1].lease("loop"), held)


def nothing_that_is_merged_is_lost(make: MakeStore) -> None:
    """Threads that merge events at one moment all succeed: every event is there, once, each thread's in its order."""
    stores = two_stores(make)
    stores[0].create("loop", [], head=READY)

    def merge(at: int) -> list[int]:
        return [
            stores[at % 2].append("loop", entries(f"{at}/{turn}", f"common/{turn}"), expected_rev=None)
            for turn in range(ROUNDS)
        ]

    for revs in at_once([partial(merge, at) for at in range(RACERS)]):
        same("what append() gave one thread", revs, sorted(revs) if isinstance(revs, list) else "revisions")
    journal = stores[0].load("loop")
    same("the revision", journal.rev, len(journal.entries))
    common = [f"common/{turn}" for turn in range(ROUNDS)]
    same("the events of all", [name for name in names(journal) if name in common], common)
    for at in range(RACERS):
        mine = [name for name in names(journal) if name.startswith(f"{at}/")]
        same("the events of one thread", mine, [f"{at}/{turn}" for turn in range(ROUNDS)])
    same("how many there are", journal.rev, ROUNDS * (RACERS + 1))


def what_is_stored_stays(make: MakeStore) -> None:
    """A store that is opened again has the same loops; where it begins empty, as one in memory does, it has none."""
    store = emptied(make)
    store.create("one", entries("a"), head=READY)
    store.create("two", [Entry("ä", "\U0001f600")], head=Head("needs_decision", 1700000000.123456))
    store.append("one", entries("b", "c"), expected_rev=1, head=Head("ended"))
    store.acquire("two", "me", until=1800000000.654321)
    store.create("gone", [], head=READY)
    store.delete("gone")
    loops, journals = store.list(), [store.load(loop_id) for loop_id in ("one", "two")]
    again = make()
    if not again.list():
        return
    same("list() of the store that was opened again", again.list(), loops)
    same("load() of both loops", [again.load(loop_id) for loop_id in ("one", "two")], journals)
    same("append() to it", again.append("one", entries("c", "d"), expected_rev=3), 4)
    same("load() by the first", names(store.load("one")), ["a", "b", "c", "d"])


RULES = (
    one_of_many_creates_a_loop,
    one_of_many_appends_at_a_revision,
    one_of_many_acquires_a_lease,
    nothing_that_is_merged_is_lost,
    what_is_stored_stays,
)
