"""The assistant, as a person at a terminal meets it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.docs.examples.programs import EXAMPLES, at_terminal
from tests.docs.examples.terminal import Terminal
from toolloop.testing import FakeMessagesAPI, call, fault, reply

KEYS = "[y]es  [n]o  [e]dit  [a]lways > "


@contextmanager
def assistant(api: FakeMessagesAPI, folder: Path, **more: str) -> Iterator[Terminal]:
    """Run it in a folder, to its end."""
    with at_terminal("assistant.py", api, folder=folder, **more) as terminal:
        yield terminal
        assert terminal.finish() == 0
        assert "Traceback" not in terminal.screen


def says(terminal: Terminal, question: str, answer: str) -> None:
    """Wait for a question, and answer it."""
    terminal.expect(question)
    terminal.type(f"{answer}\n")


def shell(command: str) -> Any:
    return reply(calls=[call("shell", {"command": command})])


def test_the_assistant_has_at_most_130_lines() -> None:
    """All lines count: it is there to be copied."""
    assert len((EXAMPLES / "assistant.py").read_text("utf-8").splitlines()) <= 130


def test_a_person_approves_edits_denies_allows_and_pays(tmp_path: Path) -> None:
    """Reading needs no approval. A grant covers a plain command, but not one that a shell would take apart."""
    (tmp_path / "notes.txt").write_text("buy milk", "utf-8")
    (tmp_path / "old").mkdir()
    script = [
        reply("I look.", calls=[call("ls", {}), call("read", {"path": "notes.txt"}), call("read", {"path": "/"})]),
        reply(calls=[call("write", {"path": "new.txt", "text": "eggs"})]),
        shell("echo one\x1b[2J"),
        shell("echo two"),
        shell("echo three; touch bad"),
        reply("All done.", usage={"input_tokens": 9000, "output_tokens": 9}),
        reply("Gladly."),
    ]
    with FakeMessagesAPI(script) as api, assistant(api, tmp_path, ASSISTANT_TOKENS="9000") as terminal:
        says(terminal, "you> ", "What is here?")
        terminal.expect("I look.")
        terminal.expect("write waits for you (approval).\n  path: new.txt\n  text: eggs\n")
        seen = str(api.requests[1].json["messages"][-1]["content"])
        assert all(each in seen for each in ("old/", "buy milk", "/ is outside the folder"))
        says(terminal, KEYS, "?")
        terminal.expect("Press one of these keys")
        says(terminal, KEYS, "e")
        says(terminal, "path, or Enter to keep it: ", "")
        says(terminal, "text, or Enter to keep it: ", "eggs and milk")
        terminal.expect("wrote 13 characters")
        terminal.expect("command: echo one\\x1b[2J")
        says(terminal, KEYS, "a")
        says(terminal, "Which command", "echo *")
        terminal.expect("[shell: returned] exit code 0\ntwo")
        assert KEYS not in terminal.screen.rpartition("Which command")[2].partition("three")[0]
        terminal.expect("command: echo three; touch bad")
        says(terminal, KEYS, "n")
        says(terminal, "Why not? ", "not that")
        terminal.expect("All done.")
        assert "Reason: not that" in str(api.requests[-1].json["messages"][-1]["content"])
        says(terminal, "you> ", "Thanks.")
        terminal.expect("The budget is used up: ")
        says(terminal, "Go on? [y/n] > ", "y")
        terminal.expect("Gladly.")
        says(terminal, "you> ", "")
    assert (tmp_path / "new.txt").read_text("utf-8") == "eggs and milk"
    assert not (tmp_path / "bad").exists()


def test_a_killed_assistant_asks_again(tmp_path: Path) -> None:
    """The question that was open is open again, and nothing is sent twice."""
    with FakeMessagesAPI([shell("echo hello"), reply("It ran.")]) as api:
        with at_terminal("assistant.py", api, folder=tmp_path) as terminal:
            says(terminal, "you> ", "Run it.")
            terminal.expect(KEYS)
            terminal.kill()
        with assistant(api, tmp_path) as terminal:
            terminal.expect("command: echo hello")
            says(terminal, KEYS, "y")
            terminal.expect("It ran.")
            says(terminal, "you> ", "")
        assert len(api.requests) == 2


@pytest.mark.deep
def test_a_command_that_was_killed_runs_again_only_if_a_person_says_so(tmp_path: Path) -> None:
    """No process saw its end."""
    with FakeMessagesAPI([shell("[ -e again ] || sleep 9"), reply("It ran.")]) as api:
        with at_terminal("assistant.py", api, folder=tmp_path) as terminal:
            says(terminal, "you> ", "Run it.")
            says(terminal, KEYS, "y")
            terminal.expect("[shell runs]")
            terminal.kill()
        (tmp_path / "again").touch()
        with assistant(api, tmp_path) as terminal:
            terminal.expect("shell waits for you (uncertain).")
            says(terminal, "[r]un again  [n]o > ", "r")
            terminal.expect("It ran.")
            says(terminal, "you> ", "")


@pytest.mark.deep
def test_a_failed_request_is_tried_again(tmp_path: Path) -> None:
    """As often as the person says."""
    with FakeMessagesAPI([fault(400), reply("Hello.")]) as api, assistant(api, tmp_path) as terminal:
        says(terminal, "you> ", "Hello?")
        terminal.expect("The request failed: ")
        says(terminal, "Try again? [y/n] > ", "y")
        terminal.expect("Hello.")
        says(terminal, "you> ", "")


@pytest.mark.deep
def test_old_results_are_compacted(tmp_path: Path) -> None:
    """The model keeps its calls. Old results are left out, and the person gets a notice."""
    (tmp_path / "long.txt").write_text("word " * 12_000, "utf-8")
    script = [*(reply(calls=[call("read", {"path": "./" * n + "long.txt"})]) for n in range(5)), reply("Read.")]
    with FakeMessagesAPI(script) as api, assistant(api, tmp_path) as terminal:
        says(terminal, "you> ", "Read it.")
        terminal.expect("[the history was compacted from ")
        terminal.expect("Read.")
        says(terminal, "you> ", "")
