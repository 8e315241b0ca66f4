"""Call a store, with every failure as a `StoreError`; and read the state of a stored loop from its journal."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from toolloop.errors import StoreError, UnreadableSnapshot
from toolloop.machine.record.state import State
from toolloop.stores.protocol import Store, StoredJournal

T = TypeVar("T")


def safely(loop_id: str, ask: Callable[[], T]) -> T:
    """Call a store. Every exception becomes a `StoreError`."""
    try:
        return ask()
    except StoreError:
        raise
    except Exception as error:
        raise StoreError(f"the store failed for the loop {loop_id!r}: {type(error).__name__}: {error}") from error


def load_state(store: Store, loop_id: str, rev: int | None = None) -> tuple[State, StoredJournal]:
    """Return the state of a stored loop, and its journal.

    Args:
        store: the store.
        loop_id: the id of the loop.
        rev: the number of events to apply; None means all.

    Raises:
        LoopNotFound: it does not exist.
        UnreadableSnapshot: it is damaged, not from toolloop, in a newer format, or a copy of another loop.
        StoreError: the store failed.

    """
    from toolloop.stores.codec import read_journal  # noqa: PLC0415 - cattrs is loaded when it is first needed

    journal = safely(loop_id, partial(store.load, loop_id))
    state = read_journal(journal.entries[:rev])
    if (found := state.root.setup.loop_id) != loop_id:
        raise UnreadableSnapshot(
            f"the journal stored as {loop_id!r} belongs to the loop {found!r}: it was copied. Open that "
            "loop, or use fork() to continue with an independent copy"
        )
    return state, journal
