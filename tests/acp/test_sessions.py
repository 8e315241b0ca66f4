"""Which sessions an editor finds, and what it may send. The client is the protocol's own, of npm."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from tests.acp.conftest import Desk
from tests.acp.editor import FOLDER, Refused
from toolloop import Inbox, MemoryStore, ToolLoopHandle

PNG = "iVBORw0KGgo="
TEXT = [{"type": "text", "text": "hello"}]


def test_load_shows_the_conversation_and_asks_again(desk: Desk) -> None:
    """The editor was closed at a question. The calls have the ids that they had."""
    first = desk.open()
    session = first.new()
    answer = first.prompt(session, "look b.txt")
    answer.result(30)
    first.prompt(session, "send bo")
    first.card()
    first.close()
    second = desk.open()
    assert second.load(session) == {}
    assert second.kinds()[0] == "user_message_chunk"
    ids = [each.get("messageId") for each in first.updates if each["sessionUpdate"] == "agent_message_chunk"]
    assert None not in ids
    assert {*ids} <= {each.get("messageId") for each in second.updates}
    second.card().choose("once")
    second.wait_until(lambda: second.said.count("All done.") == 2)
    assert [*second.calls()] == [*first.calls()] == ["c1_0", "c5_0"]
    assert [statuses[-1] for statuses in second.statuses()] == ["completed", "completed"]
    assert desk.ran == ["look b.txt", "send bo"]


def test_resume_asks_again_and_shows_nothing_of_before(desk: Desk) -> None:
    first = desk.open()
    session = first.new()
    first.prompt(session, "send bo")
    first.card()
    first.close()
    second = desk.open()
    second.ask("session/resume", sessionId=session, cwd=FOLDER)
    second.card().choose("once")
    second.wait_for_text("All done.")
    assert "user_message_chunk" not in second.kinds()
    assert desk.ran == ["send bo"]


def test_a_prompt_of_an_ended_session_begins_another_turn(desk: Desk) -> None:
    first = desk.open()
    session = first.new()
    first.turn(session, "hello")
    first.close()
    second = desk.open()
    second.load(session)
    assert second.turn(session, "hello again") == "end_turn"
    assert second.said == "Done: helloDone: hello again"


def test_only_own_sessions_are_found(desk: Desk) -> None:
    """Neither those of another person, nor other loops. An answer does not tell which ids exist."""
    first = desk.open()
    session = first.new()
    loops = desk.loops(desk.sessions[0])
    with desk.api.client() as client, ToolLoopHandle.open(loops.store, "other", client, params=loops.params):
        pass
    desk.given["person"] = "eve"
    second = desk.open()
    assert second.ask("session/list") == {"sessions": []}
    for foreign in (session, "other", "none"):
        with pytest.raises(Refused) as refused:
            second.load(foreign)
        assert refused.value.code == -32002
        assert str(refused.value).replace(repr(foreign), "'none'") == "-32002: " + _missing("none")
    with pytest.raises(Refused, match="is not open"):
        second.turn(session, "hello")


def _missing(loop_id: str) -> str:
    with pytest.raises(Exception, match=loop_id) as missing:
        Inbox(MemoryStore()).show(loop_id)
    return str(missing.value)


def test_a_list_is_of_one_folder_or_of_all_and_has_pages(desk: Desk) -> None:
    editor = desk.open()
    here = [editor.new() for _ in range(51)]
    there = editor.new("/elsewhere")
    first = editor.ask("session/list", cwd=FOLDER)
    rest = editor.ask("session/list", cwd=FOLDER, cursor=first["nextCursor"])
    found = [*first["sessions"], *rest["sessions"]]
    assert [each["sessionId"] for each in found] == here[::-1]
    assert {each["cwd"] for each in found} == {FOLDER}
    assert "nextCursor" not in rest
    assert editor.turn(there, "hello  world") == "end_turn"
    last = editor.ask("session/list")["sessions"][0]
    assert (last["sessionId"], last["title"], found[0]["title"]) == (there, "hello world", "New session")
    with pytest.raises(Refused, match="cursor"):
        editor.ask("session/list", cursor="forged")


def test_a_session_stays_in_its_folder(desk: Desk) -> None:
    """A waiting call would mean another file there."""
    editor = desk.open()
    session = editor.new()
    editor.close()
    with pytest.raises(Refused, match=f"belongs to the folder {FOLDER}"):
        desk.open().load(session, "/elsewhere")


def test_a_session_that_lost_its_folder_is_one_of_the_root(desk: Desk) -> None:
    """It was removed from the metadata. The list says where it can be loaded."""
    editor = desk.open()
    session = editor.new()
    assert editor.turn(session, "hello") == "end_turn"
    editor.close()
    desk.inbox.set_metadata(session, **{"acp.cwd": None})
    second = desk.open()
    (listed,) = second.ask("session/list")["sessions"]
    assert (listed["sessionId"], listed["cwd"]) == (session, "/")
    with pytest.raises(Refused, match=r"belongs to the folder /$"):
        second.load(session)
    assert second.load(session, listed["cwd"]) == {}
    assert second.said == "Done: hello"


def test_a_load_during_a_turn_shows_the_session_once_it_rests(desk: Desk) -> None:
    """Each reply is shown once, and each call as it ended."""
    editor = desk.open()
    session = editor.new()
    answer = editor.prompt(session, "hang, look b.txt")
    editor.wait_until(lambda: "it hangs" in str(editor.updates))
    editor.updates.clear()
    loaded = editor.begin("session/load", sessionId=session, cwd=FOLDER, mcpServers=[])
    for _ in range(5):
        editor.ask("session/list")
    assert not loaded.done()
    editor.cancel(session)
    assert answer.result(30) == {"stopReason": "cancelled"}
    assert loaded.result(30) == {}
    replayed = [each for each in editor.updates if each["sessionUpdate"] == "user_message_chunk"]
    assert [each["content"]["text"] for each in replayed] == ["hang, look b.txt"]
    assert editor.said == "I do it."
    assert {name: statuses[-1] for name, statuses in editor.calls().items()} == {"c1_0": "failed", "c1_1": "completed"}


def test_a_load_at_a_question_asks_again(desk: Desk) -> None:
    """The turn before ends. Its card decides nothing any more."""
    editor = desk.open()
    session = editor.new()
    answer = editor.prompt(session, "send bo")
    card = editor.card()
    assert editor.load(session) == {}
    assert answer.result(30) == {"stopReason": "end_turn"}
    again = editor.card()
    card.choose("reject")
    editor.wait_for_text("Your answer came later, and changes nothing.")
    again.choose("once")
    editor.wait_for_text("All done.")
    assert desk.ran == ["send bo"]


# --- what an editor sends ---


def test_what_a_prompt_may_hold_reaches_the_model(desk: Desk) -> None:
    """Nothing is fetched: a link is text."""
    editor = desk.open()
    session = editor.new()
    prompt = [
        {"type": "text", "text": "hello"},
        {"type": "resource_link", "name": "b.txt", "uri": "file:///b.txt"},
        {"type": "resource", "resource": {"uri": 'file:///"c".txt', "text": "in c"}},
        {"type": "image", "mimeType": "image/png", "data": PNG},
    ]
    assert editor.ask("session/prompt", sessionId=session, prompt=prompt) == {"stopReason": "end_turn"}
    assert desk.api.requests[-1].json["messages"][0]["content"] == [
        {"type": "text", "text": "hello"},
        {"type": "text", "text": "[b.txt](file:///b.txt)"},
        {"type": "text", "text": '<file uri="file:///&quot;c&quot;.txt">\nin c\n</file>'},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
    ]
    editor.load(session)
    assert "[image]" in str(editor.updates)


@pytest.mark.parametrize(
    "block",
    [
        {"type": "audio", "mimeType": "audio/wav", "data": "aGVsbG8="},
        {"type": "image", "mimeType": "image/tiff", "data": "aGVsbG8="},
        {"type": "image", "mimeType": "image/png", "data": "no base64!"},
        {"type": "resource", "resource": {"uri": "file:///c", "blob": "aGVsbG8="}},
        {"type": "smell"},
        None,
    ],
    ids=str,
)
def test_what_a_prompt_may_not_hold_is_refused(desk: Desk, block: Any) -> None:
    """Nothing of it is said, and the session goes on."""
    editor = desk.open()
    session = editor.new()
    with pytest.raises(Refused):
        editor.ask("session/prompt", sessionId=session, prompt=[*TEXT, block] if block else [])
    assert editor.turn(session, "hello") == "end_turn"
    assert len(desk.inbox.show(session)["messages"]) == 2


def test_servers_folders_and_meta_open_nothing(desk: Desk) -> None:
    """`_meta` replaces no parameter."""
    server = {"name": "x", "command": "/bin/false", "args": [], "env": []}
    meta = {"cwd": "/elsewhere", "session_id": "other"}
    editor = desk.open()
    made = editor.ask("session/new", cwd=FOLDER, mcpServers=[server], additionalDirectories=["/etc"], _meta=meta)
    assert desk.sessions[-1].folder == FOLDER
    session = made["sessionId"]
    answer = editor.ask("session/prompt", sessionId=session, prompt=TEXT, _meta={"session_id": "other"})
    assert answer == {"stopReason": "end_turn"}


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("session/new", {"cwd": "relative", "mcpServers": []}, -32602),
        ("session/new", {"mcpServers": []}, -32602),
        ("session/prompt", {"sessionId": 5, "prompt": []}, -32602),
        ("session/load", {"sessionId": "", "cwd": FOLDER, "mcpServers": []}, -32603),
        ("session/set_mode", {"sessionId": "x", "modeId": "y"}, -32601),
        ("authenticate", {"methodId": "x"}, -32601),
        ("fs/read_text_file", {"path": "/etc/passwd"}, -32601),
    ],
)
def test_a_bad_request_is_refused(desk: Desk, method: str, params: Any, code: int) -> None:
    with pytest.raises(Refused) as refused:
        desk.open().ask(method, **params)
    assert refused.value.code == code


def test_lines_that_are_not_messages_are_answered_and_skipped(desk: Desk) -> None:
    """A line that is too long is not kept."""
    with socket.socket(socket.AF_UNIX) as end, end.makefile("rwb") as wire:
        end.connect(str(desk.path))
        end.settimeout(30)

        def send(line: bytes) -> Any:
            wire.write(line + b"\n")
            wire.flush()
            return json.loads(wire.readline())

        for line in (b"what?", b"[" * 100_000, b" " * 5 + b"x" * (32 << 20)):
            assert send(line)["error"]["code"] == -32700
        for line in (b"[]", b"5", b'{"id": {}, "result": 1}', b'{"id": [1], "method": "x"}'):
            assert send(line)["error"]["code"] == -32600
        assert send(b'{"jsonrpc": "2.0", "id": 1, "method": [1]}')["error"]["code"] == -32600
        known = b'{"jsonrpc": "2.0", "id": "a", "method": "initialize", "params": {"protocolVersion": 7}}'
        assert send(known)["result"]["protocolVersion"] == 1
        assert send(b'{"jsonrpc": "2.0", "id": 2, "method": "session/prompt"}')["error"]["code"] == -32602


def test_a_factory_that_fails_is_an_error(desk: Desk) -> None:
    desk.given["tools"] = [5]
    with pytest.raises(Refused, match="tool") as refused:
        desk.open().new()
    assert refused.value.code == -32603
