"""What the tests of stores share."""

from __future__ import annotations

from typing import Any

from toolloop.stores import Entry, Head, Store

READY = Head("runnable")
HUMAN = Head("needs_decision", 1_800_000_000.5)


def entries(*names: str) -> list[Entry]:
    return [Entry(name, f'{{"event":"{name}"}}') for name in names]


def contents(store: Store) -> list[Any]:
    """Everything in a store."""
    loops = store.list(limit=100_000)
    return [(loop, store.load(loop.loop_id)) for loop in loops]
