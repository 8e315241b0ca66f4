"""Stores that each break a rule of leases."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

from attrs import evolve

from tests.stores.rules.broken import breaks
from toolloop.stores import Entry, Lease, MemoryStore, StoredJournal, StoredLoop


@breaks("a_lease_is_as_it_was_given")
class OtherLease(MemoryStore):
    def head(self, loop_id: str) -> StoredLoop:
        row = super().head(loop_id)
        return row if row.lease is None else evolve(row, lease=evolve(row.lease, owner="another"))


@breaks("a_lease_keeps_others_out")
class Polite(MemoryStore):
    def acquire(self, loop_id: str, owner: str, *, instead_of: int | None = None, **more: Any) -> Lease:
        lease = self.head(loop_id).lease if loop_id in self._loops else None
        if lease is not None and lease.owner == owner:
            instead_of = lease.token
        return super().acquire(loop_id, owner, instead_of=instead_of, **more)


@breaks("a_lease_can_be_taken_over")
class Deaf(MemoryStore):
    def acquire(self, loop_id: str, owner: str, *, instead_of: int | None = None, **more: Any) -> Lease:
        return super().acquire(loop_id, owner, **more)


@breaks("tokens_only_grow")
class CountsPerLoop(MemoryStore):
    def delete(self, loop_id: str) -> None:
        super().delete(loop_id)
        self._tokens = count(1)


@breaks("a_lease_is_renewed_by_its_holder")
class NewToken(MemoryStore):
    def renew(self, lease: Lease, *, until: float) -> Lease:
        renewed = super().renew(lease, until=until)
        if until > 1e9:
            renewed = self._loops[lease.loop_id].lease = evolve(renewed, token=next(self._tokens))
        return renewed


@breaks("a_lease_is_given_back")
class GivesAnyBack(MemoryStore):
    def release(self, lease: Lease) -> None:
        super().release(lease)
        if lease.loop_id in self._loops:
            self._loops[lease.loop_id].lease = None


@breaks("another_history_is_refused")
class ForgetsDigests(MemoryStore):
    def load(self, loop_id: str, *, after: int = 0, **more: Any) -> StoredJournal:
        return super().load(loop_id, after=int(after), **more)


@breaks("another_history_is_refused")
class AppendsAnywhere(MemoryStore):
    def append(self, loop_id: str, entries: Sequence[Entry], *, expected_rev: int | None, **more: Any) -> int:
        known = None if expected_rev is None else int(expected_rev)
        return super().append(loop_id, entries, expected_rev=known, **more)


@breaks("another_history_is_refused")
class TakesAnyOwner(MemoryStore):
    def renew(self, lease: Lease, *, until: float) -> Lease:
        held = self.head(lease.loop_id).lease
        return super().renew(lease if held is None else evolve(lease, owner=held.owner), until=until)


@breaks("an_append_may_need_a_lease")
class NoFence(MemoryStore):
    def append(self, *args: Any, lease: Lease | None = None, **kwargs: Any) -> int:
        return super().append(*args, **kwargs)
