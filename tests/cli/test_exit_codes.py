"""The exit codes of each command: 0 done, 1 failed, 2 usage, 3 not found, 4 not allowed now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import Command, digest_of
from tests.kit.world import World
from toolloop import Ask

LONG = "[" * 9999
TABLE = [
    (0, ("list",), ""),
    (0, ("list", "--status", "failed"), "No loops."),
    (2, ("list", "--status", "lost"), "'lost'"),
    (2, ("list", "--metadata", "owner"), "has no '='"),
    (2, ("list", "one", "two"), "unexpected extra arguments"),
    (0, ("show", "loop"), ""),
    (0, ("show", "loop", "--wait"), ""),
    (2, ("show",), "Missing argument 'LOOP'"),
    (3, ("show", "other"), "'other'"),
    (2, ("show", ""), "LOOP is empty"),
    (0, ("pending",), ""),
    (0, ("pending", "--tool", "rm"), "No calls."),
    (2, ("pending", "--limit", "0"), "--limit"),
    (0, ("trail", "loop"), ""),
    (3, ("trail", "other"), "'other'"),
    (2, ("review",), "`review` needs a terminal"),
    (0, ("approve", "loop", "c1", "--digest", "DIGEST"), ""),
    (2, ("approve", "loop", "c1"), "without a terminal, `approve` needs --digest"),
    (2, ("approve", "loop", "c1", "--input", "[1]"), "expected a JSON object"),
    (2, ("approve", "loop", "c1", "--digest", "DIGEST", "--input", '{"to": 5}'), "does not fit the schema of pay"),
    (2, ("approve", "loop", "c1", "--input", '{"to": "ana", "euros": NaN}'), "NaN is not JSON"),
    (2, ("approve", "loop", "c1", "--input", r'{"to": "\ud800"}'), "lone surrogate"),
    (2, ("approve", "loop", "c1", "--input", LONG), "not JSON"),
    (3, ("approve", "loop", "c9"), "'c9'"),
    (3, ("approve", "other", "c1"), "'other'"),
    (4, ("approve", "loop", "c1", "--digest", "0" * 64), "c1"),
    (0, ("deny", "loop", "c1", "--reason", "no"), ""),
    (2, ("deny", "loop", "c1"), "--reason"),
    (3, ("deny", "loop", "c9", "--reason", "no"), "'c9'"),
    (4, ("deny", "loop", "c1", "--reason", "no", "--digest", "0" * 64), "c1"),
    (0, ("answer", "loop", "c1", "by hand"), ""),
    (2, ("answer", "loop", "c1"), "TEXT"),
    (3, ("answer", "loop", "c9", "by hand"), "'c9'"),
    (2, ("rerun", "loop", "c1"), "needs --digest"),
    (4, ("rerun", "loop", "c1", "--digest", "DIGEST"), "rerun"),
    (0, ("say", "loop", "Hurry"), ""),
    (3, ("say", "other", "Hurry"), "'other'"),
    (0, ("stop", "loop"), ""),
    (3, ("stop", "other"), "'other'"),
    (4, ("retry", "loop"), "retry"),
    (0, ("delete", "loop", "--yes"), ""),
    (0, ("delete", "--metadata", "owner=bo"), ""),
    (2, ("delete", "loop"), "needs --yes. It would delete 1 loop"),
    (2, ("delete",), "either LOOP or --metadata"),
    (2, ("delete", "loop", "--metadata", "owner=ana"), "either LOOP or --metadata"),
    (3, ("delete", "other", "--yes"), "'other'"),
    (2, ("delete", "\udcff", "--yes"), "LOOP has a lone surrogate"),
    (2, ("serve", "--host", "0.0.0.0"), "--who"),
]


@pytest.mark.parametrize(("code", "arguments", "text"), TABLE, ids=lambda value: str(value)[:60])
def test_each_command_has_these_exit_codes(
    filled: World, toolloop: Command, code: int, arguments: tuple[str, ...], text: str
) -> None:
    """What fails prints nothing to stdout, says why, and changes nothing."""
    before, digest = filled.journal(), digest_of(filled)
    found, out, err = toolloop(*(digest if each == "DIGEST" else each for each in arguments))
    assert (found, text in err) == (code, True), err
    if code:
        assert (out, filled.journal()) == ("", before)


def test_a_store_that_is_missing_empty_or_damaged_has_its_code(tmp_path: Path, toolloop: Command) -> None:
    """3 not found, 1 failed, 2 usage. No command creates a store."""
    for store in (str(tmp_path / "none.db"), f"sqlite:///{tmp_path}/none.db"):
        assert toolloop("list", store=store)[0] == 3
    assert toolloop("list", store="mysql://host/db")[0] == 2
    code, _, err = toolloop("list", store=None)
    assert (code, "Pass --store, or set the variable TOOLLOOP_STORE" in err) == (2, True)
    assert list(tmp_path.iterdir()) == []
    empty, damaged = tmp_path / "empty.db", tmp_path / "damaged.db"
    empty.touch()
    damaged.write_bytes(b"no database " * 1000)
    assert toolloop("list", store=str(empty))[0] == 3
    assert toolloop("list", store=str(damaged))[0] == 1
    assert empty.stat().st_size == 0


@pytest.mark.parametrize(
    ("ask", "more", "expected"),
    [
        ({"need": 2}, (), (0, "1 of 2; it runs when one more person approves")),
        ({"need": 2}, ("--by", "bo"), (4, "--by cannot be used")),
        ({"of": "finance"}, (), (4, "the call needs one of finance")),
        ({"not_by": "ana"}, (), (4, "Decide on the approval page")),
        ({"not_by": "ana"}, ("--by", "bo"), (4, "--by cannot be used")),
        ({"not_by": "bo"}, (), (0, "Approved")),
    ],
)
def test_the_command_gives_no_approval_that_counts_groups_or_a_second_person(
    toolloop: Command, filled: World, ask: dict[str, Any], more: tuple[str, ...], expected: tuple[int, str]
) -> None:
    """A note does not make the user another person. The error says where the call can be decided."""
    filled.config["on_tool_call"] = lambda _call, _view: Ask(**ask)
    filled.drive("other")
    digest = digest_of(filled, loop_id="other")
    found, out, err = toolloop("approve", "other", "c1", "--digest", digest, *more)
    assert (found, expected[1] in out + err) == (expected[0], True), out + err
    if "need" in ask and not more:
        found, _, err = toolloop("approve", "other", "c1", "--digest", digest)
        assert (found, "1 of 2: you" in err, "toolloop serve --who" in err) == (4, True, True)
        assert [entry.by for entry in filled.inbox.trail("other")] == ["ana"]
