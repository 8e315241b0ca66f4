"""The demo, as a person at a terminal and as a script meet it."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import httpx2
import pytest

from tests.docs.examples.programs import follow, press
from tests.docs.examples.terminal import Terminal
from tests.kit.warm_python import run
from toolloop.testing import FakeMessagesAPI, reply

DEMO = str(Path(__file__).resolve().parents[3] / "docs" / "examples" / "demo.py")
MENU = "[a]pprove  [d]eny  [e]dit  a[n]swer  [s]top >"
ENV = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "COLUMNS", "ANTHROPIC_API_KEY"}}
ENV |= {"TERM": "xterm", "PYTHONWARNINGS": "error"}


def at_terminal(*arguments: str, **env: str) -> Terminal:
    return Terminal([DEMO, *arguments], ENV | env)


def piped(*arguments: str, keys: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    return run([DEMO, *arguments], keys, env=ENV | env)


def scratch_folder(screen: str) -> Path:
    found = re.search(r"folder\s+(\S+)", screen)
    assert found
    return Path(found[1])


def test_a_demo_that_is_asked_to_end_takes_its_page_along() -> None:
    """And its scratch folder: nothing is left of it."""
    with at_terminal("--web") as terminal:
        terminal.expect("/?token=")
        terminal.expect("waits")
        page = re.search(r"http://127\.0\.0\.1:\d+/", terminal.screen)
        assert page
        folder = scratch_folder(terminal.screen)
        terminal.terminate()
        assert terminal.finish() == 143
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(page[0], trust_env=False)
    assert not folder.exists()


@pytest.mark.deep
def test_what_a_person_mistypes_is_said_and_asked_again() -> None:
    """No key, a wrong key, no JSON, no object, a field that does not fit: each leaves the call waiting."""
    with at_terminal() as terminal:
        for keys, said in [
            ("\n", "Press one of the keys."),
            ("x\n", "'x' is none of the keys."),
            ('e\n{"path": \n', "That is not JSON: "),
            ("e\n[1]\n", "no object"),
            ('e\n{"path": 5}\n', "Input should be a valid string"),
            ('e\n{"pfad": "x"}\n', "pfad"),
        ]:
            terminal.expect(MENU)
            terminal.type(keys)
            terminal.expect(said)
        terminal.expect(MENU)
        terminal.type("s\n")
        assert terminal.finish() == 0
    assert "✓ write_file" not in terminal.screen


def test_an_edit_and_a_denial_are_done_and_reported_truthfully() -> None:
    """The edited input runs; the denied call does not; the model's later words and the folder agree."""
    with at_terminal() as terminal:
        terminal.expect("I read both files at once.")
        terminal.expect("✓ read_file README.md → # Lamplight (+4 lines)")
        terminal.expect("✓ read_file old-notes.txt → Lamplight: ")
        terminal.expect("write_file waits for your decision")
        terminal.expect("path  README.md")
        terminal.expect("text  # Lamplight")
        terminal.expect("A lamp that knows when it is dark.")
        terminal.expect(MENU)
        terminal.type("e\n")
        terminal.expect("Fields to change")
        terminal.type('{"path": "NEW.md"}\n')
        terminal.expect("✓ write_file NEW.md → wrote 81 characters to NEW.md, as you edited it")
        terminal.expect("write_file ran on NEW.md, with your input instead of mine.")
        terminal.expect("delete_file waits for your decision")
        terminal.expect(MENU)
        terminal.type("deny\n")
        terminal.expect("Why not?")
        terminal.type("keep it\n")
        terminal.expect("✗ delete_file old-notes.txt → denied: keep it")
        terminal.expect("- write_file ran on NEW.md")
        terminal.expect("- old-notes.txt is as it was, because you denied delete_file: “keep it”.")
        terminal.expect("Now in the folder: NEW.md, README.md, old-notes.txt")
        assert terminal.finish() == 0
    assert not scratch_folder(terminal.screen).exists()


def test_ctrl_c_says_goodbye_and_leaves_the_terminal_as_it_was() -> None:
    """Exit 130, no traceback, no scratch folder left."""
    with at_terminal() as terminal:
        terminal.expect(MENU)
        terminal.interrupt()
        terminal.expect("Interrupted.")
        assert terminal.finish() == 130
        assert terminal.settings() == terminal.settings_before
    assert "Traceback" not in terminal.screen
    assert not scratch_folder(terminal.screen).exists()


def test_with_yes_it_runs_through_by_itself() -> None:
    """Piped, it asks nothing and prints no colours; a letter outside the encoding does not raise."""
    done = piped("--yes", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "- README.md is corrected.\n     - old-notes.txt is deleted." in done.stdout
    assert "\x1b[" not in done.stdout
    assert done.stdout.isascii()


def test_piped_it_approves_nothing_by_itself() -> None:
    """No tool that needs approval runs, and the loop stops when the input ends."""
    done = piped(keys="\nyes\nno key of the menu\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Stopped: the input ended, and nothing is approved without --yes." in done.stdout
    assert "✓ write_file" not in done.stdout
    assert "Now in the folder: README.md, old-notes.txt" in done.stdout


def test_keys_may_come_through_a_pipe() -> None:
    """Each one decides one call."""
    done = piped(keys="a\nd\nkeep it\n")
    assert "✓ write_file README.md" in done.stdout
    assert "✗ delete_file old-notes.txt → denied: keep it" in done.stdout


@pytest.mark.deep
def test_live_talks_to_the_api_that_the_client_is_set_to() -> None:
    """What a model sends cannot touch the terminal or the world outside of the folder."""
    calls = [("write_file", {"path": "../x", "text": "hid\x1b[2Jden\u202e"}), ("list_files", {})]
    with FakeMessagesAPI([reply(calls=calls), reply("Good\x07bye.")]) as api:
        done = piped("--yes", "--live", ANTHROPIC_API_KEY="test-key", ANTHROPIC_BASE_URL=api.url, NO_PROXY="127.0.0.1")
        assert [request.status for request in api.requests] == [200, 200]
    assert (done.returncode, done.stderr) == (0, "")
    assert r"text  hid\x1b[2Jden\u202e" in done.stdout
    assert "✗ write_file ../x → ../x is outside the folder" in done.stdout
    assert '✓ list_files → ["README.md","old-notes.txt"]' in done.stdout
    assert r"Good\x07bye." in done.stdout


def test_the_calls_are_decided_in_a_browser() -> None:
    """One is approved, with the diff of what it changes; one is denied; the program goes on by itself."""
    with at_terminal("--web") as terminal, httpx2.Client(trust_env=False, follow_redirects=True) as browser:
        terminal.expect("approve ")
        terminal.expect("write_file waits in the browser")
        link = re.findall(r"http://\S+", terminal.screen)[0]
        queue = follow(browser, browser.get(link), r'href="([^"]*)">Continue')
        assert "+A lamp that knows when it is dark." in queue.text
        press(browser, queue, "approve")
        terminal.expect("README.md is corrected.")
        terminal.expect("delete_file waits in the browser")
        opened = follow(browser, browser.get(queue.url), r'href="([^"]*do=deny[^"]*)"')
        press(browser, opened, "deny", reason="keep it")
        terminal.expect("because you denied delete_file: “keep it”.")
        terminal.expect("Now in the folder: README.md, old-notes.txt")
        assert terminal.finish() == 0
    assert not scratch_folder(terminal.screen).exists()
