"""Stores that each break one rule for the optional members of a store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from tests.stores.rules.broken import breaks
from toolloop.stores import Lease, Left, MemoryStore, StoredLoop


@breaks("due_loops_are_those_of_the_list")
class EverythingIsDue(MemoryStore):
    def list_due(self, now: float, metadata: Any = None) -> tuple[list[StoredLoop], float | None]:
        return self.list(metadata=metadata, limit=1000), None


@breaks("due_loops_are_those_of_the_list")
class NothingLater(MemoryStore):
    def list_due(self, now: float, metadata: Any = None) -> tuple[list[StoredLoop], float | None]:
        return [row for row in self.list(limit=1000) if row.due_at is not None and row.due_at <= now], None


@breaks("metadata_limits_what_is_due_unnotified_and_counted")
class NotifiesOfAll(MemoryStore):
    def list_unnotified(self, metadata: Any = None) -> list[StoredLoop]:
        return [row for row in self.list(limit=1000) if row.pending]

    def mark_notified(self, loops: Sequence[StoredLoop]) -> None:
        pass


@breaks("metadata_limits_what_is_due_unnotified_and_counted")
class CountsWhatExpired(MemoryStore):
    def count(self, now: float, metadata: Any = None) -> tuple[dict[str, int], int]:
        rows = self.list(metadata=metadata, limit=1000)
        return dict(Counter(row.status for row in rows)), sum(len(row.pending) for row in rows)


@breaks("metadata_may_have_alternatives")
class TakesTheFirstAlternative(MemoryStore):
    def list(self, status: Any = None, *, metadata: Any = None, **more: Any) -> list[StoredLoop]:
        return super().list(status, metadata=metadata[:1] if isinstance(metadata, list) else metadata, **more)


@breaks("metadata_may_have_alternatives")
class NoAlternativeIsAny(MemoryStore):
    def list(self, status: Any = None, *, metadata: Any = None, **more: Any) -> list[StoredLoop]:
        return super().list(status, metadata=metadata or None, **more)


@breaks("a_loop_that_is_left_says_so_until_it_is_driven")
class ForgetsWhyItIsLeft(MemoryStore):
    def mark_left(self, loop: StoredLoop, left: Left) -> None:
        pass


@breaks("a_marked_loop_is_listed_after_its_next_event")
class MarkedForGood(MemoryStore):
    def list_unnotified(self, metadata: Any = None) -> list[StoredLoop]:
        marked = self.__dict__.setdefault("marked", set())
        return [row for row in self.list(metadata=metadata, limit=1000) if row.pending and row.loop_id not in marked]

    def mark_notified(self, loops: Sequence[StoredLoop]) -> None:
        self.__dict__.setdefault("marked", set()).update(row.loop_id for row in loops)


@breaks("a_reminder_is_listed_when_it_is_due")
class RemindsAtOnce(MemoryStore):
    def list_unnotified(self, metadata: Any = None) -> list[StoredLoop]:
        marked = self.__dict__.setdefault("marked", {})
        rows = self.list(metadata=metadata, limit=1000)
        return [row for row in rows if row.pending and marked.get(row.loop_id, (0,))[0] != row.rev]

    def mark_notified(self, loops: Sequence[StoredLoop], remind_at: Sequence[float | None] | None = None) -> None:
        times = remind_at or [None] * len(loops)
        marks = {row.loop_id: (row.rev, at) for row, at in zip(loops, times, strict=True)}
        self.__dict__.setdefault("marked", {}).update(marks)

    def list_reminders(self, now: float, metadata: Any = None) -> list[StoredLoop]:
        assert now
        marked = self.__dict__.setdefault("marked", {})
        rows = self.list(metadata=metadata, limit=1000)
        return [row for row in rows if row.pending and marked.get(row.loop_id, (0, None))[1] is not None]


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


class KeepsCheckpoints(MemoryStore):
    """The base of those that keep checkpoints in another way."""

    def checkpoint(self, loop_id: str, *, meaning: int) -> bytes | None:
        found = self.__dict__.setdefault("checkpoints", {}).get((loop_id, meaning))
        return None if found is None else found[1]


@breaks("a_checkpoint_is_kept_by_the_holder_of_the_lease")
class KeepsTheLastCheckpoint(KeepsCheckpoints):
    def keep_checkpoint(self, lease: Lease, body: bytes, *, rev: int, meaning: int) -> None:
        self.__dict__.setdefault("checkpoints", {})[lease.loop_id, meaning] = rev, body


@breaks("a_checkpoint_is_kept_by_the_holder_of_the_lease")
class KeepsCheckpointsOfAnyDriver(KeepsCheckpoints):
    def keep_checkpoint(self, lease: Lease, body: bytes, *, rev: int, meaning: int) -> None:
        kept = self.__dict__.setdefault("checkpoints", {})
        kept[lease.loop_id, meaning] = max(kept.get((lease.loop_id, meaning), (0, b"")), (rev, body))
