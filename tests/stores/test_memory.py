"""The store in memory."""

from __future__ import annotations

from tests.stores.support import READY, contents, entries
from toolloop.stores import MemoryStore
from toolloop.testing import check_store


def test_it_keeps_the_rules_of_a_store() -> None:
    """The conformance suite finds nothing, whether each store is new or all are one."""
    check_store(MemoryStore)
    store = MemoryStore()
    check_store(lambda: store)


def test_two_stores_have_nothing_in_common() -> None:
    """Not even tokens of leases."""
    one, other = MemoryStore(), MemoryStore()
    one.create("loop", entries("a"), head=READY)
    one.acquire("loop", "me", until=1.0)
    assert contents(other) == []
    other.create("loop", entries("b"), head=READY)
    assert other.acquire("loop", "me", until=1.0).token == 1


def test_what_it_gave_and_took_can_be_changed_without_harm() -> None:
    """A caller's list is copied, and so is what a caller gets."""
    store = MemoryStore()
    mine = entries("a", "b")
    store.create("loop", mine, head=READY)
    mine.clear()
    store.list().clear()
    assert [entry.id for entry in store.load("loop").entries] == ["a", "b"]
    assert len(store.list()) == 1
