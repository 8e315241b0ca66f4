"""Asking a store: every failure is a `StoreError`; and the state of a stored loop, as its journal says."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from toolloop.machine.errors import StoreError, UnreadableSnapshot
from toolloop.machine.state import State
from toolloop.stores.protocol import Store, StoredJournal

T = TypeVar("T")


def safely(loop_id: str, ask: Callable[[], T]) -> T:
    """Ask a store. Whatever it raises is a `StoreError`."""
    try:
        return ask()
    except StoreError:
        raise
    except Exception as error:
        raise StoreError(f"the store failed for the loop {loop_id!r}: {type(error).__name__}: {error}") from error


def load_state(store: Store, loop_id: str, rev: int | None = None) -> tuple[State, StoredJournal]:
    """Return the state of a stored loop, and its journal.

    Args:
        store: where it is.
        loop_id: the loop.
        rev: the state after so many events; None: after all of them.

    Raises:
        LoopNotFound: it is not there.
        UnreadableSnapshot: it is damaged, foreign, of a newer format, or a copy of another loop.
        StoreError: the store failed.

    """
    from toolloop.stores.codec import read_journal  # noqa: PLC0415 - cattrs is loaded when it is first needed

    journal = safely(loop_id, partial(store.load, loop_id))
    state = read_journal(journal.entries[:rev])
    if (found := state.root.setup.loop_id) != loop_id:
        raise UnreadableSnapshot(
            f"the journal that is stored as {loop_id!r} is of the loop {found!r}: it was copied. Open that "
            "loop, or use fork() to go on with a copy of its own"
        )
    return state, journal
