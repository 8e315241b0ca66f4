"""What the command prints: characters that mislead, tables in a terminal, rows in a pipe, and how many there are."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from tests.cli.support import Command, Session, filled as fill, store_of
from tests.inbox.support import desk
from tests.kit.effort import examples
from tests.kit.warm_python import run
from tests.kit.world import World
from toolloop import Approve
from toolloop._cli.screen.conversation import preview_lines
from toolloop._cli.screen.texts import Line, exact, input_lines, print_lines
from toolloop.inbox.shown.values import shown_input
from toolloop.inbox.transcript import escape_hidden
from toolloop.testing import call, reply

NAME = "[red]x[/red] :smile: \u202e<b>"  # an id has no control characters
EVIL = "\x1b[2J[red]x[/red] :smile: \u202e<b>\x07"
SHOWN = "\u27e6U+001B\u27e7[2J[red]x[/red] :smile: \u27e6U+202E\u27e7<b>\u27e6U+0007\u27e7"


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(codec="utf-8"), max_size=30))
def test_visible_text_moves_and_hides_nothing(text: str) -> None:
    """Whatever a model writes, what is left can be printed, and ordinary text stays as it is."""
    assert all(each.isprintable() or each in "\n\t" for each in escape_hidden(text))
    if text.isprintable():
        assert escape_hidden(text) == text


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(0, 99)
    | st.text(st.sampled_from('a \n\t"\u202e\u200de\u0301\x1b│↪^1'), max_size=6),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("ab. ", max_size=3), inner, max_size=2),
    max_leaves=4,
)
INPUTS = st.dictionaries(st.text("ab. \u202e", max_size=3), VALUES, max_size=3)


@examples(100)
@given(one=INPUTS, other=INPUTS)
@example(one={"": "\t\u0301"}, other={"": "    \u0301"})
def test_two_inputs_that_differ_never_look_the_same(one: dict[str, object], other: dict[str, object]) -> None:
    """As plain text, without colours; and no character of an input reaches the terminal but those that are seen."""
    texts = [
        "\n".join(line.margin + line.text.plain for line in input_lines(shown_input(each))) for each in (one, other)
    ]
    assert (texts[0] == texts[1]) == (json.dumps(one) == json.dumps(other))
    assert texts[0].replace("\n", "").isprintable()


def test_texts_that_could_be_taken_for_each_other_differ() -> None:
    """Spaces, tabs, escapes, other types, letters in parts, joiners, emoji with selectors, and imitated rows."""
    texts: list[Any] = [
        *("a", " a", "a ", "a  ", "a\t", "\ta", "a\n", "a\n\n", "a\nb", "a\\nb", "1", "true", "null", "", '""', '"a"'),
        *(
            "\u00e9",
            "e\u0301",
            "a\u00a0b",
            "a b",
            "a\u200db",
            "ab",
            "\u2764",
            "\u2764\ufe0f",
            "\u27e6U+202E\u27e7",
            "\u202e",
        ),
        *(
            "\u0430",
            "\x1b",
            "\\x1b",
            "a\n   2 \u2502 b",
            "x" * 99 + " ",
            "x" * 99,
            "\uac00",
            "\u1100\u1161",
            1,
            True,
            None,
            [],
            {},
        ),
        *(["a"], [["a"]], {"a": "a"}, {"": "a"}),
    ]
    for schema in (None, {"properties": {"v": {"type": "string", "format": "markdown"}}}):
        shown = [input_lines(shown_input({"v": text}, schema)) for text in texts]
        plain = ["\n".join(line.margin + line.text.plain for line in lines) for lines in shown]
        assert len({*plain}) == len(texts)


@pytest.mark.parametrize("columns", [20, 80])
def test_a_wrapped_text_is_whole(columns: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows are at most as wide as the terminal, and joined they are the text, letters of two columns included."""
    for text in ("a" * 200, "ab 漢字 " * 30, "漢" * 99):
        for wraps in (False, True):
            print_lines(Console(width=columns, force_terminal=True, color_system=None), [Line(Text(text), "  ", wraps)])
            rows = capsys.readouterr().out.removesuffix("\n").split("\n")
            assert "".join(row[2:] for row in rows) == text
            assert max(map(cell_len, rows)) <= columns
            assert [row[:2] for row in rows] == ["  "] + ["↪ "] * (len(rows) - 1)


def test_markup_and_control_characters_of_a_model_are_shown_as_they_are(tmp_path: Path, toolloop: Command) -> None:
    """In inputs, ids, metadata and messages. Nothing that is printed moves the cursor."""
    script = (reply(EVIL, calls=[call("pay", {"to": EVIL, "euros": 5}, id="c1")]), reply("Done"))
    desk("sqlite", tmp_path, script=script).drive(NAME, metadata={"owner": EVIL})
    for arguments in (("list",), ("pending",), ("show", NAME), ("trail", NAME)):
        code, out, _ = toolloop(*arguments)
        assert code == 0
        assert out.replace("\n", "").replace("\t", "").isprintable()
        assert SHOWN in out or arguments[0] in ("trail", "pending")
    assert f"to  {SHOWN}" in toolloop("show", NAME)[1]
    assert toolloop("answer", NAME, "c1", EVIL)[0] == 0
    assert SHOWN in toolloop("trail", NAME)[1]


def test_a_pipe_has_one_whole_row_for_each_call(tmp_path: Path) -> None:
    """With line feeds, escapes and characters that turn the text, also if the store's row shortens the input."""
    to = "a\nb\x1b[31m\u202ec\t" + "x" * 5000
    script = (reply(calls=[call("pay", {"to": to, "euros": 5}, id="c1")]), reply("Done"))
    desk("sqlite", tmp_path, script=script).drive(metadata={"owner": "ana"})
    env = {**os.environ, "COLUMNS": "40", "PYTHONWARNINGS": "error", "TOOLLOOP_STORE": store_of(tmp_path)}
    row, end = run(["-m", "toolloop", "pending"], env=env).stdout.split("\n")
    cells = row.split("\t")
    assert (end, cells[:5]) == ("", ["-", "loop", "c1", "pay", "approval"])
    assert cells[6] == '{"to": "a\\nb\\u001b[31m\u27e6U+202E\u27e7c\\t' + "x" * 5000 + '", "euros": 5}'


def test_lists_say_where_they_stop(filled: World, toolloop: Command) -> None:
    """How many of how many, on stderr, so that rows and JSON stay what they are."""
    for number in range(3):
        filled.drive(f"loop-{number}")
    assert toolloop("list", "--limit", "2")[2] == "2 of 4 loops. Pass a greater --limit to see more.\n"
    assert toolloop("list", "--limit", "4")[2] == ""
    assert toolloop("pending", "--limit", "3", "--json")[2] == "3 of 8 calls. Pass a greater --limit to see more.\n"
    assert toolloop("pending", "--tool", "rm") == (0, "", "No calls.\n")
    ended = ("--status", "ended", "--status", "ended")
    filled.inbox.stop("loop-0", by="ana")
    filled.inbox.stop("loop-1", by="ana")
    assert toolloop("list", *ended, "--limit", "1")[2] == "1 of 2 loops. Pass a greater --limit to see more.\n"
    assert toolloop("list", "--metadata", "owner=ana", "--limit", "1")[2] == ""
    assert toolloop("list", "--status", "failed", "--limit", "1")[2] == "No loops.\n"


@pytest.mark.parametrize("columns", [80, 200])
def test_a_terminal_has_tables_in_its_width(tmp_path: Path, columns: int) -> None:
    """The names are whole; only the gist of an input is cut. A wide one has more columns."""
    found = fill(tmp_path)
    found.drive("a-loop-with-a-rather-long-name", metadata={"owner": "bo"})
    with Session(tmp_path, ("pending",), columns) as person:
        code, screen = person.end()
    assert code == 0
    assert "a-loop-with-a-rather-long-name" in screen
    assert ("owner=bo" in screen) == (columns == 200)
    assert "\x1b[" in person.terminal.raw


def test_a_terminal_shows_the_progress_of_a_loop_that_is_driven(tmp_path: Path) -> None:
    """Until it needs a person, or has ended; then the conversation is printed."""
    found = fill(tmp_path)
    found.inbox.decide("loop", {"c1": Approve(by="ana"), "c2": Approve(by="ana")})
    with Session(tmp_path, ("show", "loop", "--wait")) as person:
        person.see("runnable · 1 requests")
        found.drive()
        person.see("Both are paid.")
        assert person.terminal.finish() == 0


def test_what_an_encoding_lacks_is_escaped(filled: World, tmp_path: Path) -> None:
    """A pipe in ASCII."""
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "TOOLLOOP_STORE": store_of(tmp_path)}
    piped = run(["-m", "toolloop", "show", "loop"], env=env)
    assert piped.returncode == 0
    assert piped.stdout.isascii()
    assert "\x1b[" not in piped.stdout
    assert "Pay the bills" in piped.stdout


def test_the_lines_of_a_preview_have_the_colours_of_the_page() -> None:
    """A removed line may look like the name of a file. What is not a diff has no colours."""
    diff = "--- a\n+++ b\n@@ -1 +1 @@\n--- old\n+new\n same\n"
    styles = ["cyan", "cyan", "cyan", "red", "green", ""]
    assert [(line.text.plain, line.text.style) for line in [*preview_lines(diff)][1:]] == [
        *zip(diff.splitlines(), styles, strict=True)
    ]
    assert [(line.text.plain, line.text.style) for line in [*preview_lines("- one\n@@ two")][1:]] == [
        ("- one", ""),
        ("@@ two", ""),
    ]


def test_names_at_whose_ends_something_could_be_missed_are_quoted() -> None:
    """As on the page."""
    assert exact(" a").plain == '" a"'
    assert exact("a").plain == "a"
