"""What happens between the read of a run and its write: what is true then counts, not what was read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.agui.door import HELLO, Door, opened, write_file
from tests.agui.site import LOCATION
from toolloop import Answer, Inbox, MemoryStore, ToolLoopHandle
from toolloop.testing import ScriptedProvider

WHERE = {**HELLO, "content": "where am I"}
RESULT = {"id": "r1", "role": "tool", "toolCallId": "tu_1_a", "content": "made in the browser"}


class Interrupted(MemoryStore):
    """A store in which something else happens just before an append."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: list[Callable[[], object]] = []

    def append(self, *given: Any, **more: Any) -> Any:
        while self.meanwhile:
            self.meanwhile.pop()()
        return super().append(*given, **more)


@pytest.fixture(scope="module")
def door() -> Iterator[Door]:
    with opened(Interrupted()) as door:
        yield door


def notes_of(door: Door, meanwhile: Callable[[str], object], *messages: Any, **more: Any) -> list[Any]:
    """Run, while something happens to the loop between the read and the write. Return what was not applied."""
    (row,) = door.store.list(metadata={"thread": more["threadId"]})
    assert isinstance(door.store, Interrupted)
    door.store.meanwhile.append(lambda: meanwhile(row.loop_id))
    found = door.notes(*messages, **more)
    assert door.store.meanwhile == []
    return found


def kinds(door: Door, thread: str) -> list[tuple[str, Any]]:
    """Return the kinds and the persons of what was done in a thread."""
    (row,) = door.store.list(metadata={"thread": thread})
    return [(each.kind, each.by) for each in Inbox(door.store).trail(row.loop_id)]


def test_a_tool_that_became_the_servers_takes_no_result_of_a_browser(door: Door) -> None:
    """A deploy takes the tool of the front end away and defines one of that name, while its result is on the way."""

    def deploy(loop_id: str) -> None:
        tools = [{"name": "get_location", "input_schema": {"type": "object"}}]
        with ToolLoopHandle.open(door.store, loop_id, ScriptedProvider([]), tools=[write_file]) as handle:
            handle.update_params(tools=[])
            handle.update_params(tools=tools)

    door.run(WHERE, threadId="deploy", tools=[LOCATION])
    (note,) = notes_of(door, deploy, WHERE, RESULT, threadId="deploy", tools=[LOCATION])
    assert (note["what"], "not allowed to answer" in note["why"]) == ("result", True)
    assert kinds(door, "deploy") == [("say", "ana")]


def test_a_call_that_was_answered_meanwhile_keeps_that_answer(door: Door) -> None:
    def answer(loop_id: str) -> None:
        Inbox(door.store).decide(loop_id, {"tu_1_a": Answer("elsewhere", by="bo")})

    door.run(WHERE, threadId="answered", tools=[LOCATION])
    (note,) = notes_of(door, answer, WHERE, RESULT, threadId="answered", tools=[LOCATION])
    assert (note["what"], note["stands"]["kind"], note["stands"]["by"]) == ("result", "answer", "bo")
    assert kinds(door, "answered") == [("say", "ana"), ("answer", "bo")]


def test_tools_that_come_at_once_count_together(door: Door) -> None:
    """The message is said without its tools if another message brought too many meanwhile."""

    def bring(loop_id: str) -> None:
        tools = [{"name": f"get_{number}", "input_schema": {"type": "object"}} for number in range(40)]
        Inbox(door.store).say(loop_id, "look", by="ana", tools=tools)

    door.run(HELLO, threadId="tools")
    more = [LOCATION | {"name": f"get_more_{number}"} for number in range(40)]
    (note,) = notes_of(door, bring, HELLO, {**HELLO, "id": "u2"}, threadId="tools", tools=more)
    assert (note["what"], note["id"]) == ("tool", "get_more_0")
    (row,) = door.store.list(metadata={"thread": "tools"})
    shown = Inbox(door.store).show(row.loop_id)
    assert len(shown["brought"]) == 40
    assert [each["content"] for each in shown["messages"] if each["role"] == "user"] == ["hello", "look", "hello"]


def test_a_message_that_was_said_meanwhile_is_said_once(door: Door) -> None:
    """A client whose connection broke sends it again, and both requests arrive at once."""

    def send_again(_loop_id: str) -> None:
        door.run(HELLO, more, threadId="twice")

    more = {**HELLO, "id": "u2", "content": "again"}
    door.run(HELLO, threadId="twice")
    assert notes_of(door, send_again, HELLO, more, threadId="twice") == []
    assert kinds(door, "twice") == [("say", "ana"), ("say", "ana")]
