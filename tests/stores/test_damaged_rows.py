"""Damage in the row of a loop: each way to read it raises an error of toolloop that names the damage."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.kit.each import each
from tests.kit.effort import examples
from tests.kit.tools import params
from toolloop import SqliteStore, ToolLoopHandle, tool
from toolloop.errors import StoreError, UnreadableSnapshot
from toolloop.inbox import Inbox
from toolloop.testing import ScriptedProvider, call, reply


@tool(needs_approval=True)
def pay(to: str) -> str:
    """Pay."""
    return to


TEXTS = st.sampled_from(["a", "toolu_1", "approval", "approve", "", "{}", "abcde"])
NUMBERS = st.sampled_from([0, 1, -1, 2**62, -(2**62), 2**63 - 1, 10**300, 0.5, 1e300, -1e300, 253_402_300_800])
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | TEXTS | NUMBERS,
    lambda inner: st.lists(inner, max_size=11) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=12,
)
NAMED = st.dictionaries(
    st.sampled_from(["demands", "approvals", "edited", "since", "size", "asked", "said", "usage", "secret"]),
    VALUES,
    max_size=3,
)


def some_calls(known: list[Any]) -> st.SearchStrategy[Any]:
    """The column `pending` with one position of its call replaced, or anything else."""
    changed = st.tuples(st.integers(0, len(known) - 1), VALUES).map(
        lambda change: [[*known[: change[0]], change[1], *known[change[0] + 1 :]]]
    )
    return changed | VALUES


ROW = [["toolu_1"], ["pay"], "approval", ["approve"], "digest", None, None, '{"to":"x"}', False, None]
COLUMNS: dict[str, st.SearchStrategy[Any]] = {
    "pending": some_calls(ROW),
    "named": NAMED.map(lambda named: {"digest": named}) | VALUES,
    "metadata": VALUES,
    "notified": VALUES,
    **dict.fromkeys(("created", "changed", "deadline", "retry_at"), NUMBERS | TEXTS),
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a loop in which a call waits."""
    file = tmp_path_factory.mktemp("rows") / "loops.db"
    script = ScriptedProvider([reply(calls=[call("pay", {"to": "x"}, id="toolu_1")])])
    with SqliteStore(file) as store:
        with ToolLoopHandle.open(store, "loop", script, params=params(), tools=[pay]) as handle:
            handle.run()
        damage(file, "pending", json.dumps([ROW]))
    return file


def damage(file: Path, column: str, value: Any) -> Any:
    """Put a value into the row; return the one before it."""
    with closing(sqlite3.connect(file)) as db, db:
        (before,) = db.execute(f"SELECT {column} FROM loops").fetchone()
        db.execute(f"UPDATE loops SET {column} = ?", (value,))
    return before


def read(file: Path) -> Iterator[Callable[[], object]]:
    """Yield the ways in which a row is read."""
    with SqliteStore(file) as store:
        inbox = Inbox(store)
        yield lambda: store.head("loop")
        yield store.list
        yield lambda: store.list_due(0.0)
        yield store.list_unnotified
        yield lambda: list(inbox.pending())
        yield lambda: list(inbox.pending(sort="age", text="x"))
        yield lambda: inbox.show("loop")


@examples(150)
@given(st.data())
def test_a_damaged_row_is_never_a_bare_error(path: Path, data: st.DataObject) -> None:
    """It is read, or refused as damaged; and a healthy row is read again after that."""
    column = data.draw(st.sampled_from(sorted(COLUMNS)))
    value = data.draw(COLUMNS[column])
    is_json = column in ("pending", "named", "metadata", "notified")
    stored = json.dumps(value) if is_json else value if isinstance(value, str) else float(min(value, 10**300))
    before = damage(path, column, stored)
    try:
        for act in read(path):
            with suppress(StoreError, UnreadableSnapshot):
                act()
    finally:
        damage(path, column, before)
    assert [each.id for each in Inbox(SqliteStore(path)).pending()] == ["toolu_1"]


@each(
    ("column", "stored"),
    [
        ("pending", '{"a": 1}'),
        ("pending", '{"abcde": 1}'),
        ("pending", '["abcde"]'),
        ("created", 2.0**62),
        ("changed", 1e300),
        ("named", '{"digest": {"since": 4611686018427387904}}'),
    ],
)
def test_it_is_said_that_the_row_is_damaged(path: Path, column: str, stored: Any) -> None:
    before = damage(path, column, stored)
    try:
        with pytest.raises(UnreadableSnapshot, match="damaged"):
            list(Inbox(SqliteStore(path)).pending())
    finally:
        damage(path, column, before)
