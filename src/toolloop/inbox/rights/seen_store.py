"""A store as one person sees it: without the loops that the person does not see."""

from __future__ import annotations

import builtins  # `list` is a method of a store
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from attrs import define, evolve, field, frozen

from toolloop.errors import LoopNotFound, UnreadableSnapshot
from toolloop.inbox.rights.cursors import open_cursor, seal_cursor
from toolloop.stores import store_errors
from toolloop.stores.arguments import check_integer, narrow
from toolloop.stores.optional import NO_LIMIT, count_by_status, find_kept_progress, keeps_tallies, watch_store
from toolloop.stores.protocol import Entry, Head, Store, StoredJournal, StoredLoop

_PAGE = 500  # rows that are read at once where a store cannot select them


@define(slots=False)
class SeenStore:
    """The methods of a store that an inbox uses. A loop that is not seen does not exist: errors are the same, too.

    Attributes:
        store: the store.
        sees: returns the metadata of the loops that are seen, each time a loop is read or written; None: all.

    """

    store: Store
    sees: Callable[[], Sequence[Mapping[str, str]] | None]
    now: Callable[[], float] = field(init=False, repr=False, eq=False)  # if the store has it
    tallies: Callable[..., builtins.list[tuple[str, str | None]]] = field(init=False, repr=False, eq=False)  # likewise

    def __attrs_post_init__(self) -> None:
        """Take what a store may have or lack."""
        store: Any = self.store
        if hasattr(store, "now"):
            self.now = store.now
        if keeps_tallies(self.store):
            self.tallies = self._tallies

    @property
    def whole_store(self) -> Store:
        """The store, by which states are remembered. To use one, `load` of this store must allow it."""
        return self.store

    def head(self, loop_id: str) -> StoredLoop:
        """See `Store.head`."""
        seen = self.sees()
        try:
            row = self.store.head(loop_id)
        except LoopNotFound:
            raise store_errors.make_missing_error(loop_id) from None
        except UnreadableSnapshot:
            if not self._is_listed(loop_id, seen):
                raise store_errors.make_missing_error(loop_id) from None
            raise
        if not is_seen(row.metadata, seen):
            raise store_errors.make_missing_error(loop_id)
        lease = None if row.lease is None else evolve(row.lease, token=0)  # it counts the leases of all loops
        return evolve(row, cursor="", lease=lease)

    def _is_listed(self, loop_id: str, seen: Sequence[Mapping[str, str]] | None) -> bool:
        """Return whether a damaged loop is known to be seen."""
        if seen is None:
            return True
        return hasattr(self, "tallies") and any(each == loop_id for each, _ in self.tallies())

    def load(self, loop_id: str, *, after: int = 0, first_id: str | None = None) -> StoredJournal:
        """See `Store.load`."""
        before = self.head(loop_id)
        journal = self.store.load(loop_id, after=after, first_id=first_id)
        if self.head(loop_id).created != before.created:  # it was deleted, and created again by another person
            raise store_errors.make_missing_error(loop_id)
        return journal

    def append(self, loop_id: str, entries: Sequence[Entry], **guards: Any) -> int:
        """See `Store.append`."""
        self.head(loop_id)
        return self.store.append(loop_id, entries, **guards)

    def create(self, loop_id: str, entries: Sequence[Entry], *, head: Head, metadata: Mapping[str, str]) -> int:
        """See `Store.create`."""
        return self.store.create(loop_id, entries, head=head, metadata=metadata)

    def list(
        self,
        status: str | Collection[str] | None = None,
        *,
        metadata: Mapping[str, str] | None = None,
        limit: int = 100,
        before: str | None = None,
    ) -> builtins.list[StoredLoop]:
        """See `Store.list`. Only the last row of a full page has a cursor."""
        seen, before = self.sees(), None if before is None else open_cursor(before, self.store.secret())
        if seen is None:
            rows = self.store.list(status, metadata=metadata, limit=limit, before=before)
        else:
            rows = _listed(self.store, status, narrow(metadata, seen), limit, before)
        last = seal_cursor(rows[-1].cursor, self.store.secret()) if len(rows) == limit else ""
        return [*(evolve(row, cursor="") for row in rows[:-1]), *(evolve(row, cursor=last) for row in rows[-1:])]

    def count(self, now: float, metadata: Mapping[str, str] | None = None) -> tuple[dict[str, int], int]:
        """Return how many loops have each status, and how many calls wait. See `stores/optional.py`."""
        if (seen := self.sees()) is None:
            return count_by_status(self.store, now, metadata)
        wanted: Any = narrow(metadata, seen)
        if _takes_alternatives(self.store):
            return count_by_status(self.store, now, wanted)
        rows = _listed(self.store, None, wanted, NO_LIMIT)
        return count_by_status(_Rows(lambda **_: rows), now)

    def _tallies(self, metadata: Mapping[str, str] | None = None) -> builtins.list[tuple[str, str | None]]:
        """Return each loop with its tally. See `stores/optional.py`."""
        found: Callable[..., builtins.list[tuple[str, str | None]]] = self.store.tallies  # type: ignore[attr-defined] # it is optional
        if (seen := self.sees()) is None:
            return found(metadata=metadata)
        wanted: Any = narrow(metadata, seen)
        if _takes_alternatives(self.store):
            return found(metadata=wanted)
        ids = {row.loop_id for row in _listed(self.store, None, wanted, NO_LIMIT)}
        return [each for each in found(metadata=metadata) if each[0] in ids]

    def progress(self, loop_id: str) -> str | None:
        """Return the text that the driver of a loop keeps. See `stores/optional.py`."""
        self.head(loop_id)
        return find_kept_progress(self.store, loop_id)

    def watch(self, on_change: Callable[[], object]) -> AbstractContextManager[object]:
        """Report changes of any loop. See `stores/optional.py`."""
        return watch_store(self.store, on_change)

    def secret(self) -> str:
        """See `Store.secret`."""
        return self.store.secret()


@frozen
class _Rows:
    """A store that has only these rows."""

    list: Callable[..., builtins.list[StoredLoop]]


def is_seen(metadata: Mapping[str, str], seen: Sequence[Mapping[str, str]] | None) -> bool:
    """Return whether a person sees loops with this metadata."""
    return seen is None or any(each.items() <= metadata.items() for each in seen)


def _takes_alternatives(store: Any) -> bool:
    return getattr(store, "takes_alternatives", False) is True


def _listed(
    store: Any,
    status: str | Collection[str] | None,
    metadata: Sequence[Mapping[str, str]],
    limit: int,
    before: str | None = None,
) -> list[StoredLoop]:
    """Return the rows with one of these metadata, also of a store that cannot select them."""
    if _takes_alternatives(store):
        found: list[StoredLoop] = store.list(status, metadata=metadata, limit=limit, before=before)
        return found
    check_integer("limit", limit, least=1)
    rows = list[StoredLoop]()
    while len(rows) < limit:
        page = store.list(status, limit=_PAGE, before=before)
        rows += [row for row in page if is_seen(row.metadata, metadata)]
        if len(page) < _PAGE:
            break
        before = page[-1].cursor
    return rows[:limit]
