"""The command: what it prints for people and for programs, its exit codes, a terminal and a pipe, completion."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings, strategies as st

from tests.examples.terminal import Terminal
from tests.inbox.support import Desk, desk
from tests.postgres import database, needs_postgres
from toolloop import Approve, Ask, SqliteStore, __version__
from toolloop._cli.commands import toolloop as group
from toolloop._cli.run import run
from toolloop.inbox.transcript import visible
from toolloop.stores import PostgresStore
from toolloop.testing import call, reply

EVIL = "\x1b[2J[red]x[/red] :smile: \u202e<b>\x07"
WAITING = [
    {
        "path": [call_id],
        "name": "pay",
        "input": given,
        "truncated": False,
        "why": "approval",
        "reason": None,
        "takes": ["approve", "deny", "answer"],
        "expires_at": None,
        "preview": None,
    }
    for call_id, given in (("c1", {"to": "ana", "euros": 5}), ("c2", {"to": "bo", "euros": 7}))
]
NOW = "2027-01-15T08:00:00+00:00"


@pytest.fixture
def filled(tmp_path: Path) -> Desk:
    """A file with a loop in which two calls wait."""
    found = desk("sqlite", tmp_path)
    found.drive(metadata={"owner": "ana"})
    return found


@pytest.fixture
def toolloop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs the command on the file: exit code, output, errors."""

    def command(name: str, *rest: str, store: str = str(tmp_path / "loops.db")) -> tuple[int, str, str]:
        code = run([name, store, *rest])
        said = capsys.readouterr()
        return code, said.out, said.err

    return command


Command = Callable[..., tuple[int, str, str]]


def without_digests(value: Any) -> Any:
    if isinstance(value, list):
        return [without_digests(each) for each in value]
    return (
        {key: without_digests(each) for key, each in value.items() if key != "digest"}
        if isinstance(value, dict)
        else value
    )


def test_the_version_needs_no_extra() -> None:
    """`python -m toolloop --version` works without click; with it, the option says the same."""
    program = (
        "import sys; sys.modules['click'] = None; sys.argv[1:] = ['--version']; from toolloop._cli import main; main()"
    )
    bare = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert bare == f"toolloop, version {__version__}\n"
    assert CliRunner().invoke(group, ["--version"]).output == bare


def test_the_json_of_list_is_stable(filled: Desk, toolloop: Command) -> None:
    """A program that reads it today reads it tomorrow: this is the whole of it."""
    code, out, _ = toolloop("list", "--json")
    assert code == 0
    assert without_digests(json.loads(out)) == [
        {
            "loop_id": "loop",
            "status": "needs_decision",
            "created": NOW,
            "changed": NOW,
            "deadline": None,
            "retry_at": None,
            "metadata": {"owner": "ana"},
            "pending": WAITING,
        }
    ]
    assert [len(each["digest"]) for each in json.loads(out)[0]["pending"]] == [64, 64]


def test_the_json_of_show_and_trail_is_that_of_the_inbox(filled: Desk, toolloop: Command) -> None:
    """As `Inbox.show` returns it, and an entry field by field."""
    assert json.loads(toolloop("show", "loop", "--json")[1]) == filled.inbox.show("loop")
    filled.inbox.decide("loop", {"c1": Approve({"to": "ana", "euros": 6}, by="bo", reason="more")})
    assert json.loads(toolloop("trail", "loop", "--json")[1]) == [
        {
            "kind": "approve",
            "at": NOW,
            "by": "bo",
            "reason": "more",
            "path": ["c1"],
            "name": "pay",
            "input": {"to": "ana", "euros": 5},
            "content": {"to": "ana", "euros": 6},
            "by_policy": False,
            "via": "inbox",
            "groups": [],
            "digest": None,
            "rule": None,
            "rule_digest": None,
            "missing": 0,
            "outcome": None,
        }
    ]


def test_decisions_are_made_from_a_terminal(filled: Desk, toolloop: Command) -> None:
    """Approve with an edit, deny with a reason; then the loop goes on, and the trail says who it was."""
    code, out, _ = toolloop("approve", "loop", "c1", "--input", '{"to": "ana", "euros": 6}', "--by", "bo")
    assert (code, out) == (0, "Done. The loop is now: needs_decision\n")
    code, out, _ = toolloop("deny", "loop", "c2", "--reason", "too much", "--by", "bo", "--json")
    found = json.loads(out)
    standing = found.pop("standing")
    assert (code, found) == (0, {"loop_id": "loop", "status": "runnable"})
    assert (standing["kind"], standing["by"], standing["is_yours"], standing["missing"]) == ("deny", "bo", True, 0)
    filled.drive()
    assert filled.ran == ["ana 6"]
    table = toolloop("trail", "loop")[1]
    assert table.index("approve") < table.index("deny") < table.index("too much")
    assert {entry.via for entry in filled.inbox.trail("loop")} == {"command"}


def test_the_command_says_what_stands(toolloop: Command, filled: Desk) -> None:
    """That one more approval is needed, and that another person was faster."""
    filled.config["on_tool_call"] = lambda _call, _view: Ask(need=2)
    filled.drive("two")
    digest = filled.inbox.pending(limit=99)[-1].digest
    for by, told in (("bo", "Done; 1 more approval is needed."), ("cy", "Done."), ("dee", "Nothing changed: cy has")):
        code, out, error = toolloop("approve", "two", "c2", "--digest", digest, "--by", by)
        assert (code, out[: len(told)]) == (0, told), error


def test_an_answer_and_words_are_taken_and_a_loop_is_stopped(filled: Desk, toolloop: Command) -> None:
    """Each changes what waits."""
    assert toolloop("answer", "loop", "c1", "paid by hand", "--error")[0] == 0
    assert toolloop("say", "loop", "Hurry")[1] == "Done. The loop is now: needs_decision\n"  # it is kept
    assert "kept for the next request, by" in toolloop("show", "loop")[1]
    assert toolloop("answer", "loop", "c2", "likewise")[0] == 0
    assert toolloop("say", "loop", "Hurry", "--by", "bo")[1] == "Done. The loop is now: runnable\n"
    assert toolloop("stop", "loop", "--reason", "enough")[1] == "Done. The loop is now: ended\n"
    assert [each.kind for each in filled.inbox.trail("loop")] == ["answer", "say", "answer", "say", "stop"]


@pytest.mark.parametrize(
    ("code", "arguments", "said"),
    [
        (2, ("approve", "loop", "c1", "--input", "[1]"), "expected a JSON object"),
        (2, ("approve", "loop", "c1", "--input", '{"to": 5}'), "does not fit the schema of pay"),
        (2, ("approve", "loop", "c1", "--input", '{"to": "ana", "euros": NaN}'), "NaN is not JSON"),
        (2, ("approve", "loop", "c1", "--input", r'{"to": "\ud800"}'), "lone surrogate"),
        (2, ("approve", "loop", "c1", "--input", "[" * 9999), "not JSON"),
        (2, ("deny", "loop", "c1"), "--reason"),
        (2, ("list", "--metadata", "owner"), "has no '='"),
        (3, ("show", "other"), "'other'"),
        (3, ("approve", "loop", "c9"), "'c9'"),
        (4, ("approve", "loop", "c1", "--digest", "0" * 64), "c1"),
        (4, ("rerun", "loop", "c1"), "rerun"),
        (4, ("retry", "loop"), "retry"),
    ],
)
def test_a_refusal_has_its_exit_code(
    filled: Desk, toolloop: Command, code: int, arguments: tuple[str, ...], said: str
) -> None:
    """2 wrong usage, 3 not found, 4 not allowed as things are; nothing is stored."""
    before = filled.events()
    found, out, err = toolloop(*arguments)
    assert (found, out) == (code, "")
    assert said in err
    assert filled.events() == before


def test_a_second_person_is_told_who_decided(filled: Desk, toolloop: Command) -> None:
    """With exit code 4."""
    toolloop("approve", "loop", "c1", "--by", "ana")
    code, _, err = toolloop("deny", "loop", "c1", "--reason", "no", "--by", "bo")
    assert code == 4
    assert "by ana" in err


def test_a_store_is_never_created(tmp_path: Path, toolloop: Command) -> None:
    """A path that is not there is an error, and stays away; the scheme of SQLite is known, others are not."""
    for store in (str(tmp_path / "none.db"), f"sqlite:///{tmp_path}/none.db"):
        assert toolloop("list", store=store)[0] == 3
    assert toolloop("list", store="mysql://host/db")[0] == 2
    assert list(tmp_path.iterdir()) == []
    empty = tmp_path / "empty.db"
    empty.touch()
    assert toolloop("list", store=str(empty))[0] == 3
    assert empty.stat().st_size == 0
    SqliteStore(tmp_path / "loops.db").list()
    assert toolloop("list", store=f"sqlite:///{tmp_path}/loops.db")[:2] == (0, "No loops.\n")


@needs_postgres
def test_a_database_is_a_store_once_its_tables_are_created(toolloop: Command) -> None:
    """By `migrate`, and by no other command. No output shows the password."""
    url = database()
    outputs = [toolloop("list", store=url)]
    assert (outputs[0][0], "`toolloop migrate` creates them" in outputs[0][2]) == (3, True)
    outputs.append(toolloop("list", store=url))
    assert outputs[1][0] == 3
    outputs += [toolloop("migrate", store=url), toolloop("migrate", store=url)]
    assert [(code, out.rstrip().endswith("is ready")) for code, out, _ in outputs[2:]] == [(0, True)] * 2
    Desk(store := PostgresStore(url)).drive()
    store.close()
    outputs.append(toolloop("approve", "loop", "c1", "--by", "ana", store=url))
    outputs.append(toolloop("trail", "loop", store=url))
    assert [code for code, _, _ in outputs[4:]] == [0, 0]
    assert "ana" in outputs[5][1]
    outputs.append(toolloop("list", store=url.replace("host=", "host=/nowhere")))
    outputs.append(toolloop("list", store=url.replace("postgresql:", "mysql:")))
    assert [code for code, _, _ in outputs[6:]] == [1, 2]
    assert not [each for each in outputs if "s3cret" in each[1] + each[2]]


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(codec="utf-8"), max_size=30))
def test_visible_text_moves_and_hides_nothing(text: str) -> None:
    """Whatever a model writes, what is left can be printed, and ordinary text stays as it is."""
    assert all(each.isprintable() or each in "\n\t" for each in visible(text))
    if text.isprintable():
        assert visible(text) == text


def test_markup_of_a_model_is_shown_as_it_is(tmp_path: Path, toolloop: Command) -> None:
    """Control characters are escaped, markup means nothing, in the conversation and in inputs, ids and metadata."""
    script = (reply(EVIL, calls=[call("pay", {"to": EVIL, "euros": 5}, id="c1")]), reply("Done"))
    desk("sqlite", tmp_path, script=script).drive(EVIL, metadata={"owner": EVIL})
    for arguments in (("list",), ("show", EVIL), ("trail", EVIL)):
        code, out, _ = toolloop(*arguments)
        assert code == 0
        assert out.replace("\n", "").isprintable()
    assert toolloop("answer", EVIL, "c1", EVIL)[0] == 0
    assert ":smile:" in toolloop("trail", EVIL)[1]
    shown = toolloop("show", EVIL)[1]
    assert shown.count(r"\x1b[2J[red]x[/red] :smile: \u202e<b>\x07") >= 3


def test_a_terminal_has_colours_and_a_pipe_has_none(filled: Desk, tmp_path: Path) -> None:
    """`python -m toolloop` is the command, and 80 columns suffice."""
    env = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "COLUMNS"}}
    env |= {"TERM": "xterm", "PYTHONWARNINGS": "error"}
    arguments = ["-m", "toolloop", "show", str(tmp_path / "loops.db"), "loop"]
    with Terminal(arguments, env) as terminal:
        assert terminal.finish() == 0
        assert "\x1b[" in terminal.raw
        assert "pay (c1) waits: approve, deny, answer" in terminal.screen
        assert max(map(len, terminal.screen.splitlines())) <= 80
    env |= {"PYTHONIOENCODING": "ascii"}  # what it cannot encode is escaped
    piped = subprocess.run([sys.executable, *arguments], capture_output=True, encoding="ascii", env=env, check=True)
    assert "\x1b[" not in piped.stdout
    assert "Pay the bills" in piped.stdout


def test_a_terminal_shows_the_progress_of_a_loop_that_is_driven(filled: Desk, tmp_path: Path) -> None:
    """Until it needs somebody, or has ended; then the conversation is printed."""
    filled.inbox.decide("loop", {"c1": Approve(by="ana"), "c2": Approve(by="ana")})
    arguments = ["-m", "toolloop", "show", str(tmp_path / "loops.db"), "loop", "--wait"]
    with Terminal(arguments, {**os.environ, "TERM": "xterm"}) as terminal:
        terminal.expect("runnable · 1 requests")
        filled.drive()
        assert terminal.finish() == 0
        assert "Both are paid." in terminal.screen


def test_history_is_a_deprecated_name_of_trail(filled: Desk, toolloop: Command) -> None:
    """It prints the same, with a warning beside it."""
    filled.inbox.stop("loop", by="ana")
    old, new = toolloop("history", "loop", "--json"), toolloop("trail", "loop", "--json")
    assert old[:2] == new[:2]
    assert "`trail`" in old[2]
    assert new[2] == ""


def test_a_shell_completes_loops_and_calls(filled: Desk, tmp_path: Path) -> None:
    """As click's completion asks for them; without a store there is nothing, and no error."""

    def completed(*words: str, begun: str) -> list[str]:
        found = ShellComplete(group, {}, "toolloop", "_TOOLLOOP_COMPLETE").get_completions([*words], begun)
        return [each.value for each in found]

    store = str(tmp_path / "loops.db")
    assert completed("show", store, begun="lo") == ["loop"]
    assert completed("approve", store, "loop", begun="") == ["c1", "c2"]
    assert completed("show", "none.db", begun="") == []
    assert "trail" in completed(begun="t")
