"""Drawn trees of loops: what the model says in each of them, and how each is set up.

Ids of calls repeat: each loop counts its own. So a path that is mixed up names another call.
"""

from __future__ import annotations

from random import Random
from typing import Any

from attrs import Factory, define, evolve, frozen

from tests.core import making as m
from toolloop.core.jsontext import encode
from toolloop.core.replies import Reply, read_reply
from toolloop.core.setup import Budget, Limits, Setup, ToolFacts

REPEATABLE = frozenset({"pure", "gated_pure"})
GATED = frozenset({"gated", "gated_pure", "gated_agent"})
AGENTS = frozenset({"agent", "gated_agent"})
TOOLS = (
    ToolFacts("pure", "pure", "never", "d"),
    ToolFacts("once", "once", "never", "d"),
    ToolFacts("gated", "once", "always", "d"),
    ToolFacts("gated_pure", "pure", "always", "d"),
    ToolFacts("agent", "once", "never", "d"),
    ToolFacts("gated_agent", "once", "always", "d"),
)
# `external` is the caller's to answer, `barred` is denied by the policy, and nobody knows `unknown`.
_PLAIN_CALLS = ("pure", "pure", "once", "once", "gated", "gated", "gated_pure", "external", "barred", "unknown")
_DEEPEST = 3


@frozen
class CallPlan:
    """A call that the model makes. `child`: the loop that runs inside of it."""

    id: str
    name: str
    child: NodePlan | None = None


@frozen
class ReplyPlan:
    """What the model says, and what that costs."""

    stop: str
    calls: tuple[CallPlan, ...] = ()
    tokens: tuple[int, int] = (3, 2)

    def said(self, who: str) -> Reply:
        """The reply itself."""
        content = [m.text(f"{who} says something")]
        content += [m.call(call.id, call.name, input=_input(call)) for call in self.calls]
        usage = dict(zip(("input_tokens", "output_tokens"), self.tokens, strict=True))
        return read_reply({"content": content, "stop_reason": self.stop, "usage": usage, "model": "m"})


def _input(call: CallPlan) -> dict[str, Any]:
    return {"n": 1} if call.child is None else {"prompt": call.child.name}


@frozen
class NodePlan:
    """One loop: its replies, one for each iteration, and what is special about its setup."""

    name: str
    replies: tuple[ReplyPlan, ...]
    changes: dict[str, Any]

    def reply(self, number: int) -> ReplyPlan:
        """What the model says in this iteration, counted from 0; it has no more to do at the end of its plan."""
        return self.replies[number] if number < len(self.replies) else ReplyPlan("end_turn")

    def at(self, path: tuple[str, ...]) -> NodePlan:
        """The plan of the loop at a path."""
        if not path:
            return self
        calls = (call for reply in self.replies for call in reply.calls if call.id == path[0])
        child = next(calls).child
        assert child is not None
        return child.at(path[1:])

    def task(self) -> str:
        """The first message."""
        return m.user(self.name)

    def setup(self, above: Setup | None = None, call: tuple[int, str, int] = (0, "", 0)) -> Setup:
        """The setup of the root, or of the loop inside a call of the loop above: iteration, id and run."""
        own = m.setup(tools=TOOLS, **self.changes)
        if above is None:
            return own
        bounds = [limit for limit in (own.limits.max_depth, above.limits.max_depth) if limit is not None]
        return m.setup(
            tools=TOOLS,
            **self.changes
            | {
                "limits": evolve(own.limits, max_depth=min(bounds, default=None)),
                "depth": above.depth + 1,
                "within": (*above.within, call),
            },
        )


@define
class Planner:
    """Draws a tree. `is_plain`: without limits, and without replies that end a loop before its plan does."""

    rng: Random
    is_plain: bool = False
    left: int = 9  # how many more loops there may be
    names: list[str] = Factory(list)

    def chance(self, one_in: int) -> bool:
        return self.rng.randrange(one_in) == 0

    def node(self, depth: int = 0) -> NodePlan:
        """A loop, and all below it."""
        name = f"task {len(self.names)}"
        self.names.append(name)
        ids = iter(range(1, 100))
        rounds = self.rng.choice((1, 1, 2, 3)) if depth < _DEEPEST else self.rng.choice((0, 1, 1))
        replies = [self._round(depth, ids) for _ in range(rounds)]
        return NodePlan(name, (*replies, ReplyPlan("end_turn", tokens=self._tokens())), self._changes())

    def _round(self, depth: int, ids: Any) -> ReplyPlan:
        calls = tuple(self._call(depth, f"c{next(ids)}") for _ in range(self.rng.choice((1, 2, 2, 3))))
        if self.is_plain or not self.chance(12):
            return ReplyPlan("tool_use", calls, self._tokens())
        stop = self.rng.choice(("pause_turn", "end_turn", "max_tokens", "refusal", "tool_use"))
        return ReplyPlan(stop, calls if stop in ("end_turn", "max_tokens", "refusal") else (), self._tokens())

    def _call(self, depth: int, call_id: str) -> CallPlan:
        if depth < _DEEPEST and self.left and not self.chance(3):
            self.left -= 1
            return CallPlan(call_id, "gated_agent" if self.chance(4) else "agent", self.node(depth + 1))
        return CallPlan(call_id, self.rng.choice(_PLAIN_CALLS))

    def _tokens(self) -> tuple[int, int]:
        return self.rng.randrange(1, 20), self.rng.randrange(1, 10)

    def _changes(self) -> dict[str, Any]:
        rng = self.rng
        changes: dict[str, Any] = {
            "execution": rng.choice(("barrier", "ready")),
            "max_parallel_tools": rng.choice((1, 2, 8, 8, None)),
        }
        if self.is_plain:
            return changes | {"limits": Limits(max_depth=None)}
        return changes | {
            "limits": self._limits(),
            "decision_timeout": rng.choice((None, None, 30.0)),
            "callables": frozenset({"stop_when"} if self.chance(6) else ()),
        }

    def _limits(self) -> Limits:
        rng = self.rng
        return Limits(
            max_iterations=rng.choice((10, 10, 10, 10, 1, 2)),
            max_pauses=rng.choice((10, 0)),
            timeout=rng.choice((None, None, None, None, 4.0, 12.0)),
            max_depth=rng.choice((None, 4, 4, 4, 3, 2)),
            budget=self._budget() if self.chance(3) else Budget(),
        )

    def _budget(self) -> Budget:
        what = self.rng.choice(("requests", "requests", "tool_calls", "input_tokens", "output_tokens", "total_tokens"))
        most = {"requests": 6, "tool_calls": 6}.get(what, 60)
        return Budget(**{what: self.rng.randrange(1, most)})


def edited() -> str:
    """What a person makes of an input."""
    return encode({"n": 2, "edited": True})
