"""The assistant in an editor: the protocol's own client, of the SDK of Python, opens a folder."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.acp.agents import Agents
from tests.acp.editor import python_editor
from tests.docs.examples.programs import environment, imported
from toolloop.testing import FakeMessagesAPI, call, reply


def test_it_edits_files_of_its_folder_after_a_yes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads by itself, and not outside. A grant covers the pages of the docs."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("teh lamp")
    (tmp_path / "b.txt").write_text("one")
    script = [
        reply(calls=[call("ls", {}), call("read", {"path": "b.txt"}), call("read", {"path": "/etc/passwd"})]),
        reply(calls=[call("edit", {"path": "docs/a.md", "old": "teh", "new": "the"})]),
        reply(calls=[call("edit", {"path": "docs/a.md", "old": "lamp", "new": "light"})]),
        reply(calls=[call("shell", {"command": "echo two >> b.txt; cat b.txt"})]),
        reply("All done."),
    ]
    with FakeMessagesAPI(script) as api, tempfile.TemporaryDirectory() as sockets:
        for name, value in {**environment(api), "HOME": str(tmp_path)}.items():
            monkeypatch.setenv(name, value)
        agents = Agents(Path(sockets, "acp"), imported("editor_agent").assistant)
        with agents.listening() as path, python_editor(path) as editor:
            editor.initialize()
            answer = editor.prompt(editor.new(str(tmp_path)), "Correct the docs")
            card = editor.card()
            assert (card.call["kind"], card.call["title"]) == ("edit", "edit: docs/a.md · teh · the")
            card.choose("wider")
            card = editor.card()
            assert (card.call["kind"], card.call["title"]) == ("execute", "shell: echo two >> b.txt; cat b.txt")
            card.choose("once")
            assert answer.result(30) == {"stopReason": "end_turn"}
    assert (tmp_path / "docs" / "a.md").read_text() == "the light"
    assert (tmp_path / "b.txt").read_text() == "onetwo\n"
    seen = str(api.requests[1].json["messages"][-1]["content"])
    assert "docs/" in seen
    assert "is outside the folder" in seen
