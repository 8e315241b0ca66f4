"""What a worker reads of a store in which many loops wait: nothing while nothing happens, and little for a change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.measured.benchmarks.deciding import CountingRows, fill
from tests.measured.benchmarks.stored import ask_first
from toolloop import Approve, Deny, Inbox, Worker
from toolloop.testing import ScriptedProvider, reply


@pytest.mark.parametrize("notify", [None, lambda _: None])
@pytest.mark.parametrize("decision", [Approve(), Deny("no")])
def test_an_idle_poll_reads_no_row_and_a_change_at_most_three(notify: Any, decision: Any, tmp_path: Path) -> None:
    """Beside loops that wait for people, with a drive of the decided loop to its end and all polls after it."""
    with CountingRows(tmp_path / "loops.db") as store:
        (decided,) = fill(store, beside=30, decisions=1)
        worker = Worker(store, ScriptedProvider([reply("Done.")]), [ask_first], notify=notify)
        for _ in range(2):  # it notes once that all were notified
            worker.run_once()
        store.rows = 0
        for _ in range(3):
            worker.run_once()
        assert store.rows == 0
        (call,) = store.head(decided).pending
        Inbox(store).decide(decided, {call.id: decision})
        assert worker.run_once() == 1
        for _ in range(3):
            worker.run_once()
        assert store.head(decided).status == "ended"
        assert 0 < store.rows <= 3
