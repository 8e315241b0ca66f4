"""The assertions that the rules of a store use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

from toolloop.errors import LoopNotFound, StaleRevision
from toolloop.stores.protocol import Entry, Head, Store

MakeStore = Callable[[], Store]

RACERS = 8  # threads that act at the same time
ROUNDS = 5  # the number of times that they do
READY = Head("runnable")
_PATIENCE = 60.0  # seconds for the threads to start


def entries(*ids: str) -> list[Entry]:
    """Return events with these ids."""
    return [Entry(name, f'{{"event":"{name}"}}') for name in ids]


def ids(store: Store, loop_id: str = "loop") -> list[str]:
    """Return the ids of the events of a loop."""
    return [entry.id for entry in store.load(loop_id).entries]


def list_ids(store: Store, *status: str) -> list[str]:
    """Return the ids of the loops, or of the loops with this status."""
    return [loop.loop_id for loop in store.list(*status)]


def same(what: str, got: object, expected: object) -> None:
    """Fail unless a value equals the expected one."""
    if got != expected:
        raise AssertionError(f"{what}: expected {expected!r:.200}, got {got!r:.200}")


def check_refused(
    what: str, kind: type[Exception] | tuple[type[Exception], ...], act: Callable[[], object], **attributes: object
) -> None:
    """Fail unless a function raises an exception of this class, with these attributes."""
    kinds = kind if isinstance(kind, tuple) else (kind,)
    wanted = " or ".join(each.__name__ for each in kinds)
    try:
        got = act()
    except Exception as error:
        # StaleRevision is a Conflict that callers handle differently.
        if not isinstance(error, kinds) or (isinstance(error, StaleRevision) and kind is not StaleRevision):
            raise AssertionError(f"{what}: expected {wanted}, but it raised {type(error).__name__}: {error}") from error
        found = {name: getattr(error, name, "missing") for name in attributes}
        same(f"{what}: the attributes of the error", found, attributes)
    else:
        raise AssertionError(f"{what}: expected {wanted}, but it returned {got!r:.200}")


def emptied(make: MakeStore) -> Store:
    """Return a store without loops."""
    store = make()
    while page := store.list():
        for loop in page:
            store.delete(loop.loop_id)
        if store.list()[:1] == page[:1]:
            raise AssertionError("a deleted loop is still listed")
    return store


def with_loop(make: MakeStore, *names: str) -> Store:
    """Return a store with one loop, "loop", that has events with these ids."""
    store = emptied(make)
    store.create("loop", entries(*names), head=READY)
    return store


def two_stores(make: MakeStore) -> tuple[Store, Store]:
    """Return two stores that share the empty loop "loop"; if `make` returns empty stores, the same object twice."""
    one, other = with_loop(make), make()
    try:
        other.load("loop")
    except LoopNotFound:
        return one, one
    return one, other


def at_once(acts: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run functions in threads at the same time; return the result or exception of each."""
    barrier = Barrier(len(acts), timeout=_PATIENCE)

    def run(act: Callable[[], Any]) -> Any:
        barrier.wait()
        try:
            return act()
        except Exception as error:  # noqa: BLE001 - the outcome of the function
            return error

    with ThreadPoolExecutor(len(acts)) as pool:
        return list(pool.map(run, acts))


def winner(what: str, acts: Sequence[Callable[[], Any]], loss: type[Exception]) -> tuple[int, Any]:
    """Run functions at the same time; return index and result of the one that succeeds. Fail unless all others fail."""
    done = at_once(acts)
    won = [(at, result) for at, result in enumerate(done) if not isinstance(result, Exception)]
    same(f"{what}: the number of calls that succeed", len(won), 1)
    same(f"{what}: the others raise", {type(each) for each in done if isinstance(each, Exception)}, {loss})
    return won[0]
