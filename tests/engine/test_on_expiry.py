"""`on_expiry="stop"`: a loop ends when a call is not decided in time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.journal.test_stored_time import START, Clock, list_told
from tests.kit.concurrency import either_kind
from tests.kit.each import each
from tests.kit.loop_trees import kid, task, tree_of
from tests.kit.support import expect_yielded, results_in
from tests.kit.tools import LOOK, SEND, params, user
from tests.kit.world import APPROVED, AnyHandle, World, hold_at
from toolloop import AsyncToolLoopHandle, LoopConfig, ToolLoopHandle, tool
from toolloop.errors import CallerError
from toolloop.events import LoopFinished
from toolloop.machine.values.setup import Texts
from toolloop.stores.memory import MemoryStore
from toolloop.terminations import Expired, NaturalEnd
from toolloop.testing import reply

SCRIPT = (reply(calls=[SEND, LOOK]), reply("done"))
EXPIRED = Texts().expired


def world(kind: str, clock: Callable[[], float], **config: Any) -> World:
    config = {"decision_timeout": 60.0, "on_expiry": "stop", **config}
    return World(kind, MemoryStore(), script=SCRIPT, config=config, clock=clock)


@either_kind
def test_a_loop_that_stops_ends_without_a_further_request(kind: str) -> None:
    """The end says which tool's call was not decided; the other call did not run, and a stored loop is over."""
    clock = Clock()
    at = world(kind, clock)
    party = at.open()
    expect_yielded(party.run())
    clock.now += 60
    done = party.run().unwrap()
    assert (done.termination, done.termination.kind, len(at.requests)) == (Expired("send"), "expired", 1)
    assert done.events[-1] == LoopFinished(1, Expired("send"))
    assert [each["content"] for each in results_in(party.handle.messages[-1])] == [EXPIRED, Texts().not_run]
    assert (at.ran, at.status(), at.open().run().unwrap().termination) == ([], "ended", Expired("send"))
    at.assert_head()


@either_kind
def test_who_decides_after_the_end_is_refused_and_a_user_may_go_on(kind: str) -> None:
    """No tick is needed for that."""
    clock = Clock()
    at = world(kind, clock)
    party, other = at.open(), at.open()
    expect_yielded(party.run())
    clock.now += 60
    with pytest.raises(CallerError, match="t2"):
        other.decide(t2=APPROVED)
    assert at.ran == []
    assert party.run().unwrap().termination == Expired("send")
    party.say(lambda: party.handle.follow_up("And now?"))
    assert party.run().unwrap().termination == NaturalEnd()
    assert [each["content"] for each in results_in(at.requests[-1]["messages"][-2])][:1] == [EXPIRED]


@either_kind
def test_the_rule_is_stored_with_the_loop(kind: str) -> None:
    """A process that opens the loop without a configuration, or reads a snapshot, ends it, too."""
    clock = Clock()
    at = world(kind, clock)
    first = at.open()
    expect_yielded(first.run())
    snapshot = first.handle.snapshot()
    first.close()
    clock.now += 60
    copy = type(first.handle).restore(snapshot, at.provider(), tools=at.tools, clock=clock)
    copy.tick(START + 60)
    assert copy.into_result().termination == Expired("send")
    at.config = {}
    assert at.open().run().unwrap().termination == Expired("send")


def test_a_sibling_that_runs_keeps_its_result() -> None:
    """With `ready`, it runs while the call waits: its end is recorded first, and then the loop ends.

    A lone tool runs in the caller's thread. An event loop may look at the clock before it is notified of the end.
    """
    clock = Clock()
    at = world("sync", clock, execution="ready")
    party = at.open()
    expect_yielded(party.run()).continue_loop()
    with hold_at(at, "t3", party) as turn:
        clock.now += 60
    done = turn.result().unwrap()
    assert done.termination == Expired("send")
    assert [each["content"] for each in results_in(party.handle.messages[-1])] == [EXPIRED, "text of a"]
    assert at.ran == ["t3"]


@either_kind
def test_a_sibling_that_still_runs_is_waited_for(kind: str) -> None:
    """Another handle's tick is to end the loop, as its stop would; the result of the tool counts."""
    clock = Clock()
    at = world(kind, clock, execution="ready")
    party = at.open()
    expect_yielded(party.run()).continue_loop()
    party.flush()
    other = at.open()
    with hold_at(at, "t3", party) as turn:
        other.say(lambda: other.handle.tick(START + 60))
    assert turn.result().unwrap().termination == Expired("send")
    assert [each["content"] for each in results_in(party.handle.messages[-1])] == [EXPIRED, "text of a"]


@tool(needs_approval=True)
def gate() -> str:
    """Pass a gate."""
    return "passed"


@each("kind", ["sync", "asyncio"])
def test_a_loop_inside_a_call_ends_by_its_own_rule(kind: str) -> None:
    """Its call gets an error result with the reason, and the loop above goes on."""
    clock = Clock()
    said = {"go": [reply(calls=[task("one")]), reply("done")], "one": [reply("hm", calls=[("gate", {})])]}
    child = kid([gate], on_expiry="stop", decision_timeout=60.0)
    tree = tree_of(kind, said, [child])
    make = ToolLoopHandle if kind == "sync" else AsyncToolLoopHandle
    asked = {**params(), "messages": [user("go")]}
    handle = make(tree.provider(), params=asked, tools=[child], clock=clock, store=MemoryStore(), loop_id="loop")
    party = AnyHandle(kind, handle)
    expect_yielded(party.run())
    clock.now += 60
    done = party.run().unwrap()
    assert (done.text, done.termination, tree.asked) == ("done", NaturalEnd(), ["go", "one", "go"])
    (result,) = results_in(party.handle.messages[-2])
    assert result["is_error"] is True
    assert "expired (tool name: gate)" in result["content"]


def test_a_loop_that_continues_tells_the_model() -> None:
    """That is the default."""
    clock = Clock()
    at = world("sync", clock, on_expiry="continue")
    party = at.open()
    expect_yielded(party.run())
    clock.now += 60
    assert party.run().unwrap().termination == NaturalEnd()
    assert list_told(at)[0] == (EXPIRED, True)


@each("value", ["end", None, True])
def test_another_value_is_refused(value: Any) -> None:
    """The error names the field, and the values that there are."""
    with pytest.raises(ValueError, match=r"on_expiry is .*; give one of continue, stop"):
        LoopConfig(on_expiry=value)
