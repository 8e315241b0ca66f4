"""Stores that each break one rule for the optional members of a store."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from tests.stores.broken import breaks
from toolloop.stores import Lease, MemoryStore, StoredLoop


@breaks("due_loops_are_those_of_the_list")
class EverythingIsDue(MemoryStore):
    def list_due(self, now: float) -> tuple[list[StoredLoop], float | None]:
        return self.list(limit=1000), None


@breaks("due_loops_are_those_of_the_list")
class NothingLater(MemoryStore):
    def list_due(self, now: float) -> tuple[list[StoredLoop], float | None]:
        return [row for row in self.list(limit=1000) if row.due_at is not None and row.due_at <= now], None


@breaks("a_marked_loop_is_listed_after_its_next_event")
class MarkedForGood(MemoryStore):
    def list_unnotified(self) -> list[StoredLoop]:
        marked = self.__dict__.setdefault("marked", set())
        return [row for row in self.list(limit=1000) if row.pending and row.loop_id not in marked]

    def mark_notified(self, loops: Sequence[StoredLoop]) -> None:
        self.__dict__.setdefault("marked", set()).update(row.loop_id for row in loops)


@breaks("a_change_is_reported")
class Silent(MemoryStore):
    @contextmanager
    def watch(self, on_change: Callable[[], object]) -> Generator[None]:
        on_change()
        yield


@breaks("progress_is_kept_beside_the_lease")
class ProgressOutlivesItsLease(MemoryStore):
    def keep_progress(self, lease: Lease, text: str | None) -> None:
        self.__dict__.setdefault("texts", {})[lease.loop_id] = text

    def progress(self, loop_id: str) -> str | None:
        text: str | None = self.__dict__.get("texts", {}).get(loop_id)
        return text


@breaks("progress_is_kept_beside_the_lease")
class ForgetsProgress(MemoryStore):
    def keep_progress(self, lease: Lease, text: str | None) -> None:
        pass
