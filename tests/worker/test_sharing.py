"""Several kinds of workers on one store: which loops each of them takes, and which it leaves to the others."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest
from attrs import evolve

from tests.kit.concurrency import Background, either_kind, wait_for
from tests.kit.postgres import in_postgres, in_postgres_deep
from tests.kit.tools import add, transfer
from tests.kit.world import wait
from tests.worker.support import ADD, PARAMS, PAY, PAY_BO, STORY, TOOLS, place_of, workplace
from toolloop import LoopConfig, tool
from toolloop._worker import desk
from toolloop.errors import ModelError
from toolloop.inbox import InboxCall
from toolloop.stores import Head
from toolloop.testing import call, reply

LOOKED = (reply(calls=[ADD]), reply("Seen."))
stored = pytest.mark.parametrize("where", ["sqlite", in_postgres_deep])


@tool
def other(at: str) -> str:
    """Do something else."""
    return at


@tool(needs_approval=True)
def ask(at: str) -> str:
    """Do something else, if a person allows it."""
    return at


@either_kind
@stored
def test_a_worker_takes_only_loops_with_its_metadata(kind: str, where: str, tmp_path: Path) -> None:
    """It neither drives nor notifies of the others."""
    place = workplace(kind, where, tmp_path)
    place.create("desk", metadata={"agent": "desk", "owner": "ana"})
    place.create("night", metadata={"agent": "night"})
    place.create("none")
    worker = place.worker(metadata={"agent": "desk"}, notify=place.notifier())
    assert [place.work(worker), place.work(worker)] == [1, 0]
    place.work()
    place.work(worker)
    assert [each.loop_id for each in place.notified] == ["desk"]
    assert [place.status(each) for each in ("desk", "night", "none")] == ["needs_decision"] * 3


@either_kind
@pytest.mark.parametrize("where", ["memory", "sqlite", in_postgres])
def test_a_loop_whose_tools_a_worker_lacks_is_left_to_others(
    kind: str, where: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its row has what is missing, and since when, until a worker drives it. The log has it once for each worker."""
    place = workplace(kind, where, tmp_path)
    place.create(tools=TOOLS)
    before, lacking = place.row(), place.worker(tools=[add, other])
    assert [place.work(lacking), place.work(lacking)] == [1, 0]
    left = place.row().left
    assert left is not None
    assert (left.why, left.missing) == ("no worker has the tools 'pay'", ("pay",))
    assert left.since == place.now or where not in ("memory", "sqlite")  # else by the clock of the store
    place.now += 60
    place.work(place.worker(tools=[add]))  # another one that lacks it changes nothing
    assert place.row() == evolve(before, left=left)
    assert place.requests == []
    assert [record.levelname for record in caplog.records if "pay" in record.getMessage()] == ["WARNING"] * 2
    assert (place.work(), place.status(), place.row().left) == (1, "needs_decision", None)
    place.approve_all()
    assert (place.work(lacking), place.status(), place.row().left is None) == (1, "runnable", False)
    assert (place.work(), place.status(), place.ran) == (1, "ended", ["c1"])


@either_kind
def test_a_worker_does_not_drive_a_loop_of_another_kind_that_a_queue_gives_it(kind: str) -> None:
    """Also `drive` takes only loops with the metadata of the worker."""
    place = place_of(kind)
    place.create("night", metadata={"agent": "night"})
    row = place.row("night")
    assert wait(kind, place.worker(metadata={"agent": "desk"}).drive("night")) == row
    assert place.requests == []
    assert wait(kind, place.worker(metadata={"agent": "night"}).drive("night")).due_at is None


@either_kind
def test_a_worker_whose_parameters_do_not_fit_leaves_the_loop(kind: str) -> None:
    """Its own tools have the name of one that the parameters of the loop define: another worker can drive it."""
    place = place_of(kind, script=(reply("Seen."),), tools=())
    external = [{"name": "pay", "description": "Pay.", "input_schema": {"type": "object"}}]
    place.create(params={**PARAMS, "tools": external})
    assert (place.work(place.worker(tools=TOOLS, params={"temperature": 0.5})), place.status()) == (1, "runnable")
    left = place.row().left
    assert left is not None
    assert "two tools are named 'pay'" in left.why
    assert (place.work(), place.status()) == (1, "ended")


@either_kind
@stored
def test_the_time_of_a_loop_that_is_left_begins_when_the_last_worker_drove_it(
    kind: str, where: str, tmp_path: Path
) -> None:
    """A worker that left it earlier does not adopt it, while one with the tools drives it between two decisions."""
    place = workplace(kind, where, tmp_path, script=(reply(calls=[call("ask", {"at": "x"})]), reply("Asked.")))
    place.create(tools=(*TOOLS, ask))
    lacking = place.worker(tools=[add, ask], adopt_after=60)
    assert (place.work(lacking), place.status()) == (1, "runnable")
    assert (place.work(tools=(*TOOLS, ask)), place.status(), place.row().left) == (1, "needs_decision", None)
    place.now += 1000
    place.approve_all()
    assert (place.work(lacking), place.status()) == (1, "runnable")
    assert place.row().left is not None


@either_kind
def test_a_worker_may_adopt_a_loop_without_the_tools(kind: str, tmp_path: Path) -> None:
    """After some seconds, by the clock of the row: a deploy has removed them. A call of such a tool still needs it."""
    place = workplace(kind, "sqlite", tmp_path, script=LOOKED)
    place.create("one", tools=TOOLS)
    place.work(tools=[add])
    place.now += 100
    assert place.work(place.worker(tools=[add], adopt_after=120.0)) == 1
    adopting = place.worker(tools=[add], adopt_after=120.0)
    assert (place.work(adopting), place.status("one")) == (1, "runnable")
    place.now += 20
    assert (place.work(adopting), place.status("one"), place.row("one").left) == (1, "ended", None)
    place.script = STORY
    place.create("two")
    place.work()
    place.approve_all()
    place.work(adopting)
    place.now += 121
    assert [place.work(adopting), place.work(adopting), place.status("two")] == [1, 0, "runnable"]
    assert place.row("two").left is not None


@either_kind
def test_what_a_worker_refuses_as_drift_is_left(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """The row says why, and a worker with the old policy drives it."""
    place, strict = place_of(kind), LoopConfig(on_tool_call=lambda _, __: None)
    place.create(config=strict)
    assert [place.work(worker := place.worker()), place.work(worker)] == [1, 0]
    left = place.row().left
    assert left is not None
    assert "on_tool_call is missing" in left.why
    assert (left.missing, place.status(), len(caplog.records)) == ((), "runnable", 1)
    assert (place.work(config=strict), place.status(), place.row().left) == (1, "needs_decision", None)


@either_kind
@pytest.mark.parametrize("change", [('"format":1', '"format":9'), ('"event":"Opened"', '"event":"Later"')])
def test_what_a_newer_version_has_written_is_left(kind: str, change: tuple[str, str]) -> None:
    """A format or an event that this version does not know is not damage."""
    place = place_of(kind)
    place.create()
    (first,) = place.store.load("loop").entries
    place.store.delete("loop")
    place.store.create("loop", [evolve(first, body=first.body.replace(*change))], head=Head("runnable"))
    worker, before = place.worker(), place.row()
    assert [place.work(worker), place.work(worker)] == [1, 0]
    after = place.row()
    assert (evolve(after, left=None), after.left is not None) == (before, True)
    assert "version" in (after.left.why if after.left else "")


@either_kind
def test_a_worker_that_lacks_tools_does_not_touch_what_a_killed_driver_left(kind: str) -> None:
    """The call that had started is still one that started, for the worker that knows its tool."""
    place = place_of(kind, script=LOOKED)
    place.create()
    copied: list[Any] = []
    place.on["c2"] = lambda: copied.append(place.store.load("loop").entries)
    place.work()
    place.store.delete("loop")
    place.store.create("loop", copied[0], head=Head("running"))
    before = place.row()
    assert place.work(tools=[other]) == 1
    assert evolve(place.row(), left=None) == before
    assert (place.work(), place.status()) == (1, "needs_decision")
    assert [each.why for each in place.inbox.pending()] == ["uncertain"]


# --- until nothing is left to do -------------------------------------------------------------------------------------


@either_kind
@stored
def test_a_worker_runs_until_it_is_idle(kind: str, where: str, tmp_path: Path) -> None:
    """It waits for its loops and their notifications, not for people, given up loops, and loops left to others."""
    place = workplace(kind, where, tmp_path)
    place.create("one", "two", config=LoopConfig(decision_timeout=60.0))
    place.create("three")
    place.create("lacks", tools=[add, transfer, other])
    wait(kind, place.worker(notify=place.notifier()).run_until_idle())
    assert sorted(each.loop_id for each in place.notified) == ["one", "three", "two"]
    assert sorted(row.status for row in place.store.list()) == [*["needs_decision"] * 3, "runnable"]
    place.script = (ModelError("no"),)
    place.approve_all()
    wait(kind, place.worker().run_until_idle())
    assert sorted(row.status for row in place.store.list()) == ["failed", "failed", "failed", "runnable"]


@either_kind
def test_a_worker_is_not_idle_while_a_loop_is_to_be_retried_or_is_driven_elsewhere(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It returns soon after the last of them."""
    monkeypatch.setattr(desk, "POLL", 0.02)
    place, failed, fails = place_of(kind, script=LOOKED), threading.Event(), [ModelError("busy", retryable=True)]

    def fail() -> None:
        if fails:
            failed.set()
            raise fails.pop()

    place.create()
    lease = place.store.acquire("loop", "a driver elsewhere", until=place.now * 2)
    worker = place.worker(backoff=lambda _: 5.0)
    run = Background(lambda: wait(kind, worker.run_until_idle(threading.Event())))  # type: ignore[arg-type]  # it is only asked
    place.on["request"] = fail
    place.create("other", tools=[add])
    wait_for(failed)
    place.store.release(lease)
    place.inbox.wait("loop", "ended", timeout=30.0)
    assert place.row("other").head.attempts == 1
    place.now += 6
    run.result()
    assert [row.status for row in place.store.list()] == ["ended", "ended"]


# --- notifications ---------------------------------------------------------------------------------------------------


@either_kind
def test_a_notification_that_hangs_is_given_up(
    kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The next one begins, and it is not repeated."""
    monkeypatch.setattr(desk, "NOTIFY_SECONDS", 0.1)
    place, forever = (
        place_of(kind, script=(reply(calls=[PAY, PAY_BO]), reply(""))),
        threading.Event(),
    )
    place.create()
    tell = place.notifier()

    def hang(each: InboxCall) -> None:
        tell(each)
        if each.id == "c1":
            forever.wait()

    async def hang_async(each: InboxCall) -> None:
        await tell(each)  # type: ignore[misc]  # an async function here
        if each.id == "c1":
            await anyio.sleep_forever()

    worker = place.worker(notify=hang if kind == "sync" else hang_async)
    place.work(worker)
    place.work(worker)
    forever.set()
    assert [each.id for each in place.notified] == ["c1", "c3"]
    assert [(each.levelno, "given up" in each.getMessage()) for each in caplog.records] == [(logging.ERROR, True)]
