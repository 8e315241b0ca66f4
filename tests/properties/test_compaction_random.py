"""Whatever the model says and the caller does: a loop that compacts its history sends nothing that is refused."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from attrs import define, evolve, field, frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.properties.bench import PARAMS_TOOLS, TOOLS, Bench, Boom
from tests.properties.drawing import WholeScript, messages
from tests.properties.programs import Program, play, programs, timeless
from tests.properties.settings import BINDS, FREE
from toolloop import AsyncToolLoopHandle, LoopContext, MemoryStore, ToolLoopHandle
from toolloop.compaction import SUMMARY_PROMPT, DropRounds, MaskResults, Summarize
from toolloop.core import events as ev
from toolloop.core.machine import begin, step
from toolloop.history import check
from toolloop.stores.events import decode_event, read_journal
from toolloop.testing import FakeMessagesAPI, dropped, fault, reply

MINDED = {"role": "user", "content": "Mind this."}
OPENINGS = ("Begin.", "Begin otherwise.")


def at_length(_call: Any, content: Any) -> Any:
    """A result filter: what is short is told at some length."""
    return f"{content}, as was said before, and more than once" * 30 if isinstance(content, str) else None


def is_pinned(message: Any) -> bool:
    return bool(message == MINDED)


SUMMARIES = st.sampled_from(
    [
        reply("In short."),
        reply("In short."),
        reply("In short.", thinking="hm"),
        reply("Too long. " * 3000),
        reply("In short.", stop_reason="max_tokens"),
        reply(content=[]),
        fault(500),
        dropped(),
    ]
)


def one() -> st.SearchStrategy[Any]:
    """A strategy."""
    at = st.sampled_from([None, 1, 700, 1500])
    few = st.integers(1, 2)
    masks = st.builds(MaskResults, few, st.sampled_from([0, 500]), at_tokens=at, pinned=st.just(is_pinned))
    drops = st.builds(DropRounds, few, at_tokens=at, pinned=st.just(is_pinned))
    sums = st.builds(Summarize, keep_last=few, at_tokens=at, pinned=st.just(is_pinned))
    return st.one_of(masks, drops, sums)


@frozen
class Plan:
    """A program, and how its loop compacts."""

    program: Program
    strategies: tuple[Any, ...]
    summaries: tuple[Any, ...]
    model: str
    stored: bool

    def parts(self) -> dict[str, Any]:
        tools = PARAMS_TOOLS
        params = {"model": self.model, "max_tokens": 1000, "thinking": {"type": "adaptive"}, "tools": tools}
        return {
            "params": {**params, "messages": [{"role": "user", "content": OPENINGS[0]}]},
            "tools": TOOLS,
            "config": self.program.config(compaction=self.strategies, result_filters=[at_length]),
            "clock": lambda: 1_000_000.0,
            "loop_id": "one",
        }


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Where a model binds thinking, nobody edits: the API knows a pause that it gave only as it gave it."""
    program, model = draw(programs()), draw(st.sampled_from([BINDS, FREE]))
    calling = messages(stop_reason=st.just("tool_use"), calls=st.sampled_from([1, 2, 4]))
    first = draw(st.lists(calling, min_size=2, max_size=6))
    moves = [(("go on" if move == "edit" and model == BINDS else move), choices) for move, choices in program.moves]
    program = evolve(program, answers=(*first, *program.answers), moves=(*moves, *moves))
    strategies = tuple(draw(st.lists(one(), min_size=1, max_size=3)))
    summaries = tuple(draw(st.lists(SUMMARIES, min_size=1, max_size=3)))
    return Plan(program, strategies, summaries, model, draw(st.booleans()))


@define
class Script:
    """The model: what a program has it say, and its summaries."""

    plan: Plan
    whole: WholeScript = field(init=False)
    asked: int = 0

    def __attrs_post_init__(self) -> None:
        self.whole = WholeScript(list(self.plan.program.answers))

    def __call__(self, body: dict[str, Any]) -> Any:
        if not is_for_summary(body):
            made = self.whole(body)
            for block in made.get("content", ()) if isinstance(made, dict) else ():
                if block["type"] == "text" and block["text"].strip():
                    block["text"] += ", and so on" * 40
            return made
        self.asked += 1
        return self.plan.summaries[min(self.asked, len(self.plan.summaries)) - 1]


def is_for_summary(body: dict[str, Any]) -> bool:
    return bool(body["messages"][-1]["content"] == [{"type": "text", "text": SUMMARY_PROMPT}])


@frozen
class Came:
    """What came of a plan."""

    bodies: list[bytes]
    seen: list[Any]
    snapshot: Any
    journal: list[Any]


async def lived(plan: Plan, backend: str) -> Came:
    """Live it, with a sync handle or an async one."""
    with FakeMessagesAPI(Script(plan)) as api:
        bench, seen = Bench(), list[Any]()
        store = MemoryStore() if plan.stored else None
        parts = {**plan.parts(), "context": LoopContext(bench), "store": store}
        client: Any = api.client() if backend == "sync" else api.async_client()
        handle: Any = (ToolLoopHandle if backend == "sync" else AsyncToolLoopHandle)(client, **parts)
        story = play(plan.program, handle, seen, bench)
        try:
            turn = next(story)
            while True:
                try:
                    result: Any = turn() if backend == "sync" else await turn()
                except Boom as boom:
                    result = boom
                turn = story.send(result)
        except StopIteration:
            pass
        if backend == "sync":
            handle.close()
        else:
            await handle.close()
            await client.close()
        assert bench.wrong == []
        hold(plan, api, handle, store)
        kept = [] if store is None else [timeless(json.loads(entry.body)) for entry in store.load("one").entries]
        if plan.program.parallel > 1:
            kept.sort(key=json.dumps)
        return Came([request.body for request in api.requests], seen, timeless(handle.snapshot()), kept)


def hold(plan: Plan, api: FakeMessagesAPI, handle: Any, store: MemoryStore | None) -> None:
    """What is true of every life."""
    assert [request.refusal for request in api.refused] == []
    minded = 0
    for request in api.requests:
        if is_for_summary(request.json):
            continue
        sent = request.json["messages"]
        assert sent[0]["content"] in OPENINGS
        assert sent.count(MINDED) >= minded
        minded = sent.count(MINDED)
    problems = check([*handle.messages, MINDED], model=plan.model, thinking={"type": "adaptive"})
    assert [problem for problem in problems if problem.level == "error"] == []
    assert len([entry for entry in handle.usage_log if entry.kind == "reply"]) == handle.iterations
    if store is not None:
        assert replayed([entry.body for entry in store.load("one").entries]) == handle.state


def replayed(bodies: list[str]) -> Any:
    """The state after a journal; and after parts of it, which say the same however they are read."""
    first, *events = map(decode_event, bodies)
    assert isinstance(first, ev.Opened)
    state = begin(first)
    for count, event in enumerate(events, 2):
        state = step(state, event)
        if count % 7 == 0 or count == len(bodies):
            assert read_journal(bodies[:count]) == state
    return state


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_any_loop_with_any_strategies(backend: str) -> None:
    """Nothing is refused, what is promised stays, any part of the journal is a loop, and both handles do the same."""

    @settings(max_examples=12, deadline=None, derandomize=True, database=None)
    @given(plans())
    def agree(plan: Plan) -> None:
        with pytest.raises(StopIteration) as over:
            lived(plan, "sync").__await__().__next__()
        expected: Came = over.value.value
        actual = anyio.run(lived, plan, backend, backend=backend)
        assert expected.bodies == actual.bodies
        assert expected.seen == actual.seen
        assert expected == actual

    agree()
