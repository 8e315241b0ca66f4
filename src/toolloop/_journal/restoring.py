"""A store that was restored from a backup, so that its journals lack events that a process remembers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from attrs import evolve

from toolloop._interface.heads import head_of
from toolloop._journal.records import Run
from toolloop._journal.store_access import call_store, load_journal
from toolloop._journal.tally import Tally
from toolloop.errors import Conflict, LoopNotFound, StaleRevision
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import TooDeep
from toolloop.machine.tree import step
from toolloop.stores.optional import keeps_tallies
from toolloop.stores.protocol import Entry, Store


def add_restored(  # noqa: PLR0913 - the parts of the record, by name
    store: Store,
    loop_id: str,
    runs: Mapping[str, Run],
    *,
    at: float,
    entry_id: str,
    first_id: str | None = None,
    by: str | None = None,
    via: str | None = None,
) -> None:
    """Record in a loop that its store was restored. With `runs`: only if its journal lacks one of them.

    Args:
        store: the store.
        loop_id: the id of the loop.
        runs: the runs of calls that were started, by the ids of the entries of their starts.
        at: the time, in seconds since the epoch.
        entry_id: the id of the entry, so that a repetition changes nothing.
        first_id: the id of the first entry of the journal, if it is known.
        by: the person who reports it; None if a driver has noticed it.
        via: where.

    Raises:
        LoopNotFound: the loop does not exist, or is another one.
        StoreError: the store failed.

    """
    while True:
        state, journal = load_journal(store, loop_id)
        ids = {entry.id for entry in journal.entries}
        if first_id not in (None, journal.entries[0].id):
            raise LoopNotFound(f"loop {loop_id!r} was deleted and created again", loop_id=loop_id)
        lost = tuple(run for name, run in runs.items() if name not in ids)
        if entry_id in ids or isinstance(state.root.phase, TooDeep) or (runs and not lost):
            return
        event = ev.Restored(lost, by, via, at=at)
        after = step(state, event)
        head = head_of(after, at, is_handed_over=True, key=partial(call_store, loop_id, store.secret))
        # The failed request of a loop is not retried before a person asks for it.
        head = evolve(head, retryable=False, retry_at=None, tally=_count(store, journal.entries, event))
        known: dict[str, Any] = {"expected_rev": journal.rev, "first_id": journal.entries[0].id}
        try:
            call_store(loop_id, partial(store.append, loop_id, [_make_entry(entry_id, event)], head=head, **known))
        except StaleRevision:
            continue  # another process was faster
        return


def _count(store: Store, entries: Iterable[Entry], event: ev.Event) -> str | None:
    """Return the tally of a journal with one more event, if the store keeps it."""
    from toolloop.stores.codec import decode_event  # noqa: PLC0415 - cattrs is loaded when it is first needed

    return Tally.of([*map(decode_event, entries), event]).write() if keeps_tallies(store) else None


def _make_entry(entry_id: str, event: ev.Event) -> Entry:
    from toolloop.stores.codec import encode_event  # noqa: PLC0415 - cattrs is loaded when it is first needed

    return encode_event(entry_id, event)


def make_set_back_error(loop_id: str) -> Conflict:
    """Return the error for a journal that remembers events which its store has lost."""
    return Conflict(
        f"the store of the loop {loop_id!r} was restored from a backup, and does not have the events that this handle "
        "has stored or read. The handle cannot continue. Calls that it had started wait as uncertain. Open the loop "
        "again",
        loop_id=loop_id,
    )
