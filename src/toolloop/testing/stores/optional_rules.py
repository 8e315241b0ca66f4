"""The rules for the optional members of a store. See `stores/optional.py`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import product
from typing import Any

from attrs import evolve

from toolloop.stores.pending import PendingCall
from toolloop.stores.protocol import Head
from toolloop.testing.stores.checks import READY, MakeStore, emptied, entries, same

_CALL = PendingCall(("c",), ("pay",), "approval", ("approve",), "12ab")
_HEADS = [
    *(Head(status) for status in ("runnable", "running", "stopping", "needs_command", "ended")),
    *(Head("needs_decision", deadline, (_CALL,)) for deadline in (None, 0.0, 5.0, 7.25)),
    *(Head("failed", retry_at=retry_at) for retry_at in (None, 0.0, 5.0, 7.25)),
]
_PATIENCE = 60.0  # seconds


def due_loops_are_those_of_the_list(make: MakeStore) -> None:
    """`list_due` returns the loops of `list` with a `due_at` up to the time, and the least `due_at` after it."""
    store: Any = emptied(make)
    if not hasattr(store, "list_due"):
        return
    for number, (head, is_leased) in enumerate(product(_HEADS, (False, True))):
        store.create(f"{number}", entries("a"), head=READY)
        store.append(f"{number}", entries("b"), expected_rev=1, head=head)
        if is_leased:
            store.acquire(f"{number}", "me", until=1.0)
    rows = store.list(limit=1000)
    moments = sorted({row.due_at for row in rows if row.due_at is not None})
    for now in (-1.0, *moments, 6.0, 1e10):
        due, later = store.list_due(now)
        expected = [row for row in rows if row.due_at is not None and row.due_at <= now]
        same(f"list_due at {now}", sorted(due, key=lambda row: -int(row.loop_id)), expected)
        same(f"the time after list_due at {now}", later, min((at for at in moments if at > now), default=None))


def a_marked_loop_is_listed_after_its_next_event(make: MakeStore) -> None:
    """`list_unnotified` returns the loops with waiting calls, without those that are marked at their revision."""
    store: Any = emptied(make)
    if not hasattr(store, "list_unnotified"):
        return
    waiting = Head("needs_decision", pending=(_CALL,))
    for loop_id, head in (("other", READY), ("first", waiting), ("failed", evolve(waiting, status="failed"))):
        store.create(loop_id, entries("a"), head=head)

    def listed() -> list[str]:
        return sorted(row.loop_id for row in store.list_unnotified())

    same("list_unnotified", listed(), ["failed", "first"])
    before = store.list_unnotified()
    store.mark_notified([row for row in before if row.loop_id == "first"])
    same("list_unnotified after the mark", listed(), ["failed"])
    store.append("first", [], expected_rev=1, head=evolve(waiting, changed=1.0))
    same("list_unnotified after a new head at the same revision", listed(), ["failed"])
    store.append("first", entries("b"), expected_rev=1, head=waiting)
    same("list_unnotified after a further event", listed(), ["failed", "first"])
    store.mark_notified(before)
    same("list_unnotified after a mark at an earlier revision", listed(), ["first"])


def a_change_is_reported(make: MakeStore) -> None:
    """While `watch` runs, the function is called after a change by another user of the store."""
    store: Any = emptied(make)
    if not hasattr(store, "watch"):
        return
    told = threading.Semaphore(0)
    with store.watch(told.release):
        told.acquire(timeout=1.0)  # of changes before
        acts: tuple[Callable[[], object], ...] = (
            lambda: store.create("loop", entries("a"), head=READY),
            lambda: store.append("loop", entries("b"), expected_rev=1, head=Head("running")),
            lambda: store.delete("loop"),
        )
        for act in acts:
            act()
            is_told = told.acquire(timeout=_PATIENCE)
            same("calls of the function after a change", is_told, True)  # noqa: FBT003 - the expected value


def progress_is_kept_beside_the_lease(make: MakeStore) -> None:
    """`progress` returns the last text of the current lease, and no event or head changes with it."""
    store: Any = emptied(make)
    if not hasattr(store, "keep_progress"):
        return
    same("progress() of no loop", store.progress("loop"), None)
    store.create("loop", entries("a"), head=READY)
    store.create("other", entries("a"), head=READY)
    first, other = (store.acquire(name, "me", until=1.0) for name in ("loop", "other"))
    same("progress() of a new lease", store.progress("loop"), None)
    before = store.head("loop")
    for text in ("1", "\\u0000 \n", None, "2"):
        store.keep_progress(first, text)
        same("progress() of the lease", store.progress("loop"), text)
    same("the row beside a progress", store.head("loop"), before)
    same("progress() of another loop", store.progress("other"), None)
    store.keep_progress(other, "other")
    store.release(first)
    same("progress() without a lease", store.progress("loop"), None)
    second = store.acquire("loop", "you", until=1.0)
    same("progress() of the next lease", store.progress("loop"), None)
    store.keep_progress(first, "late")
    same("progress() after a text of a lease that is over", store.progress("loop"), None)
    store.keep_progress(second, "3")
    third = store.acquire("loop", "she", until=1.0, instead_of=second.token)
    same("progress() after the lease was replaced", store.progress("loop"), None)
    store.keep_progress(third, "4")
    same("progress() of the lease in its place", store.progress("loop"), "4")
    store.delete("loop")
    store.keep_progress(third, "5")
    same("progress() of a deleted loop", store.progress("loop"), None)
    same("progress() of the loop beside it", store.progress("other"), "other")


OPTIONAL_RULES = (
    due_loops_are_those_of_the_list,
    a_marked_loop_is_listed_after_its_next_event,
    a_change_is_reported,
    progress_is_kept_beside_the_lease,
)
