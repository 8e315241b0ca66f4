"""Compare the stored row of a loop with its journal."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from attrs import evolve

from toolloop._interface.heads import head_of
from toolloop._journal.store_access import call_store, load_journal, read_kept
from toolloop._journal.tally import Tally
from toolloop._public import set_module
from toolloop.errors import StaleRevision, StoreError, UnreadableSnapshot
from toolloop.machine.record.loop import State
from toolloop.stores.codec import decode_event, read_journal
from toolloop.stores.optional import keeps_tallies
from toolloop.stores.pending import PendingCall
from toolloop.stores.protocol import Store, StoredJournal, StoredLoop

# Not all: a later version may show a call by more, and only the row has the time since when it waits.
_COMPARED = ("names", "why", "digest", "expires_at", "input_text")


@set_module("toolloop.inbox")
def audit(store: Store, loop_id: str) -> tuple[str, ...]:
    """Compare the stored row of a loop with its journal, which is read from its first event.

    Args:
        store: the store.
        loop_id: the loop.

    Returns:
        The differences, one sentence each. If there are none, the journal is whole, and lists, pages and workers see
        the loop as it is.

    Raises:
        LoopNotFound: the loop does not exist.
        StoreError: the store failed.

    """
    try:
        row, state, tally, journal = _read(store, loop_id)
    except UnreadableSnapshot as error:
        return (str(error),)
    return (*_differences(row, state, store, tally), *_in_checkpoint(store, loop_id, journal))


@set_module("toolloop.inbox")
def recount(store: Store, loop_id: str) -> bool:
    """Count the statistics of a loop again from its journal, and store them. Return whether they were other ones.

    Statistics leave out ended loops of an earlier version, until they are counted.

    Args:
        store: the store.
        loop_id: the loop.

    Raises:
        LoopNotFound: the loop does not exist.
        StaleRevision: the loop changed meanwhile, which also counts it.
        UnreadableSnapshot: its journal is damaged.
        StoreError: the store failed.

    """
    row, _, tally, _ = _read(store, loop_id)
    stored = row.head.tally
    if not keeps_tallies(store) or (stored is not None and Tally.read(stored) == tally):
        return False
    guards: dict[str, Any] = {"expected_rev": row.rev, "instead_of": row.head}
    call_store(loop_id, partial(store.append, loop_id, (), head=evolve(row.head, tally=tally.write()), **guards))
    return True


def _read(store: Store, loop_id: str) -> tuple[StoredLoop, State, Tally, StoredJournal]:
    """Return the row of a loop, its state and tally by the journal, and the journal."""
    while True:
        row = call_store(loop_id, partial(store.head, loop_id))
        state, journal = load_journal(store, loop_id)
        if journal.rev == row.rev:  # otherwise an event was stored between the two
            return row, state, Tally.of(map(decode_event, journal.entries)), journal


def _in_checkpoint(store: Store, loop_id: str, journal: StoredJournal) -> Iterator[str]:
    """Yield what is wrong with the checkpoint of this version, if there is one."""
    try:
        if (known := read_kept(store, loop_id)) is not None:
            call_store(loop_id, partial(store.load, loop_id, after=known.rev, first_id=known.first_id))
    except StaleRevision:
        return  # it is of a lost branch, so that no version uses it
    except StoreError as error:
        yield f"its checkpoint cannot be used: {error}"
        return
    if known is None or known.rev > journal.rev:  # a driver has kept one meanwhile
        return
    if read_journal(journal.entries[: known.rev]) != known.state:
        yield f"its checkpoint at revision {known.rev} has another state than its journal"


def _differences(row: StoredLoop, state: State, store: Store, tally: Tally) -> Iterator[str]:
    head = row.head
    key = partial(call_store, row.loop_id, store.secret)
    parts: dict[str, Any] = {"is_handed_over": row.status == "needs_command", "earlier": head, "key": key}
    expected = head_of(state, head.changed, **parts)
    # A worker also calls a loop failed that it cannot drive, which is no event of the loop.
    if row.status not in (expected.status, "failed"):
        yield f"the loop is listed as {row.status}, but by its journal it is {expected.status}"
    if head.deadline != expected.deadline:
        yield f"its next deadline is listed as {head.deadline}, but by its journal it is {expected.deadline}"
    if keeps_tallies(store) and (head.tally is None or Tally.read(head.tally) != tally):
        yield "its statistics are not those of its journal, as after an earlier version of toolloop wrote to it"
    shown, waiting = _by_path(row.pending), _by_path(expected.pending)
    for path in shown.keys() | waiting.keys():
        name = "/".join(path)
        if path not in waiting:
            yield f"the call {name} is listed as waiting, but by its journal it does not wait"
        elif path not in shown:
            yield f"the call {name} waits, but it is not listed"
        elif shown[path] != waiting[path]:
            differ = [field for field in _COMPARED if shown[path][field] != waiting[path][field]]
            yield f"the call {name} is listed with another {' and '.join(differ)} than in its journal"


def _by_path(calls: tuple[PendingCall, ...]) -> dict[tuple[str, ...], dict[str, Any]]:
    return {call.path: {field: getattr(call, field) for field in _COMPARED} for call in calls}
