"""Write batches of records to a store, each with the head of the loop after it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from attrs import Factory, evolve, field, frozen

from toolloop._interface.heads import PendingRows, head_of
from toolloop._journal.records import PendingRecord
from toolloop._journal.store_access import KNOWN, Known, Place, Weight, call_store, keep_checkpoint
from toolloop._journal.tally import Tally, count_journal, find_counted
from toolloop.machine.queries import status_of, waiting
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import Failed, Finished, State, Waiting
from toolloop.stores.optional import count_bytes_to_checkpoint, keeps_checkpoints, keeps_tallies
from toolloop.stores.protocol import Entry, Head, Lease

_AT_REST = (Waiting, Finished, Failed)  # phases in which it is the caller's turn


@frozen
class Batch:
    """Records that are sent to a store at once, as they are at that moment: they may be rebased before its answer.

    Attributes:
        records: the records.
        before: the state that they follow.
        rev: the revision of that state.
        first_id: the id of the first event of the journal.
        is_handed_over: whether it is the turn of this driver's caller; see `status_of`.
        is_sure: whether none of them may be stored already.
        entries: their entries.
        steps: their events, each with the state after it.
        lease: the lease under which they were recorded, if any.
        after: the state after them.

    """

    records: tuple[PendingRecord, ...]
    before: State
    rev: int
    first_id: str | None
    is_handed_over: bool
    is_sure: bool
    entries: list[Entry] = field(
        init=False, default=Factory(lambda batch: [item.entry for item in batch.records], takes_self=True)
    )
    steps: list[tuple[ev.Event, State]] = field(
        init=False, default=Factory(lambda batch: [(item.event, item.after) for item in batch.records], takes_self=True)
    )
    lease: Lease | None = field(
        init=False,
        default=Factory(
            lambda batch: next((each.lease for each in batch.records if each.lease), None), takes_self=True
        ),
    )
    after: State = field(init=False, default=Factory(lambda batch: batch.steps[-1][1], takes_self=True))


class BatchWriter:
    """Writes the records of one loop. It remembers the last head that was stored."""

    def __init__(self, place: Place, loop_id: str) -> None:
        """Begin without a stored head."""
        self._store = place.store
        self._metadata = place.metadata
        self._loop_id = loop_id
        self._key: str | None = None
        self._rows = PendingRows()
        self._written: tuple[int, Head | None] = 0, None  # the last head that was stored here, and its revision
        self._tally: tuple[int, Tally | None] = 0, None  # likewise, of the tally
        self._counted: Tally | None = None  # the tally of the head that was made last; None if it is not known
        self._weight = place.weight
        self._keeps, self._least = keeps_checkpoints(place.store), count_bytes_to_checkpoint(place.store)
        self._has_ended_turn = False  # since a state was left
        # The last stored state without an open round: then a reader of a checkpoint has all about each open call.
        self._closed: tuple[State, int, Weight] | None = None

    def write(self, batch: Batch, now: float) -> int | None:
        """Store a batch, and return the revision after it. `now`: seconds since the epoch.

        Returns:
            The revision; None if the store may have other records than these behind the revision of the batch.

        Raises:
            Conflict: others were first, or the lease is lost.
            StoreError: the store failed, and may have stored the batch.

        """
        head, store, entries = self._make_head(batch, now), self._store, batch.entries
        if batch.rev == 0:
            metadata = merge_metadata(self._metadata, batch.after)
            append = partial(store.create, self._loop_id, entries, head=head, metadata=metadata)
        else:
            if batch.before.root.metadata != batch.after.root.metadata:
                known = call_store(self._loop_id, partial(store.head, self._loop_id)).metadata
                head = evolve(head, metadata=merge_metadata(known, batch.after))
            guards: dict[str, Any] = {"expected_rev": batch.rev, "first_id": batch.first_id, "lease": batch.lease}
            append = partial(store.append, self._loop_id, entries, head=head, **guards)
        rev = call_store(self._loop_id, append)
        if not batch.is_sure or rev != batch.rev + len(entries):
            return None
        self._written = rev, head
        self._tally = rev, self._counted
        self._weight = self._weight.plus(entries)
        self._has_ended_turn |= any(isinstance(after.root.phase, _AT_REST) for _, after in batch.steps)
        if batch.after.root.phase.round is None:
            self._closed = batch.after, rev, self._weight
        return rev

    def count(self, entries: Iterable[Entry]) -> None:
        """Count the weight of stored events."""
        self._weight = self._weight.plus(entries)

    def leave(self, state: State, rev: int, first_id: str | None, lease: Lease | None) -> None:
        """At the end of a turn, leave the stored state to those who open the loop next. A driver keeps checkpoints."""
        if self._has_ended_turn and first_id is not None:
            self._has_ended_turn = False
            if self._keeps and lease is not None:
                self._keep_checkpoint(state, rev, first_id, lease)
            KNOWN.value.keep(self._store, Known(state, rev, first_id, self._weight))

    def _keep_checkpoint(self, state: State, rev: int, first_id: str, lease: Lease) -> None:
        """Keep a checkpoint, if it is due: of a state without an open round, unless there was none for long."""
        if self._closed is not None and self._closed[-1].is_due(self._least, is_open=False):
            known = Known(*self._closed[:2], first_id, self._closed[-1])
        elif self._weight.is_due(self._least, is_open=True):
            known = Known(state, rev, first_id, self._weight)
        else:
            return
        weight, self._closed = keep_checkpoint(self._store, lease, known), None
        self._weight = evolve(weight, behind=weight.behind + self._weight.behind - known.weight.behind)

    def _make_head(self, batch: Batch, now: float) -> Head:
        """Return the head after a batch. `attempts` is 0 after an answered request."""
        before, after, is_handed_over = batch.before, batch.after, batch.is_handed_over
        if not is_handed_over and batch.rev and status_of(before) == status_of(after) == "needs_command":
            row = call_store(self._loop_id, partial(self._store.head, self._loop_id))
            is_handed_over = row.status == "needs_command"  # it is still the turn of another driver's caller
        attempts = 0 if any(isinstance(event, ev.Replied) for event, _ in batch.steps) else None
        earlier = self._find_earlier(before, after, batch.rev)
        parts: dict[str, Any] = {"is_handed_over": is_handed_over, "attempts": attempts, "earlier": earlier}
        head = head_of(after, now, **parts, key=self._read_secret, rows=self._rows)
        first = batch.steps[0][0]
        head = evolve(head, forked_from=first.forked_from) if isinstance(first, ev.Adopted) else head
        return evolve(head, tally=self._count(batch.steps, before, batch.rev)) if keeps_tallies(self._store) else head

    def _find_earlier(self, before: State, after: State, rev: int) -> Head | None:
        """Return the stored head if its calls may still wait: only a head has the time since when."""
        if not rev or not waiting(after) or not waiting(before):
            return None
        at, head = self._written
        return head if at == rev else call_store(self._loop_id, partial(self._store.head, self._loop_id)).head

    def _count(self, steps: Sequence[tuple[ev.Event, State]], before: State, rev: int) -> str | None:
        """Return the tally after these events, as text; None if they do not change it."""
        if not rev:  # a new loop
            (_, before), *steps = steps
        states = [before, *[after for _, after in steps]]
        found = [find_counted(states[place], event, after) for place, (event, after) in enumerate(steps)]
        if rev:
            self._counted = known = self._tally[1] if self._tally[0] == rev else None
            if not any(found):
                return None
            tally = self._read_tally(rev) if known is None else known.copy()
        else:
            tally = Tally()
            tally.begin(before)
        for each in found:
            if each is not None:
                tally.count(each)
        self._counted = tally
        return tally.write()

    def _read_tally(self, rev: int) -> Tally:
        """Return the tally in the row of the loop; without one, that of its journal up to a revision."""
        text = call_store(self._loop_id, partial(self._store.head, self._loop_id)).head.tally
        return count_journal(self._store, self._loop_id, rev) if text is None else Tally.read(text)

    def _read_secret(self) -> str:
        """Return the secret of the store, which it is asked for once."""
        if self._key is None:
            self._key = call_store(self._loop_id, self._store.secret)
        return self._key


def merge_metadata(known: Mapping[str, str], state: State) -> dict[str, str]:
    """Return the metadata of a loop. `known`: that of its row, now or earlier."""
    changed = {**known, **dict(state.root.metadata)}
    return {key: value for key, value in changed.items() if value is not None}
