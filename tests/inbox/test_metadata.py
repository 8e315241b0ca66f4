"""The metadata of a loop changes: in its row, and in the trail with the values before and after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.inbox.support import desk, desk_of
from tests.kit.concurrency import either_kind
from tests.kit.each import each
from tests.kit.support import expect_yielded
from tests.kit.tools import SEND, params
from tests.kit.world import ID, World, each_store, wait
from toolloop import Approve, Inbox, MemoryStore, ToolLoopHandle
from toolloop.errors import CallerError, IllegalCommand, NotAllowed
from toolloop.inbox import audit
from toolloop.rules import Rules
from toolloop.testing import ScriptedProvider, reply

SCRIPT = (reply(calls=[SEND]), reply("done"))


@each_store
def test_a_change_is_in_the_row_and_in_the_trail(where: str, tmp_path: Path) -> None:
    """Other keys stay, filters go by the new values, and a repetition changes nothing."""
    at = desk(where, tmp_path)
    at.drive(metadata={"owner": "ana", "draft": "yes"})
    at.inbox.set_metadata("loop", title="Rent", draft=None, owner="bo", by="cy")
    assert at.row().metadata == {"owner": "bo", "title": "Rent"}
    assert [row.loop_id for row in at.store.list(metadata={"owner": "bo"})] == ["loop"]
    assert (at.store.list(metadata={"owner": "ana"}), len(at.inbox.pending({"owner": "bo"}))) == ([], 2)
    (changed,) = at.inbox.trail("loop")
    assert (changed.kind, changed.by, changed.via) == ("metadata", "cy", "inbox")
    assert changed.content == {
        "title": {"before": None, "after": "Rent"},
        "draft": {"before": "yes", "after": None},
        "owner": {"before": "ana", "after": "bo"},
    }
    rev = at.row().rev
    at.inbox.set_metadata("loop", owner="bo", draft=None)
    assert at.row().rev == rev
    at.inbox.set_metadata("loop", owner="ana")
    assert at.inbox.trail("loop")[-1].content == {"owner": {"before": "bo", "after": "ana"}}
    at.inbox.decide("loop", {call: Approve(by="ana") for call in at.inbox.pending()})
    at.drive()
    assert (at.row().metadata, audit(at.store, "loop")) == ({"owner": "ana", "title": "Rent"}, ())


@either_kind
def test_a_handle_changes_it_too(kind: str) -> None:
    """In any state, also before the loop is stored, and beside what others changed meanwhile."""
    world = World(kind, MemoryStore(), script=SCRIPT)
    peer = world.make()
    wait(kind, peer.handle.set_metadata(title="One"))
    assert world.row().metadata == {"title": "One"}
    expect_yielded(peer.run())
    world.inbox.set_metadata(ID, title="Two", owner="bo")
    wait(kind, peer.handle.set_metadata(title="Three", by="ana"))
    assert world.row().metadata == {"title": "Three", "owner": "bo"}
    last = world.inbox.trail(ID)[-1]
    assert (last.by, last.via, last.content) == ("ana", "handle", {"title": {"before": "Two", "after": "Three"}})
    copy = wait(kind, peer.handle.fork("copy"))
    wait(kind, copy.set_metadata(owner=None))
    assert (world.row("copy").metadata, world.row().metadata["owner"]) == ({"title": "Three"}, "bo")


@each("changes", [{"title": 7}, {"title": "x" * 5000}, {"a\0": "b"}])
def test_other_values_are_refused(changes: Any) -> None:
    """Nothing is stored."""
    at = desk_of(MemoryStore())
    at.drive()
    rev = at.row().rev
    with pytest.raises((TypeError, ValueError), match="metadata"):
        at.inbox.set_metadata("loop", **changes)
    assert at.row().rev == rev
    with pytest.raises(IllegalCommand, match="no store"):
        ToolLoopHandle(ScriptedProvider([]), params=params()).set_metadata(title="One")


def test_a_person_cannot_give_a_loop_away() -> None:
    """The result must be one that the person sees."""
    at = desk_of(MemoryStore())
    at.drive(metadata={"owner": "ana"})
    mine = Inbox(at.store, clock=at.clock).as_("ana", sees=lambda _: [{"owner": "ana"}])
    for owner in ("bo", None):
        with pytest.raises(NotAllowed, match="would not see"):
            mine.set_metadata("loop", owner=owner)
    mine.set_metadata("loop", title="Rent")
    assert at.row().metadata == {"owner": "ana", "title": "Rent"}


def test_who_is_excluded_goes_by_the_owner_when_the_call_began_to_wait() -> None:
    """A new owner is excluded, too, once the call is judged again; the old one stays excluded."""
    rules = Rules([{"name": "four eyes", "tool": "send", "do": "ask", "not_by": ["metadata:owner"]}])
    world = World("sync", MemoryStore(), script=SCRIPT, config={"on_tool_call": rules})
    world.drive(metadata={"owner": "ana"})
    world.inbox.set_metadata(ID, owner="bo")
    (waiting,) = world.inbox.pending()
    with pytest.raises(CallerError, match="ana"):
        world.inbox.decide(ID, {waiting: Approve(by="ana")})
    world.inbox.decide(ID, {waiting: Approve(by="bo")})
    assert world.status() == "runnable"
