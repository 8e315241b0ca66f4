"""The pairs of the machine's table that only another thread can bring about, at the right moment: one by one."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest

from tests.handle.concurrency import Background, awaited
from tests.handle.support import completed, params, yielded
from tests.properties.counting import StoredJournal, Way
from toolloop import Continue, Deny, MemoryStore, ToolLoopHandle, tool
from toolloop.core import events as ev
from toolloop.core.states import Requesting
from toolloop.errors import Conflict
from toolloop.testing import ScriptedProvider, call, reply


def test_a_late_end_comes_while_another_driver_asks_the_model() -> None:
    """It is kept, and changes nothing: its call was denied meanwhile. The driver that was slow is told."""
    store, taken = MemoryStore(), Counter[Way]()
    started, may_end = threading.Event(), threading.Event()

    @tool
    def slow() -> str:
        """Take long."""
        started.set()
        awaited(may_end)
        return "at last"

    def while_asked(request: Any) -> dict[str, Any]:
        may_end.set()
        with pytest.raises(Conflict):
            first.result()
        return reply("done")

    parts: dict[str, Any] = {"tools": [slow], "params": params()}
    asking = ScriptedProvider([reply(calls=[call("slow", {}, id="toolu_1")])])
    first = Background(ToolLoopHandle.open(store, "one", asking, **parts).next_turn)
    awaited(started)
    second = ToolLoopHandle.open(store, "one", ScriptedProvider(while_asked), **parts, take_over=True)
    yielded(second.next_turn())
    second.decide({"toolu_1": Deny("it takes too long")})
    second.resume(Continue())
    yielded(second.next_turn())
    second.resume(Continue())
    assert completed(second.next_turn()).text == "done"

    journal = StoredJournal(store, "one", taken)
    assert journal.read_on() == second.state
    assert taken[Requesting, ev.Ended, Requesting] == 1
    assert "at last" not in str(second.messages)
