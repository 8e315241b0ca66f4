"""Waking up among other things: each kind of drift is named, accepted if the caller says so, and put to use."""

from __future__ import annotations

from typing import Any

import pytest

from tests.loop.support import TOOLS, add, broken, look, params, picture, results_in, scene, write
from toolloop import Deny, LoopConfig, ToolLoopHandle, ToolRegistry, tool
from toolloop.errors import Drift
from toolloop.testing import call, reply

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


def test_a_policy_judges_once_more_after_waking_up() -> None:
    """What has not started is judged by the policy there is now; what a person decided is asked about by nobody."""
    seen: list[str] = []

    def stricter(asked: Any, view: Any) -> Any:
        seen.append(asked.id)
        return Deny("never again")

    with scene([reply(calls=[WRITE]), reply("fine")]) as at:
        at.turn().approve_all()
        config = LoopConfig(on_tool_call=stricter)
        copy = ToolLoopHandle.restore(
            at.handle.snapshot(), at.api.client(), tools=TOOLS, config=config, on_drift="accept"
        )
        copy.run()
        assert (seen, at.ran) == (["toolu_w"], [])
        assert "never again" in results_in(at.sent()[-1])[0]["content"]


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
