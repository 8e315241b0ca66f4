"""Stores that each break a rule where threads meet, or where they are opened again."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from tests.stores.rules.broken import breaks
from toolloop.errors import Conflict, StaleRevision
from toolloop.stores import Entry, Head, Lease, MemoryStore
from toolloop.testing.stores.checks import RACERS


def is_in_a_race() -> bool:
    return threading.current_thread() is not threading.main_thread()


class Gathering(MemoryStore):
    """Looks first, waits until every racer has looked, and then acts without a look."""

    def __init__(self) -> None:
        super().__init__()
        self.barrier = threading.Barrier(RACERS, timeout=60)


@breaks("one_of_many_creates_a_loop")
class RacyCreate(Gathering):
    def create(self, loop_id: str, entries: Sequence[Entry], *, head: Head, **more: Any) -> int:
        if is_in_a_race() and loop_id not in self._loops:
            self.barrier.wait()
            self._loops.pop(loop_id, None)
            self._loops[loop_id] = type(self).blank(head)
            return self._loops[loop_id].add(entries)
        return super().create(loop_id, entries, head=head, **more)

    @staticmethod
    def blank(head: Head) -> Any:
        helper = MemoryStore()
        helper.create("loop", [], head=head)
        return helper._loops["loop"]


@breaks("one_of_many_appends_at_a_revision")
class RacyAppend(Gathering):
    def append(self, loop_id: str, entries: Sequence[Entry], *, expected_rev: int | None, **kwargs: Any) -> int:
        if is_in_a_race() and expected_rev is not None and expected_rev == self.load(loop_id).rev:
            self.barrier.wait()
            expected_rev = None
        return super().append(loop_id, entries, expected_rev=expected_rev, **kwargs)


@breaks("one_of_many_acquires_a_lease")
class RacyAcquire(Gathering):
    def acquire(self, loop_id: str, owner: str, *, instead_of: int | None = None, **more: Any) -> Lease:
        if is_in_a_race():
            self.barrier.wait()
            with suppress(Conflict):
                return super().acquire(loop_id, owner, instead_of=instead_of, **more)
            held = self.head(loop_id).lease
            while True:
                with suppress(Conflict):
                    return super().acquire(loop_id, owner, instead_of=None if held is None else held.token, **more)
                held = self.head(loop_id).lease
        return super().acquire(loop_id, owner, instead_of=instead_of, **more)


@breaks("nothing_that_is_merged_is_lost")
class RacyMerge(Gathering):
    def append(self, loop_id: str, entries: Sequence[Entry], *, expected_rev: int | None, **kwargs: Any) -> int:
        if is_in_a_race() and expected_rev is None:
            rev = self.load(loop_id).rev
            self.barrier.wait()
            with suppress(StaleRevision):
                return super().append(loop_id, entries, expected_rev=rev, **kwargs)
            return rev
        return super().append(loop_id, entries, expected_rev=expected_rev, **kwargs)


@breaks("what_is_stored_stays")
class LosesLeases(MemoryStore):
    """One content for all; each process that opens it forgets the leases."""

    shared: Any = None

    def __init__(self) -> None:
        super().__init__()
        if LosesLeases.shared is not None:
            self._loops = LosesLeases.shared._loops
            for loop in self._loops.values():
                loop.lease = None
        LosesLeases.shared = self
