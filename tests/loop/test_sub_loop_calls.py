"""Calls of loops inside calls: ids that come again, names and paths, failures, grants, usage."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from typing import Any, cast

import pytest

from tests import inside
from tests.each import each
from tests.loop.concurrency import DEADLINE, cross, either_kind, run_async, told, turn
from tests.loop.loop_trees import Handle, LoopTree, kid, parallel, task
from tests.loop.support import HUNDRED, add, completed, failed, params, user, yielded
from toolloop import (
    Approve,
    Budget,
    Deny,
    Grant,
    ToolContext,
    ToolLoopHandle,
    Yielded,
    tool,
)
from toolloop.errors import DecisionConflict, ModelError, UnknownCall
from toolloop.loop.notifier import Notifier
from toolloop.testing import FakeMessagesAPI, ScriptedProvider, call, reply

TWICE = [reply(calls=[call("kid", {"prompt": "one"}, id="k")])] * 2 + [reply("all done")]
GATED = [reply(calls=[call("gate", {}, id="g")]), reply("went through")]


@tool(needs_approval=True)
def gate() -> str:
    """Pass a gate."""
    return "passed"


def run(kind: str, handle: Handle) -> None:
    """Drive a loop to its end."""
    completed(handle.run() if isinstance(handle, ToolLoopHandle) else run_async(kind, handle.run))


def go_on(turn: Yielded) -> None:
    """Approve what waits, and go on."""
    turn.approve_all()
    turn.continue_loop()


# --- what is counted -------------------------------------------------------------------------------------------------


def test_the_usage_of_a_turn_is_of_its_own_loop() -> None:
    """Whatever the loops inside its calls used after it."""
    said = {"go": [reply(calls=[task("one")], usage=HUNDRED), reply("done")], "one": [reply("said")]}
    handle = LoopTree("sync", said, [kid()]).loop()
    executed = yielded(handle.next_turn())
    assert handle.usage_log[-1].path == ("one",)
    assert (executed.usage.input_tokens, executed.usage.output_tokens) == (100, 50)


# --- ids that come again ---------------------------------------------------------------------------------------------


def test_calls_of_the_same_ids_in_several_rounds_have_keys_of_their_own() -> None:
    """Each of two payments is one of its own; a call that is in no other keeps the key that it has ever had."""
    keys: list[str] = []

    @tool(effect="keyed")
    def pay(context: ToolContext) -> str:
        """Pay."""
        keys.append(context.idempotency_key)
        return "paid"

    pays = [reply(calls=[call("pay", {}, id="c1")]), reply("paid for it")]
    run("sync", LoopTree("sync", {"go": TWICE, "one": pays}, [kid([pay])]).loop())
    assert len(keys) == len(set(keys)) == 2
    keys.clear()
    run("sync", LoopTree("sync", {"go": pays}, [pay]).loop())
    assert keys == [hashlib.sha256(b'["loop",["c1"],1,"c1",1]').hexdigest()]


# --- names -----------------------------------------------------------------------------------------------------------


def test_an_id_with_a_slash_can_be_decided() -> None:
    """Only a provider of the caller's own makes such; by what was shown or by the id, in any loop of the tree."""
    calls = reply(calls=[call("gate", {}, id="a/b"), call("gate", {}, id="a/c")])
    for said, tools, above in (
        ({"go": [calls, reply("done")]}, [gate], ""),
        ({"go": parallel("p"), "p": [calls, reply("done")]}, [kid([gate])], "p/"),
    ):
        handle = LoopTree("sync", said, tools).loop()
        waiting = yielded(handle.next_turn())
        waiting.approve(waiting.pending[0])
        waiting.deny(f"{above}a/c", "no")
        assert waiting.pending == ()
        waiting.continue_loop()
        yielded(handle.next_turn())


@each("name", ["p//g", "//g", "p/g/", "/p/g/", "p/nix", "", "/"])
def test_a_name_that_is_not_quite_one_names_nothing(name: str) -> None:
    """And nothing is decided by it."""
    handle = LoopTree("sync", {"go": parallel("p"), "p": GATED}, [kid([gate])]).loop()
    waiting = yielded(turn("sync", handle))
    with pytest.raises(UnknownCall):
        handle.decide({name: Approve()})
    assert [each.path for each in waiting.pending] == [("p", "g")]
    handle.decide({"/p/g": Approve()})


def test_an_error_about_a_call_inside_names_it_so_that_it_can_be_said_back() -> None:
    """By its path, in the text and in the attributes."""
    handle = LoopTree("sync", {"go": parallel("one", "two"), "one": GATED, "two": GATED}, [kid([gate])]).loop()
    waiting = yielded(turn("sync", handle))
    with pytest.raises(UnknownCall, match=r"'one/nix'.*the calls that wait are: one/g") as unknown:
        handle.decide({"one/nix": Approve()})
    assert (unknown.value.call, unknown.value.known) == ("one/nix", ("one/g",))
    with pytest.raises(DecisionConflict, match="'two/g'") as other:
        handle.decide({"two/g": Approve(digest=waiting.pending[0].digest)})
    assert other.value.call == "two/g"
    handle.decide({"two/g": Deny("no")})
    with pytest.raises(DecisionConflict, match="'two/g' was decided already") as again:
        handle.decide({"two/g": Approve()})
    assert again.value.call == "two/g"


# --- failures --------------------------------------------------------------------------------------------------------


@either_kind
def test_who_waits_is_asked_although_another_loop_failed(kind: str) -> None:
    """To go on tries that again; once nothing waits, the failure is told, and where it was."""
    answers: list[Any] = [*[ModelError("overloaded", retryable=True)] * 2, reply("at last")]
    said = {"go": parallel("one", "two"), "one": [lambda: answers.pop(0)], "two": GATED}
    loop_tree = LoopTree(kind, said, [kid([gate])])
    handle = loop_tree.loop()
    waiting = yielded(turn(kind, handle))
    assert [each.path for each in waiting.pending] == [("two", "g")]
    go_on(waiting)
    error = failed(turn(kind, handle))
    assert (error.path, error.retryable, loop_tree.asked.count("one")) == (("one",), True, 2)
    handle.retry()
    assert told(turn(kind, handle)) == ["at last", "went through"]


def test_what_is_under_way_ends_before_a_stop_condition_that_raised_comes_out() -> None:
    """The request of the other loop was paid for: its reply counts, and it is sent once."""
    bugs, out = [LookupError("a bug")], threading.Event()

    def stop_when(_view: Any) -> None:
        if bugs:
            raise bugs.pop()

    class Waiting(Notifier):
        """Whoever waits after the bug lets the request end."""

        def wait(self, seconds: float) -> None:
            if not bugs:
                out.set()
            super().wait(seconds)

    said = {"go": [reply(calls=[task("one"), task("two", "other")])], "one": [reply("1")], "two": [reply("2")]}
    loop_tree = LoopTree("sync", said, [kid(stop_when=stop_when), kid(name="other")])
    loop_tree.on["two"] = lambda: out.wait(DEADLINE)
    handle = loop_tree.loop()
    assert isinstance(handle, ToolLoopHandle)
    inside.set_notifier(handle, Waiting())
    with pytest.raises(LookupError, match="a bug"):
        handle.next_turn()
    out.set()
    assert sorted(entry.path for entry in handle.usage_log) == [(), ("one",), ("two",)]
    assert told(handle.next_turn()) == ["1", "2"]
    assert sorted(loop_tree.asked) == ["go", "one", "two"]


@either_kind
def test_grants_inside_are_listed_and_can_be_taken_back_after_a_limit_ended_the_loop(kind: str) -> None:
    """For `extend` goes on with them."""
    said = {"go": parallel("one"), "one": [*GATED[:1], reply(calls=[call("gate", {}, id="again")])]}
    loop_tree = LoopTree(kind, said, [kid([gate])], config={"budget": Budget(requests=2)})
    handle = loop_tree.loop()
    waiting = yielded(turn(kind, handle))
    waiting.approve("one/g", remember=Grant())
    waiting.continue_loop()
    assert completed(turn(kind, handle)).termination.kind == "budget_exceeded"
    (grant,) = handle.grants
    assert (grant.path, grant.tool) == (("one",), "gate")
    handle.grants.revoke(grant)
    assert list(handle.grants) == []
    handle.extend(budget=Budget(requests=9))
    assert [each.path for each in yielded(turn(kind, handle)).pending] == [("one", "again")]


# --- what goes out ---------------------------------------------------------------------------------------------------


def wired(api: FakeMessagesAPI, tools: Sequence[Any], snapshot: Any = None) -> ToolLoopHandle:
    """A handle on a tree over real HTTP: a new one, or one that slept."""
    if snapshot is not None:
        return ToolLoopHandle.restore(snapshot, api.client(), tools=tools, on_drift="accept")
    return ToolLoopHandle(api.client(), params=params(messages=[user("go")]), tools=tools)


def test_the_api_takes_the_text_of_a_loop_whatever_that_said() -> None:
    """A lone surrogate is legal in the JSON of a reply, and not in that of a request."""
    loop_tree = LoopTree("sync", {"go": parallel("one"), "one": [reply("\ud800 hello")]}, [])
    with FakeMessagesAPI(loop_tree.answer) as api:
        handle = wired(api, [kid()])
        assert completed(handle.run()).text == "all done"
        assert api.refused == []
    assert handle.messages[-2]["content"][0]["content"] == "\ufffd hello"


def test_a_loop_whose_history_needs_a_tool_that_is_gone_ends_before_the_api_refuses_it() -> None:
    """Nobody can edit that history: the call says so, and the loop above goes on."""

    @tool
    def find() -> list[Any]:
        """Find a tool."""
        return [{"type": "tool_reference", "tool_name": "add"}]

    loop_tree = LoopTree("sync", {"go": parallel("one"), "one": [reply(calls=[call("find", {})]), *GATED]}, [])
    with FakeMessagesAPI(loop_tree.answer) as api:
        asleep = wired(api, [kid([find, gate, add])])
        yielded(asleep.next_turn())
        awake = wired(api, [kid([find, gate])], asleep.snapshot())
        go_on(cast("Yielded", awake.pending_turn))
        executed = yielded(awake.next_turn())
        (result,) = executed.results
        assert result is not None
        assert result.is_error
        assert "there is no tool 'add' to refer to" in str(result.content)
        executed.continue_loop()
        assert completed(awake.run()).text == "all done"
        assert api.refused == []


def test_a_script_is_asked_for_several_requests_at_once() -> None:
    """Its function is called where the requests are made, side by side."""
    barrier = threading.Barrier(2)

    def answer(request: Any) -> Any:
        who = request["messages"][0]["content"]
        if who != "go":
            cross(barrier)
        return reply(who) if who != "go" else parallel("one", "two")[0]

    handle = ToolLoopHandle(ScriptedProvider(answer), params=params(messages=[user("go")]), tools=[kid()])
    assert told(handle.next_turn()) == ["one", "two"]
