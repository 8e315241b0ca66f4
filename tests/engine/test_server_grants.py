"""Approvals and grants for tools of a real MCP server, when a tool of the same name takes its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from tests.engine.servers import DELETES, READ_ONLY, READS, Notes, open_loop
from tests.kit.tools import transfer
from tests.kit.world import ID, store_at
from toolloop import Approve, Grant, Inbox, MemoryStore, Yielded, tool
from toolloop.errors import Drift
from toolloop.testing import ScriptedProvider, call, reply
from toolloop.tools.mcp import open_mcp
from toolloop.types import ToolAnnotations


@pytest.mark.parametrize(
    ("change", "is_lost"),
    [
        ({"description": "Delete a note for good."}, False),
        ({}, False),
        ({"hints": READ_ONLY}, True),
        ({"is_forced": True}, True),
    ],
    ids=["its description", "nothing", "its hints", "its schema"],
)
def test_a_changed_tool_loses_its_grants(change: Any, is_lost: bool) -> None:
    """By its schema or its hints; those of other tools stay. The trail has it."""
    notes, store = Notes(), MemoryStore()
    more = [call("delete", {"name": "z"}, id="c3"), call("read", {"name": "z"}, id="c4")]
    script = ScriptedProvider([reply(calls=[READS, DELETES]), reply("hi"), reply(calls=more), reply("so")])
    with open_mcp(notes.server, needs_approval=True) as tools, open_loop(store, script, tools) as handle:
        turn = handle.run()
        assert isinstance(turn, Yielded)
        for each in turn.pending:
            turn.approve(each, by="ana", remember=Grant(match={}))
        assert handle.run().unwrap().text == "hi"
        notes.change("delete", **change)
        handle.say("and now?")
        waiting = handle.run().pending if is_lost else ()
        assert [each.name for each in waiting] == (["delete"] if is_lost else [])
        assert {grant.tool for grant in handle.grants} == ({"read"} if is_lost else {"read", "delete"})
    revoked = [(entry.grant, entry.via) for entry in Inbox(store).trail(ID) if entry.kind == "revoke"]
    assert revoked == ([("1/c2", "tools")] if is_lost else [])


def test_a_tool_that_is_no_longer_of_the_server_loses_its_grants() -> None:
    """Though the server has it again later, with the same hints."""
    notes, store = Notes(), MemoryStore()
    script = ScriptedProvider([reply(calls=[DELETES]), reply("hi"), reply("so"), reply("done")])
    with open_mcp(notes.server, needs_approval=True) as tools:
        with open_loop(store, script, tools) as handle:
            handle.run()
            handle.decide({"c2": Approve(by="ana", remember=Grant(match={}))})
            handle.run()
        ours = [evolve(each, annotations=None) for each in tools]
        for other, count in (([*tools], 1), (ours, 0), ([*tools], 0)):
            with open_loop(store, script, other, on_drift="accept") as handle:
                handle.say("and now?")
                handle.next_turn()
                assert len(handle.grants) == count


@pytest.mark.parametrize("is_gone_first", [True, False])
@pytest.mark.parametrize("is_same_turn", [True, False])
def test_a_grant_for_a_tool_of_ours_does_not_cover_one_of_a_server(is_gone_first: bool, is_same_turn: bool) -> None:
    """It has the same name, schema and gate, and the server says nothing of it."""
    notes, store = Notes(), MemoryStore()
    gate = tool(lambda: "ok", name="gate", description="A.", needs_approval=True)
    gated = reply(calls=[call("gate", {})])
    begun = [reply(calls=[DELETES]), *([] if is_same_turn else [reply("hi")]), gated]
    script = ScriptedProvider([*begun, *([gated] if is_gone_first else []), reply(calls=[DELETES])])
    with open_mcp(notes.server, needs_approval=True, only=["delete"]) as tools:
        ours = [evolve(each, annotations=None) for each in tools]
        with open_loop(store, script, [gate, *ours]) as handle:
            handle.run()
            handle.decide({"c2": Approve(by="ana", remember=Grant(match={}))})
            if not is_same_turn:
                handle.run()
                handle.say("and now?")
            handle.run()
        for given in ([gate], [gate, tools])[not is_gone_first :]:
            with open_loop(store, script, given) as handle:
                assert [each.name for each in handle.pending] == ["gate"]
                handle.decide({handle.pending[0]: Approve(by="ana")})
                (waits,) = handle.run().pending
        assert (waits.name, waits.annotations, len(handle.grants)) == ("delete", ToolAnnotations(), 0)
    assert notes.ran == ["delete a"]


@pytest.mark.parametrize("is_ours_first", [True, False])
def test_an_approval_does_not_pass_to_a_tool_of_another_kind(is_ours_first: bool, tmp_path: Path) -> None:
    """Between one of ours and one of a server, with the same schema. The call is asked about once more, not twice."""
    notes, store = Notes(delete=READ_ONLY), store_at("sqlite", tmp_path)
    script = ScriptedProvider([reply(calls=[DELETES]), reply("done")])
    with open_mcp(notes.server, needs_approval=True) as tools:
        kinds: list[Any] = [[evolve(each, annotations=None) for each in tools], tools]
        before, after = kinds if is_ours_first else reversed(kinds)
        with open_loop(store, script, before) as handle:
            (first,) = handle.run().pending
        Inbox(store).decide(ID, {"c2": Approve(by="ana")})
        with pytest.raises(Drift, match="the hints of tool 'delete' changed"):
            open_loop(store, script, after, on_drift="strict").run()
        with open_loop(store, script, after) as handle:
            (again,) = handle.run().pending
            hints = ToolAnnotations() if is_ours_first else None  # the strictest, until the next user turn
            assert (again.annotations, again.digest == first.digest) == (hints, False)
        assert notes.ran == []
        Inbox(store).decide(ID, {"c2": Approve(by="ana")})
        with open_loop(store, script, after, on_drift="strict") as handle:
            assert handle.run().unwrap().text == "done"
    assert notes.ran == ["delete a"]


def test_a_tool_that_changed_in_a_sleep_loses_its_grants() -> None:
    """Its schema and its gate count, however the loop gets its tools."""
    store = MemoryStore()
    script = ScriptedProvider(
        [reply(calls=[call("pay", {"to": "ana", "euros": 5}, id="c1")]), reply("hi"), reply("so")]
    )
    with open_loop(store, script, [transfer]) as handle:
        turn = handle.run()
        assert isinstance(turn, Yielded)
        turn.approve("c1", by="ana", remember=Grant())
        handle.run()
        assert len(handle.grants) == 1
        handle.say("and now?")
    stricter = evolve(transfer, needs_approval=lambda _call: True)
    with open_loop(store, script, [stricter], on_drift="accept") as handle:
        assert handle.run().unwrap().text == "so"
        assert len(handle.grants) == 0
