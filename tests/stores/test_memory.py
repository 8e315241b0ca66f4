"""The store in memory."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from types import FrameType

import pytest

from tests.kit.tools import params
from tests.stores.support import READY, contents, entries
from toolloop import Completed, Stop, ToolLoopHandle
from toolloop.errors import StoreError
from toolloop.stores import MemoryStore
from toolloop.terminations import StopCondition
from toolloop.testing import ScriptedProvider, check_store, reply


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


@pytest.fixture
def on_alarm() -> Iterator[None]:
    """Restore the signal handler and the profile hook."""
    usual, hook = signal.getsignal(signal.SIGALRM), sys.getprofile()
    yield
    sys.setprofile(hook)
    signal.signal(signal.SIGALRM, usual)


@pytest.mark.usefixtures("on_alarm")
@pytest.mark.parametrize("number", [1, 2])  # to take the lease, and to store the request
def test_a_signal_handler_in_the_middle_of_a_transaction_gets_an_error(number: int) -> None:
    """It may say something to the handle, which counts afterwards. To use the store itself raises, and never hangs."""
    store, provider = MemoryStore(), ScriptedProvider([reply(calls=[("look", {})])])
    handle = ToolLoopHandle(provider, params=params(), store=store, loop_id="loop")
    told, seen = list[StoreError](), list[FrameType]()

    def stop(_signal: int, _frame: object) -> None:
        with pytest.raises(StoreError, match="do not use a store in a signal handler") as refused:
            store.list()
        told.append(refused.value)
        handle.resume(Stop("signal"))

    def strike(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code is MemoryStore._find.__code__:
            seen.append(frame)
            if len(seen) == number:
                sys.setprofile(None)
                signal.raise_signal(signal.SIGALRM)

    signal.signal(signal.SIGALRM, stop)
    sys.setprofile(strike)
    turn = handle.next_turn()
    sys.setprofile(None)
    assert isinstance(turn, Completed)
    assert turn.termination == StopCondition("signal")
    assert len(told) == 1
