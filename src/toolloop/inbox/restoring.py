"""Report that a store was restored from a backup."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from toolloop._interface.decisions import name_of
from toolloop._journal.records import make_id
from toolloop._journal.restoring import add_restored
from toolloop._journal.store_access import call_store
from toolloop._public import set_module
from toolloop.errors import LoopNotFound, StoreError
from toolloop.machine.values.names import Person
from toolloop.stores.arguments import require_store
from toolloop.stores.optional import NO_LIMIT, clock_of
from toolloop.stores.protocol import Store

_OPEN = ("needs_decision", "needs_command", "runnable", "running", "stopping", "failed")


@set_module("toolloop.inbox")
def mark_restored(
    store: Store, by: str | Person | None = None, *, via: str = "inbox", clock: Callable[[], float] = time.time
) -> tuple[str, ...]:
    """Report that a store was restored from a backup, before its loops are driven again. Return the ids of the loops.

    Each loop that has not ended then waits for a person: each open call waits for its decision again, and each call
    that was started is uncertain. Grants end, links that were made before are no longer valid, and a failed request is
    not retried without a command. A handle that has a loop open gets `Conflict`.

    Args:
        store: the store.
        by: the person who reports it, for the record.
        via: where, for the record.
        clock: seconds since the epoch; it counts only if the store has no clock.

    Raises:
        StoreError: the store failed, or some loops could not be marked. The others are; a second call marks all of them
            again.

    """
    require_store(store)
    now = partial(call_store, None, clock_of(store, clock))
    marked, failed = list[str](), list[str]()
    for row in call_store(None, partial(store.list, _OPEN, limit=NO_LIMIT)):
        try:
            add_restored(store, row.loop_id, {}, at=now(), entry_id=make_id(), by=name_of(by), via=via)
            marked.append(row.loop_id)
        except LoopNotFound:
            continue  # it was deleted meanwhile
        except StoreError as error:
            failed.append(f"{row.loop_id!r}: {error}")
    if failed:
        problems = "; ".join(failed)
        raise StoreError(f"{len(failed)} loops could not be marked as restored, {len(marked)} were: {problems}")
    return tuple(marked)
