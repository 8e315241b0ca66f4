"""Short words for the machine's tests: loops, replies, calls and events, without a handle."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from toolloop.core import events as ev
from toolloop.core.jsontext import decode, encode
from toolloop.core.machine import begin, step
from toolloop.core.replies import read_reply
from toolloop.core.setup import Setup, ToolFacts
from toolloop.core.states import Failure, Open, Ready, State
from toolloop.core.tree import loop_at
from toolloop.core.values import Call, Result, Ruling, Verdict, Wait, Why

TOOLS = (
    ToolFacts("pure", "pure", "never", "d1"),
    ToolFacts("keyed", "keyed", "never", "d2"),
    ToolFacts("once", "once", "always", "d3"),
)
OTHER_TOOLS = tuple(evolve(facts, digest=f"other {facts.digest}") for facts in TOOLS)


def setup(**changes: Any) -> Setup:
    return Setup(**({"loop_id": "loop", "params": "{}", "tools": TOOLS} | changes))


def user(text: str = "hi") -> str:
    return encode({"role": "user", "content": text})


def system(text: str = "be brief") -> str:
    return encode({"role": "system", "content": [{"type": "text", "text": text}]})


def opened(*messages: str, **changes: Any) -> ev.Opened:
    return ev.Opened(setup=setup(**changes), messages=messages or (user(),))


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def thinking(words: str = "hm") -> dict[str, Any]:
    return {"type": "thinking", "thinking": words, "signature": "s"}


def call(call_id: str, name: str = "once", **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": {"a": 1}} | more


def code_call(call_id: str, name: str = "once") -> dict[str, Any]:
    return call(call_id, name, caller={"type": "code_execution_20250825", "tool_id": "srv"})


def server_call(call_id: str) -> dict[str, Any]:
    return {"type": "server_tool_use", "id": call_id, "name": "web_search", "input": {"query": "q"}}


def server_result(call_id: str) -> dict[str, Any]:
    return {"type": "web_search_tool_result", "tool_use_id": call_id, "content": []}


def replied(stop_reason: str | None, *blocks: Any, **more: Any) -> ev.Replied:
    return ev.Replied(read_reply({"content": list(blocks), "stop_reason": stop_reason, **more}))


def asks(*call_ids: str, why: Why = Why.APPROVAL) -> ev.Judged:
    """The policies want the caller's word on these calls, and let the others run."""
    return judged(**dict.fromkeys(call_ids, Wait(why)))


def judged(**verdicts: Verdict) -> ev.Judged:
    return ev.Judged(tuple(verdicts.items()))


def decided(**rulings: Ruling) -> ev.Decided:
    return ev.Decided(tuple(rulings.items()))


def child(state: State, *path: str, **changes: Any) -> ev.Opened:
    """A loop begins inside the call at that path, whose round is the open one."""
    above = loop_at(state, path[:-1])
    assert isinstance(above, Open)
    own = above.ledger.setup
    found = above.round.find(path[-1])
    within = (*own.within, (above.round.iteration, path[-1], 1 if found is None else found.attempts + 1))
    return ev.Opened(setup(depth=own.depth + 1, within=within, **changes), (user("task"),), path=path)


def started_by(event: ev.Event) -> tuple[str, ...] | None:
    """The call that an event starts, by its path."""
    match event:
        case ev.Started(call_id=call_id):
            return (*event.path, call_id)
        case ev.Opened():
            return event.path or None
    return None


TAKEN = encode({"role": "assistant", "content": [call("a", "pure"), call("b", "pure")]})  # over by its caller
FAILURE = Failure("model", "overloaded", status=529, retryable=True)
DONE = Result(encode("done"))
APPROVE = Ruling("approve")
DENY = Ruling("deny", reason="no")
RERUN = Ruling("rerun")


def approve(edited: Any = None) -> Ruling:
    return Ruling("approve", None if edited is None else encode(edited))


def answer(content: Any = "mine", **more: Any) -> Ruling:
    return Ruling("answer", encode(content), **more)


def ended(call_id: str, content: Any = "done") -> ev.Ended:
    return ev.Ended(call_id, Result(encode(content)))


def after(*events: ev.Event, **changes: Any) -> State:
    """The state of a loop after these events."""
    return go(begin(opened(**changes)), *events)


# What comes of a request.
_COMES = (ev.Replied, ev.RequestFailed, ev.RequestCancelled)


def go(state: State, *events: ev.Event) -> State:
    """The state after these events; a request that is not said to go out does so before what comes of it."""
    for event in events:
        if isinstance(state, Ready) and isinstance(event, _COMES):
            state = step(state, ev.Requested())
        state = step(state, event)
    return state


def the_call(state: State, call_id: str = "c") -> Call:
    """A call of the open round."""
    assert isinstance(state, Open)
    call = state.round.find(call_id)
    assert call is not None
    return call


def history(state: State) -> list[Any]:
    """The closed history, decoded."""
    return [decode(message) for message in state.ledger.messages]


def results(message: Any) -> dict[str, Any]:
    """What a user message answers: content by call id."""
    return {block["tool_use_id"]: block["content"] for block in message["content"] if block["type"] == "tool_result"}
