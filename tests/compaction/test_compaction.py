"""Compaction between turns: what is promised to stay stays, and no request is refused."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import anyio.to_thread
import pytest
from attrs import define, field

from tests.compaction.compaction_stories import (
    BINDS,
    FREE,
    USED,
    WORDS,
    Reader,
    Reading,
    asks_for_summary,
    book,
    page,
    pages_in,
    read,
    reading,
    size,
    thoughts_in,
)
from tests.kit.concurrency import cross, either_kind, play, turn
from tests.kit.each import each
from tests.kit.effort import some
from tests.kit.loop_trees import make_bare, task
from tests.kit.support import expect_completed
from tests.kit.tools import params, user
from toolloop import (
    AsyncToolLoopHandle,
    LoopConfig,
    ToolLoopHandle,
    Usage,
    sub_loop,
)
from toolloop.compaction import DropRounds, MaskResults, Summarize
from toolloop.events import Compacted, RequestStarted, ThinkingDropped
from toolloop.history import check
from toolloop.testing import (
    AsyncScriptedProvider,
    ScriptedProvider,
    call,
    reply,
    server_call,
    server_result,
)

ALONE: dict[str, Any] = {
    "mask": lambda: MaskResults(keep_rounds=2),
    "mask at": lambda: MaskResults(keep_rounds=2, at_tokens=4000),
    "drop": lambda: DropRounds(2),
    "drop at": lambda: DropRounds(2, at_tokens=4000),
    "summarize": lambda: Summarize(keep_last=2),
    "summarize at": lambda: Summarize(keep_last=2, at_tokens=4000),
}
TOGETHER: dict[str, Any] = {
    "mask, drop": lambda: [MaskResults(keep_rounds=1, at_tokens=3000), DropRounds(3, at_tokens=4000)],
    "mask, summarize": lambda: [MaskResults(keep_rounds=2), Summarize(keep_last=2, at_tokens=4000)],
    "drop, drop": lambda: [DropRounds(4, at_tokens=5000), DropRounds(2, at_tokens=7000)],
    "all": lambda: [MaskResults(), Summarize(keep_last=2, at_tokens=4500), DropRounds(3, at_tokens=6000)],
}
STRATEGIES = ALONE | TOGETHER


def assert_kept(at: Reading, rounds: int = 1) -> None:
    """Each request begins with the first user turn and ends with the last rounds, and obeys the rules."""
    for number, body in enumerate(at.page_requests):
        messages = body["messages"]
        assert messages[0] == user("Read the book.")
        kept = range(max(1, number - rounds + 1), number + 1)
        assert [page for page in kept if page not in pages_in(messages)] == []
        problems = check(messages, model=body["model"], tools=body["tools"], thinking=body["thinking"])
        assert [problem for problem in problems if problem.level == "error"] == []


@each(("name", "model"), [*((name, BINDS) for name in some((*ALONE, *TOGETHER), 2)), ("summarize", FREE)])
def test_a_long_loop_is_made_shorter(name: str, model: str) -> None:
    """What stays is promised, what came is reported, thinking is left out only where a model binds it."""

    async def story() -> None:
        async with reading("sync", Reader(14), STRATEGIES[name](), asked=book(model=model)) as at:
            assert (await at.to_the_end()).text == "done"
            assert_kept(at)
            assert at.compactions
            assert all(event.after < event.before for event in at.compactions)
            assert set(at.problems) == {None}
            assert bool(at.dropped) == (model == BINDS)
            assert max(map(size, at.page_requests)) < 14 * 1000

    play("sync", story)


@each("strategy", [MaskResults, DropRounds, Summarize])
def test_nothing_happens_below_the_threshold(strategy: Any) -> None:
    """And a history that does not grow is left alone."""

    async def story() -> None:
        keep: dict[str, Any] = {"keep_rounds" if strategy is MaskResults else "keep_last": 1}
        given = strategy(**keep, at_tokens=50_000)
        async with reading("sync", Reader(8), given) as at:
            await at.to_the_end()
            assert at.compactions == []
            assert at.dropped == []
            assert pages_in(at.page_requests[-1]["messages"]) == list(range(1, 9))

    play("sync", story)


@each("name", some(["mask", "drop at", "summarize at", "all"], 2))
def test_nothing_is_compacted_while_calls_wait(name: str) -> None:
    """The caller looks at what the model saw; the history is compacted before the next request."""

    async def story() -> None:
        waits = reply(calls=[call("sign", {"name": "ana"})])
        async with reading("sync", Reader(12, first=[*map(read, range(1, 4)), waits]), STRATEGIES[name]()) as at:
            for _ in range(3):
                (await at.aturn()).continue_loop()
            turn = await at.aturn()
            assert turn.reason == "decision_required"
            told, messages = len(at.compactions), at.handle.messages
            assert turn.pending
            turn.approve_all()
            turn.continue_loop()
            assert at.handle.messages == messages
            assert len(at.compactions) == told
            assert (await at.to_the_end()).text == "done"
            assert_kept_after(at)

    play("sync", story)


def assert_kept_after(at: Reading) -> None:
    assert at.compactions
    assert all(body["messages"][0] == user("Read the book.") for body in at.page_requests)


@each("name", some([*STRATEGIES], 3))
def test_what_the_user_said_last_stays(name: str) -> None:
    """A follow-up, and the words that were injected after it, are in each request until the next one."""

    async def story() -> None:
        script = Reader(14, first=[read(100), reply("done")])
        async with reading("sync", script, STRATEGIES[name]()) as at:
            await at.to_the_end()
            at.handle.follow_up([user("Read on.")])
            (await at.aturn()).inject_and_continue([user("And be brief.")])
            assert (await at.to_the_end()).text == "done"
            assert at.compactions
            for body in at.page_requests[3:]:
                assert user("Read on.") in body["messages"]
                assert user("And be brief.") in body["messages"]

    play("sync", story)


def test_a_paused_turn_is_not_touched() -> None:
    """What stands beside the history is sent unchanged, including server calls in flight."""

    async def story() -> None:
        search = server_call("web_search", {"query": "storms"}, id="srvtoolu_1")
        pause = reply("Searching.", content=[search], stop_reason="pause_turn")
        found = reply(
            content=[server_result("web_search"), {"type": "text", "text": "Found."}],
            calls=[call("page", {"number": 6})],
        )
        tools = [{"type": "web_search_20250305", "name": "web_search"}]
        script = Reader(8, first=[*map(read, range(1, 6)), pause, found])
        async with reading("sync", script, DropRounds(1, at_tokens=5000), asked=book(tools=tools, model=FREE)) as at:
            turn = await at.aturn()
            while turn.reason != "paused":
                turn.continue_loop()
                turn = await at.aturn()
            at.events.clear()
            at.handle.update_params(max_tokens=300)
            turn.continue_loop()
            turn = await at.aturn()
            resumed = at.page_requests[-1]["messages"]
            assert resumed[-1]["content"][-1] == search
            turn.continue_loop()
            assert (await at.to_the_end()).text == "done"
            assert at.compactions

    play("sync", story)


def test_the_events_of_a_summary() -> None:
    """It stands behind the first user turn, and the numbers are those of whole requests."""

    async def story() -> None:
        async with reading("sync", Reader(5), Summarize(keep_last=2, at_tokens=4000)) as at:
            await at.to_the_end()
            (event,) = at.compactions
            assert event == Compacted(event.iteration, "Summarize", event.before, event.after)
            started = [(each.iteration, each.summary) for each in at.events if isinstance(each, RequestStarted)]
            place = [is_summary for _, is_summary in started].index(True)
            assert started[place + 1] == (started[place][0], False)  # it belongs to the request that follows
            number = at.sent_bodies.index(at.summaries[0])
            after = at.sent_bodies[number + 1]
            assert after["messages"][1]["content"][0]["text"].endswith(WORDS)
            assert size(after) <= event.after <= size(after) + 10  # with the thinking that is left out
            assert (
                at.summaries[0]["messages"][:-1]
                == at.page_requests[number - 1]["messages"][: len(at.summaries[0]["messages"]) - 1]
            )
            assert thoughts_in(after["messages"]) == []

    play("sync", story)


@define
class Reporting(Reader):
    """A model whose API reports this usage from the fifth reply on, when there are rounds to drop."""

    usage: Any = None

    def __call__(self, body: Any) -> Any:
        made = super().__call__(body)
        return {**made, "usage": self.usage} if self.said >= 5 else made


MANY = {"input_tokens": 100_000, "output_tokens": 1}


@each(
    ("usage", "compacts"),
    [
        (MANY, True),
        ({"input_tokens": 1, "iterations": [{"type": "message", **MANY}]}, True),
        ({**MANY, "iterations": [{"type": "compaction", **MANY}, {"type": "message", "input_tokens": 9}]}, False),
        ({**MANY, "iterations": [{"type": "compaction", **MANY}]}, False),
        ({**MANY, "server_tool_use": {"web_search_requests": 0}}, False),
    ],
)
def test_only_the_count_of_the_whole_history_is_used(usage: Any, compacts: bool) -> None:
    """Of a reply in several steps the last step counts. Passes of the server's tools say nothing of the history."""

    async def story() -> None:
        async with reading("sync", Reporting(6, usage=usage), DropRounds(3, at_tokens=50_000)) as at:
            assert (await at.to_the_end()).text == "done"
            assert bool(at.compactions) == compacts

    play("sync", story)


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
        kid = sub_loop("kid", "Read.", params=make_bare(**THINK), tools=[page], config=child)
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
    return expect_completed(result)


CHILD_STRATEGIES: dict[str, Callable[[], Any]] = {
    "mask": lambda: MaskResults(keep_rounds=1, at_tokens=2500),
    "drop": lambda: DropRounds(1, at_tokens=2500),
    "summarize": lambda: Summarize(keep_last=1, at_tokens=2500),
}


@each("name", CHILD_STRATEGIES)
def test_each_child_compacts_its_own(name: str) -> None:
    """Each event has the path; it is not in the parent's history."""
    library = Library("sync", CHILD_STRATEGIES[name]())
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


@each("is_async", [False, True])
def test_a_child_s_writer_must_fit_the_handle(*, is_async: bool) -> None:
    """That is looked at when the handle is made."""

    async def write(_messages: Any) -> str:
        return "words"

    kind = "asyncio" if is_async else "sync"
    writer = ScriptedProvider([]) if is_async else write
    with pytest.raises(TypeError, match="async"):
        Library(kind, Summarize(writer)).loop()
