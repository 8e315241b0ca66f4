"""Tools of a real MCP server in a loop: its hints, and a list that it changes while the loop runs."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from anyio import create_task_group
from mcp.types import ToolAnnotations as Hints

from tests.engine.servers import (
    DELETES,
    PARAMS,
    READ_ONLY,
    READS,
    Notes,
    open_loop,
    read_adopted,
    tools_sent,
)
from tests.kit.concurrency import on_both_backends, run_async, wait_for, wait_in_loop_for
from tests.kit.failing import event_names
from tests.kit.tools import transfer
from tests.kit.world import ID, World, store_at
from toolloop import (
    Approve,
    Ask,
    AsyncToolLoopHandle,
    Inbox,
    LoopConfig,
    MemoryStore,
    Yielded,
    tool,
)
from toolloop.events import DriftAdopted
from toolloop.testing import AsyncScriptedProvider, ScriptedProvider, call, reply
from toolloop.tools.mcp import aopen_mcp, open_mcp
from toolloop.types import ServerTools, ToolAnnotations

QUIET = {"read_only_hint": True, "destructive_hint": False, "open_world_hint": False}


def by_hints(call: Any, _view: Any) -> Ask | None:
    """A policy that trusts the server."""
    return None if call.annotations is not None and call.annotations.read_only_hint else Ask("it may change something")


def test_a_policy_sees_the_hints(tmp_path: Path) -> None:
    """Also an inbox in another process, and a handle: with the protocol's defaults, and none for other tools."""
    notes = Notes()
    with open_mcp(notes.server) as tools:
        world = World("sync", store_at("sqlite", tmp_path), [reply(calls=[READS, DELETES]), reply("done")], tools)
        world.config = {"on_tool_call": by_hints, "execution": "ready"}
        with world.open() as handle:
            (waits,) = handle.run().pending
            assert waits.annotations == ToolAnnotations()
            (shown,) = handle.view()["pending"]
        (seen,) = Inbox(store_at("sqlite", tmp_path)).show(ID)["pending"]
    defaults = {"read_only_hint": False, "destructive_hint": True, "idempotent_hint": False, "open_world_hint": True}
    assert (shown["name"], shown["annotations"], seen) == ("delete", defaults, shown)


def test_a_lying_hint_never_sets_the_effect(tmp_path: Path) -> None:
    """A tool that says it is idempotent and read only may still not run twice, and needs the approval it needed."""
    notes = Notes(read=Hints(read_only_hint=True, idempotent_hint=True))
    with open_mcp(notes.server, needs_approval=True) as tools:
        world = World("sync", store_at("memory", tmp_path), [reply(calls=[READS]), reply("done")], tools)
        with world.open() as handle:
            (waits,) = handle.run().pending
            assert (waits.why, tools[0].effect) == ("approval", "once")
            assert not handle.state.root.setup.repeatable("read")
    assert notes.ran == []


# --- a list that changes ---


def test_a_list_that_changes_in_a_turn_is_adopted_with_the_next_one() -> None:
    """An open call keeps the definition it was proposed under. A tool that was removed is unknown then."""
    notes, late = Notes(), call("delete", {"name": "b"}, id="c3")
    script = ScriptedProvider([reply(calls=[READS, DELETES]), reply("hi"), reply(calls=[late]), reply("so")])
    with open_mcp(notes.server, needs_approval=True) as tools, open_loop(MemoryStore(), script, tools) as handle:
        turn = handle.run()
        assert isinstance(turn, Yielded)
        notes.change("read", READ_ONLY, description="Read any note.")
        turn.approve("c1", by="ana")
        turn.deny("c2", "no", by="ana")
        assert handle.run().unwrap().text == "hi"
        notes.remove("delete")
        notes.add("copy")
        changes = ("the definition of tool 'read' changed", "tool 'delete' is missing", "tool 'copy' is new")
        assert read_adopted(handle) == changes
        assert "'delete' is no longer there" in handle.messages[-2]["content"][0]["content"]
    assert notes.ran == ["read a"]
    assert tools_sent(script) == [["read", "delete"], ["read", "delete"], ["read", "copy"], ["read", "copy"]]
    described = [request["tools"][0]["description"] for request in script.requests]
    assert described == ["Use a note.", "Use a note.", "Read any note.", "Read any note."]


def test_a_turn_without_a_change_sends_the_same_bytes() -> None:
    """And records nothing more. A server that never changes its tools is not asked for them again."""
    notes = Notes()
    script, store = ScriptedProvider([reply("one"), reply("two")]), MemoryStore()
    with open_mcp(notes.server) as tools, open_loop(store, script, tools) as handle:
        handle.run()
        assert read_adopted(handle) == ()
    first, second = (request["tools"] for request in script.requests)
    assert json.dumps(first) == json.dumps(second)
    assert "Woken" not in event_names(store.load(ID).entries)


@pytest.mark.parametrize("is_copy", [True, False], ids=["a copy", "a list that has another tool's name"])
def test_a_list_that_cannot_be_adopted_is_left(is_copy: bool, caplog: pytest.LogCaptureFixture) -> None:
    """A copy of the list is not the server's. A tool of ours keeps its name: the log says so."""
    notes = Notes()
    script = ScriptedProvider([reply("one"), reply("two")])
    with open_mcp(notes.server) as tools:
        given: list[Any] = [transfer, *tools] if is_copy else [transfer, tools]
        with open_loop(MemoryStore(), script, given) as handle:
            handle.run()
            notes.add("copy" if is_copy else "pay")
            assert read_adopted(handle) == ()
    assert tools_sent(script) == [["pay", "read", "delete"]] * 2
    assert ("two tools are named 'pay'" in caplog.text) is not is_copy


@pytest.mark.parametrize("is_removed", [True, False], ids=["a tool that a message names", "a tool that one defines"])
def test_a_list_that_the_history_forbids_is_left(is_removed: bool, caplog: pytest.LogCaptureFixture) -> None:
    """The API would refuse each later request. The loop goes on with the tools that it has."""
    named = {"type": "tool_reference", "name": "read"}
    defined = {"type": "tool_definition", "definition": {"name": "ask", "input_schema": {"type": "object"}}}
    change = {"type": "tool_addition", "tool": named if is_removed else defined}
    notes, script = Notes(), ScriptedProvider([reply("one"), reply("two")])
    with open_mcp(notes.server) as tools, open_loop(MemoryStore(), script, tools) as handle:
        handle.run()
        handle.follow_up([{"role": "user", "content": "go on"}, {"role": "system", "content": [change]}])
        if is_removed:
            notes.remove("read")
        else:
            notes.add("ask")
        assert handle.run().unwrap().text == "two"
    assert tools_sent(script) == [["read", "delete"]] * 2
    assert "the tools of a server changed, but cannot be used" in caplog.text


def test_a_server_that_is_gone_leaves_its_tools(caplog: pytest.LogCaptureFixture) -> None:
    """The loop goes on, and a call says that it did not run."""
    notes = Notes()
    script = ScriptedProvider([reply("one"), reply(calls=[READS]), reply("two")])
    with open_mcp(notes.server) as tools:
        handle = open_loop(MemoryStore(), script, tools)
        handle.run()
    with handle:
        assert read_adopted(handle) == ()
        assert "did not run" in handle.messages[-2]["content"][0]["content"]
    assert "the tools of a server could not be read again" in caplog.text


# --- hints that change ---


def by_what_it_saw(seen: list[Any]) -> Any:
    def policy(call: Any, view: Any) -> Ask | None:
        seen.append(call.annotations.read_only_hint)
        return by_hints(call, view)

    return policy


@pytest.mark.parametrize("is_milder", [True, False])
def test_hints_change_with_the_next_user_turn(is_milder: bool) -> None:
    """Milder or stricter: the policies of a turn see the hints that it began with."""
    seen: list[Any] = []
    before, after = (None, READ_ONLY) if is_milder else (READ_ONLY, None)
    notes, again = Notes(read=before), call("read", {"name": "b"}, id="c2")
    script = ScriptedProvider(
        [reply(calls=[READS]), reply(calls=[again]), reply("hi"), reply(calls=[READS]), reply("so")]
    )
    config = LoopConfig(on_tool_call=by_what_it_saw(seen))
    with open_mcp(notes.server) as tools, open_loop(MemoryStore(), script, tools, config=config) as handle:
        handle.next_turn()
        notes.change("read", after)
        handle.run(lambda turn: turn.approve_all(by="ana"))
        assert seen == [not is_milder] * 2
        seen.clear()
        handle.say("and now?")
        with handle.stream(lambda turn: turn.approve_all(by="ana")) as stream:
            (adopted,) = (event for event in stream if isinstance(event, DriftAdopted))
    assert seen == [is_milder]
    assert adopted.changes[0].startswith(f"the hints of tool 'read' changed: read_only_hint is {is_milder}, ")


@pytest.mark.parametrize("is_milder", [True, False])
def test_hints_that_became_milder_in_a_sleep_wait_for_the_next_user_turn(is_milder: bool, tmp_path: Path) -> None:
    """Another process with another list drives a turn on with the stricter of both hints."""
    seen: list[Any] = []
    before, after = (None, READ_ONLY) if is_milder else (READ_ONLY, None)
    config = LoopConfig(on_tool_call=by_what_it_saw(seen))
    again = call("read", {"name": "b"}, id="c2")
    with open_mcp(Notes(read=before).server, needs_approval=True) as tools:
        store = store_at("sqlite", tmp_path)
        script = ScriptedProvider([reply(calls=[READS]), reply(calls=[again])])
        asking = LoopConfig(on_tool_call=lambda _call, _view: Ask())
        with open_loop(store, script, tools, config=asking) as handle:
            (waits,) = handle.run().pending
            assert waits.annotations == ToolAnnotations(**{} if is_milder else QUIET)
    Inbox(store_at("sqlite", tmp_path)).decide(ID, {"c1": Approve(by="ana")})
    with open_mcp(Notes(read=after).server) as tools:
        script = ScriptedProvider([reply(calls=[again]), reply("hi"), reply(calls=[READS]), reply("so")])
        with open_loop(store_at("sqlite", tmp_path), script, [*tools], config=config, on_drift="accept") as handle:
            handle.run(lambda turn: turn.approve_all(by="ana"))
            assert set(seen) == {False}
            seen.clear()
            handle.say("and now?")
            handle.run(lambda turn: turn.approve_all(by="ana"))
    assert seen == [is_milder]


def test_a_tool_that_comes_back_in_a_turn_has_the_stricter_hints(tmp_path: Path) -> None:
    """It was read only when it was gone; what the server says now counts, too."""
    config = LoopConfig(on_tool_call=by_hints)
    store, gate = store_at("sqlite", tmp_path), tool(lambda: "ok", name="gate", description="A.", needs_approval=True)
    with open_mcp(Notes(read=READ_ONLY).server) as tools:
        open_loop(store, ScriptedProvider([reply("one")]), tools, config=config).run()
    script = ScriptedProvider([reply(calls=[call("gate", {}, id="c1")]), reply(calls=[READS])])
    with open_loop(store, script, [gate], config=config) as handle:
        handle.say("and now?")
        handle.run()
        handle.decide({"c1": Approve(by="ana")})
    notes = Notes(read=None)
    with open_mcp(notes.server) as tools, open_loop(store, script, [gate, tools], config=config) as handle:
        assert [each.name for each in handle.run().pending] == ["read"]
    assert notes.ran == []


@on_both_backends
def test_an_async_loop_reads_the_list_again(backend: str) -> None:
    """In the event loop of the client."""
    notes = Notes()
    script = AsyncScriptedProvider([reply("one"), reply("two")])

    async def main() -> None:
        async with aopen_mcp(notes.server) as tools:
            handle = AsyncToolLoopHandle(script, params=PARAMS, tools=[tools])
            await handle.run()
            notes.add("copy")
            handle.say("and now?")
            await handle.run()

    run_async(backend, main)
    assert [tool["name"] for tool in script.requests[-1]["tools"]] == ["read", "delete", "copy"]


@on_both_backends
def test_a_server_of_a_thread_does_not_block_the_event_loop(backend: str) -> None:
    """Its list is read in another thread."""
    asked, answered = threading.Event(), threading.Event()

    def fetch() -> list[Any]:
        asked.set()
        wait_for(answered)
        return [transfer]

    async def main() -> None:
        handle = AsyncToolLoopHandle(AsyncScriptedProvider([reply("one")]), params=PARAMS, tools=tools)
        async with create_task_group() as group:
            group.start_soon(handle.run)
            await wait_in_loop_for(asked)
            answered.set()
        assert [facts.name for facts in handle.state.root.setup.tools] == ["pay"]

    tools = ServerTools([], fetch, may_change=True)
    run_async(backend, main)
