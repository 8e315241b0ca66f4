"""A store that fails, or is interrupted: nothing is done that is not stored, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings, strategies as st

from tests.effort import stride
from tests.loop.concurrency import either_kind
from tests.loop.stepping import Asked, Stepping, assert_sound, stepping
from tests.loop.stored import (
    ERRORS,
    PAY,
    SEND,
    STORY,
    AnyHandle,
    Faulty,
    Moment,
    World,
    approve_all,
    each_store,
    store_at,
    wait,
)
from toolloop import Completed, Yielded
from toolloop.errors import Conflict, StoreError
from toolloop.machine import Finished
from toolloop.stores.memory import MemoryStore
from toolloop.testing import reply

MOST = 200  # calls to the store in a whole story; there are far fewer


def watched(kind: str, store: Faulty) -> World:
    """A world that looks into the real store whenever something is performed."""
    world = World(kind, store)
    journal = World(kind, store.inner)
    for call_id in ("t1", "t2", "t3"):
        world.on[call_id] = lambda call_id=call_id: _must(journal.is_running(call_id))  # type: ignore[misc]
    world.on["request"] = lambda: _must(journal.journal()[-1] == "Requested")
    return world


def _must(stored: bool) -> None:
    assert stored, "it is performed, and is not stored"


def said(peer: AnyHandle, word: Callable[[], object], journal: World) -> None:
    """Say something. What a store did not take was not said, on a handle that waits for it."""
    before = peer.handle.snapshot()
    try:
        peer.say(word)
    except Conflict:
        raise  # it was stored after all, and is found there
    except StoreError:
        if peer.kind == "sync":
            unchanged = peer.handle.snapshot() == before
            assert unchanged or peer.handle.state == journal.state(), "what was refused left a trace"
        raise


def go_on(peer: AnyHandle, journal: World) -> Completed | None:
    """What a caller does who looks at the loop first."""
    turn = peer.handle.pending_turn
    if turn is None:
        result = peer.next_turn()
        return result if isinstance(result, Completed) else None
    for each in turn.pending:
        assert each.why == "approval"  # its own starts that were stored, though reported as lost, have not begun
        said(peer, partial(turn.approve, each, by="ana"), journal)
    said(peer, turn.continue_loop, journal)
    return None


def tell(kind: str, store: Faulty) -> tuple[World, Completed]:
    """The whole story, told by a caller who tries again whatever failed."""
    world = watched(kind, store)
    peer: AnyHandle | None = None
    for _ in range(MOST):
        seen = store.failed
        try:
            if peer is None:
                peer = world.open()
            elif (done := go_on(peer, World(kind, store.inner))) is not None:
                peer.close()
                return world, done
        except Conflict:  # a word that was stored, though it was reported as lost
            assert store.failed
        except StoreError:
            assert store.failed > seen
    raise AssertionError("the story never ends")


def assert_told(world: World, done: Completed) -> None:
    """The story came to its one end, and each tool ran once."""
    assert isinstance(world.store, Faulty)
    assert done.text == "done"
    assert sorted(world.ran) == ["t1", "t2", "t3"]
    journal = World(world.kind, world.store.inner)
    assert isinstance(journal.state().root.phase, Finished)
    assert journal.status() == "ended"


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize(
    ("kind", "where", "failure"),
    [
        *(
            (kind, "memory", ("StoreError", long))
            for kind, long in (("sync", 1), ("sync", 4), ("asyncio", 1), ("asyncio", 2))
        ),
        ("sync", "sqlite", ("StoreError", 1)),
        ("sync", "memory", ("sqlite3", 1)),
    ],
)
def test_a_store_that_fails_for_a_while_loses_nothing(
    kind: str, where: str, failure: tuple[str, int], moment: Moment, tmp_path: Path
) -> None:
    """Whichever call to it fails, before or after it was obeyed: the same caller comes to the same end.

    A start that is found in the store later, whose answer was lost, has not begun: no call is uncertain.
    """
    error, long = failure
    all_of_them = (kind, where, failure) == ("sync", "memory", ("StoreError", 1))
    for first in range(1, MOST, 1 if all_of_them else stride(3)):
        folder = tmp_path / str(first)
        folder.mkdir()
        down = range(first, first + long)
        store = Faulty(store_at(where, folder), lambda at, down=down: moment if at in down else None, ERRORS[error]())  # type: ignore[misc]
        assert_told(*tell(kind, store))
        if not store.failed:  # the story was over before
            assert first > len(STORY) * 5
            return
    raise AssertionError("it failed to the last")


@settings(max_examples=30)
@given(failing=st.dictionaries(st.integers(1, 60), st.sampled_from(["before", "after"]), max_size=12))
def test_a_store_that_fails_now_and_then_loses_nothing(failing: dict[int, Moment]) -> None:
    """Any of its calls may fail, in either way."""
    assert_told(*tell("sync", Faulty(MemoryStore(), failing.get)))


@each_store
@either_kind
def test_a_decision_that_was_not_stored_was_not_made(kind: str, where: str, tmp_path: Path) -> None:
    """The error comes out of the very call on the sync handle, and of the next await on the async one."""
    store = Faulty(store_at(where, tmp_path))
    world = World(kind, store, script=(reply(calls=[SEND]), reply("done")))
    peer = world.open()
    turn = peer.run()
    assert isinstance(turn, Yielded)
    store.fails = always
    with pytest.raises(StoreError, match="the disk is gone"):
        peer.say(lambda: turn.approve("t2", by="ana"))
    waits = ["t2"] if kind == "sync" else []  # what was said to an async handle it keeps
    assert [call.id for call in peer.handle.pending] == waits
    assert "Decided" not in World(kind, store.inner).journal()
    store.fails = never
    if kind == "sync":
        turn.approve("t2", by="ana")
    assert peer.text() == "done"
    assert World(kind, store.inner).journal().count("Decided") == 1
    world.assert_once()


@each_store
@either_kind
def test_the_end_of_a_call_is_kept_until_it_can_be_stored(kind: str, where: str, tmp_path: Path) -> None:
    """It happened, so it is tried first with every further call, and the tool does not run again."""
    store = Faulty(store_at(where, tmp_path))
    world = World(kind, store)
    world.on["t1"] = lambda: setattr(store, "fails", always)
    peer = world.open()
    for word in (peer.next_turn, peer.flush, peer.next_turn):
        with pytest.raises(StoreError):
            word()
    store.fails = never
    peer.flush()
    assert World(kind, store.inner).journal()[-1] == "Ended"
    assert peer.run(approve_all).unwrap().text == "done"
    assert world.ran.count("t1") == 1


def test_a_request_is_answered_once_though_its_answer_could_not_be_stored() -> None:
    """A reply was paid for: it is kept until the store works again."""
    store = Faulty(MemoryStore())
    world = World("sync", store)
    world.on["request"] = lambda: setattr(store, "fails", always)
    peer = world.open()
    with pytest.raises(StoreError):
        peer.next_turn()
    del world.on["request"]
    store.fails = never
    assert peer.run(approve_all).unwrap().text == "done"
    assert len(world.requests) == len(STORY)


@pytest.mark.parametrize("kind", ["sync", "asyncio"])
def test_what_is_raised_is_not_logged(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """A store that fails to the end raises. In a `with` statement that another error leaves, it is logged in a line."""
    store = Faulty(MemoryStore())
    world = World(kind, store)
    world.on["request"] = lambda: setattr(store, "fails", always)
    peer = world.open()
    with pytest.raises(StoreError):
        peer.next_turn()
    for known in (StoreError, ValueError):
        assert [record.getMessage() for record in caplog.records] == []
        leave = getattr(peer.handle, "__exit__" if kind == "sync" else "__aexit__")
        wait(kind, leave(known, known("as the turn"), None))
    (record,) = caplog.records
    assert record.getMessage().startswith("could not store everything on close:")
    assert (record.levelname, record.exc_info) == ("WARNING", None)


def always(_: int) -> Moment:
    return "before"


def never(_: int) -> None:
    """The store works."""


def down(_: Asked) -> None:
    raise StoreError("the disk is gone")


# --- what is known not to have run -----------------------------------------------------------------------------------


SCRIPT = (reply(calls=[PAY, SEND]), reply(calls=[{**PAY, "id": "t9"}]), reply("done"))
MOST_CALLS = 100


@pytest.mark.parametrize("config", [{}, {"max_parallel_tools": 1}], ids=["side by side", "one by one"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_interrupt_at_the_store_makes_no_call_uncertain(
    moment: Literal["before", "after"], config: dict[str, Any]
) -> None:
    """At whichever of its calls: the handle knows what ran, and runs the rest once when it goes on."""
    for number in range(1, MOST_CALLS):
        world, store = stepping("sync", script=SCRIPT, config=config)

        def strike(_: Asked, number: int = number, store: Stepping = store) -> None:
            if len(store.every) == number:
                raise KeyboardInterrupt

        peer = world.new()
        setattr(store, moment, strike)
        uncertain: list[str] = []

        def ask(turn: Any, uncertain: list[str] = uncertain) -> None:
            uncertain += [call.id for call in turn.pending if call.why == "uncertain"]
            approve_all(turn)

        struck = False
        for _ in range(2):
            try:
                result = peer.run(ask)
                break
            except KeyboardInterrupt:
                struck = True
        assert isinstance(result, Completed)
        assert (number, uncertain, sorted(world.ran)) == (number, [], ["t1", "t2", "t9"])
        assert store.inner.lease("loop") is None
        assert_sound(store)
        if not struck:  # the story was over before
            assert number > 10
            return
    raise AssertionError("it was struck to the last")
