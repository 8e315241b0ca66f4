"""A store that fails, or is interrupted: nothing is done that is not stored, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from attrs import evolve, frozen
from hypothesis import given, strategies as st

from tests.kit import inside
from tests.kit.concurrency import either_kind
from tests.kit.effort import examples, stride
from tests.kit.failing import ERRORS, Asked, FailingStore, Moment, fail_always, fail_never
from tests.kit.tools import SEND
from tests.kit.world import AnyHandle, World, assert_sound, each_store, store_at, wait
from toolloop import Completed, Yielded
from toolloop.errors import Conflict, StoreError
from toolloop.machine import Finished
from toolloop.stores.memory import MemoryStore
from toolloop.testing import reply

MOST = 200  # calls to the store in a whole story; there are far fewer
MOMENTS: tuple[Moment, ...] = ("before", "after")


def make_watched(kind: str, store: FailingStore) -> World:
    """A world that looks into the real store whenever something is performed."""
    world = World(kind, store)
    journal = World(kind, store.inner)
    for call_id in ("t1", "t2", "t3"):
        world.on[call_id] = lambda call_id=call_id: _must(journal.is_running(call_id))  # type: ignore[misc]
    world.on["request"] = lambda: _must(journal.journal()[-1] == "Requested")
    return world


def _must(stored: bool) -> None:
    assert stored, "it is performed, and is not stored"


def say(peer: AnyHandle, word: Callable[[], object], journal: World) -> None:
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
        say(peer, partial(turn.approve, each, by="ana"), journal)
    say(peer, turn.continue_loop, journal)
    return None


def tell(kind: str, store: FailingStore) -> tuple[World, Completed]:
    """The whole story, told by a caller who tries again whatever failed."""
    world = make_watched(kind, store)
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
        except (StoreError, KeyboardInterrupt):
            assert store.failed > seen
    raise AssertionError("the story never ends")


def assert_told(world: World, done: Completed) -> None:
    """The story came to its one end, each request was made once, and each tool ran once."""
    assert isinstance(world.store, FailingStore)
    assert done.text == "done"
    assert (len(world.requests), sorted(world.ran)) == (len(world.script), ["t1", "t2", "t3"])
    for _ in range(4):
        inside.renew_leases()  # which also gives back what could not be given back
    journal = world.bypass()
    assert isinstance(journal.state().root.phase, Finished)
    assert (journal.status(), journal.row().lease) == ("ended", None)
    assert_sound(world.store)


# --- the table: operation x failure x face ---------------------------------------------------------------------------


# What a store is asked for in a story, and which of its calls that is.
OPERATIONS: dict[str, Callable[[Asked], bool]] = {
    "create the loop": lambda asked: asked.name == "create",
    "read the loop": lambda asked: asked.name in ("load", "head", "list"),
    "take the lease": lambda asked: asked.name == "acquire",
    "give the lease back": lambda asked: asked.name == "release",
    **{
        f"store {event}": lambda asked, event=event: event in asked.events  # type: ignore[misc]
        for event in ("Requested", "Replied", "Judged", "Started", "Ended", "Decided", "Continued", "TurnEnded")
    },
}


@frozen
class Failure:
    """How a store fails: before or after it obeys, with which error, and for how many calls."""

    moment: Moment
    error: Callable[[], BaseException] = ERRORS["StoreError"]
    calls: int = 1
    faces: tuple[str, ...] = ("sync", "asyncio")
    where: str = "memory"


FAILURES = {
    f"{name}, {moment}": evolve(failure, moment=moment)
    for moment in MOMENTS
    for name, failure in {
        "one error": Failure("before"),
        "four errors": Failure("before", calls=4, faces=("sync",)),
        "two errors": Failure("before", calls=2, faces=("asyncio",)),
        "an error of sqlite3": Failure("before", error=ERRORS["sqlite3"], faces=("sync",)),
        "one error, in a file": Failure("before", where="sqlite", faces=("sync",)),
        "Ctrl-C": Failure("before", error=KeyboardInterrupt, faces=("sync",)),
    }.items()
}
CELLS = [(failure, face) for failure, each in FAILURES.items() for face in each.faces]
# A story without this operation: no record of its own says so, or a later one implies it.
ABSENT = {"store Judged", "store TurnEnded"}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(("failure", "face"), CELLS)
def test_a_store_that_fails_loses_nothing(operation: str, failure: str, face: str, tmp_path: Path) -> None:
    """Whenever it fails at the operation: the same caller comes to the same end.

    A start that is found in the store later, whose answer was lost, has not begun: no call is uncertain.
    """
    how = FAILURES[failure]
    is_plain = (face, how.where, how.calls) == ("sync", "memory", 1)
    every = stride(3 if is_plain and how.error is ERRORS["StoreError"] else 9 if is_plain else 21)
    for number in range(1, MOST, every):
        folder = tmp_path / str(number)
        folder.mkdir()
        store = FailingStore(store_at(how.where, folder), error=how.error)
        store.fails = fail_at(store, OPERATIONS[operation], number, how)
        assert_told(*tell(face, store))
        if not store.failed:  # the story was over before
            assert number > 1 or operation in ABSENT
            return
        if sum(map(OPERATIONS[operation], store.calls)) < number + every:
            return  # the next place is behind the end, also without a failure
    raise AssertionError("it failed to the last")


def fail_at(
    store: FailingStore, is_asked: Callable[[Asked], bool], number: int, failure: Failure
) -> Callable[[int], Moment | None]:
    """Fail from the call of this number for the operation on, as often as the failure says."""

    def fails(at: int) -> Moment | None:
        hits = [place for place, asked in enumerate(store.calls[:at], 1) if is_asked(asked)]
        down = len(hits) >= number and at < hits[number - 1] + failure.calls
        return failure.moment if down else None

    return fails


@examples(30)
@given(failing=st.dictionaries(st.integers(1, 60), st.sampled_from(["before", "after"]), max_size=12))
def test_a_store_that_fails_now_and_then_loses_nothing(failing: dict[int, Moment]) -> None:
    """Any of its calls may fail, in either way."""
    assert_told(*tell("sync", FailingStore(MemoryStore(), failing.get)))


@each_store
@either_kind
def test_a_decision_that_was_not_stored_was_not_made(kind: str, where: str, tmp_path: Path) -> None:
    """The error comes out of the very call on the sync handle, and of the next await on the async one."""
    store = FailingStore(store_at(where, tmp_path))
    world = World(kind, store, script=(reply(calls=[SEND]), reply("done")))
    peer = world.open()
    turn = peer.run()
    assert isinstance(turn, Yielded)
    store.fails = fail_always
    with pytest.raises(StoreError, match="the disk is gone"):
        peer.say(lambda: turn.approve("t2", by="ana"))
    waits = ["t2"] if kind == "sync" else []  # what was said to an async handle it keeps
    assert [call.id for call in peer.handle.pending] == waits
    assert "Decided" not in World(kind, store.inner).journal()
    store.fails = fail_never
    if kind == "sync":
        turn.approve("t2", by="ana")
    assert peer.text() == "done"
    assert World(kind, store.inner).journal().count("Decided") == 1
    world.assert_once()


@pytest.mark.parametrize("kind", ["sync", "asyncio"])
def test_what_is_raised_is_not_logged(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """A store that fails to the end raises. In a `with` statement that another error leaves, it is logged in a line."""
    store = FailingStore(MemoryStore())
    world = World(kind, store)
    world.on["request"] = lambda: setattr(store, "fails", fail_always)
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
