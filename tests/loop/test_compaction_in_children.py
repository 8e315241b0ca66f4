"""Loops inside of calls compact their own histories, side by side, and the loops above them pay."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import anyio.to_thread
import pytest
from attrs import define, field

from tests import inside
from tests.each import each
from tests.loop.compaction_stories import USED, asks_for_summary, page
from tests.loop.concurrency import cross, either_kind, turn
from tests.loop.loop_trees import bare, task
from tests.loop.support import completed, params, user
from toolloop import (
    AsyncToolLoopHandle,
    Budget,
    LoopConfig,
    MemoryStore,
    SqliteStore,
    ToolLoopHandle,
    Usage,
    sub_loop,
)
from toolloop.compaction import DropRounds, MaskResults, Summarize
from toolloop.events import Compacted, ThinkingDropped
from toolloop.terminations import BudgetExceeded
from toolloop.testing import AsyncScriptedProvider, ScriptedProvider, call, crash_everywhere, reply

THINK = {"thinking": {"type": "adaptive"}}
PAGES = 4
Handle = ToolLoopHandle | AsyncToolLoopHandle


def nothing() -> None:
    """Go on."""


@define
class Library:
    """A tree of loops: the outermost gives two readers a book each; each reader reads, and is asked for summaries."""

    kind: str
    strategy: Any
    readers: tuple[str, ...] = ("a", "b")
    config: dict[str, Any] = field(factory=dict)
    child: dict[str, Any] = field(factory=dict)
    on_summary: Callable[[], object] = nothing
    requests: list[Any] = field(factory=list)
    events: list[Any] = field(factory=list)
    lock: threading.Lock = field(factory=threading.Lock)

    def answer(self, body: Mapping[str, Any]) -> Any:
        with self.lock:
            self.requests.append(body)
        who = body["messages"][0]["content"]
        if who == "go":
            done = len(body["messages"]) > 1
            return reply("all done") if done else reply(calls=[task(each) for each in self.readers])
        if asks_for_summary(body):
            self.on_summary()
            return reply(f"summary for {who}", usage=USED)
        blocks = [block for message in body["messages"] for block in message["content"] if isinstance(block, dict)]
        number = 1 + max([block["input"]["number"] for block in blocks if block["type"] == "tool_use"], default=0)
        if number > PAGES:
            return reply(f"{who} is done")
        return reply(thinking=f"thought {number}", calls=[call("page", {"number": number}, id=f"{who}-{number}")])

    def provider(self) -> Any:
        if self.kind == "sync":
            return ScriptedProvider(self.answer)

        async def answer(body: Any) -> Any:
            return await anyio.to_thread.run_sync(self.answer, body, abandon_on_cancel=True)

        return AsyncScriptedProvider(answer)

    def parts(self) -> dict[str, Any]:
        child = LoopConfig(compaction=self.strategy, max_iterations=20, **self.child)
        kid = sub_loop("kid", "Read.", params=bare(**THINK), tools=[page], config=child)
        return {"tools": [kid], "config": LoopConfig(observers=[self.events.append], **self.config)}

    @property
    def made(self) -> type[Handle]:
        return ToolLoopHandle if self.kind == "sync" else AsyncToolLoopHandle

    def loop(self) -> Handle:
        return self.made(self.provider(), params=params(messages=[user("go")]), loop_id="loop", **self.parts())

    def summaries(self) -> list[Any]:
        return [body for body in self.requests if asks_for_summary(body)]

    def told(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


def to_the_end(kind: str, handle: Handle) -> Any:
    result = turn(kind, handle)
    while hasattr(result, "continue_loop"):
        result.continue_loop()
        result = turn(kind, handle)
    return completed(result)


STRATEGIES: dict[str, Callable[[], Any]] = {
    "mask": lambda: MaskResults(keep_rounds=1, at_tokens=2500),
    "drop": lambda: DropRounds(1, at_tokens=2500),
    "summarize": lambda: Summarize(keep_last=1, at_tokens=2500),
}


@each("name", STRATEGIES)
def test_each_child_compacts_its_own(name: str) -> None:
    """What is told has the path; the parent's history is none of it."""
    library = Library("sync", STRATEGIES[name]())
    done = to_the_end("sync", library.loop())
    assert done.text == "all done"
    results = library.requests[-1]["messages"][-1]["content"]
    assert [block["content"] for block in results] == ["a is done", "b is done"]
    told = library.told(Compacted)
    assert {event.path for event in told} == {("a",), ("b",)}
    assert all(event.problem is None and event.after < event.before for event in told)
    assert {event.path for event in library.told(ThinkingDropped)} == {("a",), ("b",)}


@either_kind
def test_two_summaries_side_by_side(kind: str) -> None:
    """Both are under way at once, each gets its own, and both count for the parent, under their paths."""
    barrier = threading.Barrier(2)
    library = Library(kind, Summarize(keep_last=2, at_tokens=3500), on_summary=lambda: cross(barrier))
    done = to_the_end(kind, library.loop())
    assert done.text == "all done"
    assert len(library.summaries()) == 2
    paths = sorted(entry.path for entry in done.usage_log if entry.kind == "summary")
    assert paths == [("a",), ("b",)]
    assert sum((entry.usage for entry in done.usage_log if entry.kind == "summary"), Usage()) == Usage(1800, 60)
    assert done.total_usage == sum((entry.usage for entry in done.usage_log), Usage())
    assert done.iterations == 2
    for who in "ab":
        (last,) = [body for body in library.requests if body["messages"][0]["content"] == who][-1:]
        assert last["messages"][1]["content"][0]["text"].endswith(f"summary for {who}")


@each("requests", range(3, 13))
def test_the_parent_s_budget_bounds_the_sum(requests: int) -> None:
    """Whatever is left is shared by replies and summaries, and never exceeded."""
    library = Library("sync", Summarize(keep_last=2, at_tokens=3000), config={"budget": Budget(requests=requests)})
    done = to_the_end("sync", library.loop())
    assert len(library.requests) <= requests
    if done.text != "all done":
        assert isinstance(done.termination, BudgetExceeded)
        assert done.termination.spent == len(done.usage_log) == requests


@either_kind
def test_a_child_s_own_budget_is_spent_by_its_summary(kind: str) -> None:
    """The child ends before its next request, and its answer says so."""
    library = Library(kind, STRATEGIES["summarize"](), ("a",), child={"budget": Budget(input_tokens=500)})
    assert to_the_end(kind, library.loop()).text == "all done"
    (result,) = library.requests[-1]["messages"][-1]["content"]
    assert "budget" in result["content"].lower()
    assert asks_for_summary(library.requests[-2])


def test_a_child_s_summary_that_fails() -> None:
    """Its history stays, it goes on, and the event says why."""

    def fail() -> None:
        raise OSError("no network")

    library = Library("sync", STRATEGIES["summarize"](), ("a",), on_summary=fail)
    done = to_the_end("sync", library.loop())
    assert done.text == "all done"
    assert {entry.kind for entry in done.usage_log} == {"reply"}
    assert all("no network" in str(event.problem) for event in library.told(Compacted))
    assert library.told(Compacted)


@either_kind
def test_snapshots_while_children_wait_for_summaries(kind: str) -> None:
    """Woken from each, the tree comes to the same end by the same requests."""
    library = Library(kind, STRATEGIES["summarize"](), ("a",))
    snapshots: list[tuple[int, Any]] = []
    handle = library.loop()

    def look() -> None:
        asking = [path for path, request in inside.requests_in_flight(handle).items() if request.summary is not None]
        assert asking == [("a",)]
        snapshots.append((len(library.requests) - 1, handle.snapshot()))

    library.on_summary = look
    to_the_end(kind, handle)
    assert snapshots
    for number, snapshot in snapshots:
        other = Library(kind, STRATEGIES["summarize"](), ("a",))
        woken = other.made.restore(snapshot, other.provider(), **other.parts())
        assert to_the_end(kind, woken).text == "all done"
        assert other.requests == library.requests[number:]


@each("is_async", [False, True])
def test_a_child_s_writer_must_fit_the_handle(*, is_async: bool) -> None:
    """That is looked at when the handle is made."""

    async def write(_messages: Any) -> str:
        return "words"

    kind = "asyncio" if is_async else "sync"
    writer = ScriptedProvider([]) if is_async else write
    with pytest.raises(TypeError, match="async"):
        Library(kind, Summarize(writer)).loop()


def test_killed_anywhere_in_a_tree() -> None:
    """Whoever wakes it asks for no other summary, and each child gets its answer."""
    library = Library("sync", STRATEGIES["summarize"](), ("a",))

    def program(store: Any) -> None:
        given = {"params": params(messages=[user("go")]), **library.parts()}
        with ToolLoopHandle.open(store, "loop", library.provider(), **given) as handle:
            assert handle.run().unwrap().text == "all done"

    def anew() -> MemoryStore:
        library.requests.clear()
        return MemoryStore()

    program(anew())
    wanted = list(library.requests)

    def check(_store: SqliteStore | MemoryStore) -> None:
        seen: list[Any] = []
        for body in library.requests:
            if body not in seen:
                seen.append(body)
        assert seen == wanted

    report = crash_everywhere(program, anew, check=check)
    assert report.waiting == ()
