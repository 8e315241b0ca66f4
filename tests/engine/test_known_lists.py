"""Which of the lists that a server had counts for a loop: other handles of the process, and loops of before."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, strategies as st

from tests.engine.servers import DELETES, PARAMS, READ_ONLY, Notes, open_loop, read_adopted, tools_sent
from tests.kit.world import ID, store_at
from toolloop import Approve, Inbox, MemoryStore, Tool, ToolLoopHandle, ToolRegistry, Worker, tool
from toolloop.errors import InvalidHistory
from toolloop.machine.values.setup import ToolFacts
from toolloop.testing import ScriptedProvider, call, reply
from toolloop.tools.mcp import open_mcp
from toolloop.types import ServerTools, ToolAnnotations

Version = tuple[int, bool]  # the number in the description, and whether the tool is read only
VERSIONS = st.tuples(st.integers(0, 2), st.booleans())
LISTS = st.lists(st.dictionaries(st.sampled_from("abc"), VERSIONS), min_size=1, max_size=6)
Moment = dict[str, tuple[Version, int]]  # the tools that there are, each with the number of its server
MOMENTS = st.lists(
    st.dictionaries(st.sampled_from("abc"), st.tuples(VERSIONS, st.integers(0, 2))), min_size=1, max_size=6
)


def make_tools(versions: dict[str, Version]) -> list[Tool[..., Any]]:
    return [
        evolve(
            tool(lambda: "", name=name, description=f"Version {version}."),
            annotations=ToolAnnotations(read_only_hint=is_read_only),
        )
        for name, (version, is_read_only) in versions.items()
    ]


def list_facts(tools: Iterable[Tool[..., Any]], *, is_strict: bool = False) -> dict[str, ToolFacts]:
    """Return what a loop has from a server. `is_strict`: with the defaults of the protocol as hints."""
    found = {each.name: each.facts() for each in tools}
    strict = {name: evolve(facts, annotations=ToolAnnotations()) for name, facts in found.items()}
    return strict if is_strict else found


@given(MOMENTS, st.data())
def test_a_loop_has_the_lists_that_it_adopted(moments: list[Moment], data: st.DataObject) -> None:
    """Also if a list is empty, or a part of another one, and if hints are stricter than those of any list.

    Names move between the servers, also with the same definition.
    """
    servers = [ServerTools([], list, may_change=True) for _ in range(3)]
    for moment in moments:
        for place, server in enumerate(servers):
            server.update(make_tools({name: version for name, (version, at) in moment.items() if at == place}))
    adopted, is_strict = data.draw(st.sampled_from(moments)), data.draw(st.booleans())
    facts = list_facts(make_tools({name: version for name, (version, _) in adopted.items()}), is_strict=is_strict)
    assert list_facts(ToolRegistry(servers).as_of(facts.values()), is_strict=is_strict) == facts


def test_a_name_that_moved_hides_no_list() -> None:
    """Of the server that had it before, nor of the one that has it since, whose list of then is not known."""
    first, second = (ServerTools([], list, may_change=True) for _ in range(2))
    first.update(make_tools({"a": (0, True), "b": (0, True)}))
    first.update(make_tools({"a": (1, True)}))
    (mine,) = first
    second.update(make_tools({"b": (1, True)}))
    (moved,) = second
    first.update(make_tools({"a": (2, True)}))
    unknown = make_tools({"b": (3, True)})
    for theirs in ([moved], unknown):
        facts = list_facts([mine, *theirs])
        assert [*ToolRegistry([first, second]).as_of(facts.values())] == [mine, moved]


@given(LISTS, st.dictionaries(st.sampled_from("abc"), st.just((3, True)), min_size=1))
def test_a_loop_with_another_list_has_the_current_one(
    lists: list[dict[str, Version]], stored: dict[str, Version]
) -> None:
    """A process of before had it, and the server had none of these definitions since: no older list counts."""
    server = ServerTools(make_tools(lists[0] | dict.fromkeys(stored, (0, True))), list, may_change=True)
    for versions in lists[1:]:
        server.update(make_tools(versions))
    assert [*ToolRegistry(server).as_of(list_facts(make_tools(stored)).values())] == [*server]


def test_a_tool_of_ours_hides_none_of_a_list() -> None:
    """The server had a tool of its name before, or has one since."""
    ours, (theirs,) = tool(lambda: "", name="a", description="Ours."), make_tools({"b": (0, True)})
    server = ServerTools([theirs], list, may_change=True)
    registry = ToolRegistry([ours, server])
    server.update(make_tools({"a": (0, True)}))
    assert [*registry.as_of([ours.facts(), theirs.facts()])] == [ours, theirs]


# --- other handles in the process ---


@pytest.mark.parametrize("is_milder", [True, False])
def test_a_handle_follows_what_another_one_adopted(is_milder: bool, tmp_path: Path) -> None:
    """It was opened before that, and its open call has another schema by the list that it began with."""
    before, after = (None, READ_ONLY) if is_milder else (READ_ONLY, None)
    notes, store = Notes(read=before), store_at("sqlite", tmp_path)
    again = call("read", {"name": "b", "force": True}, id="c2")
    script = ScriptedProvider([reply("one"), reply(calls=[again]), reply("two")])
    with open_mcp(notes.server, needs_approval=True) as tools, open_loop(store, script, tools) as early:
        early.run()
        with open_loop(store, script, tools) as other:
            notes.change("read", after, is_forced=True)
            other.say("and now?")
            (waits,) = other.run().pending
        early.decide({waits.id: Approve(by="ana")})
        assert early.run().unwrap().text == "two"
        assert early.state.root.setup.tools[0].annotations == waits.annotations
    assert notes.ran == ["read b"]


def test_messages_of_before_are_checked_against_what_another_one_adopted() -> None:
    """A message names a tool that this handle still had. The API would refuse it."""
    notes, store, script = Notes(), MemoryStore(), ScriptedProvider([reply("one"), reply("two")])
    change = {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "read"}}
    with open_mcp(notes.server) as tools, open_loop(store, script, tools) as early:
        early.run()
        with open_loop(store, script, tools) as other:
            notes.remove("read")
            other.say("and now?")
            other.run()
        early.flush()
        early.follow_up([{"role": "user", "content": "go on"}, {"role": "system", "content": [change]}])
        with pytest.raises(InvalidHistory, match="read"):
            early.run()
    assert tools_sent(script) == [["read", "delete"], ["delete"]]


def test_a_tool_whose_name_differs_only_for_the_server_is_called_by_its_new_name() -> None:
    """The API accepts no dot, so the model sees no difference."""
    notes = Notes(**{"a.b": None})
    script = ScriptedProvider([reply("one"), reply(calls=[call("a_b", {"name": "x"}, id="c1")]), reply("two")])
    with open_mcp(notes.server) as tools, open_loop(MemoryStore(), script, tools) as handle:
        handle.run()
        notes.remove("a.b")
        notes.add("a_b")
        assert read_adopted(handle) == ()
    assert notes.ran == ["a_b x"]


def test_a_loop_that_waits_keeps_its_definitions_in_the_process(tmp_path: Path) -> None:
    """Though another loop has adopted the new ones in the meantime: no `Drift` leaves it to others."""
    notes, store = Notes(), store_at("sqlite", tmp_path)
    script = ScriptedProvider([reply(calls=[DELETES]), reply("other"), reply("hi"), reply("so")])
    with open_mcp(notes.server, needs_approval=True) as tools:
        with open_loop(store, script, tools) as handle:
            handle.run()
        notes.change("delete", is_forced=True)
        with ToolLoopHandle.open(store, "other", script, params=PARAMS, tools=tools) as other:
            assert other.run().unwrap().text == "other"
        worker = Worker(store, script, tools)
        Inbox(store).decide(ID, {"c2": Approve(by="ana")})
        worker.run_until_idle()
        assert notes.ran == ["delete a"]
        Inbox(store).say(ID, "and now?")
        worker.run_until_idle()
    forces = ["force" in request["tools"][-1]["input_schema"]["properties"] for request in script.requests]
    assert forces == [False, True, False, True]


@pytest.mark.parametrize("at", [None, 1])
def test_a_fork_has_the_tools_of_its_loop(at: int | None) -> None:
    """As they are now, or as they were."""
    notes = Notes()
    script = ScriptedProvider([reply("one"), reply("two"), reply("three")])
    with open_mcp(notes.server) as tools, open_loop(MemoryStore(), script, tools) as handle:
        handle.run()
        notes.add("copy")
        read_adopted(handle)
        copy = handle.fork(at=at)
        names = [facts.name for facts in copy.state.root.setup.tools]
        assert names == ["read", "delete", *(["copy"] if at is None else [])]
        assert read_adopted(copy) == (() if at is None else ("tool 'copy' is new",))
        copy.close()
