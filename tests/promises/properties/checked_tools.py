"""The tools of the drawn loops, and a policy; both do what a call's own input says. A `Bench` notes what ran."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any

from attrs import define, field

from tests.promises.properties.drawn_replies import BOOM, MEDDLING, STOP
from toolloop import Answer, Approve, Ask, Deny, ToolContext, ToolError, tool
from toolloop.machine.values.calls import Call

PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
OBJECT: dict[str, Any] = {"type": "object", "properties": {}}
PARAMS_TOOLS: list[dict[str, Any]] = [
    {"name": "ask_user", "description": "Ask.", "input_schema": OBJECT},
    {"type": "web_search_20250305", "name": "web_search"},
    {"type": "code_execution_20250825", "name": "code_execution"},
]


@define
class Bench:
    """What happened to the calls of one loop.

    Attributes:
        has_policy: whether the loop is set up with `policy`.
        approved: the calls that the caller let run, since the loop was last forked.
        closed: those that the caller denied or answered, and those that expired.
        reruns: how often each was asked for again by name, or may be repeated because it was lost.
        starts: how often each was started; `pure_calls`: those whose tool may be run again.
        grants: by id, the tool of each grant that was given and not revoked.
        interfere: called by a tool in the middle of its run, with what it is to do.
        find: a call that starts, as its loop has it.
        wrong: what should not have been. What a tool raises is a result, so it would be lost otherwise.

    """

    has_policy: bool = True
    approved: set[str] = field(factory=set)
    closed: set[str] = field(factory=set)
    reruns: Counter[str] = field(factory=Counter)
    starts: Counter[str] = field(factory=Counter)
    interfere: Callable[[str, str], None] = lambda _what, _call_id: None
    find: Callable[[str], Call | None] = lambda _call_id: None
    grants: dict[str, str] = field(factory=dict)
    pure_calls: set[str] = field(factory=set)
    wrong: list[str] = field(factory=list)

    def run(self, name: str, ctx: ToolContext, do: str, ask: str) -> None:
        """A call starts, and does to its loop what it is to do."""
        try:
            self.start(name, ctx, ask)
            self.interfere(do if do in MEDDLING and self.starts[ctx.call_id] == 1 else "", ctx.call_id)
        except Exception:
            self.wrong.append(traceback.format_exc())
            raise

    def start(self, name: str, ctx: ToolContext, ask: str) -> None:
        """Note a start, which must be one that was allowed."""
        call_id = ctx.call_id
        assert call_id not in self.closed, f"{call_id} was denied or answered, or expired, and started"
        policy = ask if self.has_policy else ""
        assert policy not in ("deny", "answer"), f"{call_id} was settled by the policy, and started"
        call = self.find(call_id)
        by_grant = call is not None and call.decision is not None and call.decision.grant is not None
        if call is not None and call.decision is not None and call.decision.grant is not None:
            assert self.grants.get(call.decision.grant) == name, f"{call_id} runs by a grant that is not there"
        needs_decision = policy in ("human", "soon") or (name == "gate" and policy not in ("approve", "edit"))
        needs_decision |= name == "maybe" and ask == "human"
        assert not needs_decision or by_grant or call_id in self.approved, f"{call_id} is undecided, and started"
        afresh = policy in ("raise", "fresh")
        assert not afresh or call_id in self.approved, f"{call_id} needs a decision of its own, and started"
        self.starts[call_id] += 1
        if name == "pure":
            self.pure_calls.add(call_id)
        assert self.starts[call_id] <= 1 + self.reruns[call_id], f"{call_id} was started twice"


def _perform(name: str, ctx: ToolContext, do: str, ask: str) -> Any:
    bench: Bench = ctx.state
    bench.run(name, ctx, do, ask)
    match do:
        case "raise":
            raise ToolError("it would not")
        case "image":
            return [PNG]
        case "nothing":
            return None
        case "long":
            return f"{name} {ctx.call_id}, and so on" * 60
    return f"{name} {ctx.call_id}"


@tool
def work(ctx: ToolContext, do: str, ask: str = "", n: int = 0) -> Any:
    """Work."""
    return _perform("work", ctx, do, ask)


@tool(effect="pure")
def pure(ctx: ToolContext, do: str, ask: str = "", n: int = 0) -> Any:
    """Look."""
    return _perform("pure", ctx, do, ask)


@tool(needs_approval=True)
def gate(ctx: ToolContext, do: str, ask: str = "", n: int = 0) -> Any:
    """Do harm."""
    return _perform("gate", ctx, do, ask)


@tool(needs_approval=lambda call: call.effective_input.get("ask") == "human")
def maybe(ctx: ToolContext, do: str, ask: str = "", n: int = 0) -> Any:
    """Do harm to some."""
    return _perform("maybe", ctx, do, ask)


@tool
def extra(ctx: ToolContext, do: str, ask: str = "", n: int = 0) -> Any:
    """Work more."""
    return _perform("extra", ctx, do, ask)


TOOLS = [work, pure, gate, maybe]


def policy(call: Any, view: Any) -> Any:
    """Do as the call's input says."""
    match call.effective_input.get("ask"):
        case "approve":
            return Approve(reason="fine")
        case "edit":
            return Approve(input={"n": 1, "ask": "edit", "do": "return"})
        case "deny":
            return Deny("the policy says no")
        case "answer":
            return Answer("the policy knows")
        case "human":
            return Ask("let a person look")
        case "fresh":
            return Ask("let a person look each time", fresh=True)
        case "soon":
            return Ask("let a person look soon", expires_in=10)
        case "raise":
            raise RuntimeError("a broken policy")
    return None


class Boom(Exception):
    """A broken stop condition."""


class StopWhen:
    """Stops at the word, and breaks at another, the first time it hears it."""

    def __init__(self) -> None:
        """Nothing was heard."""
        self._heard: set[str] = set()

    def __call__(self, view: Any) -> Any:
        """Listen to the texts of a reply."""
        texts = [block["text"] for block in view.reply["content"] if block["type"] == "text"]
        for text in texts:
            if text.startswith(BOOM) and text not in self._heard:
                self._heard.add(text)
                raise Boom(text)
        return next((text for text in texts if text.startswith(STOP)), None)
