"""The command: decisions and their persons, the store that it finds, its deprecated forms, and completion."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from tests.cli.support import Command, Session, digest_of, filled as fill, store_of
from tests.inbox.support import desk_of
from tests.kit.postgres import database, needs_postgres
from tests.kit.world import World
from toolloop import Approve, Worker, __version__
from toolloop._cli.commands import toolloop as group
from toolloop.stores import PostgresStore
from toolloop.testing import ScriptedProvider


def test_the_version_needs_no_extra() -> None:
    """`python -m toolloop --version` works without click; with it, the option says the same."""
    program = (
        "import sys; sys.modules['click'] = None; sys.argv[1:] = ['--version']; from toolloop._cli import main; main()"
    )
    bare = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert bare == f"toolloop, version {__version__}\n"
    assert CliRunner().invoke(group, ["--version"]).output == bare


def test_decisions_are_made_from_a_script(filled: World, toolloop: Command) -> None:
    """Approve with an edit, deny with a reason; then the loop goes on, and the trail says who it was."""
    edit = ("--input", '{"to": "ana", "euros": 6}', "--digest", digest_of(filled))
    code, out, _ = toolloop("approve", "loop", "c1", *edit, "--by", "bo")
    assert (code, out) == (
        0,
        "Approved; it starts when 1 other call of this loop is decided. The loop is now: needs_decision\n",
    )
    assert toolloop("deny", "loop", "c2", "--reason", "too much")[1].startswith("Denied; it does not run.")
    filled.drive()
    assert filled.did == [("pay", "ana", 6)]
    assert [(entry.by, entry.via) for entry in filled.inbox.trail("loop")] == [
        ("bo, said by ana", "command"),
        ("ana", "command"),
    ]


def test_an_answer_and_messages_are_taken_and_a_loop_is_stopped(filled: World, toolloop: Command) -> None:
    """Each changes what waits."""
    assert toolloop("answer", "loop", "c1", "paid by hand", "--error")[0] == 0
    assert toolloop("say", "loop", "Hurry")[1] == "Done. The loop is now: needs_decision\n"  # it is kept
    assert "kept for the next request, by ana" in toolloop("show", "loop")[1]
    assert toolloop("answer", "loop", "c2", "likewise")[0] == 0
    assert toolloop("say", "loop", "Hurry", "--by", "bo")[1] == "Done. The loop is now: runnable\n"
    assert toolloop("stop", "loop", "--reason", "enough")[1] == "Done. The loop is now: ended\n"
    assert [each.kind for each in filled.inbox.trail("loop")] == ["answer", "say", "answer", "say", "stop"]


def test_what_another_person_decided_stands(filled: World, toolloop: Command) -> None:
    """The same decision again changes nothing, and another one is refused, with the name."""
    filled.inbox.decide("loop", {"c1": Approve(by="bo")})
    code, out, _ = toolloop("approve", "loop", "c1")
    assert (code, "Bo had approved this already" in out.capitalize()) == (0, True), out
    code, _, err = toolloop("deny", "loop", "c1", "--reason", "no")
    assert (code, "by bo" in err) == (4, True)
    assert len(filled.inbox.trail("loop")) == 1


def test_in_a_terminal_the_whole_call_is_shown_before_the_question(tmp_path: Path) -> None:
    """No leaves it as it is. Yes approves the edit, and prints what the call still waits for."""
    found = fill(tmp_path)
    with Session(tmp_path, ("approve", "loop", "c1")) as person:
        person.see("This runs if you approve", "  euros  5")
        person.press("n\r", at="Approve this call? [y/N]:")
        assert person.end()[0] == 1
    assert found.inbox.trail("loop") == ()
    edit = ("--input", '{"to": "ana", "euros": 6}')
    with Session(tmp_path, ("approve", "loop", "c1", *edit)) as person:
        person.see("  euros  5", "Your changes:", "1 + 6")
        person.press("y\r", at="Approve this call? [y/N]:")
        person.see("Approved; it starts when 1 other call")
        assert person.end()[0] == 0
    assert found.inbox.trail("loop")[0].content == {"to": "ana", "euros": 6}


def test_loops_are_deleted_after_a_question_with_their_number(tmp_path: Path) -> None:
    """Those with the metadata, and no others."""
    found = fill(tmp_path)
    found.drive("second", metadata={"owner": "ana"})
    found.drive("other", metadata={"owner": "bo"})
    with Session(tmp_path, ("delete", "--metadata", "owner=ana")) as person:
        person.press("n\r", at="Delete 2 loops (2 with waiting calls), with the journals? [y/N]:")
        person.see("Nothing was deleted.")
        assert person.end()[0] == 1
    with Session(tmp_path, ("delete", "--metadata", "owner=ana")) as person:
        person.press("y\r", at="[y/N]:")
        person.see("Deleted 2 loops. No text of them is left in the file.")
        assert person.end()[0] == 0
    assert [row.loop_id for row in found.store.list()] == ["other"]


def test_a_list_says_why_no_worker_drives_a_loop(toolloop: Command, filled: World) -> None:
    """In the row, and as JSON."""
    filled.inbox.decide("loop", {"c1": Approve(by="ana"), "c2": Approve(by="ana")})
    Worker(filled.store, ScriptedProvider([]), []).run_until_idle()
    assert "no worker has the tools 'pay' since 2" in toolloop("list")[1]
    assert json.loads(toolloop("list", "--json")[1])[0]["left_to_others"]["missing"] == ["pay"]


def test_an_audit_names_the_loop_and_what_differs(toolloop: Command, filled: World, tmp_path: Path) -> None:
    """Of all loops, or of one."""
    assert toolloop("audit")[:2] == (0, "Read 1 loop. Different: 0\n")
    with closing(sqlite3.connect(store_of(tmp_path))) as shell, shell:
        shell.execute("UPDATE loops SET status = 'ended'")
    code, out, _ = toolloop("audit", "loop")
    assert (code, out.splitlines()[1:]) == (1, ["Read 1 loop. Different: 1"])
    assert out.startswith("loop: the loop is listed as ended, but by its journal it is needs_decision\n")
    assert json.loads(toolloop("audit", "--json")[1])["read"] == 1
    assert toolloop("audit", "none")[0] == 3


def test_an_audit_counts_the_statistics_of_an_earlier_version(toolloop: Command, filled: World, tmp_path: Path) -> None:
    """If it is asked to. Until then, `stats` says what it leaves out."""
    filled.inbox.decide("loop", {"c1": Approve(by="ana"), "c2": Approve(by="ana")})
    with closing(sqlite3.connect(store_of(tmp_path))) as shell, shell:
        shell.execute("UPDATE loops SET tally = NULL")
    assert "Without 1 loop that an earlier version of toolloop stored: `toolloop audit" in toolloop("stats")[2]
    assert toolloop("audit")[0] == 1
    assert toolloop("audit", "--recount")[:2] == (0, "Read 1 loop. Different: 0\n")
    assert "2 approved" in toolloop("stats")[1]


def test_ctrl_c_at_a_question_leaves_all_as_it_was(tmp_path: Path) -> None:
    """It says so in a line."""
    found = fill(tmp_path)
    with Session(tmp_path, ("delete", "loop")) as person:
        person.see("[y/N]:")
        person.terminal.interrupt()
        code, screen = person.end()
    assert code == 130
    assert "toolloop: interrupted. What was stored before stands; nothing is half done." in " ".join(screen.split())
    assert "Traceback" not in screen
    assert found.status() == "needs_decision"


def test_the_store_is_an_option_or_a_variable_and_no_longer_an_argument(
    filled: World, toolloop: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first argument STORE still works, with a line on stderr. It wins over the variable, the option over both."""
    store = store_of(tmp_path)
    new = toolloop("list", "--json")
    code, out, err = toolloop("list", store, "--json", store=None)
    assert ((code, out), "deprecated; use --store or TOOLLOOP_STORE" in err) == (new[:2], True)
    assert toolloop("approve", store, "loop", "c1", "--digest", digest_of(filled), store=None)[0] == 0
    monkeypatch.setenv("TOOLLOOP_STORE", str(tmp_path / "none.db"))
    assert toolloop("show", store, "loop", store=None)[0] == 0
    assert toolloop("show", "loop")[0] == 0
    assert toolloop("show", "loop", store=None)[0] == 3
    monkeypatch.setenv("TOOLLOOP_STORE", f"sqlite:///{store}")
    assert toolloop("trail", "loop", store=None)[0] == 0


def test_a_restore_is_reported(filled: World, toolloop: Command) -> None:
    """Once for all loops; each then waits for a person, and its trail says who reported it."""
    assert toolloop("restored", "--by", "after the fire") == (0, "Done. Loops that now wait for a person: 1\n", "")
    code, said, _ = toolloop("restored", "--json")
    assert (code, json.loads(said)) == (0, {"loops": ["loop"]})
    reports = filled.inbox.trail("loop")
    assert [(each.kind, each.via) for each in reports] == [("restored", "command")] * 2
    assert "after the fire" in str(reports[0].by)
    assert [call.why for call in filled.inbox.pending()] == ["approval"] * 2


@needs_postgres
def test_a_database_is_a_store_once_its_tables_are_created(toolloop: Command) -> None:
    """By `migrate`, and by no other command. No output shows the password."""
    url = database()
    outputs = [toolloop("list", store=url)]
    assert (outputs[0][0], "`toolloop migrate` creates them" in outputs[0][2]) == (3, True)
    outputs.append(toolloop("list", store=url))
    assert outputs[1][0] == 3
    outputs += [toolloop("migrate", url, store=None), toolloop("migrate", url, store=None)]
    assert [(code, out.rstrip().endswith("is ready")) for code, out, _ in outputs[2:]] == [(0, True)] * 2
    desk_of(store := PostgresStore(url)).drive()
    store.close()
    outputs.append(toolloop("deny", "loop", "c1", "--reason", "no", store=url))
    outputs.append(toolloop("trail", "loop", store=url))
    assert [code for code, _, _ in outputs[4:]] == [0, 0]
    assert "ana" in outputs[5][1]
    outputs.append(toolloop("list", store=url.replace("host=", "host=/nowhere")))
    outputs.append(toolloop("list", store=url.replace("postgresql:", "mysql:")))
    assert [code for code, _, _ in outputs[6:]] == [1, 2]
    assert not [each for each in outputs if "s3cret" in each[1] + each[2]]


def test_history_is_a_deprecated_name_of_trail(filled: World, toolloop: Command) -> None:
    """It prints the same, with a warning beside it."""
    filled.inbox.stop("loop", by="ana")
    old, new = toolloop("history", "loop", "--json"), toolloop("trail", "loop", "--json")
    assert old[:2] == new[:2]
    assert "`trail`" in old[2]
    assert new[2] == ""


def test_a_shell_completes_loops_and_calls(filled: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As click's completion asks for them; without a store there is nothing, and no error."""

    def completed(*words: str, begun: str) -> list[str]:
        found = ShellComplete(group, {}, "toolloop", "_TOOLLOOP_COMPLETE").get_completions([*words], begun)
        return [each.value for each in found]

    assert completed("show", "--store", store_of(tmp_path), begun="lo") == ["loop"]
    assert completed("show", "--store", "none.db", begun="") == []
    assert completed("show", begun="lo") == []
    monkeypatch.setenv("TOOLLOOP_STORE", store_of(tmp_path))
    assert completed("show", begun="lo") == ["loop"]
    assert completed("delete", begun="lo") == ["loop"]
    assert completed("approve", "loop", begun="") == ["c1", "c2"]
    assert "trail" in completed(begun="t")
