"""`review`: keys in, screen out, at two widths, while other people and the clock decide, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from tests.cli.support import Session, editor, filled
from tests.kit.tools import transfer
from toolloop import Answer, Approve, Ask, Deny, tool
from toolloop.testing import call, reply
from toolloop.types import ToolAnnotations

LONG = "0123456789 " * 12


def trail_of(found: Any) -> list[tuple[str, str | None, str | None]]:
    return [(entry.kind, entry.by, entry.via) for entry in found.inbox.trail("loop")]


@pytest.mark.parametrize("columns", [80, pytest.param(200, marks=pytest.mark.deep)])
def test_each_call_is_shown_whole_and_decided_by_a_key(tmp_path: Path, columns: int) -> None:
    """Approve one, deny the other with a reason. The trail has the user of the system, and where it was."""
    found = filled(tmp_path)
    with Session(tmp_path, ("review", "--by", "bo"), columns) as person:
        person.see(
            "pay in loop · 2 calls left", "User   Pay the bills", "This runs if you approve", "  to  ana", "  euros  5"
        )
        person.press("a")
        person.see("→ approved; it starts when 1 other call", "1 call left", "  to  bo")
        person.press("d")
        person.press("too much\r", at="Reason, which the model reads")
        person.see("→ denied; it does not run", "No call is left.", "2 decided.")
        code, screen = person.end()
    assert code == 0
    assert screen.count("[a] approve  [d] deny…  [e] edit…  [w] answer…  [s] skip  [q] quit") == 2
    assert trail_of(found) == [("approve", "bo, said by ana", "command"), ("deny", "bo, said by ana", "command")]
    found.drive()
    assert found.did == [("pay", "ana", 5)]


def test_a_long_line_is_wrapped_whole_and_its_rows_are_marked(tmp_path: Path) -> None:
    """The parts of the wrapped line, joined, are the value."""
    filled(tmp_path, script=(reply(calls=[call("pay", {"to": LONG, "euros": 5}, id="c1")]), reply("Done")))
    with Session(tmp_path, ("review",)) as person:
        person.press("q")
        code, _ = person.end()
        rows = person.terminal.screen.split("\n")
    first = next(number for number, row in enumerate(rows) if row.startswith("       │ "))
    assert code == 0
    assert rows[first][9:] + rows[first + 1][9:] == f'"{LONG}"'
    assert rows[first + 1].startswith("       ↪ ")


def test_the_hints_of_a_server_are_shown_as_on_the_page(tmp_path: Path) -> None:
    """A tool of another kind has no such line."""
    filled(tmp_path, tools=(evolve(transfer, annotations=ToolAnnotations(read_only_hint=True)),))
    with Session(tmp_path, ("review",)) as person:
        person.see("Server read only, open world (hints, not checked)")
        person.press("q")
        assert person.end()[0] == 0


def test_keys_that_come_before_the_question_do_nothing(tmp_path: Path) -> None:
    """Also a key that is held down while the next call appears."""
    found = filled(tmp_path)
    with Session(tmp_path, ("review",)) as person:
        person.terminal.type("aaa")
        person.see("Keys that were pressed before this line did nothing.")
        person.press("aa")
        person.see("→ aa is not one of these keys. Nothing was sent.")
        person.press("q")
        assert person.end()[0] == 0
    assert trail_of(found) == []


def test_an_edit_is_shown_as_a_diff_and_what_was_typed_is_kept(tmp_path: Path) -> None:
    """No JSON, then an input that the schema refuses: each is said, and the editor opens with what was typed."""
    found = filled(tmp_path)
    env = editor(tmp_path, ("5", "five"), ("five", '"six"'), ('"six"', "6"))
    with Session(tmp_path, ("review",), env=env) as person:
        person.press("e")
        person.see("not JSON", "Press e to edit what", "Nothing was sent.")
        person.press("e")
        person.see("Your changes:", "  euros", "1      \u2212 5", "     1 + six")
        person.press("y\r", at="Approve with your changes? y or n:")
        person.see("Not sent:", "does not fit", "Press e")
        person.press("e")
        person.press("y\r", at="Approve with your changes? y or n:")
        person.see("→ approved;")
        person.press("s")
        person.see("1 decided, 1 skipped.")
        assert person.end()[0] == 0
    assert '"six"' in (tmp_path / "opened-2").read_text()
    assert found.inbox.trail("loop")[0].content == {"to": "ana", "euros": 6}


def test_an_edit_that_is_not_confirmed_or_changes_nothing_is_not_sent(tmp_path: Path) -> None:
    """The call still waits, and its question stands again."""
    found = filled(tmp_path)
    with Session(tmp_path, ("review",), env=editor(tmp_path, ("5", "5"), ("5", "6"))) as person:
        person.press("e")
        person.see("Nothing is changed.", "Nothing was sent.")
        person.press("e")
        person.press("n\r", at="Approve with your changes? y or n:")
        person.see("Nothing was sent.")
        person.press("q")
        assert person.end()[0] == 0
    assert trail_of(found) == []


def test_an_answer_is_written_and_ctrl_d_goes_back(tmp_path: Path) -> None:
    """Ctrl-D at a question sends nothing; at the keys it quits."""
    found = filled(tmp_path)
    with Session(tmp_path, ("review",)) as person:
        person.press("d")
        person.press("\x04", at="Reason, which the model reads")
        person.see("Nothing was sent.")
        person.press("w")
        person.press("paid by hand\r", at="Result for the model")
        person.press("n\r", at="Is this result an error? y or n:")
        person.see("→ answered; it does not run")
        person.press("\x04")
        person.see("1 decided.")
        assert person.end()[0] == 0
    assert trail_of(found) == [("answer", "ana", "command")]


def test_another_person_who_decides_meanwhile_is_named_and_nothing_is_sent(tmp_path: Path) -> None:
    """While the question waits, and while the reason is typed."""
    found = filled(tmp_path)
    with Session(tmp_path, ("review",)) as person:
        person.see("[q] quit")
        found.inbox.decide("loop", {"c1": Deny("not today", by="bo")})
        person.see("→ bo denied this at ", "(“not today”). It did not run.", "  to  bo")
        person.press("d")
        person.see("Reason, which the model reads")
        found.inbox.decide("loop", {"c2": Approve(by="bo")})
        person.terminal.type("no\r")
        person.see("→ not sent: bo approved this at ", "0 decided, 2 decided by others.")
        assert person.end()[0] == 0
    assert [entry.by for entry in found.inbox.trail("loop")] == ["bo", "bo"]


def test_a_call_that_changes_is_shown_again(tmp_path: Path) -> None:
    """Here, because one of two persons approved it: then the command cannot give the second approval."""
    found = filled(tmp_path, config={"on_tool_call": lambda _call, _view: Ask(need=2)})
    with Session(tmp_path, ("review",)) as person:
        person.see("! Needs two people. After your approval, it needs one more person.", "[a] approve")
        found.inbox.decide("loop", {found.inbox.pending()[0]: Approve(by="bo")})
        person.see("→ The call has changed.", "! This approval is not for the command", "toolloop serve")
        person.see("[d] deny…")
        person.terminal.type("a")
        person.see("→ a is not one of these keys.")
        person.press("q")
        assert person.end()[0] == 0
    assert len(found.inbox.trail("loop")) == 1


def test_a_call_whose_end_is_unknown_runs_again_only_after_a_second_question(tmp_path: Path) -> None:
    """`r` asks, and says what it can do."""
    found = filled(tmp_path)
    found.inbox.decide("loop", {"c1": Approve(by="bo"), "c2": Answer("done", by="bo")})
    with pytest.raises(KeyboardInterrupt):
        found.drive(tools=[interrupted()])
    with Session(tmp_path, ("review",)) as person:
        person.see("This call may have run.", "[d] deny…  [w] answer…  [r] run it again…")
        person.terminal.type("r")
        person.press("y\r", at="Run pay a second time? y or n:")
        person.see("→ started again; it starts when a worker drives the loop")
        assert person.end()[0] == 0


def interrupted() -> Any:
    @tool(needs_approval=True)
    def pay(to: str, euros: int) -> str:
        """Pay."""
        raise KeyboardInterrupt(f"{to} {euros}")

    return pay


@pytest.mark.parametrize("at", ["[q] quit", "Reason, which the model reads"])
def test_ctrl_c_ends_a_review_in_a_line(tmp_path: Path, at: str) -> None:
    """At the keys and at a question. What was decided before is said; the terminal is as before."""
    found = filled(tmp_path)
    with Session(tmp_path, ("review",)) as person:
        person.press("a")
        if at != "[q] quit":
            person.press("d")
        person.see(at)
        person.terminal.interrupt()
        code, screen = person.end()
        assert person.terminal.settings() == person.terminal.settings_before
    assert code == 130
    assert screen.rstrip().endswith("toolloop: interrupted. 1 decided. Nothing else was sent.")
    assert "Traceback" not in screen
    assert len(found.inbox.trail("loop")) == 1
