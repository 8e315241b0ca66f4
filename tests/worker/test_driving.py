"""Which loops a worker drives, of both kinds, and what it leaves alone."""

from __future__ import annotations

import logging
import signal
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest
from attrs import evolve

from tests.kit.concurrency import Background, either_kind, run_async, wait_for
from tests.kit.postgres import needs_postgres
from tests.kit.tools import transfer
from tests.kit.world import wait
from tests.worker.support import ADD, PAY, PAY_BO, TOOLS, place_of, workplace
from toolloop import Ask, AsyncWorker, Continue, LoopConfig, LoopContext, ToolLoopHandle, Worker, tool
from toolloop._worker import desk
from toolloop.errors import BadTool, Conflict, LoopNotFound, ModelError, StoreError
from toolloop.stores import Head
from toolloop.testing import AsyncScriptedProvider, FakeMessagesAPI, ScriptedProvider, reply


@pytest.mark.parametrize(
    ("where", "kind"),
    [
        *(("memory", kind) for kind in ("sync", "asyncio", "trio")),
        ("sqlite", "sync"),
        pytest.param("postgres", "trio", marks=needs_postgres),
    ],
)
def test_a_worker_drives_a_loop_until_a_person_is_needed_and_after_the_decision(
    kind: str, where: str, tmp_path: Path
) -> None:
    """The decision comes from an inbox, which has no tools."""
    place = workplace(kind, where, tmp_path)
    place.create("one", "two")
    assert place.work() == 2
    assert {place.status(each) for each in ("one", "two")} == {"needs_decision"}
    assert place.work() == 0
    place.approve_all()
    assert place.work() == 2
    assert {place.status(each) for each in ("one", "two")} == {"ended"}
    assert place.ran == ["c1"] * 2
    assert place.work() == 0


@either_kind
def test_a_loop_that_waits_for_a_command_is_left_to_its_caller(kind: str) -> None:
    """`next_turn()` has handed its turn out. A conversation that has not begun waits, too."""
    place = place_of(kind, script=(reply(calls=[ADD]), reply("Seen.")))
    provider = ScriptedProvider(place.answer)
    parts: dict[str, Any] = {"tools": TOOLS, "clock": place.clock, "context": LoopContext(state=place)}
    handle = ToolLoopHandle.open(place.store, "loop", provider, params={**_params(), "messages": []}, **parts)
    assert (place.status(), place.work()) == ("needs_command", 0)
    handle.follow_up("Look")
    handle.next_turn()
    assert (place.status(), place.work()) == ("needs_command", 0)
    handle.resume(Continue())
    assert (place.status(), place.work(), place.status()) == ("runnable", 1, "ended")


def _params() -> dict[str, Any]:
    return {"model": "claude-opus-5-5", "max_tokens": 9}


@either_kind
def test_a_call_whose_deadline_has_passed_expires(kind: str) -> None:
    """No person has to look: the model gets the result, and the loop goes on."""
    place = place_of(kind)
    place.create(config=LoopConfig(decision_timeout=60.0))
    assert (place.work(), place.work(), place.status()) == (1, 0, "needs_decision")
    place.now += 61
    assert (place.work(), place.status(), place.ran) == (1, "ended", [])


@either_kind
def test_a_loop_that_another_one_drives_is_left_alone(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """Its lease is live. That is normal, so nothing is logged about it."""
    place = place_of(kind, script=(reply(calls=[ADD]), reply("Seen.")))
    place.create()
    seen: list[int] = []
    place.on["c2"] = lambda: seen.append(place.work())
    assert place.work() == 1
    assert (seen, place.status()) == ([0], "ended")
    assert caplog.records == []


@either_kind
def test_so_many_loops_are_driven_at_a_time(kind: str) -> None:
    """And all that are due, one after the other."""
    place = place_of(kind, script=(reply("Hello."),))
    place.create(*map(str, range(6)))
    barrier, inside = threading.Barrier(2), threading.Semaphore(2)

    def meet() -> None:
        assert inside.acquire(blocking=False), "three at a time"
        barrier.wait(60)
        inside.release()
        barrier.wait(60)

    place.on["request"] = meet
    assert place.work(concurrency=2) == 6
    assert {place.status(str(each)) for each in range(6)} == {"ended"}


@either_kind
def test_params_and_context_may_be_functions_of_the_loop(kind: str) -> None:
    """Under an async worker they may be async."""
    place = place_of(kind, script=(reply(calls=[ADD]), reply("Seen.")))
    place.create("one", "two")
    asked: list[str] = []

    def params(loop_id: str) -> dict[str, Any]:
        asked.append(loop_id)
        return {"extra_headers": {"x-loop": loop_id}}

    async def context(loop_id: str) -> LoopContext:
        asked.append(loop_id)
        return LoopContext(state=place)

    plain = LoopContext(state=place)
    given: dict[str, Any] = {"params": params, "context": (lambda _: plain) if kind == "sync" else context}
    with FakeMessagesAPI(place.answer) as api:

        async def work() -> int:
            async with api.async_client() as client:
                return await AsyncWorker(place.store, client, TOOLS, clock=place.clock, **given).run_once()

        if kind == "sync":
            with api.client() as client:
                assert Worker(place.store, client, TOOLS, clock=place.clock, **given).run_once() == 2
        else:
            assert run_async(kind, work) == 2
        assert {request.headers["x-loop"] for request in api.requests} == {"one", "two"}
    assert sorted(asked) == sorted(["one", "two"] * (1 if kind == "sync" else 2))
    assert len(place.ran) == 2


@either_kind
def test_a_loop_that_is_deleted_meanwhile_stays_deleted(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is not created again, and that is not an error."""
    place = place_of(kind)
    place.create()

    def params(_loop_id: str) -> dict[str, Any]:
        place.store.delete("loop")
        return {"extra_headers": {"x": "y"}}

    assert place.work(params=params) == 1
    assert place.store.list() == []
    assert [record for record in caplog.records if record.levelno > logging.DEBUG] == []


# --- what cannot be driven ------------------------------------------------------------------------------------------


@tool
def look_else(at: str) -> str:
    """Not the tool that the loops have."""
    return at


@either_kind
def test_a_loop_whose_journal_is_damaged_fails(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged once, and no worker tries it again until a person asks for that."""
    place = place_of(kind)
    place.create("one", "two")
    (first,) = place.store.load("one").entries
    place.store.delete("one")
    place.store.create("one", [evolve(first, body=first.body[:-1])], head=Head("runnable"))
    assert (place.work(), place.work()) == (2, 0)
    head = place.row("one").head
    assert (head.status, head.retryable, head.retry_at) == ("failed", False, None)
    assert len(caplog.records) == 1
    assert place.status("two") == "needs_decision"


@either_kind
def test_calls_that_wait_in_a_loop_that_cannot_be_driven_can_be_decided(kind: str) -> None:
    """The deadline of another call had passed, so a worker tried to drive the loop."""
    place = place_of(kind, script=(reply(calls=[PAY, PAY_BO]), reply("Paid.")))
    config = LoopConfig(on_tool_call=lambda call, _: Ask(expires_in=30.0 if call.id == "c1" else None))
    place.create(config=config)
    place.work(config=config)
    place.now += 31

    def params(_loop_id: str) -> None:
        raise RuntimeError("the vault is closed")

    place.work(params=params, config=config, max_attempts=1)
    assert (place.status(), [each.id for each in place.inbox.pending()]) == ("failed", ["c3"])
    place.approve_all()
    assert (place.work(config=config), place.status(), place.ran) == (1, "ended", ["c3"])


@either_kind
def test_a_loop_of_which_only_the_lease_of_a_dead_driver_is_left_is_looked_at_once(kind: str) -> None:
    """And again when the call expires that waits."""
    place = place_of(kind)
    place.create(config=LoopConfig(decision_timeout=60.0))
    place.work()
    place.store.acquire("loop", "a driver that is gone", until=1.0)
    worker = place.worker()
    assert place.row().due_at == 0.0
    counts = []
    for _ in range(3):
        counts.append(place.work(worker))
        place.now += 29
    assert (counts, place.work(worker), place.status()) == ([1, 0, 0], 1, "ended")


@either_kind
def test_a_function_of_the_caller_that_raises_is_tried_again(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """It may be a matter of time, such as a token that could not be fetched."""
    place = place_of(kind, script=(reply("Hello."),))
    place.create()
    problems = [RuntimeError("the vault is closed"), None]

    def params(_loop_id: str) -> None:
        if (problem := problems.pop(0)) is not None:
            raise problem

    worker = place.worker(params=params)
    assert (place.work(worker), place.work(worker)) == (1, 0)
    head = place.row().head
    assert (head.status, head.retryable, head.attempts) == ("failed", True, 1)
    assert "the vault is closed" in caplog.text
    place.now += 4
    assert (place.work(worker), place.status()) == (1, "ended")


# --- failed requests ------------------------------------------------------------------------------------------------


@either_kind
def test_a_failed_request_is_retried_when_it_is_due(kind: str, tmp_path: Path) -> None:
    """The attempts are in the store: they survive a restart. After the last one a person is needed."""
    place = workplace(kind, "sqlite", tmp_path, script=(ModelError("busy", retryable=True),))
    place.create()
    waits = []
    for attempt in range(1, 4):
        assert place.work(max_attempts=3) == 1  # each time another worker
        head = place.row().head
        assert (head.status, head.retryable, head.attempts) == ("failed", True, attempt)
        if head.retry_at is not None:
            waits.append(head.retry_at - place.now)
            place.now = head.retry_at - 0.1
            assert place.work(max_attempts=3) == 0
            place.now += 0.2
    assert len(waits) == 2
    assert 2 <= waits[0] <= 4
    assert 8 <= waits[1] <= 16
    place.now += 1e6
    assert (place.work(), len(place.requests)) == (0, 3)
    place.inbox.retry("loop", by="ana")
    place.script = (reply("Here I am."),)
    assert (place.work(), place.status(), place.row().head.attempts) == (1, "ended", 0)


@either_kind
def test_the_api_says_how_long_to_wait_at_least(kind: str) -> None:
    """`retry-after` is the floor of the wait."""
    place = place_of(kind, script=(ModelError("busy", retryable=True, retry_after=3600.0),))
    place.create()
    place.work()
    assert place.row().head.retry_at == place.now + 3600
    place.now += 3599
    assert place.work() == 0
    place.now += 1
    place.script = (reply("Here I am."),)
    assert (place.work(), place.status()) == (1, "ended")


@either_kind
def test_what_is_of_no_use_to_retry_is_not_retried(kind: str) -> None:
    """Neither where the worker's own request failed, nor where another driver's did."""
    place = place_of(kind, script=(ModelError("no such model"),))
    place.create("own", "other")
    parts: dict[str, Any] = {"tools": TOOLS, "clock": place.clock}
    with ToolLoopHandle.open(place.store, "other", ScriptedProvider(place.answer), **parts) as handle:
        handle.run()
    assert place.work() == 1
    assert len(place.requests) == 2
    assert {place.row(each).head.retry_at for each in ("own", "other")} == {None}
    place.now += 1e6
    assert place.work() == 0


# --- the store fails -------------------------------------------------------------------------------------------------


@either_kind
def test_run_once_raises_what_the_store_raises(kind: str) -> None:
    """As a call of the caller's own."""
    place = place_of(kind)
    worker = place.worker()
    error = StoreError("the disk is gone")

    def fail(*_args: object, **_more: object) -> Any:
        raise error

    place.store.list = fail
    with pytest.raises(StoreError, match="the disk is gone"):
        place.work(worker)


def test_a_worker_survives_a_store_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    """It logs that, and looks again."""
    place, stop = place_of(script=(reply("Hello."),)), threading.Event()
    place.create()
    place.on["request"] = stop.set
    real, errors = place.store.list, [StoreError("the disk is gone")]

    def sometimes(*args: Any, **more: Any) -> Any:
        if errors:
            raise errors.pop()
        return real(*args, **more)

    place.store.list = sometimes
    Worker(place.store, place.provider(), TOOLS).run(stop)
    assert place.status() == "ended"
    assert "the disk is gone" in caplog.text


# --- one loop --------------------------------------------------------------------------------------------------------


@either_kind
def test_one_loop_is_driven_until_a_person_is_needed(kind: str) -> None:
    """The other loop is left alone, and a second call finds nothing to do. `due_at` says when to look again."""
    place = place_of(kind)
    place.create("one", "two", config=LoopConfig(decision_timeout=60.0))
    worker = place.worker()
    loop = wait(kind, worker.drive("one"))
    assert (loop, loop.due_at, place.status("two")) == (place.row("one"), place.now + 60, "runnable")
    assert wait(kind, worker.drive("one")) == loop
    place.approve_all()
    assert wait(kind, worker.drive("one")).status == "ended"
    assert (wait(kind, worker.drive("one")).due_at, place.ran, len(place.requests)) == (None, ["c1"], 2)


@either_kind
def test_one_loop_that_fails_says_when_it_is_to_be_retried(kind: str) -> None:
    """It is not driven before."""
    place = place_of(kind, script=(ModelError("busy", retryable=True, retry_after=30.0),))
    place.create()
    worker = place.worker()
    loop = wait(kind, worker.drive("loop"))
    assert (loop.status, loop.due_at, loop.head.attempts) == ("failed", place.now + 30, 1)
    assert wait(kind, worker.drive("loop")) == loop
    place.now += 30
    assert (wait(kind, worker.drive("loop")).head.attempts, len(place.requests)) == (2, 2)


@either_kind
def test_one_loop_that_another_one_drives_or_that_is_gone_is_refused(kind: str) -> None:
    """A queue tries again later, or gives up."""
    place = place_of(kind, script=(reply(calls=[ADD]), reply("Seen.")))
    place.create()
    seen: list[Exception] = []

    def drive_too() -> None:
        with pytest.raises(Conflict) as caught:
            wait(kind, place.worker().drive("loop"))
        seen.append(caught.value)

    place.on["c2"] = drive_too
    assert wait(kind, place.worker().drive("loop")).status == "ended"
    assert len(seen) == 1
    place.store.delete("loop")
    with pytest.raises(LoopNotFound):
        wait(kind, place.worker().drive("loop"))


@either_kind
def test_one_loop_is_left_between_two_turns(kind: str) -> None:
    """For a program that has to end: `until` is asked after each turn."""
    place = place_of(kind, script=(reply(calls=[ADD]), reply("Seen.")))
    place.create()
    loop = wait(kind, place.worker().drive("loop", lambda: True))
    assert (loop.status, loop.due_at, loop.lease, place.ran) == ("runnable", 0.0, None, ["c2"])


# --- the end ---------------------------------------------------------------------------------------------------------


@needs_postgres
@pytest.mark.parametrize("kind", ["sync", "asyncio", "trio"])
def test_a_store_that_tells_of_changes_wakes_a_worker(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker would look again in an hour. An event still stops it within a second."""
    monkeypatch.setattr(desk, "POLL", 3600.0)
    place, stop, asleep = workplace(kind, "postgres", tmp_path), threading.Event(), threading.Event()
    run = Background(lambda: wait(kind, place.worker(notify=lambda _: asleep.set()).run(stop)))  # type: ignore[arg-type]
    place.create("first")
    wait_for(asleep)
    ended = threading.Event()
    place.script = (reply("Done."),)
    place.on["request"] = ended.set
    place.create("second")
    wait_for(ended)
    stop.set()
    run.result()


@either_kind
def test_a_worker_that_is_stopped_ends_its_turns_and_begins_no_more(kind: str) -> None:
    """The running tool ends, the next request is not made, and the lease is given back."""
    place = place_of(kind, script=(reply(calls=[ADD]), reply("Seen.")))
    place.create()
    stop, arrived, go = threading.Event(), threading.Event(), threading.Event()

    def stand() -> None:
        arrived.set()
        wait_for(go)

    place.on["c2"] = stand
    run = Background(lambda: wait(kind, place.worker().run(stop)))  # type: ignore[arg-type]
    wait_for(arrived)
    stop.set()
    place.create("later")
    go.set()
    run.result()
    assert (place.status(), place.row().lease, len(place.requests)) == ("runnable", None, 1)
    assert place.status("later") == "runnable"
    assert (place.work(), place.status(), place.ran) == (2, "ended", ["c2"] * 2)


@either_kind
def test_a_worker_with_a_stop_event_leaves_the_signals_to_its_program(kind: str) -> None:
    """A web server that runs one ends by its own handlers."""
    place, stop, seen = place_of(kind, script=(reply("Hello."),)), threading.Event(), list[Any]()
    place.create()

    def look_around() -> None:
        seen.append(signal.getsignal(signal.SIGTERM))
        stop.set()

    place.on["request"] = look_around
    before = signal.getsignal(signal.SIGTERM)
    wait(kind, place.worker().run(stop))  # type: ignore[arg-type]
    assert seen == [before]


def test_a_cancelled_worker_gives_its_turns_up() -> None:
    """The request counts as not made, and any process may drive the loop."""
    place = place_of("asyncio", script=(reply("Hello."),))
    place.create()

    async def main() -> None:
        async def never(_request: Any) -> Any:
            group.cancel_scope.cancel()
            await anyio.sleep_forever()

        place_worker = AsyncWorker(place.store, AsyncScriptedProvider(never), TOOLS, clock=place.clock)
        async with anyio.create_task_group() as group:
            group.start_soon(place_worker.run)

    anyio.run(main)
    assert (place.status(), place.row().lease) == ("runnable", None)


# --- what a worker is given ------------------------------------------------------------------------------------------


async def _asynchronous(_what: object) -> None:
    """What only an async worker takes."""


@tool
async def _later() -> str:
    """An async tool."""
    return ""


@pytest.mark.parametrize(
    ("bad", "error", "text"),
    [
        ({"store": "loops.db"}, TypeError, "store"),
        ({"provider": object()}, TypeError, "provider"),
        ({"tools": [transfer, transfer]}, BadTool, "pay"),
        ({"tools": [_later]}, BadTool, "async"),
        ({"concurrency": 0}, ValueError, "concurrency"),
        ({"max_attempts": 0}, ValueError, "max_attempts"),
        ({"live": 0}, ValueError, "live is 0; give more than 0 seconds"),
        ({"adopt_after": -1}, ValueError, "adopt_after is -1; give 0 or more seconds"),
        ({"backoff": 7}, TypeError, "backoff is an int"),
        ({"backoff": _asynchronous}, TypeError, "backoff is async"),
        ({"metadata": {"agent": 7}}, TypeError, "metadata"),
        ({"notify": 7}, TypeError, "notify"),
        ({"notify": _asynchronous}, TypeError, "notify is async"),
        ({"params": _asynchronous}, TypeError, "params is async"),
        ({"params": {"model": "claude-opus-5-5"}}, ValueError, "the store keeps"),
        ({"params": [1]}, TypeError, "mapping"),
        ({"context": 7}, TypeError, "context"),
        ({"config": {}}, TypeError, "config"),
    ],
)
def test_a_bad_part_is_refused_at_once(bad: dict[str, Any], error: type[Exception], text: str) -> None:
    """With its name, before any loop is looked at."""
    place = place_of()
    given: dict[str, Any] = {"store": place.store, "provider": place.provider(), "tools": TOOLS, **bad}
    with pytest.raises(error, match=text):
        Worker(given.pop("store"), given.pop("provider"), given.pop("tools"), **given)
