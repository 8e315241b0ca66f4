"""Whom a worker notifies of calls that wait: once each, one at a time, also of loops that another process drove."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from tests.kit.concurrency import Background, cross, either_kind, wait_for
from tests.kit.world import wait
from tests.worker.support import ADD, PAY, PAY_BO, TOOLS, place_of, workplace
from toolloop import Approve, Continue, Deny, LoopConfig, LoopContext, Rerun, ToolLoopHandle, Worker
from toolloop.inbox import InboxCall
from toolloop.testing import ScriptedProvider, reply

BOTH = (reply(calls=[PAY, PAY_BO]), reply("Paid."))


@either_kind
def test_each_waiting_call_is_notified_of_once(kind: str, tmp_path: Path) -> None:
    """By the next worker, too, and also if another process drove the loop."""
    place = workplace(kind, "sqlite", tmp_path, script=BOTH)
    place.create("one", metadata={"owner": "ana"})
    parts: dict[str, Any] = {"tools": TOOLS, "params": _params(), "clock": place.clock}
    with ToolLoopHandle.open(place.store, "two", ScriptedProvider(place.answer), **parts) as handle:
        handle.run()
    worker = place.worker(notify=place.notifier())
    for _ in range(2):
        place.work(worker)
    place.work(notify=place.notifier())
    assert sorted((each.loop_id, each.id) for each in place.notified) == [
        (loop_id, call_id) for loop_id in ("one", "two") for call_id in ("c1", "c3")
    ]
    assert len({each.notification_id for each in place.notified}) == 4
    assert set(place.notified) == {*place.inbox.pending()}
    first = next(each for each in place.notified if each.loop_id == "one")
    assert (first.name, first.input, first.metadata) == ("pay", {"to": "ana", "euros": 5}, {"owner": "ana"})


def _params() -> dict[str, Any]:
    return {"model": "claude-opus-5-5", "max_tokens": 9, "messages": [{"role": "user", "content": "Pay"}]}


@either_kind
def test_the_call_that_is_notified_of_can_be_decided_at_once(kind: str) -> None:
    """It is a key of `Inbox.decide`, also inside of `notify`."""
    place = place_of(kind, script=BOTH)
    place.create()
    place.work(notify=lambda each: place.inbox.decide(each.loop_id, {each: Approve(by="bot")}))
    assert place.status() == "runnable"
    assert (place.work(), sorted(place.ran), place.status()) == (1, ["c1", "c3"], "ended")


def test_a_call_that_waits_for_something_else_is_notified_of_again() -> None:
    """It was approved, and its end was never seen; then it was to run again, and was not seen to end again."""
    place = place_of()
    place.create()

    def exit_in_the_tool() -> None:
        raise SystemExit

    place.on["c1"] = exit_in_the_tool
    worker = place.worker(notify=place.notifier())
    for decision in (Approve(by="ana"), Rerun(by="ana"), Deny("enough", by="ana")):
        place.work(worker)
        (waiting,) = place.inbox.pending()
        place.inbox.decide("loop", {waiting: decision})
        with pytest.raises(SystemExit) if not isinstance(decision, Deny) else nullcontext():
            place.work(worker)
    assert [each.why for each in place.notified] == ["approval", "uncertain", "uncertain"]
    assert len({each.notification_id for each in place.notified}) == 3
    assert place.status() == "ended"


def test_a_loop_of_the_same_id_has_notifications_of_its_own() -> None:
    """The first one was deleted."""
    place = place_of()
    worker = place.worker(notify=place.notifier())
    for _ in range(2):
        place.create()
        place.work(worker)
        place.store.delete("loop")
        place.now += 1
    assert len({each.notification_id for each in place.notified}) == 2


@either_kind
def test_an_error_of_notify_is_logged_and_harms_no_loop(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is not called again for this call."""
    place = place_of(kind)
    place.create("one", "two")

    def notify(each: InboxCall) -> None:
        place.notified.append(each)
        raise RuntimeError("the chat is down")

    worker = place.worker(notify=notify)
    place.work(worker)
    place.work(worker)
    assert sorted(each.loop_id for each in place.notified) == ["one", "two"]
    assert [record.getMessage() for record in caplog.records] == ["notify failed"] * 2
    assert "the chat is down" in caplog.text
    place.approve_all()
    place.work(worker)
    assert {place.status(each) for each in ("one", "two")} == {"ended"}


@either_kind
def test_a_call_that_has_expired_is_not_notified_of(kind: str) -> None:
    """It cannot be decided any more."""
    place = place_of(kind)
    place.create(config=LoopConfig(decision_timeout=60.0))
    place.work()
    place.now += 60
    place.work(notify=place.notifier())
    assert place.notified == []


@either_kind
def test_notify_is_called_one_at_a_time_while_loops_are_driven(kind: str) -> None:
    """A receiver that takes its time holds up no loop, and gets the next call when it is done."""
    place = place_of(kind)
    place.create("one")
    stop, go, both = (threading.Event() for _ in range(3))
    inside = threading.Lock()

    def slowly(each: InboxCall) -> None:
        assert inside.acquire(blocking=False), "two at a time"
        place.notified.append(each)
        if len(place.notified) == 1:
            wait_for(go)
        else:
            stop.set()
        inside.release()

    async def slowly_too(each: InboxCall) -> None:
        await anyio.to_thread.run_sync(slowly, each)

    def create_another() -> None:
        place.on["request"] = both.set
        place.create("two")

    place.on["request"] = create_another
    worker: Any = place.worker(notify=slowly if kind == "sync" else slowly_too)
    run = Background(lambda: wait(kind, worker.run(stop)))
    wait_for(both)  # it is driven while the first one is notified of
    go.set()
    run.result()
    assert sorted(each.loop_id for each in place.notified) == ["one", "two"]


def test_workers_that_look_at_the_same_time_notify_of_each_call_once(tmp_path: Path) -> None:
    """One of them claims the call in the store; the others leave it."""
    place = workplace("sync", "sqlite", tmp_path)
    loop_ids = [f"loop{number}" for number in range(12)]
    place.create(*loop_ids)
    place.work()
    barrier = threading.Barrier(3)

    def work(worker: Worker) -> None:
        cross(barrier)
        worker.run_once()

    workers: list[Any] = [place.worker(notify=place.notifier()) for _ in range(3)]
    for job in [Background(lambda each=each: work(each)) for each in workers]:  # type: ignore[misc]
        job.result()
    assert sorted(each.loop_id for each in place.notified) == sorted(loop_ids)


def test_a_call_is_notified_of_while_others_of_its_loop_run(tmp_path: Path) -> None:
    """Another worker does so; it needs no lease for that."""
    place = workplace("sync", "sqlite", tmp_path, script=(reply(calls=[ADD, PAY]), reply("Done.")))
    config = LoopConfig(execution="ready")
    place.create(config=config)
    parts: dict[str, Any] = {"tools": TOOLS, "clock": place.clock, "context": LoopContext(state=place)}
    place.on["c2"] = lambda: place.work(notify=place.notifier())
    with ToolLoopHandle.open(place.store, "loop", ScriptedProvider(place.answer), **parts) as handle:
        handle.run()
        handle.resume(Continue())
        handle.run()
    place.work(notify=place.notifier())
    assert [each.id for each in place.notified] == ["c1"]
