"""What a driver could not store when it was interrupted: it counts under its own lease, or not at all."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Literal

import pytest

from tests import inside
from tests.loop.concurrency import Background, either_kind
from tests.loop.stepping import Asked, Stepping, assert_sound, past, stepping
from tests.loop.stored import LOOK, PAY, SEND, AnyHandle, World, approve_all
from tests.loop.support import results_in, yielded
from toolloop import Ask, Completed, LoopConfig, LoopContext
from toolloop.errors import CallerError, Conflict, StoreError
from toolloop.machine.loop import Running
from toolloop.testing import reply

ONE = (reply(calls=[LOOK]), reply("done"))


def down(_: Asked) -> None:
    raise StoreError("the disk is gone")


def up(_: Asked) -> None:
    """The store works."""


def breaks(world: World, store: Stepping, where: str, error: type[BaseException] | None = None) -> None:
    """When the driver comes here its store fails from then on, and perhaps somebody strikes."""

    def fail() -> None:
        del world.on[where]
        store.before = down
        if error is not None:
            raise error

    world.on[where] = fail


def goes_on_at(world: World, store: Stepping, where: str, first: AnyHandle) -> None:
    """When the next driver comes here, the store of the first is well again, and that one is closed."""

    def close() -> None:
        del world.on[where]
        store.before = up
        with suppress(Conflict):
            Background(first.close).result()

    world.on[where] = close


def next_driver(world: World, **more: Any) -> AnyHandle:
    """Somebody else, whose store works."""
    return past(world).open(context=LoopContext(state=world), **more)


def told(world: World) -> list[Any]:
    return [block["content"] for block in results_in(world.requests[-1]["messages"][-1])]


@either_kind
def test_a_reply_that_was_not_stored_does_not_answer_the_request_of_another(kind: str) -> None:
    """That one asked anew, and its own answer is the answer."""
    world, store = stepping(kind, script=(reply("mine"),))
    first = world.open()
    breaks(world, store, "request")
    with pytest.raises(StoreError):
        first.next_turn()
    world.script = (reply("theirs"),)
    second = next_driver(world)
    goes_on_at(world, store, "request", first)
    assert second.text() == "theirs"
    assert len(world.requests) == 2
    assert world.journal().count("Replied") == 1
    assert first.text() == "theirs"
    assert_sound(store)


def test_a_request_that_was_cancelled_is_not_the_one_of_another() -> None:
    """The other's is still under way, and is answered once."""
    world, store = stepping("sync", script=ONE)
    first = world.open()
    breaks(world, store, "request", KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        first.next_turn()
    second = next_driver(world)
    goes_on_at(world, store, "request", first)
    assert second.text() == "done"
    assert len(world.requests) == 3  # the cancelled one, and two that were answered
    assert "RequestFailed" not in world.journal()
    assert_sound(store)


def test_a_call_that_was_cancelled_is_not_the_run_of_another() -> None:
    """The other runs it anew, and its result is the result."""
    world, store = stepping("sync", script=ONE)
    first = world.open()
    breaks(world, store, "t3", KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        first.next_turn()
    second = next_driver(world)
    goes_on_at(world, store, "t3", first)
    assert second.text() == "done"
    assert told(world) == ["look a"]
    assert world.journal().count("Ended") == 1
    assert_sound(store)


def test_what_one_driver_judged_does_not_let_run_what_another_asks_about() -> None:
    """The policies that count are those of who drives."""
    world, store = stepping("sync", script=ONE)
    first = world.open(config=LoopConfig(on_tool_call=lambda *_: None))

    def strike() -> float:
        if isinstance(first.handle.state.root.phase, Running):  # judged; nothing is started yet
            store.before = down
            raise KeyboardInterrupt
        return 0.0

    inside.set_clock(first.handle, strike)
    with pytest.raises(KeyboardInterrupt):
        first.next_turn()
    inside.set_clock(first.handle, lambda: 0.0)

    def policy(*_: Any) -> Ask:
        store.before = up
        with suppress(Conflict, CallerError):
            Background(lambda: first.handle.update_params(max_tokens=99)).result()
        return Ask("really?")

    second = next_driver(world, config=LoopConfig(on_tool_call=policy))
    assert [call.id for call in yielded(second.next_turn()).pending] == ["t3"]
    assert world.ran == []
    assert_sound(store)


# --- what is known not to have run -----------------------------------------------------------------------------------

SCRIPT = (reply(calls=[PAY, SEND]), reply(calls=[{**PAY, "id": "t9"}]), reply("done"))
MOST = 100


@pytest.mark.parametrize("config", [{}, {"max_parallel_tools": 1}], ids=["side by side", "one by one"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_interrupt_at_the_store_makes_no_call_uncertain(
    moment: Literal["before", "after"], config: dict[str, Any]
) -> None:
    """At whichever of its calls: the handle knows what ran, and runs the rest once when it goes on."""
    for number in range(1, MOST):
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


def test_a_kept_end_is_stored_under_the_lease_under_which_it_happened() -> None:
    """The lease is not given back before what happened under it is in the store."""
    world, store = stepping("sync", script=(reply(calls=[PAY]), reply("done")))
    first = world.open()
    breaks(world, store, "t1")
    with pytest.raises(StoreError):
        first.next_turn()
    assert store.inner.lease("loop") is not None
    store.before = up
    first.close()
    assert store.inner.lease("loop") is None
    assert world.journal()[-1] == "Ended"
    assert world.open().text() == "done"
    assert world.ran == ["t1"]
