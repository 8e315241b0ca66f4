"""Waking up among other tools and policies: each kind of drift is named, accepted if the caller says so, and used."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.loop.concurrency import cross
from tests.loop.support import TOOLS, Scene, add, broken, look, params, picture, results_in, scene, write, yielded
from toolloop import Answer, LoopConfig, LoopContext, ToolLoopHandle, ToolRegistry, tool
from toolloop.errors import Drift
from toolloop.machine import Judging
from toolloop.testing import FakeMessagesAPI, call, reply

LOOKUP = {"name": "lookup", "description": "Look up.", "input_schema": {"type": "object", "properties": {}}}
WRITE = call("write", {"path": "a", "text": "b"}, id="toolu_w")


@tool(name="add")
def other_schema(a: int, b: int, c: int) -> str:
    """Add two numbers."""
    return str(a + b + c)


@tool(name="add", needs_approval=True)
def guarded(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@tool(name="add", effect="pure")
def repeatable(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@tool(name="more")
def more() -> str:
    """More."""
    return "more"


def policy(*_: Any) -> None:
    """A policy without an opinion."""


REST = (write, look, broken, picture)
DRIFTS: dict[str, tuple[dict[str, Any], str]] = {
    "a tool is gone": ({"tools": REST}, "the tool 'add' is gone"),
    "no tools": ({"tools": ()}, "the tool 'write' is gone"),
    "a tool is new": ({"tools": (*TOOLS, more)}, "the tool 'more' is new"),
    "another schema": ({"tools": (other_schema, *REST)}, "the definition of the tool 'add' changed"),
    "another approval": ({"tools": (guarded, *REST)}, "the approval of the tool 'add' was never, and is always"),
    "another effect": ({"tools": (repeatable, *REST)}, "the effect of the tool 'add' was once, and is pure"),
    "a callable is missing": ({"config": None}, "config.on_tool_call was set, and is missing"),
    "a callable is new": (
        {"config": LoopConfig(on_tool_call=policy, stop_when=policy)},
        "config.stop_when was not set, and is",
    ),
    "another model": ({"params": params(model="claude-opus-5")}, "the parameter 'model' changed"),
    "another system prompt": ({"params": params(system="New.")}, "the parameter 'system' is new"),
    "another limit of tokens": ({"params": params(max_tokens=1)}, "the parameter 'max_tokens' changed"),
    "other raw tools": ({"params": params(tools=[LOOKUP])}, "the parameter 'tools' is new"),
}


@pytest.mark.parametrize(("parts", "change"), DRIFTS.values(), ids=DRIFTS)
def test_drift_is_named_and_may_be_accepted(parts: dict[str, Any], change: str) -> None:
    """It says what changed and what to do; accepted, the loop wakes up with what there is now."""
    with scene([reply(calls=[WRITE])], on_tool_call=policy) as at:
        at.turn()
        given = {"tools": TOOLS, "config": LoopConfig(on_tool_call=policy), **parts}
        snapshot = at.handle.snapshot()
        with pytest.raises(Drift) as caught:
            ToolLoopHandle.restore(snapshot, at.api.client(), **given)
        assert change in caught.value.changes
        assert change in str(caught.value)
        assert "accept" in str(caught.value)
        copy = ToolLoopHandle.restore(snapshot, at.api.client(), **given, on_drift="accept")
        assert copy.pending_turn is not None
        again = ToolLoopHandle.restore(copy.snapshot(), at.api.client(), **given)
        assert again.snapshot() == copy.snapshot()


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"tools": ToolRegistry(TOOLS)},
        {"params": params()},
        {"params": params(messages=[{"role": "user", "content": "something else"}])},
        {"params": params(timeout=5, extra_headers={"x-mine": "1"})},
        {"params": {}},
        {"config": LoopConfig(max_iterations=99, timeout=5)},
    ],
)
def test_what_is_no_drift(parts: dict[str, Any]) -> None:
    """Same things in another wrapping, secrets that come back, other limits: the loop wakes up."""
    with scene([reply(calls=[WRITE])]) as at:
        at.turn()
        given = {"tools": TOOLS, **parts}
        assert ToolLoopHandle.restore(at.handle.snapshot(), at.api.client(), **given).messages == at.handle.messages


def test_a_tool_that_is_gone_is_told_to_the_model() -> None:
    """Accepted drift: a call that was approved for a tool that is no longer there cannot run."""
    with scene([reply(calls=[WRITE]), reply("fine")]) as at:
        at.turn().approve_all()
        copy = ToolLoopHandle.restore(at.handle.snapshot(), at.api.client(), tools=[add], on_drift="accept")
        assert copy.run().unwrap().text == "fine"
        (result,) = results_in(at.sent()[-1])
        assert result["is_error"] is True
        assert "'write'" in result["content"]


def test_an_external_name_stays_external() -> None:
    """Which names were external is part of the snapshot: without params it still waits for its answer."""
    external = call("lookup", {}, id="toolu_e")
    with scene([reply(calls=[external]), reply("fine")], asked=params(tools=[LOOKUP])) as at:
        at.turn()
        copy = ToolLoopHandle.restore(at.handle.snapshot(), at.api.client(), tools=TOOLS)
        assert [call.why for call in copy.pending] == ["external"]
        assert copy.pending_turn is not None
        copy.pending_turn.answer("toolu_e", "found")
        assert copy.run().unwrap().text == "fine"


@pytest.mark.parametrize("word", ["ignore", "", None])
def test_on_drift_takes_two_words(word: Any) -> None:
    """Anything else is a mistake."""
    with scene([]) as at, pytest.raises(ValueError, match="on_drift"):
        ToolLoopHandle.restore(at.handle.snapshot(), at.api.client(), tools=TOOLS, on_drift=word)


@pytest.mark.parametrize(
    "part", [{"params": "x"}, {"config": {}}, {"tools": 5}, {"context": 5}, {"provider": object()}]
)
def test_bad_parts_are_refused_at_restore(part: dict[str, Any]) -> None:
    """As they are when a handle is made."""
    with scene([]) as at:
        given = {"provider": at.api.client(), "tools": TOOLS, **part}
        with pytest.raises(TypeError, match=next(iter(part))):
            ToolLoopHandle.restore(at.handle.snapshot(), given.pop("provider"), **given)


EXTERNAL = {"name": "write", "input_schema": {"type": "object"}}


def woken(at: Scene, *tools: Any, **parts: Any) -> ToolLoopHandle:
    """The same loop in another process, among these tools."""
    context = LoopContext(state=at.ran)
    return ToolLoopHandle.restore(
        at.handle.snapshot(), at.api.client(), tools=tools, context=context, on_drift="accept", **parts
    )


def sent_results(at: Scene) -> list[str]:
    return [str(block["content"]) for block in results_in(at.sent()[-1])]


def half_way(api: FakeMessagesAPI) -> tuple[dict[str, Any], tuple[Any, ...], list[str]]:
    """A snapshot taken while a call of effect once and one of effect pure run; the tools, and what ran."""
    handles: list[ToolLoopHandle] = []
    snapshots: list[dict[str, Any]] = []
    ran: list[str] = []
    both = threading.Barrier(2)

    @tool
    def careful() -> str:
        """Run once."""
        ran.append("careful")
        if not snapshots:
            cross(both)
            snapshots.append(handles[0].snapshot())
            cross(both)
        return "careful"

    @tool(effect="pure")
    def harmless() -> str:
        """Run as often as you like."""
        ran.append("harmless")
        if not snapshots:
            cross(both)
            cross(both)
        return "harmless"

    tools = (careful, harmless)
    handles.append(ToolLoopHandle(api.client(), params=params(), tools=tools, loop_id="loop"))
    yielded(handles[0].next_turn())
    ran.clear()
    return snapshots[0], tools, ran


SCRIPT = [reply(calls=[call("careful", id="toolu_c"), call("harmless", id="toolu_h")]), reply("fine")]


def test_what_waits_can_be_seen_and_decided_right_after_waking_up() -> None:
    """A call that a kill left uncertain waits at once, though the policies are still to judge the other."""
    with FakeMessagesAPI(SCRIPT) as api:
        snapshot, tools, ran = half_way(api)
        copy = ToolLoopHandle.restore(snapshot, api.client(), tools=tools)
        assert [(each.id, each.why) for each in copy.pending] == [("toolu_c", "uncertain")]
        assert [each["id"] for each in copy.view()["pending"]] == ["toolu_c"]
        copy.decide({"toolu_c": Answer("it had ended")})
        assert copy.pending == ()
        assert copy.run().unwrap().text == "fine"
        assert ran == ["harmless"]
        told = [block["content"] for block in results_in(api.requests[-1].json["messages"][-1])]
        assert (told, api.refused) == (["it had ended", "harmless"], [])


def test_calls_can_be_decided_while_the_policies_judge() -> None:
    """A decision that is made while another call is judged joins this very turn."""
    handles: list[ToolLoopHandle] = []

    def policy(asked: Any, view: Any) -> None:
        if isinstance(handles[-1].state.root.phase, Judging) and handles[-1].pending:
            handles[-1].decide({"toolu_c": Answer("it had ended")})

    with FakeMessagesAPI(SCRIPT) as api:
        snapshot, tools, ran = half_way(api)
        config = LoopConfig(on_tool_call=policy)
        handles.append(ToolLoopHandle.restore(snapshot, api.client(), tools=tools, config=config, on_drift="accept"))
        assert handles[0].run().unwrap().text == "fine"
        assert (ran, api.refused) == (["harmless"], [])


def test_a_rerun_of_a_tool_that_is_gone_settles_the_call() -> None:
    """Nobody can run it again: the model is told so, and that the first run may have had effects."""
    with FakeMessagesAPI(SCRIPT) as api:
        snapshot, tools, _ = half_way(api)
        copy = ToolLoopHandle.restore(snapshot, api.client(), tools=tools[1:], on_drift="accept")
        turn = yielded(copy.next_turn())
        turn.rerun("toolu_c", by="ana")
        assert copy.run().unwrap().text == "fine"
        first, second = results_in(api.requests[-1].json["messages"][-1])
        assert (first["is_error"], second["content"]) == (True, "harmless")
        assert "may have had effects" in first["content"]
        assert "did not run" not in first["content"]
        assert api.refused == []


def test_a_call_whose_tool_became_external_waits_for_its_answer() -> None:
    """An approval is no answer: what the caller approved was a tool of this loop's."""
    with scene([reply(calls=[WRITE]), reply("fine")]) as at:
        at.turn().approve_all()
        copy = woken(at, look, params=params(tools=[EXTERNAL]))
        turn = yielded(copy.run())
        assert [(each.id, each.why) for each in turn.pending] == [("toolu_w", "external")]
        turn.answer("toolu_w", "written elsewhere")
        assert copy.run().unwrap().text == "fine"
        assert (sent_results(at), at.ran) == (["written elsewhere"], [])
