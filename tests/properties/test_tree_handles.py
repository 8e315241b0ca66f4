"""Trees of loops in real handles: one story, whatever the order, the driver, the store, the sleep and the crashes.

`TOOLLOOP_DEEP=n` runs n times as many examples.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

import anyio
from attrs import evolve, frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.properties.tree_checks import CheckedTruth
from tests.properties.tree_handles import MODEL, PARTS, Bench, Caller, Grove, Model, grove
from tests.properties.trees import Planner
from toolloop import AsyncToolLoopHandle, Budget, Completed, LoopConfig, MemoryStore, ToolLoopHandle, sub_loop
from toolloop.core import events as ev
from toolloop.core.machine import begin, step
from toolloop.core.states import State
from toolloop.core.usage import Usage
from toolloop.stores.audit import audit
from toolloop.stores.events import decode_event, read_journal
from toolloop.terminations import Timeout
from toolloop.testing import AsyncScriptedProvider, ScriptedProvider, call, crash_everywhere, reply
from toolloop.testing.crash_store import Graveyard, Killed, MortalStore

DEEP = int(os.environ.get("TOOLLOOP_DEEP", "1"))
TREE = 118  # three levels deep, and small

seeds = st.integers(0, 2**32)


@frozen
class Story:
    """What came of a tree: the history of the root, and what was sent last in each loop."""

    messages: Any
    said: dict[str, Any]


class Telling:
    """One run of a tree.

    Args:
        seed: of the tree.
        other: of the order of things.
        fails: the numbers of the requests that are not answered.
        meddles: whether the caller decides while a turn is in progress, too.
        changes: in the configuration of the root.

    """

    def __init__(
        self, seed: int, other: int, *, fails: frozenset[int] = frozenset(), meddles: bool = False, **changes: Any
    ) -> None:
        """Draw the tree from a seed, and the order of things from another."""
        rng = Random(seed)
        self.grove: Grove = grove(rng, Planner(rng, is_plain=True, left=6).node())
        if changes:
            first, *rest = self.grove.configs
            self.grove = evolve(self.grove, configs=(evolve(first, **changes), *rest))
        self.bench = Bench()
        self.model = Model(self.grove.plan, fails)
        self.caller = Caller(Random(other), self.bench)
        self.meddles = meddles
        self.parts: dict[str, Any] = {
            "params": self.grove.params(),
            "tools": self.grove.tools(self.bench),
            "config": self.grove.configs[0],
        }

    def told(self, handle: Any) -> Story:
        """What came of it, and nothing was wrong."""
        assert not self.bench.wrong
        assert not self.model.wrong
        return Story(handle.messages, self.model.said)

    def in_sync(self, store: MemoryStore | None = None, *, sleeps: bool = False) -> Story:
        provider = ScriptedProvider(self.model)

        def sleep(handle: Any) -> Any:
            budget = handle.state.ledger.setup.limits.budget
            parts = self.parts | {"config": evolve(self.parts["config"], budget=budget)}
            awake = ToolLoopHandle.restore(json.loads(json.dumps(handle.snapshot())), provider, **parts)
            assert awake.state == handle.state
            return awake

        handle = ToolLoopHandle(provider, store=store, loop_id="tree", **self.parts)
        return self._end(self.drive(handle, sleep if sleeps else None), store)

    def drive(self, handle: Any, sleep: Callable[[Any], Any] | None = None) -> Any:
        play = self.caller.play(handle, sleeps=sleep)
        try:
            now = next(play)
            while True:
                self._listen(now)
                now = play.send(now.next_turn())
        except StopIteration as end:
            return end.value

    async def in_async(self, store: MemoryStore | None = None) -> Story:
        handle = AsyncToolLoopHandle(AsyncScriptedProvider(self.model), store=store, loop_id="tree", **self.parts)
        play = self.caller.play(handle)
        try:
            now = next(play)
            while True:
                self._listen(now)
                now = play.send(await now.next_turn())
        except StopIteration:
            await handle.close()
        return self._end(handle, store)

    def _listen(self, handle: Any) -> None:
        if self.meddles:
            self.model.meanwhile = partial(self.caller.meddle, handle)

    def _end(self, handle: Any, store: MemoryStore | None) -> Story:
        used = handle.total_usage
        counts = {"requests": len(handle.usage_log), "input_tokens": used.input_tokens}
        assert counts | {"output_tokens": used.output_tokens} == dict(self.model.answered)
        assert sum((entry.usage for entry in handle.usage_log), Usage()) == used
        if isinstance(handle, ToolLoopHandle):
            handle.close()
        if store is not None:
            check_store(store, handle.state)
            assert store.lease("tree") is None
        return self.told(handle)

    def dying(self, store: Any) -> Story:
        """A process of a worker that may die."""
        with ToolLoopHandle.open(store, "tree", ScriptedProvider(self.model), **self.parts) as handle:
            return self.told(self.drive(handle))


def check_store(store: MemoryStore, state: State) -> None:
    """The journal is what is, and keeps the promises in each loop, event by event, by two judges."""
    journal = store.load("tree")
    bodies = [entry.body for entry in journal.entries]
    assert read_journal(bodies) == state
    assert audit(journal).ok
    first, *events = map(decode_event, bodies)
    assert isinstance(first, ev.Opened)
    now, truth = begin(first), CheckedTruth()
    for event in events:
        before, now = now, step(now, event)
        truth.hear(before, event, now)
        truth.check(now)
    assert now == state


def dies(telling: Callable[[], Telling], deaths: tuple[int, ...]) -> tuple[MemoryStore, Telling]:
    """A worker that dies at these moments, one process after the other; the last one lives, and tells."""
    store, graveyard, last = MemoryStore(), Graveyard(), telling()
    for at in deaths:
        mortal = MortalStore(store, graveyard, at)
        with suppress(Killed):
            last.dying(mortal)
        mortal.die()
    return store, last


@settings(max_examples=14 * DEEP)
@given(seeds, seeds, st.frozensets(st.integers(1, 12), max_size=3), st.booleans(), st.booleans())
def test_a_tree_has_one_story(seed: int, other: int, fails: frozenset[int], is_stored: bool, meddles: bool) -> None:
    """Whatever is decided first, and when, asleep or not, stored or not, if requests fail: the same in each loop."""
    store, telling = MemoryStore() if is_stored else None, Telling(seed, other, fails=fails, meddles=meddles)
    assert Telling(seed, 0).in_sync() == telling.in_sync(store, sleeps=not is_stored)


@settings(max_examples=14 * DEEP)
@given(seeds, seeds, st.booleans(), st.sampled_from(["asyncio", "trio"]), st.booleans())
def test_the_async_handle_tells_the_same_story(
    seed: int, other: int, is_stored: bool, backend: str, meddles: bool
) -> None:
    """The same in each loop of the tree, and the same usage."""
    store = MemoryStore() if is_stored else None
    actual = anyio.run(Telling(seed, other, meddles=meddles).in_async, store, backend=backend)
    assert actual == Telling(seed, 0).in_sync()


@settings(max_examples=14 * DEEP)
@given(seeds, seeds, st.lists(st.integers(0, 60), min_size=1, max_size=3).map(tuple))
def test_a_tree_tells_the_same_story_if_its_process_dies(seed: int, other: int, deaths: tuple[int, ...]) -> None:
    """At any call to the store, again and again: what was lost is done once more, as far as somebody says so."""
    store, telling = dies(lambda: Telling(seed, other), deaths)
    with ToolLoopHandle.open(store, "tree", ScriptedProvider(telling.model), **telling.parts) as handle:
        story = telling.told(telling.drive(handle))
    check_store(store, handle.state)
    assert story == Telling(seed, 0).in_sync()


@settings(max_examples=14 * DEEP)
@given(seeds, seeds, st.sampled_from(PARTS), st.integers(1, 60))
def test_the_budget_of_the_root_bounds_the_tree(seed: int, other: int, what: str, most: int) -> None:
    """It is kept exactly, but for tokens: each running loop may pass it by one request. And then it goes on."""
    most = min(most, 6) if what in ("requests", "tool_calls") else most
    bounded = Telling(seed, other, budget=Budget(**{what: most})).in_sync(MemoryStore())
    assert bounded == Telling(seed, 0).in_sync()


def test_a_tree_survives_its_process_everywhere() -> None:
    """One tree, killed at every boundary there is: the same story each time."""
    tellings: list[Telling] = []
    expected = Telling(TREE, 0).in_sync()

    def store() -> MemoryStore:
        tellings.append(Telling(TREE, 1))
        return MemoryStore()

    def check(store: MemoryStore) -> None:
        telling = tellings[-1]
        with ToolLoopHandle.open(store, "tree", ScriptedProvider(telling.model), **telling.parts) as handle:
            assert telling.told(handle) == expected
        check_store(store, handle.state)

    def program(store: Any) -> None:
        tellings[-1].dying(store)

    report = crash_everywhere(program, store, check=check)
    assert report.boundaries > 60
    assert not report.waiting


def test_a_start_that_takes_the_time_of_a_loop_above_ends_that() -> None:
    """A `params` function that uses the root's time up is no start that is refused: the root ends by its limit."""

    def slow(given: Any) -> dict[str, Any]:
        until = time.monotonic() + 0.3
        while time.monotonic() < until:
            pass
        return {"model": MODEL, "max_tokens": 10}

    def script(body: Any) -> Any:
        depth = ["root", "outer"].index(body["messages"][0]["content"])
        name, prompt = [("outer", "outer"), ("inner", "inner")][depth]
        return reply(calls=[call(name, {"prompt": prompt})])

    plain: dict[str, Any] = {"model": MODEL, "max_tokens": 10}
    inner = sub_loop("inner", "Takes its time.", params=slow)
    handle = ToolLoopHandle(
        ScriptedProvider(script),
        params={**plain, "messages": [{"role": "user", "content": "root"}]},
        tools=[sub_loop("outer", "Hands it on.", params=plain, tools=[inner])],
        config=LoopConfig(timeout=0.25),
    )
    turn = handle.next_turn()
    assert isinstance(turn, Completed)
    assert turn.termination == Timeout(0.25)
