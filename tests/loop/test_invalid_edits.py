"""`messages_mut`: each rule that an edit can break, and each state in which the caller may edit, in both handles."""

from __future__ import annotations

import threading
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import anyio
import pytest
from attrs import frozen

from tests.each import each
from tests.loop.concurrency import cancelled_after, either_kind, run_async, sync_loop, turn
from tests.loop.support import add, completed, params, place, refused, user, write
from tests.messages.bad_requests import BAD_REQUESTS, BadRequest
from tests.messages.bodies import HI
from toolloop import AsyncToolLoopHandle, LoopConfig, ToolLoopHandle, Yielded, tool
from toolloop.errors import IllegalCommand, InvalidHistory, ModelError
from toolloop.history import RULES, check
from toolloop.stores import MemoryStore
from toolloop.testing import AsyncScriptedProvider, ScriptedProvider, call, reply, server_call

Handle = ToolLoopHandle | AsyncToolLoopHandle
WRITE = call("write", {"path": "a", "text": "b"}, id="toolu_w")
ADD = call("add", {"a": 1, "b": 2}, id="toolu_a")
PAUSED = reply("so far", content=[server_call("web_search", {"query": "x"})], stop_reason="pause_turn")
SEARCH = {"type": "web_search_20250305", "name": "web_search"}
ORPHAN = user([{"type": "tool_result", "tool_use_id": "toolu_x", "content": "3"}])
FINE = reply("fine")


def begins(bad: BadRequest) -> bool:
    """Whether a loop begins with what the request has beside its messages: so it is these that break the rule."""
    rest = bad.body
    if rest.get("tools") == []:  # a loop does not say so: what it has no tools for is left to the API
        return False
    return not check([HI], model=rest.get("model"), tools=rest.get("tools"), thinking=rest.get("thinking"))


BROKEN = [bad for bad in BAD_REQUESTS if bad.checked == "error" and isinstance(bad.body["messages"], list)]
# What is no JSON the list itself refuses; other rules are of the parameters; and how large a request is, is known when
# it is about to go out.
NOT_BY_AN_EDIT = {"not-encodable", "thinking-config", "tool-definition", "too-many-messages", "request-size"}
BROKEN = [bad for bad in BROKEN if begins(bad) and bad.rule != "not-encodable"]


def loop(kind: str, script: Any, asked: dict[str, Any], tools: Any = (), **config: Any) -> tuple[Handle, Any]:
    """A loop and its provider."""
    if kind == "sync":
        provider = ScriptedProvider(script)
        return ToolLoopHandle(provider, params=asked, tools=tools, config=LoopConfig(**config)), provider
    tasks = AsyncScriptedProvider(script)
    return AsyncToolLoopHandle(tasks, params=asked, tools=tools, config=LoopConfig(**config)), tasks


# --- each kind of broken edit ----------------------------------------------------------------------------------------


@each("rule", sorted({bad.rule for bad in BROKEN}))
def test_a_broken_edit_is_refused_by_the_rule_that_it_breaks(rule: str) -> None:
    """With its path and the list; nothing is sent, the loop stands as before, and the list is there to be mended."""
    bad = next(bad for bad in BROKEN if bad.rule == rule)
    rest = {name: value for name, value in bad.body.items() if name != "messages"}
    handle, provider = loop("sync", [FINE], rest | {"messages": [HI]})
    before = handle.state
    working = handle.messages_mut()
    working[:] = deepcopy(bad.body["messages"])
    found = check(bad.body["messages"], model=rest["model"], tools=rest.get("tools"), thinking=rest.get("thinking"))
    with pytest.raises(InvalidHistory, match="next_turn") as caught:
        turn("sync", handle)
    told = {(problem.path, problem.rule, problem.level) for problem in caught.value.problems}
    assert {(each.path, each.rule, each.level) for each in found if each.level == "error"} <= told
    assert rule in {rule for _, rule, _ in told}
    assert {level for _, _, level in told} == {"error"}
    assert caught.value.messages == bad.body["messages"]
    assert all(problem.path in str(caught.value) for problem in caught.value.problems[:1])
    assert provider.requests == []
    assert handle.state == before
    assert handle.messages_mut() is working
    working[:] = [HI]
    assert completed(turn("sync", handle)).text == "fine"


def test_every_rule_that_an_edit_can_break_was_broken() -> None:
    """All of level error."""
    errors = {name for name, rule in RULES.items() if rule.level == "error"}
    assert {bad.rule for bad in BROKEN} == errors - NOT_BY_AN_EDIT


# --- every moment ----------------------------------------------------------------------------------------------------


@frozen
class Moment:
    """How a loop comes to where the caller has the word, and which word adopts the edit there.

    Attributes:
        state: the name of the state there.
        script: what the model says, the last reply being the end.
        way: from the beginning to there.
        adopt: what takes the edit over.
        config: of the loop.

    """

    state: str
    script: Callable[[str], Any]
    way: Callable[[str, Any], Any]
    adopt: Callable[[str, Any], Any]
    config: Callable[[], dict[str, Any]] = dict


def pending(handle: Handle) -> Yielded:
    waits = handle.pending_turn
    assert waits is not None
    return waits


def inject(kind: str, handle: Handle) -> None:
    turn(kind, handle)
    pending(handle).inject_and_continue([user("more")])


def retry(kind: str, handle: Handle) -> None:
    turn(kind, handle)
    handle.retry()


def goes_on(kind: str, handle: Handle) -> None:
    pending(handle).continue_loop()


def to_the_limit(kind: str, handle: Handle) -> None:
    turn(kind, handle)
    goes_on(kind, handle)
    turn(kind, handle)


def decides(kind: str, handle: Handle) -> None:
    pending(handle).approve_all()
    pending(handle).continue_loop()


INSIDE = threading.Event()


def interrupted_request(kind: str) -> Any:
    """A script whose first request is cancelled."""
    if kind == "sync":
        return [KeyboardInterrupt(), FINE]
    INSIDE.clear()

    async def answer(_: Any) -> Any:
        if INSIDE.is_set():
            return FINE
        INSIDE.set()
        await anyio.sleep_forever()
        return None

    return answer


@tool(effect="pure")
def halting(first: bool) -> str:
    """Run, but not at first."""
    if not INSIDE.is_set():
        INSIDE.set()
        raise KeyboardInterrupt
    return "ran"


@tool(effect="pure")
async def waiting(first: bool) -> str:
    """Run, but not at first."""
    if not INSIDE.is_set():
        INSIDE.set()
        await anyio.sleep_forever()
    return "ran"


def interrupted_tool(kind: str) -> list[Any]:
    INSIDE.clear()
    return [reply(calls=[call("halting" if kind == "sync" else "waiting", {"first": True}, id="toolu_h")]), FINE]


def cancel(kind: str, handle: Any) -> None:
    """A turn that is cancelled half-way."""
    if kind == "sync":
        with pytest.raises(KeyboardInterrupt):
            handle.next_turn()
        return
    run_async(kind, lambda: cancelled_after(handle, INSIDE))


def fails_once() -> dict[str, Any]:
    INSIDE.clear()

    def stop_when(_: Any) -> bool:
        if not INSIDE.is_set():
            INSIDE.set()
            raise OSError("not now")
        return False

    return {"stop_when": stop_when}


def breaks(kind: str, handle: Handle) -> None:
    with pytest.raises(OSError, match="not now"):
        turn(kind, handle)


ADDS = (reply(calls=[ADD]), FINE)
OVERLOADED = ModelError("overloaded", status=529, retryable=True)
MOMENTS: dict[str, Moment] = {
    "new": Moment("Ready", lambda _: [FINE], lambda kind, handle: None, turn),
    "injected": Moment("Ready", lambda _: ADDS, inject, turn),
    "retried": Moment("Ready", lambda _: [OVERLOADED, FINE], retry, turn),
    "request cancelled": Moment("Ready", interrupted_request, cancel, turn),
    "stop_when failed": Moment("Judging", lambda _: ADDS, breaks, turn, fails_once),
    "undecided": Moment("decision_required", lambda _: [reply(calls=[WRITE]), FINE], turn, decides),
    "tool cancelled": Moment("Running", interrupted_tool, cancel, turn),
    "executed": Moment("tools_executed", lambda _: ADDS, turn, goes_on),
    "paused": Moment("paused", lambda _: [PAUSED, FINE], turn, goes_on),
    "finished": Moment("Finished", lambda _: [reply("so"), FINE], turn, lambda _, at: at.follow_up([user("and?")])),
    "finished, in the next turn": Moment("Finished", lambda _: [reply("fine")], turn, turn),
    "ended by a limit": Moment(
        "Finished",
        lambda _: ADDS,
        to_the_limit,
        lambda _, at: at.extend(max_iterations=5),
        lambda: {"max_iterations": 1},
    ),
    "failed": Moment("Failed", lambda _: [OVERLOADED, FINE], turn, lambda _, at: at.retry()),
    "stopped": Moment("tools_executed", lambda _: ADDS, turn, lambda _, at: pending(at).stop()),
}


@either_kind
@each("name", MOMENTS)
def test_a_broken_edit_is_refused_wherever_the_caller_has_the_word(kind: str, name: str) -> None:
    """The same list stays, is mended and goes through; and the next request carries it."""
    moment = MOMENTS[name]
    tools = (add, write, halting if kind == "sync" else waiting)
    handle, provider = loop(kind, moment.script(kind), params(tools=[SEARCH]), tools, **moment.config())
    moment.way(kind, handle)
    assert place(handle) == moment.state
    sent, before = len(provider.requests), handle.state
    working = handle.messages_mut()
    working.insert(0, ORPHAN)
    assert list(handle.messages) == working
    if moment.state == "decision_required":
        pending(handle).approve_all()
        before = handle.state
    with pytest.raises(InvalidHistory) as caught:
        moment.adopt(kind, handle)
    assert {(problem.path, problem.rule) for problem in caught.value.problems} == {
        ("messages[0].content[0]", "orphan-result")
    }
    assert caught.value.messages[: len(working)] == working
    assert len(provider.requests) == sent
    assert handle.state == before
    assert handle.messages_mut() is working
    working[0] = user("mended")
    moment.adopt(kind, handle)
    assert handle.messages[0] == user("mended")
    with pytest.raises(IllegalCommand, match=r"messages_mut\(\)"):
        working.pop()
    goes_to_its_end(kind, handle)
    if len(provider.requests) > sent:
        assert provider.requests[-1]["messages"][0] == user("mended")


def goes_to_its_end(kind: str, handle: Handle) -> None:
    while not handle.is_finished:
        if handle.pending_turn is not None:
            pending(handle).continue_loop()
        turn(kind, handle)


# --- where nobody may edit -------------------------------------------------------------------------------------------


def test_a_loop_that_may_not_run_has_nothing_to_edit() -> None:
    """Nothing can mend that."""
    handle = sync_loop([FINE], max_depth=0)
    handle.next_turn()
    with refused(handle, IllegalCommand, "may not run at all"):
        handle.messages_mut()


def test_nobody_edits_while_a_turn_is_in_progress() -> None:
    """Not even a tool of the loop; and the list that it had is of an earlier wait."""
    told: list[str] = []

    @tool
    def edits() -> str:
        """Try to."""
        for attempt in (handle.messages_mut, working.clear):
            try:
                attempt()
            except IllegalCommand as error:
                told.append(str(error))
        return "tried"

    handle = sync_loop([reply(calls=[("edits", {})]), FINE], [edits])
    working = handle.messages_mut()
    goes_to_its_end("sync", handle)
    in_progress, earlier = told
    assert "a turn is in progress" in in_progress
    assert "this list is of an earlier wait" in earlier


@either_kind
def test_nobody_edits_what_the_request_of_another_driver_carries(kind: str) -> None:
    """Who has opened a stored loop beside its driver waits until the turn is over; then the list is there."""
    store = MemoryStore()
    opened: list[Handle] = []

    def look(other: Handle) -> Any:
        assert place(other) == "Requesting"
        with refused(other, IllegalCommand, "messages_mut()", "a turn is in progress"):
            other.messages_mut()
        opened.append(other)
        return FINE

    async def script(_: Any) -> Any:
        return look(await AsyncToolLoopHandle.open(store, "loop", AsyncScriptedProvider([FINE])))

    if kind == "sync":
        plain = ScriptedProvider(lambda _: look(ToolLoopHandle.open(store, "loop", ScriptedProvider([FINE]))))
        turn(kind, ToolLoopHandle(plain, params=params(), store=store, loop_id="loop"))
    else:
        turn(kind, AsyncToolLoopHandle(AsyncScriptedProvider(script), params=params(), store=store, loop_id="loop"))
    (other,) = opened
    turn(kind, other)
    other.messages_mut()[0] = user("edited")
    other.follow_up([user("more")])
    assert other.messages[0] == user("edited")
