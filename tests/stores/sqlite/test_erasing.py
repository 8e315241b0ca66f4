"""What stays of a loop that was deleted, in the files of its store."""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from tests.kit.effort import examples
from toolloop.errors import StoreError
from toolloop.stores import Entry, Head, PendingCall, SqliteStore

_LOOPS = ("ana-1", "bob-2", "cleo-3")
_MARKS = {loop_id: f"secret-of-{loop_id}" for loop_id in _LOOPS}
_sizes = st.sampled_from((1, 50, 700, 9_000, 40_000))  # within a page, most of one, and several
_steps = st.lists(st.tuples(st.sampled_from(_LOOPS), _sizes, _sizes), max_size=25)


def text(loop_id: str, size: int) -> str:
    """A text with the loop's mark in each piece of it."""
    return f"{_MARKS[loop_id]} " * (1 + size // 16)


def head(loop_id: str, size: int) -> Head:
    call = PendingCall(
        ("c1",), ("send",), "approval", ("approve",), "d" * 64, input_text=f'{{"text": "{text(loop_id, size)}"}}'
    )
    return Head("needs_decision", pending=(call,))


def left_of(path: Path, loop_id: str) -> dict[str, int]:
    """How often the files of a store name a loop."""
    files = (path, Path(f"{path}-wal"))
    return {
        each.name: count
        for each in files
        if each.exists() and (count := each.read_bytes().count(_MARKS[loop_id].encode()))
    }


@examples(30)
@given(_steps, st.permutations(_LOOPS))
def test_no_text_of_a_deleted_loop_stays_in_the_file_or_its_log(
    steps: list[tuple[str, int, int]], order: list[str]
) -> None:
    """However its journal and its row grew and shrank beside those of others. The others are as they were."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "loops.db"
        with SqliteStore(path) as store:
            for loop_id in _LOOPS:
                mark = _MARKS[loop_id]
                store.create(loop_id, [Entry(f"{mark}-0", "{}")], head=head(loop_id, 50), metadata={"of": mark})
            for number, (loop_id, size, shown) in enumerate(steps, 1):
                entry = Entry(f"{_MARKS[loop_id]}-{number}", f'"{text(loop_id, size)}"', text(loop_id, shown))
                store.append(loop_id, [entry], expected_rev=None, head=head(loop_id, shown))
            for done, loop_id in enumerate(order, 1):
                rest = [(store.head(each), store.load(each)) for each in order[done:]]
                assert left_of(path, loop_id)
                store.delete(loop_id)
                assert store.vacuum() is True
                assert left_of(path, loop_id) == {}
                assert [(store.head(each), store.load(each)) for each in order[done:]] == rest


def test_while_another_program_reads_the_log_keeps_text_and_the_result_says_so(tmp_path: Path) -> None:
    path = tmp_path / "loops.db"
    with SqliteStore(path, busy_timeout=0.05) as store:
        for loop_id in _LOOPS[:2]:
            store.create(loop_id, [Entry("a", f'"{_MARKS[loop_id]}"')], head=Head("runnable"))
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT 1 FROM loops").fetchall()
            store.delete("ana-1")
            assert store.vacuum() is False
            assert [loop.loop_id for loop in store.list()] == ["bob-2"]
            assert left_of(path, "ana-1")
        assert store.vacuum() is True
        assert left_of(path, "ana-1") == {}
        with closing(sqlite3.connect(path, isolation_level=None)) as writer:
            writer.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError, match="is locked"):
                store.vacuum()
