"""Observers and logs: which events they get, what is put around requests and tools, and whom a loop asks."""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, get_type_hints

import pytest
from attrs import define, field, fields

from tests.kit.concurrency import (
    BACKENDS,
    Background,
    async_loop,
    either_kind,
    list_contents,
    make,
    run_async,
    sync_loop,
    turn,
)
from tests.kit.each import each
from tests.kit.loop_trees import ask_in_parallel, kid, tree_of
from tests.kit.support import expect_completed, expect_error, expect_yielded
from tests.kit.tools import HUNDRED, TOOLS, add, params
from tests.kit.world import ID, World
from toolloop import Approve, AsyncToolLoopHandle, IterationUsage, LoopConfig, ToolContext, ToolLoopHandle, events, tool
from toolloop._usage import Usage
from toolloop.errors import ModelError
from toolloop.events import CallStarted, CallWaiting, RequestStarted, WatchEvent
from toolloop.stores.memory import MemoryStore
from toolloop.terminations import StopCondition
from toolloop.testing import AsyncScriptedProvider, ScriptedProvider, call, reply

SECRET = "sesame"  # it stands for what people, models and tools said
WHERE: ContextVar[str] = ContextVar("WHERE", default="nowhere")
KINDS = [kind for kind in (getattr(events, name) for name in events.__all__) if issubclass(kind, WatchEvent)]
# The fields that hold what people, models, tools and the API said.
SPOKEN = {"plain_text", "text", "thinking", "citation", "partial_json", "message", "problem"}


def an_event(kind: type[WatchEvent]) -> WatchEvent:
    """An event of a kind: texts that hold contents are the secret, others are their own names."""
    values: dict[str, Any] = {
        "usage": Usage(1, 2),
        "termination": StopCondition(SECRET),
        "kinds": ("search_result",),
        "path": ("above",),
    }
    for known in fields(kind):
        hint = str(get_type_hints(kind)[known.name])
        if known.name in SPOKEN:
            values[known.name] = SECRET
        elif known.name not in values:
            values[known.name] = known.name if "str" in hint else 7
    return kind(**{known.name: values[known.name] for known in fields(kind)})


# --- logs ------------------------------------------------------------------------------------------------------------


@each("kind", KINDS)
def test_each_event_is_a_log_record_with_its_fields_and_no_contents(
    kind: type[WatchEvent], caplog: pytest.LogCaptureFixture
) -> None:
    """At DEBUG, with the loop's id. What was said is in no record of any level."""
    caplog.set_level(logging.DEBUG, "toolloop")
    handle = make("sync", [])
    event = an_event(kind)
    handle._parts.journal.bus.note([event])
    handle._parts.journal.bus.tell()
    record = next(each for each in caplog.records if each.message == kind.__name__)
    assert (record.levelname, record.message, record.name) == ("DEBUG", kind.__name__, "toolloop")
    said = vars(record)
    assert (said["loop_id"], said["event"], said["iteration"], said["path"]) == ("loop", kind.__name__, 7, "above")
    renamed = {"name": "tool", "tool_name": "tool", "usage": "input_tokens"}
    expected = {renamed.get(each.name, each.name) for each in fields(kind)} - SPOKEN
    assert expected <= said.keys()
    assert SECRET not in repr([vars(each) for each in caplog.records])


# --- what is put around ----------------------------------------------------------------------------------------------


@define
class Around:
    """An observer that sets a variable around what runs, and notes what it saw."""

    seen: list[Any] = field(factory=list)
    told: list[WatchEvent] = field(factory=list)

    def __call__(self, event: WatchEvent) -> None:
        self.told.append(event)

    @contextmanager
    def around(self, event: RequestStarted | CallStarted) -> Generator[None, None, None]:
        name = event.name if isinstance(event, CallStarted) else "request"
        token = WHERE.set(name)
        try:
            yield
        except BaseException as error:
            self.seen.append((name, type(error).__name__))
            raise
        else:
            self.seen.append((name, None))
        finally:
            WHERE.reset(token)


@tool
def plain(context: ToolContext) -> str:
    """Say where it runs."""
    return f"{WHERE.get()} {context.call_id}"


@tool
async def awaited(context: ToolContext) -> str:
    """Say where it runs."""
    return f"{WHERE.get()} {context.call_id}"


@tool(timeout=30)
def limited(context: ToolContext) -> str:
    """Say where it runs."""
    return f"{WHERE.get()} {context.call_id}"


SYNC = (plain, limited)
ASYNC = (plain, limited, awaited)


def list_told_by(handle: Any, kind: str) -> list[Any]:
    return list_contents(turn(kind, handle))


@each("names", [["plain"], ["limited"], ["plain", "plain", "limited"]])
@either_kind
def test_what_an_observer_sets_around_a_tool_is_seen_in_it(kind: str, names: list[str]) -> None:
    """In the caller's own thread and in threads of their own, alone and side by side; and nothing is left behind."""
    around = Around()
    calls = [call(name, {}, id=f"t{number}") for number, name in enumerate(names)]
    handle = make(kind, [reply(calls=calls)], SYNC, observers=[around])
    assert list_told_by(handle, kind) == [f"{name} t{number}" for number, name in enumerate(names)]
    assert sorted(around.seen) == sorted([("request", None), *((name, None) for name in names)])
    assert WHERE.get() == "nowhere"


@each("names", [["awaited"], ["awaited", "plain", "awaited"]])
@each("backend", BACKENDS)
def test_what_an_observer_sets_around_an_async_tool_is_seen_in_it(backend: str, names: list[str]) -> None:
    """In the task that runs it."""
    around = Around()
    calls = [call(name, {}, id=f"t{number}") for number, name in enumerate(names)]
    handle = async_loop([reply(calls=calls)], ASYNC, observers=[around])
    assert list_told_by(handle, backend) == [f"{name} t{number}" for number, name in enumerate(names)]


def test_what_an_observer_sets_around_a_request_is_seen_by_the_provider() -> None:
    """It is entered with the event that was sent before."""
    around, where = Around(), []

    def answer() -> Any:
        where.append(WHERE.get())
        return reply("done")

    provider = tree_of("sync", {"go": [answer]}, [])
    provider.config = {"observers": [around]}
    expect_completed(turn("sync", provider.loop()))
    assert where == ["request"]
    assert isinstance(around.told[0], RequestStarted)


class Swallowing:
    """A context manager that lets no exception through."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> bool:
        return True


class Raising:
    """One that raises another exception, or none, at its end."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self.error is not None:
            raise self.error
        if error is not None:
            raise error


@contextmanager
def refuse_watchers() -> Iterator[None]:
    raise LookupError(SECRET)
    yield


@each(
    ("around", "logged"),
    [
        (lambda _: Swallowing(), 0),
        (lambda _: Raising(None), 0),
        (lambda _: Raising(LookupError()), 3),
        (lambda _: refuse_watchers(), 3),
        (lambda _: None, 3),
        (lambda: None, 3),
        ("no callable at all", 3),
    ],
)
def test_a_broken_observer_never_harms_the_loop(around: Any, logged: int, caplog: pytest.LogCaptureFixture) -> None:
    """What it raises is logged, with the loop's id; exceptions of tools still are results, and others still hear."""
    members = {"__call__": lambda *_: None, "around": staticmethod(around) if callable(around) else around}
    broken, whole = type("Broken", (), members)(), Around()
    calls = [call("add", {"a": 1, "b": 2}, id="t1"), call("broken", {}, id="t2")]
    handle = make("sync", [reply(calls=calls)], TOOLS, observers=[broken, whole, broken])
    assert list_told_by(handle, "sync") == ["3", "OSError: the disk is gone"]
    assert sorted(whole.seen, key=str) == sorted([("request", None), ("add", None), ("broken", "OSError")], key=str)
    # Leases that loops of other tests left behind may be told of at any time.
    failures = [record for record in caplog.records if record.message == "an observer failed"]
    assert len(failures) == 2 * logged
    assert all(vars(record)["loop_id"] == "loop" for record in failures)


# --- whom a loop asks ------------------------------------------------------------------------------------------------


@define(eq=False)
class Asked:
    """An observer that is asked for one of each loop's own."""

    loops: list[Any] = field(factory=list)
    told: list[tuple[str, WatchEvent]] = field(factory=list)
    closed: list[str] = field(factory=list)

    def for_loop(self, loop: Any) -> Any:
        self.loops.append((loop.loop_id, loop.depth))
        asked = self

        class Own:
            def __call__(self, event: WatchEvent) -> None:
                asked.told.append((loop.loop_id, event))

            def close(self) -> None:
                asked.closed.append(loop.loop_id)

        return Own()


def test_an_observer_of_many_loops_is_asked_for_one_of_each() -> None:
    """Once for each handle; it is reported in its place, and when the handle is closed."""
    asked = Asked()
    config = LoopConfig(observers=[asked])
    for name in ("one", "two"):
        provider = ScriptedProvider([reply("done")])
        with ToolLoopHandle(provider, params=params(), config=config, loop_id=name) as handle:
            expect_completed(handle.next_turn())
    assert asked.loops == [("one", 0), ("two", 0)]
    assert [name for name, event in asked.told if isinstance(event, RequestStarted)] == ["one", "two"]
    assert asked.closed == ["one", "two"]


def test_an_observer_of_a_loop_and_of_those_inside_hears_once() -> None:
    """One configuration may be shared by all loops of a tree. Set for an inner one only, it says so."""
    asked, inner = Asked(), Asked()
    said = {"go": ask_in_parallel("one"), "one": [reply(calls=[("add", {"a": 1, "b": 2})]), reply("it is 3")]}
    loop_tree = tree_of("sync", said, [kid([add], observers=[asked, inner])])
    loop_tree.config = {"observers": [asked]}
    executed = expect_yielded(turn("sync", loop_tree.loop()))
    assert [event for _, event in asked.told] == list(executed.events)
    assert [event for _, event in inner.told] == [event for event in executed.events if event.path]
    assert [depth for _, depth in asked.loops] == [0]
    assert [depth for _, depth in inner.loops] == [1]


def test_a_loop_that_is_watched_can_be_looked_at_and_is_not_kept_alive() -> None:
    """Its state is that of now, at any path; after its end there is none."""
    watched: list[Any] = []

    class Looking:
        def for_loop(self, loop: Any) -> Any:
            watched.append(loop)
            return lambda event: watched.append(type(loop.at(event.path).phase).__name__)

    handle = make("sync", [reply(calls=[("write", {"path": "a", "text": "b"})])], TOOLS, observers=[Looking()])
    assert isinstance(expect_yielded(turn("sync", handle)).events[-1], CallWaiting)
    assert watched[-1] == "Waiting"
    assert watched[0].at(("no", "where")) is None
    del handle
    gc.collect()
    assert watched[0].at(()) is None


def test_a_text_is_not_an_observer() -> None:
    """As before."""
    with pytest.raises(ValueError, match="observers is"):
        LoopConfig(observers=["no callable"])  # type: ignore[list-item]


ADD = reply(calls=[("add", {"a": 1, "b": 2})], usage=HUNDRED)
END = reply("fine", usage=HUNDRED)


def make_counting(into: list[IterationUsage], state: Any = None) -> ToolContext:
    """The context of a tool whose use of tokens is counted."""
    return ToolContext(
        call_id="c", loop_id="above", iteration=1, depth=1, idempotency_key="k", state=state, spent=into.append
    )


@either_kind
def test_each_answered_request_is_reported_once(kind: str) -> None:
    """With the values in the usage log of the loop, when it is answered."""
    told: list[IterationUsage] = []
    parts: dict[str, Any] = {"params": params(), "tools": [add], "context": make_counting(told)}
    if kind == "sync":
        handle: Any = ToolLoopHandle(ScriptedProvider([ADD, END]), **parts)
        expect_yielded(handle.next_turn())
        assert len(told) == 1
        handle.run()
    else:
        handle = AsyncToolLoopHandle(AsyncScriptedProvider([ADD, END]), **parts)
        run_async(kind, handle.run)
    assert told == list(handle.usage_log)
    assert [(each.iteration, each.usage.input_tokens) for each in told] == [(1, 100), (2, 100)]


def test_a_request_that_failed_is_not_reported() -> None:
    """Nothing was consumed; the one that is answered after it counts."""
    told: list[IterationUsage] = []
    handle = ToolLoopHandle(
        ScriptedProvider([ModelError("overloaded"), END]), params=params(), context=make_counting(told)
    )
    expect_error(handle.next_turn())
    assert told == []
    handle.retry()
    handle.run()
    assert [each.iteration for each in told] == [1]


def test_requests_of_others_are_not_reported_for_a_stored_loop() -> None:
    """Two handles on one stored loop: each tells what it asked itself."""
    world = World("sync", MemoryStore(), script=[ADD, ADD, END], tools=[add])
    told: list[IterationUsage] = []
    mine = world.open(context=make_counting(told))
    expect_yielded(mine.next_turn()).continue_loop()
    assert [each.iteration for each in told] == [1]
    other = world.open()
    expect_yielded(other.next_turn()).continue_loop()
    mine.run()
    assert len(mine.handle.usage_log) == 3
    assert [each.iteration for each in told] == [1, 3]
    assert world.state(ID).root.iterations == 3


# --- what observers may do -------------------------------------------------------------------------------------------


@each("stored", [False, True])
@each("kind", ["sync", "async"])
def test_an_observer_may_wait_for_another_thread_that_uses_the_handle(kind: str, stored: bool) -> None:
    """No lock of the loop is held while an observer runs: it may read and decide, here and through other threads."""
    told_of: list[str] = []

    def through_a_thread(event: WatchEvent) -> None:
        told_of.append(type(event).__name__)
        Background(handle.snapshot).result()
        Background(handle.view).result()
        handle.snapshot()
        if isinstance(event, CallWaiting):
            Background(lambda: handle.decide({event.call_id: Approve()})).result()

    @tool(needs_approval=True)
    def gated(context: ToolContext) -> str:
        """Wait for a person."""
        context.report("half")
        return "done"

    options: dict[str, Any] = {"store": MemoryStore()} if stored else {}
    config = LoopConfig(observers=[through_a_thread])
    said = [reply("hello"), reply(calls=[call("gated")]), reply("fine")]
    handle: Any
    if kind == "sync":
        handle = ToolLoopHandle(ScriptedProvider(said), params=params(), tools=[gated], config=config, **options)
    else:
        provider = AsyncScriptedProvider(said)
        handle = AsyncToolLoopHandle(provider, params=params(), tools=[gated], config=config, **options)

    def drive() -> Any:
        return handle.next_turn() if kind == "sync" else run_async("asyncio", handle.next_turn)

    expect_completed(drive())
    handle.messages_mut().append({"role": "user", "content": "go on"})
    handle.messages_mut().append({"role": "assistant", "content": "well"})
    handle.follow_up([{"role": "user", "content": "and now"}])
    assert [shown.status for shown in expect_yielded(drive()).calls] == ["decided"]
    handle.pending_turn.continue_loop()
    expect_yielded(drive())
    for name in ("HistoryReplaced", "CallWaiting", "CallDecided", "CallProgress", "CallFinished"):
        assert name in told_of


def test_events_while_an_observer_is_slow_are_delivered_afterwards_and_in_order() -> None:
    """One thread tells at a time: an observer never runs twice at once, and never sees a later event first."""
    running, at_once, seen = threading.Semaphore(1), list[WatchEvent](), list[WatchEvent]()

    def slow(event: WatchEvent) -> None:
        if not running.acquire(blocking=False):
            at_once.append(event)
            return
        seen.append(event)
        running.release()

    calls = [call("add", {"a": 1, "b": at}, id=f"c{at}") for at in range(50)]
    executed = expect_yielded(sync_loop([reply(calls=calls)], TOOLS, observers=[slow]).next_turn())
    assert tuple(seen) == executed.events
    assert at_once == []
