"""The judge of the attacks finds each planted lie."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.kit.each import each
from tests.promises.attack.__main__ import PAGE, TABLE
from tests.promises.attack.ledger import DENIED, LOST, TWICE, Ledger, find_late_starts, judge
from tests.promises.attack.restored import judge_restored
from tests.promises.attack.row import HUNG, OTHER, Row
from tests.promises.attack.story import LOOP_ID, Story
from toolloop import Approve, Deny, MemoryStore, Texts, ToolLoopHandle
from toolloop.stores import Entry, Head

START = {"what": "start", "call": "c1", "effect": "once", "key": "k1"}
END = {"what": "end", "call": "c1", "result": "done by 1"}
RERUN = {"what": "rerun", "call": "c1"}
APPROVED = {"what": "decided", "call": "c1", "why": "approval", "kind": "approve"}
DENY = {**APPROVED, "kind": "deny"}
ASKED = {"what": "asked", "call": "c1", "why": "approval"}
KEYED = {**START, "effect": "keyed"}


def sent(*results: tuple[str, str], calls: tuple[str, ...] = ("c1",)) -> dict[str, Any]:
    return {"what": "sent", "calls": [*calls], "results": [list(result) for result in results]}


TRUE = sent(("c1", "done by 1"))


@each(
    ("kinds", "lines"),
    [
        ([], [ASKED, APPROVED, START, END, TRUE, TRUE]),
        ([], [ASKED, APPROVED, START, RERUN, START, END, TRUE]),
        ([], [KEYED, KEYED, END, TRUE]),
        ([], [{**START, "effect": "pure"}, {**START, "effect": "pure", "key": "k2"}, END, TRUE]),
        ([], [START, {**DENY, "why": "uncertain"}]),
        ([TWICE], [START, START, END, TRUE]),
        ([TWICE], [START, RERUN, START, START, END, TRUE]),
        ([TWICE], [KEYED, {**KEYED, "key": "k2"}, END, TRUE]),
        ([DENIED], [ASKED, DENY, START]),
        ([DENIED], [START, ASKED, {**DENY, "kind": "answer"}]),
        ([DENIED], [START, END, sent(("c1", Texts().expired))]),
        ([LOST], [ASKED, DENY, APPROVED]),
        ([LOST], [ASKED, APPROVED, ASKED]),
        ([LOST], [sent()]),
        ([LOST], [START, END, sent(("c1", "done by 1"), ("c1", "done by 1"))]),
        ([LOST], [START, END, TRUE, sent(("c1", "nothing"))]),
        ([LOST], [sent(("c1", "done by 2"))]),
    ],
)
def test_a_lie_in_a_ledger_is_found(kinds: list[str], lines: list[dict[str, Any]]) -> None:
    """And a ledger without one is not complained about."""
    assert [finding.kind for finding in judge(lines)] == kinds


UNCERTAIN = {**DENY, "why": "uncertain"}


@each(
    ("kinds", "lines"),
    [
        ([], [START, UNCERTAIN]),
        ([], [START, RERUN, START, UNCERTAIN]),
        ([], [KEYED, RERUN, KEYED, KEYED]),
        ([DENIED], [UNCERTAIN, START]),
        ([DENIED], [START, {**UNCERTAIN, "kind": "answer"}, START]),
        ([TWICE], [RERUN, START, START]),
    ],
)
def test_a_run_that_begins_late_is_found(kinds: list[str], lines: list[dict[str, Any]]) -> None:
    """After a person said how the lost run had ended, or allowed one more."""
    assert [finding.kind for finding in find_late_starts(lines)] == kinds


LOST_START = {**START, "pid": 7}
BACK = {"what": "back", "pid": 7, "is_used": True}


def restored(to: int, *calls: str, started: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"what": "restored", "to": to, "calls": [*calls], "started": [*started], "judged": [*calls]}


@each(
    ("kinds", "lines"),
    [
        ([], [ASKED, APPROVED, LOST_START, restored(2, "c1", started=("c1",)), BACK]),
        ([], [LOST_START, restored(0), BACK]),
        ([], [LOST_START, restored(0, "c1"), {**BACK, "is_used": False}]),
        ([], [ASKED, APPROVED, restored(0, "c1"), ASKED, DENY]),
        ([DENIED], [DENY, START, restored(2)]),
        ([DENIED], [restored(0, "c1"), START]),
        ([DENIED] * 2, [APPROVED, restored(0, "c1"), DENY, START]),
        ([DENIED, TWICE], [restored(0, "c1"), START, START]),
        ([LOST], [LOST_START, restored(0, "c1"), BACK]),
        ([DENIED, TWICE, LOST], [LOST_START, restored(0, "c1"), BACK, {**START, "pid": 8}]),
        ([DENIED] * 2, [restored(0, "c1"), {"what": "reported"}, START]),
        ([DENIED], [restored(0, "c1"), {"what": "reported"}, APPROVED, START]),
        ([LOST], [restored(0), sent(("c1", "done by 1"))]),
        ([LOST], [restored(0), sent()]),
    ],
)
def test_a_lie_about_a_restored_store_is_found(kinds: list[str], lines: list[dict[str, Any]]) -> None:
    """The final journal knows of no start here."""
    store = MemoryStore()
    Story(1, Ledger(Path(os.devnull)), is_small=True).open("sync", store).close()
    assert [finding.kind for finding in judge_restored(lines, store.load(LOOP_ID).entries)] == kinds


def test_a_journal_that_cannot_be_read_is_found() -> None:
    """Also if the ledger has no restore."""
    entries = [Entry("e1", "{}")]
    assert [finding.kind for finding in judge_restored([restored(0)], entries)] == [OTHER]
    assert [finding.kind for finding in judge_restored([], entries)] == [OTHER]


def test_a_store_that_forgets_is_found(tmp_path: Path) -> None:
    """The loop is driven twice, and the second time the store knows nothing of its decisions and calls."""
    ledger, store = Ledger(tmp_path / "ledger"), MemoryStore()
    assert Story(1, ledger, is_small=True).drive("sync", store) == "done"
    assert judge(ledger.lines()) == []
    forgot = MemoryStore()
    forgot.create(LOOP_ID, store.load(LOOP_ID).entries[:2], head=Head("runnable"))
    Story(1, ledger, is_small=True).drive("sync", forgot)
    assert TWICE in {finding.kind for finding in judge(ledger.lines())}


def test_a_denied_call_that_runs_is_found(tmp_path: Path) -> None:
    """Two copies of one loop are decided differently."""
    story = Story(1, Ledger(tmp_path / "ledger"), is_small=True)
    first = ToolLoopHandle(story.provider("sync"), **story.parts("sync"))
    first.next_turn()
    second = ToolLoopHandle.restore(first.snapshot(), story.provider("sync"), **story.parts("sync"))
    for handle, decision in ((first, Deny("no")), (second, Approve())):
        decided: dict[Any, Any] = dict.fromkeys(handle.pending, decision)
        handle.decide(decided)
        story.note(decided)
        handle.run()
    assert {DENIED, LOST} <= {finding.kind for finding in judge(story.ledger.lines())}


def test_what_hangs_and_what_breaks_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the stack of where it stood."""
    monkeypatch.setattr("tests.promises.attack.row.PATIENCE", 0.01)
    row = Row("a", "b")
    with row.watched("here"):
        while True:
            pass
    with row.watched("there"):
        raise KeyError
    assert (row.broken[HUNG], row.broken[OTHER]) == (1, 1)
    assert "test_judge.py" in row.findings[0]


def test_the_page_has_a_place_for_the_table() -> None:
    """The program writes there, and nowhere else."""
    assert len(TABLE.findall(PAGE.read_text(encoding="utf-8"))) == 1
