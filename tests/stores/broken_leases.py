"""Stores that each break a rule of leases."""

from __future__ import annotations

from itertools import count
from typing import Any

from attrs import evolve

from tests.stores.broken import breaks
from toolloop.stores import Lease, MemoryStore


@breaks("a_lease_is_as_it_was_given")
class OtherLease(MemoryStore):
    def lease(self, loop_id: str) -> Lease | None:
        lease = super().lease(loop_id)
        return None if lease is None else evolve(lease, owner="somebody")


@breaks("a_lease_keeps_others_out")
class Polite(MemoryStore):
    def acquire(self, loop_id: str, owner: str, *, instead_of: int | None = None, **more: Any) -> Lease:
        lease = self.lease(loop_id) if loop_id in self._loops else None
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


@breaks("an_append_may_need_a_lease")
class NoFence(MemoryStore):
    def append(self, *args: Any, lease: Lease | None = None, **kwargs: Any) -> int:
        return super().append(*args, **kwargs)
