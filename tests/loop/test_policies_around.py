"""Policies of the loops around: what they forbid and ask reaches into the whole tree."""

from __future__ import annotations

from typing import Any

import pytest

from tests.loop.concurrency import either_kind
from tests.loop.stored import wait
from tests.loop.support import params
from toolloop import (
    Answer,
    Approve,
    Ask,
    AsyncToolLoopHandle,
    Deny,
    LoopConfig,
    PolicyView,
    ToolCall,
    ToolLoopHandle,
    sub_loop,
    tool,
)
from toolloop.testing import AsyncScriptedProvider, ScriptedProvider, call, reply

RAN: list[str] = []
EDITS = Approve({"path": "b"})


@tool
def rm(path: str) -> str:
    """Remove a file."""
    RAN.append(path)
    return "removed"


class Policy:
    """Says the same of each call of `rm`, and keeps what it was asked."""

    def __init__(self, verdict: Any) -> None:
        self.verdict = verdict
        self.asked: list[ToolCall] = []
        self.views: list[PolicyView] = []

    def __call__(self, asked: ToolCall, view: PolicyView) -> Any:
        if asked.name != "rm":
            return None
        self.asked.append(asked)
        self.views.append(view)
        if isinstance(self.verdict, Exception):
            raise self.verdict
        return self.verdict(asked) if callable(self.verdict) else self.verdict


def tree(kind: str, outer: Any, inner: Any = None, depth: int = 2) -> tuple[Any, list[Policy]]:
    """A loop whose innermost loop calls `rm`, after its turn; with one policy for each loop, outermost first."""
    policies = [Policy(outer), *(Policy(None) for _ in range(depth - 2)), Policy(inner)]
    tools: list[Any] = [rm]
    for level in range(depth - 1, 0, -1):
        config = LoopConfig(on_tool_call=policies[level])
        tools = [sub_loop(f"kid{level}", "Work.", params=params(), tools=tools, config=config)]
    script = [reply(calls=[call(f"kid{level}", {"prompt": "go"}, id=f"k{level}")]) for level in range(1, depth)]
    script += [reply(calls=[call("rm", {"path": "a"}, id="r")]), *(reply("done") for _ in range(depth))]
    RAN.clear()
    parts: dict[str, Any] = {"params": params(), "tools": tools, "config": LoopConfig(on_tool_call=policies[0])}
    handle: Any
    if kind == "sync":
        handle = ToolLoopHandle(ScriptedProvider(script), **parts)
    else:
        handle = AsyncToolLoopHandle(AsyncScriptedProvider(script), **parts)
    wait(kind, handle.run())
    return handle, policies


def rm_call(handle: Any) -> list[tuple[str, ...]]:
    return [each.path for each in handle.pending]


@either_kind
def test_what_the_outermost_loop_forbids_is_forbidden_in_its_whole_tree(kind: str) -> None:
    """The policy of the inner loop is not even asked."""
    _, (outer, inner) = tree(kind, Deny("never"), Approve())
    assert (RAN, len(outer.asked), inner.asked) == ([], 1, [])


@pytest.mark.parametrize(
    ("outer", "inner", "waits", "ran"),
    [
        (None, None, False, ["a"]),
        (Approve(), None, False, ["a"]),
        (Approve(), Deny("no"), False, []),
        (None, Ask("inner"), True, []),
        (Ask("outer"), None, True, []),
        (Ask("outer"), Approve(), True, []),
        (Ask("outer"), Approve({"path": "b"}), True, []),
        (Ask("outer"), Answer("mine"), False, []),
        (Answer("mine"), None, True, []),
        (Approve({"path": "b"}), None, True, []),
        ("nonsense", None, True, []),
        (OSError("unreadable"), None, True, []),
        ([], None, False, ["a"]),
        (None, Approve({"path": "b"}), False, ["b"]),
    ],
)
def test_a_verdict_of_each_loop(outer: Any, inner: Any, *, waits: bool, ran: list[str]) -> None:
    """The outer policy asks or denies; else the inner one decides. An edit under an outer `Ask` is dropped."""
    handle, _ = tree("sync", outer, inner)
    assert rm_call(handle) == ([("k1", "r")] if waits else [])
    assert ran == RAN
    if waits:
        assert handle.pending[0].effective_input == {"path": "a"}


def test_both_ask() -> None:
    """Each `Ask` is a demand."""
    handle, _ = tree("sync", Ask("outer", of="legal"), [Ask("inner", of="finance")])
    assert handle.pending[0].reason == "outer; inner"


def test_an_edit_of_the_inner_policy_is_judged_by_those_around() -> None:
    """It runs only if each of them leaves it; the input that was proposed was left, too."""
    handle, (outer, _) = tree(
        "sync", lambda each: Ask() if each.effective_input["path"] == "b" else None, Approve({"path": "b"})
    )
    assert [each.effective_input["path"] for each in outer.asked] == ["a", "b"]
    assert (rm_call(handle), handle.pending[0].effective_input) == ([("k1", "r")], {"path": "a"})


def test_the_view_leads_outwards() -> None:
    """The call has its whole path, and each view the one around it."""
    _, policies = tree("sync", None, None, depth=3)
    assert [[each.path for each in policy.asked] for policy in policies] == [[("k1", "k2", "r")]] * 3
    view = policies[0].views[0]
    assert view.outer is not None
    assert view.outer.outer is not None
    assert view.outer.outer.outer is None
    names = [each.reply["content"][-1]["name"] for each in (view, view.outer, view.outer.outer)]
    assert names == ["rm", "kid2", "kid1"]
