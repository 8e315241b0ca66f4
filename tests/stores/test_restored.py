"""A store that is restored from a backup: a process that knows later events notices that, in every store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.restoring import Backups, each_restore
from tests.stores.support import READY, entries
from toolloop.errors import Conflict, StaleRevision, StoreError
from toolloop.stores import Revision, SqliteStore


@pytest.fixture
def backups(way: str, tmp_path: Path) -> Iterator[Backups]:
    made = Backups(way, tmp_path)
    yield made
    made.close()


@each_restore
def test_an_append_on_another_branch_is_refused(way: str, backups: Backups) -> None:
    """Though the number of the revision fits; and what is new is not read behind a revision that is not there."""
    store, other = backups.store, backups.other
    first = store.create("loop", entries("a"), head=READY)
    restore = backups.back_up()
    ours = store.append("loop", entries("b"), expected_rev=first)
    restore()
    theirs = other.append("loop", entries("c"), expected_rev=first)
    assert (int(ours), int(theirs)) == (2, 2)
    assert ours != theirs
    if way == "replaced":
        with pytest.raises(StoreError, match="was replaced or removed while it was open"):
            store.head("loop")
    with pytest.raises(StaleRevision, match=f"is at revision {theirs}, but revision {ours} was expected"):
        store.append("loop", entries("d"), expected_rev=ours)
    with pytest.raises(StaleRevision, match=f"does not contain revision {ours}"):
        store.load("loop", after=ours)
    assert store.load("loop", after=theirs).entries == ()
    assert [each.id for each in store.load("loop", after=first).entries] == ["c"]
    assert store.head("loop").rev == store.load("loop").rev == store.list()[0].rev == theirs
    assert store.append("loop", entries("d"), expected_rev=theirs) == 3
    restore()
    if way == "replaced":
        for each in (store, other):
            with pytest.raises(StoreError, match="was replaced"):
                each.head("loop")
    with pytest.raises(StaleRevision, match=f"does not contain revision {theirs}"):
        store.load("loop", after=theirs)


@each_restore
def test_a_lease_of_another_branch_is_not_a_lease(way: str, backups: Backups) -> None:
    """Though its token is the same: it renews nothing, releases nothing, and nothing is appended under it."""
    store, other = backups.store, backups.other
    rev = store.create("loop", entries("a"), head=READY)
    restore = backups.back_up()
    ours = store.acquire("loop", "me", until=1e10)
    assert ours.rev == rev
    restore()
    if way == "replaced":
        with pytest.raises(StoreError, match="was replaced"):
            store.list()
    theirs = other.acquire("loop", "you", until=1e10)
    store.release(ours)
    with pytest.raises(Conflict):
        store.renew(ours, until=2e10)
    with pytest.raises(Conflict):
        store.append("loop", entries("b"), expected_rev=rev, lease=ours)
    assert store.head("loop").lease == theirs


def test_a_replaced_file_is_noticed_by_every_call(tmp_path: Path) -> None:
    """By the first one; it does nothing, and the next one opens the file that is there then. So does a removed one."""
    backups = Backups("replaced", tmp_path)
    store = backups.store
    store.create("loop", entries("a"), head=READY)
    restore = backups.back_up()
    for act in (
        lambda: store.append("loop", entries("b"), expected_rev=None),
        lambda: store.load("loop"),
        lambda: store.acquire("loop", "me", until=1.0),
        store.list,
    ):
        restore()
        with pytest.raises(StoreError, match="was replaced or removed while it was open, as by a restore"):
            act()
        assert int(store.load("loop").rev) == 1
    for path in tmp_path.iterdir():
        path.unlink()
    with pytest.raises(StoreError, match="was replaced or removed"):
        store.list()
    assert store.list() == []
    backups.close()


def test_a_file_that_is_replaced_within_a_transaction_gets_nothing(tmp_path: Path) -> None:
    """Nor does the file that is gone."""
    backups = Backups("replaced", tmp_path)
    store = backups.store
    assert isinstance(store, SqliteStore)
    store.create("loop", entries("a"), head=READY)
    restore = backups.back_up()
    with pytest.raises(StoreError, match="was replaced or removed"):
        store._file.write(lambda db: (db.execute("UPDATE loops SET status = 'lost'"), restore()))
    assert store.head("loop").status == "runnable"
    backups.close()


def test_a_revision_is_a_number_with_a_digest() -> None:
    """It is written with both, and equal to its number; two are equal if they may be the same."""
    rev = Revision(5, "0123456789abcdef")
    assert (str(rev), f"{rev}", repr(rev)) == ("5-01234567", "5-01234567", "Revision(5, '0123456789abcdef')")
    assert (str(Revision(5)), rev + 1, hash(rev), {5: "x"}[rev]) == ("5", 6, hash(5), "x")
    assert rev == 5
    assert rev == Revision(5)
    assert rev == Revision(5, "0123456789abcdef")
    assert rev != Revision(5, "0123456789abcdee")
    assert rev != Revision(6, "0123456789abcdef")
    assert rev != "5"
