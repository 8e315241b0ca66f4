"""A tool that is gone and comes back: its approval, effect and schema are compared as if it had never been gone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.kit.effort import examples
from tests.kit.tools import params, user
from tests.kit.world import open_over_http
from toolloop import LoopConfig, ToolLoopHandle, sub_loop, tool
from toolloop.errors import Drift
from toolloop.testing import ScriptedProvider, call, reply

NAMES = ("pay", "read", "send")
# A tool by its name: (approval, effect, whether it has two parameters), or, for one whose calls are loops,
# (approval, whether the loops have a policy, their tools).
Tools = dict[str, tuple[Any, ...]]


def predicate(_: Any) -> bool:
    """Ask about each call."""
    return True


def policy(*_: Any) -> None:
    """A policy without an opinion."""


def short(text: str) -> str:
    """Do it."""
    return text


def long(text: str, mode: str = "w") -> str:
    """Do it."""
    return text + mode


APPROVALS: dict[str, Any] = {"always": True, "predicate": predicate, "never": False}


def make_tools(tools: Tools) -> list[Any]:
    """The tools themselves."""
    return [
        sub_loop(
            name,
            "Do it.",
            params=params(),
            tools=make_tools(last),
            config=LoopConfig(on_tool_call=policy if second else None),
            needs_approval=APPROVALS[approval],
        )
        if isinstance(last, dict)
        else tool(long if last else short, name=name, description="", needs_approval=APPROVALS[approval], effect=second)
        for name, (approval, second, last) in tools.items()
    ]


def some_tools(depth: int) -> st.SearchStrategy[Tools]:
    """Tools, with loops in their calls down to this depth."""
    approvals = st.sampled_from(list(APPROVALS))
    plain = st.tuples(approvals, st.sampled_from(("once", "keyed", "pure")), st.booleans())
    kinds = st.tuples(approvals, st.booleans(), some_tools(depth - 1)) | plain if depth else plain
    return st.dictionaries(st.sampled_from(NAMES), kinds, max_size=3)


@st.composite
def fewer(draw: st.DrawFn, tools: Tools) -> Tools:
    """These tools without some of them, at any depth."""
    return {
        name: (*kind[:2], draw(fewer(kind[2])) if isinstance(kind[2], dict) else kind[2])
        for name, kind in tools.items()
        if draw(st.booleans())
    }


@st.composite
def others(draw: st.DrawFn, tools: Tools, depth: int = 2) -> Tools:
    """These tools, some of them changed, and others."""
    new = draw(some_tools(depth))
    changed = {}
    for name, kind in tools.items():
        match draw(st.sampled_from(("same", "inside", "new"))):
            case "same":
                changed[name] = kind
            case "inside" if isinstance(kind[2], dict):
                changed[name] = (*kind[:2], draw(others(kind[2], depth - 1)))
    return {**new, **changed}


def drive(snapshot: Any, tools: Tools) -> tuple[set[str], Any]:
    """Drive a turn with these tools: the changes that are refused, and the loop with those accepted."""
    handle = ToolLoopHandle.restore(snapshot, ScriptedProvider([]), tools=make_tools(tools))
    handle.follow_up("more")
    try:
        handle.next_turn()
        refused: set[str] = set()
    except Drift as drift:
        refused = set(drift.changes)
    handle = ToolLoopHandle.restore(
        snapshot, ScriptedProvider([reply("done")]), tools=make_tools(tools), on_drift="accept"
    )
    handle.follow_up("more")
    assert handle.run().unwrap().text == "done"
    return refused, handle.snapshot()


def begin_with(tools: Tools) -> Any:
    """A snapshot of a loop with these tools."""
    handle = ToolLoopHandle(
        ScriptedProvider([reply("done")]), params=params(messages=[user()]), tools=make_tools(tools)
    )
    handle.run()
    return handle.snapshot()


@examples(20)
@given(st.data())
def test_a_process_without_some_tools_hides_no_change(data: st.DataObject) -> None:
    """From a to c exactly what a to b and b to c report together is refused, for each b with fewer tools."""
    first = data.draw(some_tools(2), "a")
    between = data.draw(st.lists(fewer(first), min_size=1, max_size=2), "b")
    last = data.draw(others(first), "c")
    snapshot = begin_with(first)
    expected, _ = drive(snapshot, last)
    found = set()
    for tools in [*between, last]:
        refused, snapshot = drive(snapshot, tools)
        found |= refused
    assert found == expected


def test_a_gate_does_not_leave_with_its_tool() -> None:
    """A process without `pay` drives one turn; then `pay` is back without approval, and does not run."""
    gated, free = {"pay": ("always", "once", False)}, {"pay": ("never", "once", False)}
    with open_over_http(
        [reply("one"), reply("two"), reply(calls=[call("pay", {"text": "x"})])], tools=make_tools(gated)
    ) as at:
        at.expect_done()
        without = ToolLoopHandle.restore(at.handle.snapshot(), at.api.client(), tools=[])
        without.follow_up("more")
        assert without.run().unwrap().text == "two"
        back = ToolLoopHandle.restore(without.snapshot(), at.api.client(), tools=make_tools(free))
        back.follow_up("more")
        with pytest.raises(Drift, match="approval of tool 'pay' changed from always to never"):
            back.run()
        assert at.count == 2
