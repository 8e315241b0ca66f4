"""The policies of the loops around a call: what the outermost forbids is forbidden in its whole tree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import define, field

from tests.kit.concurrency import either_kind
from tests.kit.each import each
from tests.kit.loop_trees import kid, task, tree_of
from tests.kit.support import expect_yielded
from tests.kit.tools import params, user
from tests.kit.world import AnyHandle, wait
from toolloop import (
    Answer,
    Approve,
    Ask,
    AsyncToolLoopHandle,
    Deny,
    Grant,
    LoopConfig,
    PolicyView,
    ToolCall,
    ToolLoopHandle,
    Yielded,
    tool,
)
from toolloop.stores.memory import MemoryStore
from toolloop.testing import call, reply

RM = call("rm", {"path": "a"}, id="r")
EDITED = {"path": "z"}
Verdict = Callable[[ToolCall], Any]


@define
class Tree:
    """A loop whose child, or grandchild, calls `rm`; each policy decides the calls of `rm` by its verdict.

    Attributes:
        verdicts: what each loop's policy says, from the outermost down.
        asked: the depth of each policy that was asked about `rm`, the input, and how often a view has an outer one.
        ran: the inputs with which `rm` ran.

    """

    verdicts: list[Any]
    kind: str = "sync"
    needs_approval: bool = False
    asked: list[tuple[int, str, int]] = field(factory=list)
    ran: list[str] = field(factory=list)
    views: list[PolicyView] = field(factory=list)
    paths: set[tuple[str, ...]] = field(factory=set)
    store: MemoryStore = field(factory=MemoryStore)

    def policy(self, depth: int) -> Any:
        def policy(asked: ToolCall, view: PolicyView) -> Any:
            if asked.name != "rm":
                return None
            self.paths.add(asked.path)
            self.views.append(view)
            self.asked.append((depth, asked.effective_input["path"], view.iteration))
            verdict = self.verdicts[depth]
            if isinstance(verdict, Exception):
                raise verdict
            return verdict(asked) if callable(verdict) else verdict

        async def later(asked: ToolCall, view: PolicyView) -> Any:
            return policy(asked, view)

        return policy if self.kind == "sync" else later

    def tools(self) -> list[Any]:
        @tool(needs_approval=self.needs_approval)
        def rm(path: str) -> str:
            """Remove a file."""
            self.ran.append(path)
            return f"removed {path}"

        tools: list[Any] = [rm]
        for depth in range(len(self.verdicts) - 1, 0, -1):
            tools = [kid(tools, on_tool_call=self.policy(depth))]
        return tools

    def list_said(self) -> dict[str, Any]:
        names = ["go", "one", "two"][: len(self.verdicts)]
        down = [reply(calls=[task(name)]) for name in names[1:]] + [reply(calls=[RM])]
        return {name: [first, reply("done")] for name, first in zip(names, down, strict=True)}

    def open(self) -> AnyHandle:
        config = LoopConfig(on_tool_call=self.policy(0))
        tools = self.tools()
        asked = {**params(), "messages": [user("go")]}
        make = ToolLoopHandle if self.kind == "sync" else AsyncToolLoopHandle
        parts: dict[str, Any] = {"tools": tools, "config": config, "store": self.store, "loop_id": "loop"}
        return AnyHandle(self.kind, make(tree_of(self.kind, self.list_said(), tools).provider(), params=asked, **parts))

    def open_again(self) -> AnyHandle:
        """The same loop in another process."""
        config, tools = LoopConfig(on_tool_call=self.policy(0)), self.tools()
        provider = tree_of(self.kind, self.list_said(), tools).provider()
        parts: dict[str, Any] = {"tools": tools, "config": config, "take_over": True}
        if self.kind == "sync":
            return AnyHandle(self.kind, ToolLoopHandle.open(self.store, "loop", provider, **parts))
        return AnyHandle(self.kind, wait(self.kind, AsyncToolLoopHandle.open(self.store, "loop", provider, **parts)))


def outcome(tree: Tree) -> str:
    """What became of `rm`: `ran` and its input, `waits`, or `settled`."""
    result = tree.open().run()
    if isinstance(result, Yielded):
        assert [each.name for each in result.pending] == ["rm"]
        return "waits"
    result.unwrap()
    return f"ran {tree.ran[0]}" if tree.ran else "settled"


def is_fresh(tree: Tree) -> bool:
    """Whether no grant satisfies what the policies ask."""
    return any('"fresh":true' in entry.body for entry in tree.store.load("loop").entries)


INNER = {
    "none": None,
    "approve": Approve(),
    "ask": Ask(),
    "deny": Deny("inner"),
    "answer": Answer("mine"),
    "edit": Approve(EDITED),
}
WAITS = {"none": "waits", "approve": "waits", "ask": "waits", "deny": "settled", "answer": "settled", "edit": "waits"}
ALONE = {**WAITS, "none": "ran a", "approve": "ran a", "edit": "ran z"}


@each(
    ("outer", "expected"),
    [
        (None, ALONE),
        (Approve(), ALONE),
        (Deny("outer"), dict.fromkeys(INNER, "settled")),
        (Ask(), WAITS),
        ([Ask(), Ask("two")], WAITS),
        ([], ALONE),
        (Answer("x"), WAITS),
        (Approve(EDITED), WAITS),
        (Approve(remember=Grant()), WAITS),
        (Deny(None), WAITS),  # type: ignore[arg-type]
        ("nonsense", WAITS),
        (LookupError(), WAITS),
    ],
)
def test_a_deny_and_an_ask_reach_down(outer: Any, expected: dict[str, str]) -> None:
    """None and `Approve` leave it to the inner policy; whatever else an outer policy says makes the call wait."""
    assert {name: outcome(Tree([outer, inner])) for name, inner in INNER.items()} == expected


@either_kind
def test_what_the_outer_policy_denies_no_child_runs(kind: str) -> None:
    """The child gets the reason of the outermost policy; its own policy is not asked."""
    tree = Tree([Deny("never rm"), Approve()], kind)
    party = tree.open()
    assert party.run().unwrap().text == "done"
    assert (tree.ran, tree.asked, tree.paths) == ([], [(0, "a", 1)], {("one", "r")})
    assert '"reason":"never rm"' in "".join(entry.body for entry in tree.store.load("loop").entries)


@either_kind
def test_the_tools_own_predicate_still_asks(kind: str) -> None:
    """Where no policy has an opinion, or only the outer one approves."""
    for outer in (None, Approve()):
        tree = Tree([outer, None], kind, needs_approval=True)
        assert outcome(tree) == "waits"


@each("verdict", [LookupError(), "nonsense", Deny(None), Ask(fresh=True)])  # type: ignore[arg-type]
def test_no_grant_stands_in_for_an_outer_policy_that_fails(verdict: Any) -> None:
    """As for the loop's own policy."""
    tree = Tree([verdict, None])
    assert (outcome(tree), is_fresh(tree)) == ("waits", True)
    plain = Tree([Ask(), None])
    assert (outcome(plain), is_fresh(plain)) == ("waits", False)


@either_kind
def test_asks_of_several_loops_are_one_wait(kind: str) -> None:
    """Each is a demand: the reasons of all, fresh if any is, and the least time."""
    asks = [[Ask("one", expires_in=50.0), Ask("two", fresh=True)], Ask("three", expires_in=20.0)]
    tree = Tree(asks, kind)
    (waiting,) = expect_yielded(tree.open().run()).pending
    assert is_fresh(tree)
    state = tree.open_again().handle.state
    found = state.loops["one",].round
    assert waiting.reason == "one; two; three"
    assert waiting.expires_at is not None
    assert found is not None
    deadline = found.calls[0].expires_at
    assert deadline is not None
    assert 19.0 < deadline - state.root.now <= 20.0


@either_kind
def test_each_policy_is_asked_once_for_each_input(kind: str) -> None:
    """Outermost first; about an edit of a person, and of the inner policy, too."""
    tree = Tree([None, Ask(), None], kind)
    party = tree.open()
    turn = expect_yielded(party.run())
    assert [(depth, given) for depth, given, _ in tree.asked] == [(0, "a"), (1, "a"), (2, "a")]
    party.say(lambda: turn.approve(turn.pending[0], EDITED, by="ana"))
    party.run().unwrap()
    assert [(depth, given) for depth, given, _ in tree.asked[3:]] == [(0, "z"), (1, "z"), (2, "z")]
    assert tree.ran == ["z"]


@each("verdict", [Deny("not z"), Ask(), None])
def test_an_edit_by_the_inner_policy_needs_the_outer_one(verdict: Any) -> None:
    """It is asked about the new input. If it objects, a person decides the input of the model.

    After a denial, no grant decides it.
    """
    tree = Tree([lambda asked: verdict if asked.effective_input == EDITED else None, Approve(EDITED)])
    party = tree.open()
    result = party.run()
    assert [(depth, given) for depth, given, _ in tree.asked] == [(0, "a"), (1, "a"), (0, "z")]
    if verdict is None:
        assert tree.ran == ["z"]
        return
    assert expect_yielded(result).pending[0].effective_input == {"path": "a"}
    assert (tree.ran, is_fresh(tree)) == ([], isinstance(verdict, Deny))


@either_kind
def test_after_an_edit_the_outer_policy_may_deny(kind: str) -> None:
    """Also where only the inner one asked before."""
    tree = Tree([lambda asked: Deny("not z") if asked.effective_input == EDITED else None, Ask()], kind)
    party = tree.open()
    turn = expect_yielded(party.run())
    party.say(lambda: turn.approve(turn.pending[0], EDITED, by="ana"))
    party.run().unwrap()
    assert tree.ran == []


@either_kind
def test_a_loop_that_wakes_up_asks_the_outer_policy_again(kind: str) -> None:
    """What was approved meanwhile does not run if the outer rule has changed."""
    tree = Tree([Ask(), None], kind)
    first = tree.open()
    turn = expect_yielded(first.run())
    first.say(lambda: turn.approve(turn.pending[0], by="ana"))
    first.close()
    tree.verdicts[0] = Deny("not any more")
    tree.asked.clear()
    second = tree.open_again()
    assert second.run().unwrap().text == "done"
    assert (tree.ran, [depth for depth, *_ in tree.asked]) == ([], [0])


@either_kind
def test_a_view_has_those_of_the_loops_above(kind: str) -> None:
    """Every policy gets the view of the loop that proposed the call."""
    tree = Tree([None, None, None], kind)
    tree.open().run().unwrap()
    assert (len(tree.views), tree.paths) == (3, {("one", "two", "r")})
    for view in tree.views:
        chain = [view]
        while (above := chain[-1].outer) is not None:
            chain.append(above)
        assert [each.messages[0]["content"] for each in chain] == ["two", "one", "go"]


def test_a_policy_may_ask_twice_about_a_call_of_its_own_loop() -> None:
    """A list of `Ask`s is one wait; an empty list leaves the decision open."""
    assert outcome(Tree([None, [Ask("one"), Ask("two", fresh=True)]])) == "waits"
    assert outcome(Tree([None, []])) == "ran a"
    assert outcome(Tree([None, [Ask(), "nonsense"]])) == "waits"
