"""The lease of a driver: held as long as it is needed, and given back however the need ended."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.kit.failing import FailingStore
from tests.kit.journals import hold, hold_lease, make_journal, make_running_loop, names, open_journal
from toolloop._journal import lease as leases, lease_term
from toolloop._journal.lease import KEEPER, DriverLease, has_ended
from toolloop.errors import Conflict, LoopNotFound, StoreError
from toolloop.machine.record import journal_events as ev
from toolloop.machine.values.calls import Result
from toolloop.machine.values.jsontext import encode
from toolloop.stores import MemoryStore
from toolloop.stores.process import name_this_process

DEADLINE = 30.0


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    for owner in tuple(KEEPER.value.leases):
        KEEPER.value.forget(owner)


def make_failing() -> tuple[FailingStore, DriverLease]:
    """A loop in a store that works until the test makes it fail."""
    store = FailingStore(MemoryStore())
    journal = make_journal(store)
    journal.commit()
    return store, DriverLease(journal)


def fail(store: FailingStore, name: str, moment: str) -> None:
    """Let each call of a method fail from now on."""
    store.fails = lambda _: moment if store.asked[-1] == name else None  # type: ignore[assignment,return-value] # it is one


def works(store: FailingStore) -> None:
    store.fails = lambda _: None


# --- holders ---------------------------------------------------------------------------------------------------------


def test_it_is_taken_for_the_first_holder_and_given_back_after_the_last() -> None:
    """A turn inside a `run()` takes nothing."""
    store, lease = make_failing()
    with hold_lease(lease):
        assert not lease.is_shared
        with hold_lease(lease):
            release = hold(lease)
            assert lease.is_shared
        assert lease.owner == store.inner.head("loop").lease.owner
    assert store.inner.head("loop").lease is not None
    release()
    assert store.inner.head("loop").lease is None
    assert store.asked == ["create", "acquire", "release"]


def test_a_holder_that_is_collected_does_not_wait_for_the_store() -> None:
    """The thread that renews leases gives the lease back."""
    store, lease = make_failing()
    release = hold(lease)
    assert lease.is_needed
    del release
    assert not lease.is_needed
    assert store.asked == ["create", "acquire"]
    KEEPER.value.renew_all()
    assert store.inner.head("loop").lease is None


def test_what_still_runs_needs_the_lease_without_holding_it() -> None:
    """A tool in a thread outlives its turn."""
    store, runs = FailingStore(MemoryStore()), [True]
    lease = DriverLease(make_journal(store), in_use=lambda: bool(runs))
    with hold_lease(lease):
        pass
    KEEPER.value.renew_all()
    assert store.inner.head("loop").lease is not None
    assert not has_ended(lease.owner, 0.0, now=1.0)
    runs.clear()
    lease.give_back_if_free()
    assert store.inner.head("loop").lease is None


@pytest.mark.parametrize("error", [StoreError, KeyboardInterrupt])
def test_an_interrupted_caller_holds_nothing(error: type[BaseException]) -> None:
    """In the block, or while the store gives the lease."""
    store, lease = make_failing()
    with pytest.raises(error), hold_lease(lease):
        raise error("stop")
    assert store.inner.head("loop").lease is None
    store.error = lambda: error("stop")
    fail(store, "acquire", "after")
    with pytest.raises(error), hold_lease(lease):
        raise AssertionError("it got in")
    assert not lease.is_needed


def test_a_loop_that_is_not_there_is_created_first() -> None:
    """A lease is of a loop in the store."""
    store = MemoryStore()
    lease = DriverLease(make_journal(store))
    with hold_lease(lease):
        assert names(store) == ["Opened"]


# --- others ----------------------------------------------------------------------------------------------------------


def test_another_driver_is_named_and_is_not_disturbed() -> None:
    """Unless it is taken over by name, and that once."""
    store, first = make_failing()
    release = hold(first)
    second = DriverLease(open_journal(store))
    with pytest.raises(Conflict, match=r"'loop' is being driven by process \d+ on .*, with a lease until") as caught:
        second.acquire()
    assert (caught.value.owner, caught.value.loop_id) == (first.owner, "loop")
    assert not second.is_needed
    third = DriverLease(open_journal(store), take_over=True)
    release_third = hold(third)
    KEEPER.value.renew_all()
    release()
    assert store.inner.head("loop").lease.owner == third.owner
    fourth = DriverLease(open_journal(store), take_over=True)
    release_fourth = hold(fourth)
    release_third()
    with pytest.raises(Conflict):
        third.acquire()
    release_fourth()


def owner_of(**parts: Any) -> str:
    return json.dumps({**json.loads(name_this_process()), **parts}) + " 0123456789ab"


@pytest.mark.parametrize(
    ("owner", "until", "ended"),
    [
        (owner_of(pid=1, start=0), 9e9, True),  # another process has its number now
        (owner_of(pid=2**22 + 5), 9e9, True),
        (owner_of(host="elsewhere"), 9e9, False),
        (owner_of(host="elsewhere"), 0.0, True),
        ("somebody", 9e9, False),
        (f"{name_this_process()} nobody", 9e9, True),
    ],
)
def test_a_lease_that_was_never_given_back_ends_with_its_owner_or_its_time(
    owner: str, until: float, ended: bool
) -> None:
    """Only time counts if it is unknown whether the owner lives."""
    store, lease = make_failing()
    store.inner.acquire("loop", owner, until=until)
    assert has_ended(owner, until, time.time()) is ended
    if ended:
        lease.acquire()
    else:
        with pytest.raises(Conflict):
            lease.acquire()


# --- a store that fails ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_lease_that_may_have_been_given_is_found_and_given_back(moment: str) -> None:
    """The store failed when it was asked for it. It does not block other callers of this process meanwhile."""
    store, lease = make_failing()
    fail(store, "acquire", moment)
    with pytest.raises(StoreError):
        lease.acquire()
    works(store)
    if moment == "after":
        assert has_ended(store.inner.head("loop").lease.owner, 9e9, now=0.0)
    KEEPER.value.renew_all()
    assert store.inner.head("loop").lease is None
    assert not KEEPER.value.leases


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_lease_that_could_not_be_given_back_is_given_back_later(moment: str) -> None:
    """Or taken up again, before or after that."""
    store, lease = make_failing()
    release = hold(lease)
    fail(store, "release", moment)
    release()
    KEEPER.value.renew_all()
    works(store)
    with hold_lease(lease):
        lease._journal.record(ev.Requested())
        lease._journal.commit()
        assert lease._journal.lost is None
    assert store.inner.head("loop").lease is None


def test_what_happened_is_stored_before_the_lease_is_given_back() -> None:
    """It would not count later."""
    store = FailingStore(MemoryStore())
    driver = make_running_loop(store)
    driver.journal.record(ev.Ended("t1", Result(encode("paid")), iteration=1, attempt=1))
    fail(store, "append", "before")
    driver.release()
    assert store.inner.head("loop").lease is not None
    works(store)
    KEEPER.value.renew_all()
    assert store.inner.head("loop").lease is None
    assert names(store.inner)[-1] == "Ended"


# --- renewal ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def due(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look renews."""
    monkeypatch.setattr(lease_term, "_RENEWALS", math.inf)


@pytest.mark.usefixtures("due")
def test_a_lease_that_is_held_is_renewed() -> None:
    """Its holder notices nothing."""
    store, lease = make_failing()
    with hold_lease(lease):
        until = store.inner.head("loop").lease.until
        KEEPER.value.renew_all()
        assert store.inner.head("loop").lease.until > until
        lease._journal.record(ev.Requested())
        lease._journal.commit()
        assert lease._journal.lost is None
    assert store.inner.head("loop").lease is None


@pytest.mark.usefixtures("due")
def test_a_lease_that_is_lost_is_renewed_no_more() -> None:
    """Its driver learns that with its next event."""
    store, lease = make_failing()
    with hold_lease(lease):
        store.inner.release(store.inner.head("loop").lease)
        KEEPER.value.renew_all()
        assert not KEEPER.value.leases
        request = lease._journal.record(ev.Requested())
        lease._journal.commit()
        assert isinstance(request.rejection, Conflict)
        assert isinstance(lease._journal.lost, Conflict)
    with hold_lease(lease):
        assert lease._journal.lost is None


@pytest.mark.usefixtures("due")
def test_a_renewal_that_fails_is_tried_again() -> None:
    """Also one whose store raises what no store should; but that one is given up."""
    store, lease = make_failing()
    release = hold(lease)
    fail(store, "renew", "before")
    KEEPER.value.renew_all()
    works(store)
    KEEPER.value.renew_all()
    assert store.asked[-2:] == ["renew", "renew"]
    release()


def test_one_thread_renews_all_leases_and_ends_when_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a daemon: no program waits for it."""
    monkeypatch.setattr(leases, "_LOOK_EVERY", 0.001)
    releases = [hold(make_failing()[1]) for _ in range(3)]
    (thread,) = (each for each in threading.enumerate() if each.name == "leases-of-toolloop")
    assert thread.daemon
    releases.clear()
    thread.join(DEADLINE)
    assert not thread.is_alive()
    assert not KEEPER.value.leases


def test_a_deleted_loop_has_no_lease_to_give_back() -> None:
    """There is nothing to give back."""
    store, lease = make_failing()
    release = hold(lease)
    store.inner.delete("loop")
    release()
    assert not KEEPER.value.leases
    with pytest.raises(LoopNotFound):
        lease.acquire()
    KEEPER.value.renew_all()
    assert not KEEPER.value.leases
