"""What the rules of a store are checked with."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from toolloop.core.errors import LoopNotFound, StaleRevision
from toolloop.stores.protocol import Entry, Head, Store, StoredJournal

MakeStore = Callable[[], Store]

RACERS = 8  # so many threads do something at one moment
ROUNDS = 5  # and so many times

READY = Head("runnable")
_PAGE = 100
_PATIENCE = 60.0  # seconds, for threads that are to start


def entries(*ids: str) -> list[Entry]:
    """Events of these ids."""
    return [Entry(name, f'{{"event":"{name}"}}') for name in ids]


def names(journal: StoredJournal) -> list[str]:
    """The ids of the events of a journal."""
    return [entry.id for entry in journal.entries]


def same(what: str, got: object, expected: object) -> None:
    """Fail unless it is as expected."""
    if got != expected:
        raise AssertionError(f"{what}: expected {_short(expected)}, and got {_short(got)}")


def refused(what: str, kinds: type[Exception] | tuple[type[Exception], ...], act: Callable[[], object]) -> Exception:
    """The exception that an act raises; fail unless it is of this kind, or of one of these."""
    kinds = kinds if isinstance(kinds, tuple) else (kinds,)
    wanted = " or ".join(kind.__name__ for kind in kinds)
    try:
        got = act()
    except Exception as error:
        # A stale revision is a conflict of its own kind, for which its caller does something else.
        if isinstance(error, kinds) and (StaleRevision in kinds or not isinstance(error, StaleRevision)):
            return error
        raise AssertionError(f"{what}: expected {wanted}, and it raised {type(error).__name__}: {error}") from error
    raise AssertionError(f"{what}: expected {wanted}, and it returned {_short(got)}")


def parts(error: Exception, *wanted: str) -> list[Any]:
    """Some attributes of an error."""
    return [getattr(error, name, "nothing") for name in wanted]


def emptied(make: MakeStore) -> Store:
    """A store with nothing in it."""
    store = make()
    while page := store.list(limit=_PAGE):
        for loop in page:
            store.delete(loop.loop_id)
        if store.list(limit=_PAGE)[:1] == page[:1]:
            raise AssertionError("a loop that was deleted is still listed")
    return store


def two_stores(make: MakeStore) -> tuple[Store, Store]:
    """Two stores of one content: the same one twice, where each call of `make` gives a content of its own."""
    one, other = emptied(make), make()
    one.create("shared?", [], head=READY)
    try:
        other.delete("shared?")
    except LoopNotFound:
        one.delete("shared?")
        return one, one
    return one, other


def at_once(acts: Sequence[Callable[[], Any]]) -> list[Any]:
    """What each act returned, or the exception that it raised, when threads do them all at one moment."""
    barrier = threading.Barrier(len(acts), timeout=_PATIENCE)
    done: list[Any] = [None] * len(acts)

    def run(at: int) -> None:
        barrier.wait()
        try:
            done[at] = acts[at]()
        except Exception as error:  # noqa: BLE001 - it is what the act gave
            done[at] = error

    threads = [threading.Thread(target=run, args=(at,)) for at in range(len(acts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return done


def one_wins(what: str, done: Iterable[Any], losers: type[Exception]) -> Any:
    """What the one act returned that succeeded; fail unless it was one, and all others were refused as is right."""
    won = [each for each in done if not isinstance(each, Exception)]
    same(f"{what}: how many succeed", len(won), 1)
    same(f"{what}: the others get", {type(each) for each in done if isinstance(each, Exception)}, {losers})
    return won[0]


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."  # noqa: PLR2004 - a line or two
