"""Two real handles on one loop, under many drawn schedules: a driver, a bystander on its handle, and who takes over."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest

from tests.kit import inside
from tests.kit.effort import IS_DEEP
from tests.kit.failing import Asked
from tests.kit.scheduler import Lock, Scheduler
from tests.kit.tools import LOOK, PAY
from tests.kit.world import AnyHandle, World, assert_sound, make_failing_world
from toolloop import Completed, LoopContext, ToolLoopHandle
from toolloop.errors import CallerError, Conflict
from toolloop.testing import reply

SCRIPT = (reply(calls=[PAY, LOOK, {**PAY, "id": "t5"}]), reply(calls=[{**PAY, "id": "t6"}]), reply("done"))
ONCE = {"t1", "t5", "t6"}
SCHEDULES = 600 if IS_DEEP else 3


def answer(turn: Any) -> None:
    """An uncertain call is answered: it is never run again."""
    for each in turn.pending:
        with suppress(CallerError):  # its end came in the meantime, or somebody else's answer
            turn.answer(each, "a person looked, and saw what it did", by="ben")


def drive(peer: AnyHandle) -> None:
    with suppress(Conflict):
        peer.run(answer)


def stand_by(peer: AnyHandle) -> None:
    """Say some words, each of which stores what the driver has recorded by then."""
    assert isinstance(peer.handle, ToolLoopHandle)
    for number in range(3):
        with suppress(CallerError, Conflict):
            peer.handle.update_params(max_tokens=100 + number)
        peer.handle.flush()


def take_over(world: World) -> None:
    """Take the loop from its owner, and drive it on."""
    drive(world.open(take_over=True, params={}))


@pytest.mark.parametrize("restless", [0.1, 0.3, 0.7])
@pytest.mark.parametrize("takers", [1, 2])
def test_under_every_schedule_nothing_runs_twice_and_no_caller_hangs(takers: int, restless: float) -> None:
    """Any task is next at a store's call, at the handle's locks, in a request, in a tool; the seed names a failure."""
    for seed in range(SCHEDULES):
        world, store = make_failing_world("sync", script=SCRIPT, config={"max_parallel_tools": 1})
        scheduler = Scheduler(random.Random(seed), restless)

        def step(_: Asked, scheduler: Scheduler = scheduler) -> None:
            scheduler.step()

        first = world.open()
        inside.use_lock(first.handle, Lock(scheduler))
        store.before = store.after = step
        for where in ("request", "t1", "t3", "t5", "t6"):
            world.on[where] = scheduler.step
        others = {f"taker {number}": lambda world=world: take_over(world) for number in range(takers)}
        try:
            scheduler.run(
                driver=lambda peer=first: drive(peer),  # type: ignore[misc]
                bystander=lambda peer=first: stand_by(peer),  # type: ignore[misc]
                **others,
            )
            last = world.bypass().open(take_over=True, params={}, context=LoopContext(state=world))
            assert isinstance(last.run(answer), Completed)
            ran = [call_id for call_id in world.ran if call_id in ONCE]
            assert sorted(ran) == sorted(set(ran)), "a call ran twice"
            assert store.inner.head("loop").lease is None
            assert_sound(store)
        except BaseException as error:
            error.add_note(f"seed {seed}, ran {world.ran}, {world.journal()}")
            raise
