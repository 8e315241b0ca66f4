"""A loop that compacts its history falls asleep and wakes up elsewhere; and two who hold the same loop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.loop.concurrency import Background, awaited
from tests.stores.compaction_worker import PARAMS, STRATEGIES, Worker, asks_for_summary, each_strategy, model, page
from toolloop import Completed, InjectMessages, LoopConfig, MemoryStore, Stop, ToolLoopHandle, Yielded
from toolloop.errors import Conflict, Drift
from toolloop.machine.loop import Ready, Requesting
from toolloop.stores.codec import read_journal
from toolloop.terminations import NaturalEnd, StopCondition
from toolloop.testing import ScriptedProvider


def config(name: str) -> LoopConfig:
    return LoopConfig(compaction=STRATEGIES[name](), max_iterations=20)


def begun(name: str, script: Any = model, **more: Any) -> tuple[ToolLoopHandle, ScriptedProvider]:
    provider = ScriptedProvider(script)
    return ToolLoopHandle(provider, params=PARAMS, tools=[page], config=config(name), loop_id="book", **more), provider


@each_strategy
def test_woken_between_any_two_turns(name: str) -> None:
    """From each snapshot on, the requests are to the byte those of a loop that never slept."""
    wanted = Worker(name).undisturbed()
    handle, provider = begun(name)
    while True:
        snapshot, done = handle.snapshot(), len(provider.bodies)
        other = ScriptedProvider(model)
        woken = ToolLoopHandle.restore(snapshot, other, tools=[page], config=config(name))
        assert woken.run().unwrap().text == "done"
        assert provider.bodies[:done] + other.bodies == wanted
        turn = handle.next_turn()
        if isinstance(turn, Completed):
            break
        assert isinstance(turn, Yielded)
        turn.continue_loop()


@each_strategy
def test_woken_in_the_middle_of_a_request(name: str) -> None:
    """A snapshot taken while any request is under way, one for a summary among them, wakes up before it."""
    wanted = Worker(name).undisturbed()
    snapshots: list[Any] = []

    def look(body: Any) -> Any:
        snapshots.append((handle.snapshot(), handle.state))
        return model(body)

    handle, provider = begun(name, look)
    handle.run()
    assert len(snapshots) == len(wanted)
    for number, (snapshot, state) in enumerate(snapshots):
        is_summary = asks_for_summary(provider.requests[number])  # which is asked for while the loop is Ready
        assert isinstance(state.root.phase, Ready if is_summary else Requesting)
        other = ScriptedProvider(model)
        woken = ToolLoopHandle.restore(snapshot, other, tools=[page], config=config(name))
        assert woken.run().unwrap().text == "done"
        assert other.bodies == wanted[number:]
        assert [entry.kind for entry in woken.usage_log].count("summary") == sum(
            map(asks_for_summary, provider.requests)
        )


DRIFTS: dict[str, tuple[Any, Any]] = {
    "gone": (STRATEGIES["mask"], lambda: ()),
    "new": (lambda: None, STRATEGIES["mask"]),
}


@pytest.mark.parametrize("how", DRIFTS)
@pytest.mark.parametrize("is_stored", [False, True], ids=["restored", "opened"])
def test_a_strategy_that_is_missing_or_new_is_drift(how: str, *, is_stored: bool) -> None:
    """It names what changed, and can be accepted."""
    before, after = DRIFTS[how]
    store = MemoryStore()
    handle = ToolLoopHandle(
        ScriptedProvider(model),
        params=PARAMS,
        tools=[page],
        config=LoopConfig(compaction=before()),
        store=store if is_stored else None,
        loop_id="book",
    )
    handle.next_turn()
    handle.close()
    snapshot = handle.snapshot()

    def wake(**more: Any) -> ToolLoopHandle:
        parts: dict[str, Any] = {"tools": [page], "config": LoopConfig(compaction=after()), **more}
        if is_stored:
            return ToolLoopHandle.open(store, "book", ScriptedProvider(model), **parts)
        return ToolLoopHandle.restore(snapshot, ScriptedProvider(model), **parts)

    with pytest.raises(Drift, match="compaction"):
        wake()
    assert wake(on_drift="accept").run().unwrap().text == "done"


def test_another_strategy_is_no_drift() -> None:
    """What a strategy is like is the caller's own affair."""
    handle, _ = begun("mask")
    handle.next_turn()
    woken = ToolLoopHandle.restore(handle.snapshot(), ScriptedProvider(model), tools=[page], config=config("together"))
    assert woken.run().unwrap().text == "done"


class Meeting:
    """A model whose first summary stands until it is let go."""

    def __init__(self) -> None:
        self.arrived, self.go = threading.Event(), threading.Event()

    def __call__(self, body: Any) -> Any:
        if asks_for_summary(body) and not self.arrived.is_set():
            self.arrived.set()
            awaited(self.go)
        return model(body)


def opened(store: MemoryStore, script: Any = model, **more: Any) -> ToolLoopHandle:
    parts = {"params": PARAMS, "tools": [page], "config": config("summarize"), **more}
    return ToolLoopHandle.open(store, "book", ScriptedProvider(script), **parts)


def test_a_loop_that_is_taken_over_during_a_summary() -> None:
    """Whoever took it over asks for the summary anew; what the first one gets no longer counts."""
    store, meeting = MemoryStore(), Meeting()
    first = opened(store, meeting)
    running = Background(first.run)
    awaited(meeting.arrived)
    second = opened(store, take_over=True)
    assert second.run().unwrap().text == "done"
    meeting.go.set()
    with pytest.raises(Conflict):
        running.result()
    second.close()
    assert read_journal(store.load("book").entries) == second.state
    assert first.run().unwrap().text == "done"
    assert first.state == second.state


SAID: dict[str, tuple[Any, Callable[[Any], bool]]] = {
    "stop": (Stop("enough"), lambda done: done.termination == StopCondition("enough")),
    "inject": (InjectMessages([{"role": "user", "content": "Hurry."}]), lambda done: done.termination == NaturalEnd()),
}


@pytest.mark.parametrize("what", SAID)
def test_somebody_else_speaks_during_a_summary(what: str) -> None:
    """What another process says is stored, and counts when the summary is in."""
    word, holds = SAID[what]
    store, meeting = MemoryStore(), Meeting()
    first = opened(store, meeting)
    running = Background(first.run)
    awaited(meeting.arrived)
    opened(store).resume(word)
    meeting.go.set()
    done = running.result().unwrap()
    assert holds(done)
    kinds = [entry.kind for entry in done.usage_log]
    assert "summary" in kinds
    first.close()
    assert read_journal(store.load("book").entries) == first.state
    if what == "inject":
        assert {"role": "user", "content": "Hurry."} in first.messages
