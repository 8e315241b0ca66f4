"""Stores that each break one rule, and the rule: here those of journals, lists and contents."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any

from attrs import evolve

from toolloop.stores import Entry, Head, Lease, MemoryStore, StoredJournal, StoredLoop

BROKEN: dict[str, list[type[MemoryStore]]] = {}


def breaks(rule: str) -> Callable[[type[MemoryStore]], type[MemoryStore]]:
    def note(kind: type[MemoryStore]) -> type[MemoryStore]:
        BROKEN.setdefault(rule, []).append(kind)
        return kind

    return note


@breaks("a_journal_is_kept_as_it_was_stored")
class Backwards(MemoryStore):
    def load(self, loop_id: str, **more: Any) -> StoredJournal:
        journal = super().load(loop_id, **more)
        return evolve(journal, entries=journal.entries[::-1])


@breaks("a_journal_is_read_from_a_revision_on")
class AllOfIt(MemoryStore):
    def load(self, loop_id: str, *, after: int = 0, **more: Any) -> StoredJournal:
        return super().load(loop_id, **more)


@breaks("a_loop_is_created_once")
class Overwriting(MemoryStore):
    def create(self, loop_id: str, entries: Sequence[Entry], **more: Any) -> int:
        self._loops.pop(loop_id, None)
        return super().create(loop_id, entries, **more)


@breaks("an_append_expects_the_revision")
class Careless(MemoryStore):
    def append(self, *args: Any, expected_rev: int | None, **kwargs: Any) -> int:
        return super().append(*args, expected_rev=None, **kwargs)


@breaks("an_event_is_stored_once")
class Forgetful(MemoryStore):
    def append(self, loop_id: str, *args: Any, **kwargs: Any) -> int:
        if loop_id in self._loops:
            loop = self._loops[loop_id]
            loop.entries = {str(number): entry for number, entry in enumerate(loop.entries.values())}
        return super().append(loop_id, *args, **kwargs)


@breaks("a_list_describes_each_loop")
class FirstHead(MemoryStore):
    def append(self, *args: Any, head: Head | None = None, **kwargs: Any) -> int:
        return super().append(*args, **kwargs)


@breaks("a_head_may_bring_other_metadata")
class FirstMetadata(MemoryStore):
    def append(self, *args: Any, head: Head | None = None, **kwargs: Any) -> int:
        return super().append(*args, head=None if head is None else evolve(head, metadata=None), **kwargs)


@breaks("a_list_has_the_newest_first")
class ByName(MemoryStore):
    def list(self, *args: Any, **kwargs: Any) -> builtins.list[StoredLoop]:
        return sorted(super().list(*args, **kwargs), key=lambda loop: loop.loop_id)


@breaks("a_list_is_read_by_status_and_by_page")
class LimitFirst(MemoryStore):
    def list(self, status: Any = None, **kwargs: Any) -> builtins.list[StoredLoop]:
        super().list(status, **kwargs)
        return [loop for loop in super().list(**kwargs) if status is None or loop.status in status]


@breaks("a_list_is_read_by_metadata")
class AnyOfThem(MemoryStore):
    def list(self, status: Any = None, *, metadata: Any = None, **kwargs: Any) -> builtins.list[StoredLoop]:
        first = dict(builtins.list((metadata or {}).items())[:1])
        return super().list(status, metadata=first, **kwargs)


@breaks("a_head_is_replaced_alone")
class NeedsEvents(MemoryStore):
    def append(self, loop_id: str, entries: Sequence[Entry], **kwargs: Any) -> int:
        return super().append(loop_id, entries, **kwargs) if entries else self.load(loop_id).rev


@breaks("a_head_is_replaced_alone")
class LastWriterWins(MemoryStore):
    def append(self, *args: Any, instead_of: Head | None = None, **kwargs: Any) -> int:
        return super().append(*args, **kwargs)


@breaks("another_loop_of_the_same_id_is_refused")
class ByIdAlone(MemoryStore):
    def acquire(self, *args: Any, first_id: str | None = None, **kwargs: Any) -> Lease:
        return super().acquire(*args, **kwargs)


@breaks("a_deleted_loop_is_gone")
class KeepsEvents(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.old: dict[str, builtins.list[Entry]] = {}

    def delete(self, loop_id: str) -> None:
        old = self.load(loop_id).entries
        super().delete(loop_id)
        if len(old) == 2:
            self.old[loop_id] = builtins.list(old)

    def create(self, loop_id: str, entries: Sequence[Entry], **more: Any) -> int:
        super().create(loop_id, entries, **more)
        return self._loops[loop_id].add(self.old.pop(loop_id, []))


@breaks("a_secret_stays")
class Fickle(MemoryStore):
    def secret(self) -> str:
        self._secret += "x"
        return self._secret


@breaks("a_missing_loop_is_named")
class MakesLoops(MemoryStore):
    def acquire(self, loop_id: str, *args: Any, **kwargs: Any) -> Lease:
        if loop_id not in self._loops:
            self.create(loop_id, [], head=Head("running"))
        return super().acquire(loop_id, *args, **kwargs)


@breaks("unusual_texts_stay_as_they_are")
class Stripping(MemoryStore):
    def create(self, loop_id: str, entries: Sequence[Entry], **more: Any) -> int:
        return super().create(loop_id.strip(" "), entries, **more)
