"""Short words for the machine's tests: loops, replies, calls and events, without a handle."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import Failure, Finished, Loop, Ready, State, Waiting
from toolloop.machine.record.replies import read_reply
from toolloop.machine.rules.joining import join_rest
from toolloop.machine.tree import begin, step
from toolloop.machine.values.calls import Call, DecisionRecord, PolicyResult, Result, Wait, Why
from toolloop.machine.values.jsontext import decode, encode
from toolloop.machine.values.setup import Setup, ToolFacts
from toolloop.terminations import Termination

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


def make_opened(*messages: str, **changes: Any) -> ev.Opened:
    return ev.Opened(setup=setup(**changes), messages=messages or (user(),))


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def make_said(*blocks: Any) -> str:
    """An assistant message."""
    return encode({"role": "assistant", "content": list(blocks)})


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


def make_replied(stop_reason: str | None, *blocks: Any, **more: Any) -> ev.Replied:
    return ev.Replied(read_reply({"content": list(blocks), "stop_reason": stop_reason, **more}))


def asks(*call_ids: str, why: Why = Why.APPROVAL) -> ev.Judged:
    """The policies want the caller's word on these calls, and let the others run."""
    return make_judged(**dict.fromkeys(call_ids, Wait(why)))


def make_judged(**results: PolicyResult) -> ev.Judged:
    return ev.Judged(tuple(results.items()))


def make_decided(**decisions: DecisionRecord) -> ev.Decided:
    return ev.Decided(tuple(decisions.items()))


def child(state: State, *path: str, **changes: Any) -> ev.Opened:
    """Return the event that a loop begins inside the call at that path, whose round is open."""
    above = state.loops[path[:-1]]
    assert above.round is not None
    found = above.round.find(path[-1])
    within = (*above.setup.within, (above.round.iteration, path[-1], 1 if found is None else found.attempts + 1))
    return ev.Opened(setup(depth=above.setup.depth + 1, within=within, **changes), (user("task"),), path=path)


def find_started(event: ev.Event) -> tuple[str, ...] | None:
    """Return the call that an event starts, by its path."""
    match event:
        case ev.Started(call_id=call_id):
            return (*event.path, call_id)
        case ev.Opened():
            return event.path or None
    return None


FAILURE = Failure("model", "overloaded", status=529, retryable=True)
DONE = Result(encode("done"))
APPROVE = DecisionRecord("approve")
DENY = DecisionRecord("deny", reason="no")
RERUN = DecisionRecord("rerun")


def approve(edited: Any = None) -> DecisionRecord:
    return DecisionRecord("approve", None if edited is None else encode(edited))


def answer(content: Any = "mine", **more: Any) -> DecisionRecord:
    return DecisionRecord("answer", encode(content), **more)


def make_ended(call_id: str, content: Any = "done") -> ev.Ended:
    return ev.Ended(call_id, Result(encode(content)))


def state_after(*events: ev.Event, **changes: Any) -> State:
    """The state of a loop after these events."""
    return go(begin(make_opened(**changes)), *events)


# What comes of a request.
_COMES = (ev.Replied, ev.RequestFailed)


def go(state: State, *events: ev.Event) -> State:
    """The state after these events; a request that is not said to go out does so before what comes of it."""
    for event in events:
        if isinstance(event, _COMES) and isinstance(state.loops[event.path].phase, Ready):
            state = step(state, ev.Requested(path=event.path))
        state = step(state, event)
    return state


def the_call(state: State | Loop, call_id: str = "c") -> Call:
    """A call of the open round."""
    round_ = _loop(state).round
    call = round_.find(call_id) if round_ else None
    assert call is not None
    return call


def phase(state: State | Loop) -> str:
    """The name of the phase, or what a loop waits for."""
    at = _loop(state).phase
    return at.reason if isinstance(at, Waiting) else type(at).__name__


def termination(state: State | Loop) -> Termination:
    """How a loop ended."""
    at = _loop(state).phase
    assert isinstance(at, Finished), at
    return at.termination


def history(state: State | Loop) -> list[Any]:
    """The closed history as it is shown, decoded."""
    return [decode(message) for message in join_rest(_loop(state)).messages]


def _loop(state: State | Loop) -> Loop:
    return state.root if isinstance(state, State) else state


def results(message: Any) -> dict[str, Any]:
    """What a user message answers: content by call id."""
    return {block["tool_use_id"]: block["content"] for block in message["content"] if block["type"] == "tool_result"}
