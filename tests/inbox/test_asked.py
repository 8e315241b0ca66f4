"""The request that stands beside a call is a message of a person, in its row and on its card."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.kit.tools import assistant, params, user
from toolloop import Inbox, LoopConfig, LoopDetection, Person, SqliteStore, ToolLoopHandle, Yielded, tool
from toolloop.compaction.segments import SUMMARY_START
from toolloop.inbox.shown.cards import card_of, read_loop
from toolloop.inbox.shown.keys import key_of
from toolloop.inbox.shown.recent import read_recent
from toolloop.responses import FileResponse
from toolloop.testing import ScriptedProvider, call, reply, server_call, server_result

LAST = reply("I send it.", calls=[call("send", {"to": "ana"}, id="last")])
SEARCH = {"type": "web_search_20250305", "name": "web_search"}
SECRET = {"n": 1, "token": "swordfish"}
NOTE = 'Note: the call f (fetch) ran with another input than the one you gave: {"n":1,"token":"%s"}'
FETCH = call("fetch", SECRET, id="f")


@tool
def look(path: str) -> str:
    """Look."""
    return path * 15_000  # a checkpoint is due after 100 kB


@tool(needs_approval=True, secret=["token"])
def fetch(n: int, token: str) -> FileResponse:
    """Fetch a file. The API takes no note beside it in the result."""
    return FileResponse("a.pdf", "application/pdf", b"%PDF-1.4")


@tool(needs_approval=True)
def send(to: str) -> str:
    """Send."""
    return f"sent to {to}"


def looks(*numbers: int) -> list[Any]:
    """Replies that make the same call."""
    return [reply("I look.", calls=[call("look", {"path": "same"}, id=f"t{number}")]) for number in numbers]


FOUND = reply(content=[server_result("web_search", id="s1")], calls=[call("look", {"path": "same"}, id="t0")])
OWN: Mapping[str, tuple[str, list[Any], dict[str, Any]]] = {
    "a note that an input was edited": (
        "swordfish",
        [reply(content=[server_call("web_search", {"query": "q"}, id="s1")], calls=[FETCH]), FOUND, *looks(1, 2, 3)],
        {},
    ),
    "a warning about a repetition": (
        "3 times in a row",
        looks(1, 2, 3, 4, 5),
        {"loop_detection": LoopDetection(3, "inject_warning")},
    ),
    "a correction of an answer": ("not JSON", [*looks(1), reply("no number"), *looks(2, 3, 4)], {"output": int}),
}


def drive(store: Any, script: list[Any], config: dict[str, Any], *messages: Any) -> None:
    """Run a loop until the last call waits. Another one that waits runs with an edited input."""
    given = params(messages=list(messages or [user("send it")]), tools=[SEARCH])
    provider, tools = ScriptedProvider([*script, LAST]), (look, fetch, send)
    with ToolLoopHandle.open(store, "loop", provider, params=given, tools=tools, config=LoopConfig(**config)) as handle:
        turn = handle.run()
        while isinstance(turn, Yielded) and turn.pending[0].id != "last":
            turn.approve(turn.pending[0], {"n": 2, "token": "swordfish"}, by="ana")
            turn = handle.run()


@pytest.mark.parametrize("what", OWN)
def test_the_loop_s_own_messages_are_not_taken_for_a_request(what: str, tmp_path: Path) -> None:
    """Neither in the row, nor on the card, from the checkpoint and from the whole journal."""
    words, script, config = OWN[what]
    with SqliteStore(tmp_path / "loops.db") as store:
        drive(store, script, config)
    with SqliteStore(tmp_path / "loops.db") as store:
        recent = read_recent(store, "loop", [("last",)])
        assert recent.before is not None
        assert any(words in text for text in recent.state.root.messages if '"tool_use"' not in text)
        card = card_of(store, key_of("loop", ("last",)), Person("ana"), 0.0)
        whole = read_loop(store, "loop")[1].calls["last",]
        row = Inbox(store).pending()[0]
        assert [row.asked, card.asked, whole.asked] == ["send it"] * 3
        assert [row.said, card.said, whole.said] == ["I send it."] * 3


@pytest.mark.parametrize(
    ("message", "asked"),
    [
        (user(f"{SUMMARY_START}\nSome things."), "send it"),
        (user([{"type": "text", "text": NOTE % "swordfish"}]), NOTE % "hidden, 9 characters"),
    ],
)
def test_a_history_that_was_given_has_messages_of_other_loops(message: Any, asked: str, tmp_path: Path) -> None:
    """A summary is not a request, and a secret value in a note is hidden."""
    made = assistant([{"type": "tool_use", "id": "f", "name": "fetch", "input": SECRET}])
    answered = user([{"type": "tool_result", "tool_use_id": "f", "content": "a file"}])
    with SqliteStore(tmp_path / "loops.db") as store:
        drive(store, [], {}, user("send it"), made, answered, assistant("So."), message)
        card = card_of(store, key_of("loop", ("last",)), Person("ana"), 0.0)
        assert [Inbox(store).pending()[0].asked, card.asked] == [asked, asked]
