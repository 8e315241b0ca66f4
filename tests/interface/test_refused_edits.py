"""Edits of a history that the API would refuse, and times at which the caller cannot edit."""

from __future__ import annotations

import copy
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.compaction.compaction_stories import Reader, book, reading
from tests.kit.concurrency import either_driver, either_kind, play, sync_loop, turn
from tests.kit.each import each
from tests.kit.machine import making as m
from tests.kit.support import expect_completed, expect_refusal, place
from tests.kit.tools import params, user
from tests.kit.world import open_over_http
from tests.messages.bad_requests import BAD_REQUESTS, BadRequest
from tests.messages.bodies import HI
from toolloop import AsyncToolLoopHandle, LoopConfig, MemoryStore, ToolLoopHandle, Yielded, tool
from toolloop._interface.message_edits import MessageEdits
from toolloop.errors import IllegalCommand, InvalidHistory
from toolloop.history import RULES, check
from toolloop.machine.record.loop import Loop
from toolloop.machine.values.chain import Chain
from toolloop.machine.values.jsontext import decode, encode
from toolloop.machine.values.splicing import apply_splices, find_splices
from toolloop.testing import (
    AsyncScriptedProvider,
    ScriptedProvider,
    reply,
    server_call,
    server_result,
)

Handle = ToolLoopHandle | AsyncToolLoopHandle
FINE = reply("fine")


def begins(bad: BadRequest) -> bool:
    """Whether a loop begins with what the request has beside its messages: so it is these that break the rule."""
    rest = bad.body
    if rest.get("tools") == []:  # a loop does not say so: what it has no tools for is left to the API
        return False
    parts = {name: rest.get(name) for name in ("model", "tools", "thinking", "tool_choice", "max_tokens")}
    return not check([HI], **parts)


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
    assert expect_completed(turn("sync", handle)).text == "fine"


def test_every_rule_that_an_edit_can_break_was_broken() -> None:
    """All of level error."""
    errors = {name for name, rule in RULES.items() if rule.level == "error"}
    assert {bad.rule for bad in BROKEN} == errors - NOT_BY_AN_EDIT


def find_pending(handle: Handle) -> Yielded:
    waits = handle.pending_turn
    assert waits is not None
    return waits


def goes_to_its_end(kind: str, handle: Handle) -> None:
    while not handle.is_finished:
        if handle.pending_turn is not None:
            find_pending(handle).continue_loop()
        turn(kind, handle)


# --- where nobody may edit -------------------------------------------------------------------------------------------


def test_a_loop_that_may_not_run_has_nothing_to_edit() -> None:
    """Nothing can mend that."""
    handle = sync_loop([FINE], max_depth=0)
    handle.next_turn()
    with expect_refusal(handle, IllegalCommand, "nested too deep to run"):
        handle.messages_mut()


def test_no_edit_is_possible_while_a_turn_is_in_progress() -> None:
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
    assert "this list belongs to an earlier wait" in earlier


@either_kind
def test_messages_in_the_request_of_another_driver_cannot_be_edited(kind: str) -> None:
    """Who has opened a stored loop beside its driver waits until the turn is over; then the list is there."""
    store = MemoryStore()
    opened: list[Handle] = []

    def look(other: Handle) -> Any:
        assert place(other) == "Requesting"
        with expect_refusal(other, IllegalCommand, "messages_mut()", "a turn is in progress"):
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


SEARCH = {"type": "web_search_20250305", "name": "web_search"}
FOUND = [server_call("web_search", {"query": "q"}), server_result("web_search")]


def make_search(text: str, **more: Any) -> dict[str, Any]:
    return reply(content=[*FOUND, {"type": "text", "text": text}], **more)


def test_an_edit_cannot_leave_a_servers_result_last() -> None:
    """No pause waits beside the history, so this is not a paused turn; and the list stays to be mended."""
    with open_over_http([make_search("found"), reply("done")], asked=params(tools=[SEARCH])) as at:
        at.expect_done()
        at.handle.follow_up([user("more")])
        edited = at.handle.messages_mut()
        del edited[-1]
        del edited[-1]["content"][-1]
        with expect_refusal(at.handle, InvalidHistory, "prefill"):
            at.handle.next_turn()
        assert at.count == 1
        edited.append(user("again"))
        assert at.expect_done().text == "done"


@each("paused", [FOUND, FOUND[:1]])
def test_a_loop_that_began_with_a_pause_may_be_edited_elsewhere(paused: list[dict[str, Any]]) -> None:
    """The caller gave it so, as a turn that another loop left paused: an edit before it is not refused."""
    ids = [{**block, ("id" if "id" in block else "tool_use_id"): "srvtoolu_1"} for block in paused]
    begun = [user(), {"role": "assistant", "content": ids}]
    sent: list[Any] = []

    class Once:
        def send(self, request: Any) -> dict[str, Any]:
            sent.append(request["messages"])
            usage = {"input_tokens": 1, "output_tokens": 1}
            return {**reply("done"), "role": "assistant", "type": "message", "usage": usage}

    handle = ToolLoopHandle(Once(), params=params(messages=begun, tools=[SEARCH]))
    handle.messages_mut()[0] = user("edited")
    assert handle.run().unwrap().text == "done"
    assert sent == [[user("edited"), begun[1]]]


# --- server calls that nobody answers ---
def open_call() -> dict[str, Any]:
    return server_call("web_search", {"query": "storms"}, id="srvtoolu_1")


@either_driver
def test_an_edit_that_leaves_a_server_call_open_is_refused(driver: str) -> None:
    """Also where the very next request would be taken, for the one after it would not."""

    async def story() -> None:
        async with reading(driver, Reader(1), asked=book(tools=[SEARCH])) as at:
            turn = await at.aturn()
            edited = at.handle.messages_mut()
            edited[1]["content"].insert(1, open_call())
            with expect_refusal(at.handle, InvalidHistory, "srvtoolu_1", "open-server-call"):
                turn.continue_loop()
            del edited[1]["content"][1]
            turn.continue_loop()
            assert (await at.to_the_end()).text == "done"

    play(driver, story)


def loop_of(*messages: Any) -> Loop:
    """A loop with this history, which waits for nothing."""
    return m.state_after().root._replace(messages=Chain(map(encode, messages)))


def user_message(words: str = "hi") -> dict[str, Any]:
    return {"role": "user", "content": words}


# --- one list for each wait ------------------------------------------------------------------------------------------


messages = st.lists(st.builds(user_message, st.text(max_size=3)), max_size=6)


@given(messages, messages)
def test_an_edit_is_shown_at_once_and_taken_as_it_is_shown(before: list[Any], after: list[Any]) -> None:
    """For any edit: what reads show is what the history becomes."""
    loop, edits = loop_of(*before), MessageEdits()
    working = edits.open_list(loop, is_driven=False)
    assert working == before
    working[:] = copy.deepcopy(after)
    assert edits.open_list(loop, is_driven=False) is working
    assert list(edits.show(loop)) == after
    edit = edits.find_edit(loop)
    assert (edit is None) == (before == after)
    if edit is not None:
        assert edit.base == loop.messages
        taken = apply_splices(list(loop.messages), find_splices(list(loop.messages), edit.messages))
        assert list(map(decode, taken)) == after


def test_the_models_own_words_stay_the_same_bytes() -> None:
    """Order of keys and sizes of numbers too, so an edit beside them leaves them alone."""
    odd = '{"role":"assistant","content":[{"type":"x","b":12345678901234567890123,"a":1.5}]}'
    loop, edits = loop_of()._replace(messages=Chain([m.user(), odd])), MessageEdits()
    edits.open_list(loop, is_driven=False)[0] = user_message("edited")
    edit = edits.find_edit(loop)
    assert edit is not None
    assert edit.messages == (encode(user_message("edited")), odd)
