"""Drawn trees of loops in real handles: a model that knows its plan, tools that notice what must not be, a caller.

What a call comes to does not depend on when it happens, nor on what died meanwhile: an uncertain call is run again. So
each tree has one story, and whatever the order and the crashes, that is what is told in each of its loops.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Generator
from random import Random
from typing import Any

import pytest
from attrs import define, field, frozen

from tests.properties.trees import GATED, CallPlan, NodePlan
from tests.properties.wire import check_results
from toolloop import Answer, Approve, Budget, Completed, Deny, Error, LoopConfig, Rerun, Yielded, sub_loop, tool
from toolloop.core.states import Deciding, Judging, Running, State
from toolloop.core.tree import loops
from toolloop.errors import ModelError, UnknownCall
from toolloop.history import check
from toolloop.stores.codec import load
from toolloop.terminations import BudgetExceeded, NaturalEnd

MODEL = "claude-opus-4-8"
LEVELS = 4
PARTS = ("requests", "tool_calls", "input_tokens", "output_tokens", "total_tokens")
_EXTERNAL = {
    "name": "external",
    "description": "The caller knows.",
    "input_schema": {"type": "object", "properties": {"who": {"type": "string"}}},
}
_SAYS: dict[str, tuple[str, ...]] = {
    "approval": ("approve", "approve", "approve", "deny", "answer"),
    "external": ("answer", "answer", "deny"),
    "uncertain": ("rerun",),
}


@frozen
class Grove:
    """A tree, and how its handles are set up: one configuration for each level."""

    plan: NodePlan
    configs: tuple[LoopConfig, ...]

    def tools(self, bench: Bench, level: int = 0) -> list[Any]:
        """The tools of a level; an agent has those of the next."""
        own = bench.tools()
        if level + 1 == LEVELS:
            return own
        more: dict[str, Any] = {
            "params": _params(level + 1),
            "tools": self.tools(bench, level + 1),
            "config": self.configs[level + 1],
        }
        asks = sub_loop("gated_agent", "Works, if somebody allows it.", needs_approval=True, **more)
        return [*own, sub_loop("agent", "Works.", **more), asks]

    def params(self) -> dict[str, Any]:
        """The parameters of the root."""
        return {**_params(0), "messages": [{"role": "user", "content": self.plan.name}]}


def _params(level: int) -> dict[str, Any]:
    return {"model": MODEL, "max_tokens": 100 + level, "tools": [_EXTERNAL]}


def _policy(level: int) -> Callable[[Any, Any], Any]:
    return lambda call, _: Deny(f"by level {level}") if call.name == "barred" else None


def grove(rng: Random, plan: NodePlan) -> Grove:
    """How the loops of a tree are set up; drawn."""
    configs = [
        LoopConfig(
            execution=rng.choice(("barrier", "ready")),
            max_parallel_tools=rng.choice((1, 2, 8)),
            max_depth=None,
            on_tool_call=_policy(level),
        )
        for level in range(LEVELS)
    ]
    return Grove(plan, tuple(configs))


@define
class Model:
    """Answers each request as the plan of its loop says. `fails`: the numbers of those that it does not answer."""

    plan: NodePlan
    fails: frozenset[int] = frozenset()
    meanwhile: Callable[[], None] = lambda: None  # what happens while a request is under way
    said: dict[str, list[Any]] = field(factory=dict)  # the longest history that was sent, by the name of the loop
    answered: Counter[str] = field(factory=Counter)
    asked: int = 0
    wrong: list[AssertionError] = field(factory=list)
    _nodes: dict[str, tuple[int, NodePlan]] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        """Know all loops by name, and how deep they are."""
        nodes = [(0, self.plan)]
        for level, node in nodes:
            self._nodes[node.name] = level, node
            nodes += [(level + 1, call.child) for reply in node.replies for call in reply.calls if call.child]

    def __call__(self, body: Any) -> Any:
        """The reply to a request, or the reason why there is none."""
        messages = body["messages"]
        level, node = self._nodes[_text(messages[0])]
        try:
            self._check(body, level, node)
        except AssertionError as error:  # a handle takes what a provider raises for a failure of the outside world
            self.wrong.append(error)
        self.asked += 1
        self.meanwhile()
        if self.asked in self.fails:
            return ModelError("overloaded", status=529, retryable=True)
        self.said[node.name] = max(messages, self.said.get(node.name, []), key=len)
        reply = node.reply(sum(message["role"] == "assistant" for message in messages))
        usage = dict(zip(("input_tokens", "output_tokens"), reply.tokens, strict=True))
        self.answered.update({"requests": 1, **usage})
        uses = [_use(node, call) for call in reply.calls]
        text = {"type": "text", "text": f"{node.name} says so"}
        return {"content": [text, *uses], "stop_reason": reply.stop, "usage": usage}

    def _check(self, body: Any, level: int, node: NodePlan) -> None:
        """A request is one that the API takes, with the parameters of its loop, and says the truth of every call."""
        messages = body["messages"]
        assert body["max_tokens"] == 100 + level
        check_results(body)
        assert not [each for each in check(messages, model=MODEL, tools=body["tools"]) if each.level == "error"]
        told = {
            block["tool_use_id"]: json.dumps(block["content"])
            for message in messages[1:]
            if message["role"] == "user"
            for block in message["content"]
        }
        for call in (call for reply in node.replies for call in reply.calls if call.id in told):
            assert _truth(node, call, level) in told[call.id]


def _text(message: Any) -> str:
    content = message["content"]
    return str(content if isinstance(content, str) else content[0]["text"])


def _truth(node: NodePlan, call: CallPlan, level: int) -> str:
    """What the result of a call must say."""
    why = "external" if call.name == "external" else "approval" if call.name in GATED else None
    match "run" if why is None else _kind(why, call.id):
        case "deny":
            return "denied"
        case "answer":
            return f"{_name(node, call)} is known"
    if call.child is not None:
        return f"{call.child.name} says so"
    others = {"barred": f"by level {level}", "unknown": "no tool"}
    return others.get(call.name, f"{_name(node, call)} is done")


def _kind(why: str, call_id: str) -> str:
    return _SAYS[why][int(call_id[1:]) % len(_SAYS[why])]


def _name(node: NodePlan, call: CallPlan) -> str:
    return f"{node.name}/{call.id}" if call.child is None else call.child.name


def _use(node: NodePlan, call: CallPlan) -> dict[str, Any]:
    given = {"who" if call.child is None else "prompt": _name(node, call)}
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": given}


@define
class Bench:
    """What the tools do, and what was said of their calls. Each call of the tree has a name of its own, its `who`."""

    starts: Counter[str] = field(factory=Counter)
    reruns: Counter[str] = field(factory=Counter)
    approved: set[str] = field(factory=set)
    denied: set[str] = field(factory=set)
    wrong: list[str] = field(factory=list)
    _lock: Any = field(factory=threading.Lock)

    def start(self, name: str, who: str) -> str:
        """A tool starts."""
        with self._lock:
            self.starts[who] += 1
            if who in self.denied or name in ("barred", "external"):
                self.wrong.append(f"{who} was denied, and starts")
            if name.startswith("gated") and who not in self.approved:
                self.wrong.append(f"{who} starts, and nobody approved")
            if name in ("once", "gated") and self.starts[who] > 1 + self.reruns[who]:
                self.wrong.append(f"{who} starts for the {self.starts[who]}. time")
        return f"{who} is done"

    def tools(self) -> list[Any]:
        """All but those that are loops."""
        bench = self

        @tool(effect="pure")
        def pure(who: str) -> str:
            """Look."""
            return bench.start("pure", who)

        @tool
        def once(who: str) -> str:
            """Do."""
            return bench.start("once", who)

        @tool(needs_approval=True)
        def gated(who: str) -> str:
            """Do, if somebody allows it."""
            return bench.start("gated", who)

        @tool(needs_approval=True, effect="pure")
        def gated_pure(who: str) -> str:
            """Look, if somebody allows it."""
            return bench.start("gated_pure", who)

        @tool
        def barred(who: str) -> str:
            """Never run."""
            return bench.start("barred", who)

        return [pure, once, gated, gated_pure, barred]


@frozen
class Caller:
    """Decides, in an order that is drawn, and goes on. What is decided of a call depends on its name alone."""

    rng: Random
    bench: Bench

    def play(self, handle: Any, *, sleeps: Callable[[Any], Any] | None = None) -> Generator[Any, Any, Any]:
        """Drive a loop to its end: each time that it is to be driven its handle is yielded, and the result is sent.

        Args:
            handle: to begin with.
            sleeps: gives the handle that goes on after a sleep.

        """
        for _ in range(500):
            result = handle.pending_turn or (yield handle)
            match result:
                case Completed(termination=BudgetExceeded(what=what, limit=limit, spent=spent)):
                    assert spent >= limit
                    handle.extend(budget=Budget(**{what: 2 * spent + 1}))
                case Completed(termination=termination):
                    assert termination == NaturalEnd()
                    return handle
                case Error(error=error):
                    assert "overloaded" in str(error)
                    handle.retry()
                case Yielded():
                    handle = self._take(handle, result, sleeps)
        raise AssertionError("it never comes to its end")

    def _take(self, handle: Any, turn: Yielded, sleeps: Callable[[Any], Any] | None) -> Any:
        pending = list(turn.pending)
        assert {call.path for call in pending} == {call.path for call in handle.pending}
        self.rng.shuffle(pending)
        all_ = not turn.pending or self.rng.randrange(2)
        some = pending if all_ else pending[: self.rng.randrange(1, len(pending) + 1)]
        while some:
            now, some = some[:2], some[2:]
            self._decide(handle, {call: self._said(call) for call in now})
        if sleeps is not None and self.rng.randrange(3) == 0:
            handle = sleeps(handle)
        if handle.pending and handle.state.ledger.setup.execution == "barrier":
            return handle  # the turn still waits
        handle.pending_turn.continue_loop()
        return handle

    def meddle(self, handle: Any) -> None:
        """While a turn is in progress: decide what waits by then, and look at what is."""
        for call in handle.pending[: self.rng.randrange(3)]:
            handle.decide({call: self._said(call)})
        assert load(handle.snapshot()).ledger.setup == handle.state.ledger.setup

    def _said(self, call: Any) -> Any:
        who = _who(call)
        match _kind(call.why, call.id):
            case "approve":
                self.bench.approved.add(who)
                return Approve(by="ana")
            case "rerun":
                self.bench.reruns[who] += 1
                return Rerun()
            case "answer":
                return Answer(f"{who} is known")
        return Deny("not today")

    def _decide(self, handle: Any, decisions: dict[Any, Any]) -> None:
        """By the call that was shown, by its path, or by its id, if no other has that; a bad one takes all down."""
        if self.rng.randrange(4) == 0:
            before = handle.state
            with pytest.raises(UnknownCall):
                handle.decide({**decisions, "c99/c99": Deny("who?")})
            assert handle.state is before
        handle.decide({self._named(handle, call, decision): decision for call, decision in decisions.items()})
        self.bench.denied |= {_who(call) for call, said in decisions.items() if isinstance(said, Deny | Answer)}

    def _named(self, handle: Any, call: Any, decision: Any) -> Any:
        match self.rng.randrange(3):
            case 0:
                return call
            case 1 if _is_alone(handle.state, call.id):
                return call.id
            case 1:
                with pytest.raises(UnknownCall, match="several"):
                    handle.decide({call.id: decision})
        return "/" + "/".join(call.path)


def _who(call: Any) -> str:
    return str(call.input.get("who") or call.input["prompt"])


def _is_alone(state: State, call_id: str) -> bool:
    open_ = [loop.round for _, loop in loops(state) if isinstance(loop, Judging | Deciding | Running)]
    return sum(round_.find(call_id) is not None for round_ in open_) == 1
