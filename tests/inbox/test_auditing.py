"""The audit of a store: what it shows of a loop, against the journal."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest
from attrs import evolve

from tests.inbox.support import TWO, desk, desk_of
from toolloop import Approve, Deny, SqliteStore, tool
from toolloop.errors import LoopNotFound, ModelError, StoreError, UnreadableSnapshot
from toolloop.inbox import audit, mark_restored
from toolloop.stores import Entry, Head, MemoryStore, Store

# What is done to a loop with two waiting calls, and what the audit says of it.
DAMAGES = {
    "another status": ("UPDATE loops SET status = 'ended'", "listed as ended, but by its journal it is needs_decision"),
    "another deadline": ("UPDATE loops SET deadline = 5", "next deadline is listed as 5.0"),
    "no calls": ("UPDATE loops SET pending = '[]', named = NULL", "waits, but it is not listed"),
    "another input": (
        "UPDATE loops SET pending = replace(pending, 'euros', 'cents')",
        "is listed with another input_text than in its journal",
    ),
    "a call of another id": (
        "UPDATE loops SET pending = replace(pending, '\"c1\"', '\"c9\"')",
        "the call c9 is listed as waiting, but by its journal it does not wait",
    ),
    "a changed event": ("UPDATE events SET body = body || ' ' WHERE place % 4294967296 = 2", "event 2 of loop 'loop'"),
}


def test_each_moment_of_a_life_is_listed_as_it_is(tmp_path: Path) -> None:
    for where in ("memory", "sqlite"):
        site = desk(where, tmp_path, script=(*TWO[:1], ModelError("busy", retryable=True), TWO[1]))
        with site.open():
            pass
        moments = [audit(site.store, "loop")]
        site.drive()
        moments.append(audit(site.store, "loop"))
        site.inbox.decide("loop", {"c1": Approve(by="ana")})
        moments.append(audit(site.store, "loop"))
        site.inbox.decide("loop", {"c2": Deny("no", by="ana")})
        moments.append(audit(site.store, "loop"))
        site.drive()
        moments.append(audit(site.store, "loop"))
        site.inbox.stop("loop", "enough", "ana")
        moments.append(audit(site.store, "loop"))
        assert moments == [()] * 6


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_differs_is_named(damage: str, tmp_path: Path) -> None:
    site = desk("sqlite", tmp_path)
    site.drive()
    statement, message = DAMAGES[damage]
    store = site.store
    assert isinstance(store, SqliteStore)
    with closing(sqlite3.connect(store._file.path)) as connection, connection:
        connection.execute(statement)
    assert message in " ".join(audit(store, "loop"))


def test_a_loop_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LoopNotFound):
        audit(desk("memory", tmp_path).store, "loop")


def test_a_failure_of_the_secret_of_a_store_is_a_store_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the store raises: the audit and the report of a restore need it for calls with secret parameters."""

    @tool(needs_approval=True, secret=("to",))
    def pay(to: str, euros: int) -> str:
        """Pay."""
        return f"{euros} for {to}"

    site = desk_of(MemoryStore())
    site.drive(tools=[pay])

    def fail() -> str:
        raise OSError("the disk is gone")

    monkeypatch.setattr(site.store, "secret", fail)
    acts: tuple[Callable[[], object], ...] = (lambda: audit(site.store, "loop"), lambda: mark_restored(site.store))
    for act in acts:
        with pytest.raises(StoreError, match="OSError: the disk is gone"):
            act()


def test_a_trail_of_a_damaged_journal_is_unreadable(tmp_path: Path) -> None:
    """An event that cannot follow the ones before it is damage, and not an illegal command of the caller."""
    site = desk("memory", tmp_path)
    site.drive()
    opened = site.store.load("loop").entries[0]
    site.store.append("loop", [evolve(opened, id="again")], expected_rev=None)
    with pytest.raises(UnreadableSnapshot, match="Opened cannot follow the entries before it"):
        site.inbox.trail("loop")


@pytest.mark.parametrize("method", ["list", "now"])
def test_a_store_that_cannot_be_asked_for_its_loops_is_a_store_error(method: str, tmp_path: Path) -> None:
    """`mark_restored` raises `StoreError` whatever the store of a user raises."""
    store = desk("memory", tmp_path).store

    class Failing:
        def __getattr__(self, name: str) -> object:
            return self.fail if name == method else getattr(store, name)

        def fail(self, *_: object, **__: object) -> None:
            raise sqlite3.OperationalError("disk I/O error")

    store.create("loop", [Entry("a", "{}")], head=Head("runnable"))
    with pytest.raises(StoreError, match="the store failed: OperationalError: disk I/O error"):
        mark_restored(cast("Store", Failing()))
