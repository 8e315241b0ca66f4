"""A journal stores an edit as an edit: what is new, and nothing of what stayed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from toolloop import ToolLoopHandle
from toolloop.machine import HistoryEdited, fold
from toolloop.stores import MemoryStore
from toolloop.stores.codec import decode_event
from toolloop.testing import ScriptedProvider, reply

LONG = "words " * 50
MESSAGES: list[dict[str, Any]] = [
    {"role": role, "content": f"{role} {n}: {LONG}"} for n in range(500) for role in ("user", "assistant")
]
ASKED: dict[str, Any] = {"role": "user", "content": "So?"}
Edit = Callable[[list[Any]], Any]


def drop(working: list[Any]) -> None:
    del working[:700]


def mask(working: list[Any]) -> None:
    for place in range(100, 1000, 90):
        working[place] = {"role": working[place]["role"], "content": f"masked {place}"}


def put_a_summary_first(working: list[Any]) -> None:
    working[:900] = [{"role": "user", "content": "Summary: nothing yet."}]


@pytest.mark.parametrize(
    ("edit", "splices", "texts"),
    [(drop, 1, 0), (mask, 10, 10), (put_a_summary_first, 1, 1)],
    ids=["dropped", "masked", "summed up"],
)
def test_an_edit_costs_what_is_new_in_it(edit: Edit, splices: int, texts: int) -> None:
    """A dropped prefix of a thousand messages, or ten of them masked: the rest is not written once more."""
    store = MemoryStore()
    with ToolLoopHandle(
        ScriptedProvider([reply("fine"), reply("bye")]),
        params={"model": "claude-opus-5-5", "max_tokens": 64, "messages": [*MESSAGES, ASKED]},
        store=store,
        loop_id="loop",
    ) as handle:
        handle.run()
        before = len(store.load("loop").entries)
        edit(handle.messages_mut())
        expected = list(handle.messages_mut())
        handle.follow_up([ASKED])
        assert list(handle.messages) == [*expected, ASKED]
        handle.run()
    entries = store.load("loop").entries
    assert len("".join(entry.body for entry in entries[:before])) > 300_000
    (edited,) = (event for event in map(decode_event, entries[before:]) if isinstance(event, HistoryEdited))
    assert len(edited.splices) == splices
    assert sum(len(splice.messages) for splice in edited.splices) == texts
    assert sum(len(entry.body) for entry in entries[before:]) < 3_000 + 100 * texts
    assert len(fold(map(decode_event, entries)).root.messages) == len(expected) + 2
