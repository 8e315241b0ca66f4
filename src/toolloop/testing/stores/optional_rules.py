"""The rules for the optional members of a store. See `stores/optional.py`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from itertools import product
from math import inf
from typing import Any

from attrs import evolve

from toolloop.stores.pending import PendingCall
from toolloop.stores.protocol import Head, Left, StoredLoop
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


def metadata_limits_what_is_due_unnotified_and_counted(make: MakeStore) -> None:
    """`list_due`, `list_unnotified` and `count` take the metadata of `list`."""
    store: Any = emptied(make)
    now = 6.5
    kinds: tuple[dict[str, str], ...] = ({}, {"agent": "desk"}, {"agent": "desk", "team": "a"}, {"agent": "night"})
    for number, metadata in enumerate(kinds):
        for head in (Head("needs_decision", 5.0 + number, (evolve(_CALL, expires_at=5.0 + number), _CALL)), READY):
            loop_id = f"{head.status} {number}"
            store.create(loop_id, entries("a"), head=head, metadata=metadata)
    for wanted in (None, *kinds, {"agent": "none"}):
        rows = store.list(metadata=wanted)
        if hasattr(store, "list_due"):
            due, later = store.list_due(now, metadata=wanted)
            moments = [(row.due_at or 0.0, row.loop_id) for row in rows]
            expected = sorted(loop_id for at, loop_id in moments if at <= now)
            same(f"list_due of {wanted}", sorted(row.loop_id for row in due), expected)
            same(f"the time after it, of {wanted}", later, min((at for at, _ in moments if at > now), default=None))
        if hasattr(store, "list_unnotified"):
            unnotified = sorted(row.loop_id for row in store.list_unnotified(metadata=wanted))
            same(f"list_unnotified of {wanted}", unnotified, sorted(row.loop_id for row in rows if row.pending))
        if hasattr(store, "count"):
            waits = sum(call.expires_at is None or call.expires_at > now for row in rows for call in row.pending)
            statuses = {row.status: len(rows) // 2 for row in rows}
            same(f"count of {wanted}", store.count(now, metadata=wanted), (statuses, waits))


def metadata_may_have_alternatives(make: MakeStore) -> None:
    """With `takes_alternatives`, a list of metadata selects the loops that have all of one of them."""
    store: Any = emptied(make)
    if not getattr(store, "takes_alternatives", False):
        return
    kinds: tuple[dict[str, str], ...] = ({}, {"a": "1"}, {"a": "1", "b": "2"}, {"b": "2"}, {"b": "'\"%\\ 2"})
    for number, metadata in enumerate(kinds):
        head = Head("needs_decision", 5.0 + number, (evolve(_CALL, expires_at=5.0 + number), _CALL))
        store.create(f"{number}", entries("a"), head=head, metadata=metadata)
    none: list[dict[str, str]] = []
    for wanted in (none, *([one] for one in kinds), *([one, other] for one, other in product(kinds, kinds)), [*kinds]):
        rows = [row for row in store.list() if any(each.items() <= row.metadata.items() for each in wanted)]
        ids = [row.loop_id for row in rows]
        same(f"list of {wanted}", [row.loop_id for row in store.list(metadata=wanted)], ids)
        page = store.list("needs_decision", metadata=wanted, limit=1)
        rest = [store.list(metadata=wanted, before=row.cursor) for row in page]
        same(f"list of {wanted} by page", [row.loop_id for each in (page, *rest) for row in each], ids)
        if hasattr(store, "count"):
            waits = sum(call.expires_at is None or call.expires_at > 6.5 for row in rows for call in row.pending)  # noqa: PLR2004 - a time
            expected = ({"needs_decision": len(rows)} if rows else {}, waits)
            same(f"count of {wanted}", store.count(6.5, metadata=wanted), expected)
        for name, arguments in (("list_due", (5.5,)), ("list_unnotified", ())):
            if hasattr(store, name):
                found = getattr(store, name)(*arguments, metadata=wanted)
                found = found[0] if name == "list_due" else found
                due = [row.loop_id for row in rows if name != "list_due" or (row.due_at or 0.0) <= 5.5]  # noqa: PLR2004 - likewise
                same(f"{name} of {wanted}", sorted(row.loop_id for row in found), sorted(due))


def a_loop_that_is_left_says_so_until_it_is_driven(make: MakeStore) -> None:
    """`mark_left` keeps the first time of a reason, at one revision, until the lease of the loop is acquired."""
    store: Any = emptied(make)
    if not hasattr(store, "mark_left"):
        return
    store.create("loop", entries("a"), head=READY)
    same("left of a new loop", store.head("loop").left, None)
    first, before = Left("it lacks 'pay'", ("pay",), 1.5), store.head("loop")
    store.mark_left(before, first)
    same("left after a mark", (store.head("loop").left, store.list()[0].left), (first, first))
    store.mark_left(before, evolve(first, since=2.5))
    same("left after the same mark again", store.head("loop").left, first)
    store.append("loop", entries("b"), expected_rev=1, head=READY)
    same("left after an event", store.head("loop").left, None)
    store.mark_left(before, first)
    same("left after a mark at an earlier revision", store.head("loop").left, None)
    store.mark_left(store.head("loop"), evolve(first, since=3.5))
    same("left after the same mark at a later revision", store.head("loop").left, first)
    other = Left("it lacks 'look'", ("look",), 4.5)
    store.mark_left(store.head("loop"), other)
    same("left for another reason", store.head("loop").left, other)
    free = store.head("loop")
    store.release(store.acquire("loop", "me", until=1.0))
    same("left after the loop was driven", store.head("loop").left, None)
    store.acquire("loop", "me", until=1.0)
    store.mark_left(free, other)
    same("left after a mark beside a new lease", store.head("loop").left, None)


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


def ids_of(rows: Iterable[StoredLoop]) -> list[str]:
    """Return the ids of loops, in order."""
    return sorted(row.loop_id for row in rows)


def a_reminder_is_listed_when_it_is_due(make: MakeStore) -> None:
    """`list_reminders` returns the loops whose `remind_at` of the last mark has come, while calls wait."""
    store: Any = emptied(make)
    if not hasattr(store, "list_reminders"):
        return
    for number, agent in enumerate(("desk", "night", "desk")):
        head = Head("needs_decision", None, (_CALL,))
        store.create(f"{number}", entries("a"), head=head, metadata={"agent": agent})
    rows = store.list()[::-1]
    store.mark_notified(rows, [5.0, 7.0, inf])
    for now, expected in ((4.9, []), (5.0, ["0"]), (7.0, ["0", "1"]), (1e10, ["0", "1"])):
        same(f"list_reminders at {now}", ids_of(store.list_reminders(now)), expected)
    by_agent = store.list_reminders(9.0, metadata={"agent": "desk"})
    same("list_reminders by metadata", [row.loop_id for row in by_agent], ["0"])
    same("list_unnotified after the marks", store.list_unnotified(), [])
    store.mark_notified(rows[:1], [9.0])
    store.mark_notified(rows[1:])
    same("list_reminders after a later mark", store.list_reminders(8.0), [])
    store.mark_notified(rows, [-8.0, -inf, 8.0])
    same("list_reminders of negative times", ids_of(store.list_reminders(1.0)), ["0", "1"])
    same("list_reminders since -7", ids_of(store.list_reminders(7.0, since=-7.0)), [])
    same("list_reminders since -8", ids_of(store.list_reminders(8.0, since=-8.0)), ["0", "2"])
    store.mark_notified(rows, [8.0, inf, inf])
    store.append("0", entries("b"), expected_rev=1, head=READY)
    same("list_reminders without a waiting call", store.list_reminders(1e10), [])


def a_change_is_reported(make: MakeStore) -> None:
    """While `watch` runs, the function is called after a change by another user of the store."""
    store: Any = emptied(make)
    if not hasattr(store, "watch"):
        return
    changes = threading.Semaphore(0)
    with store.watch(changes.release):
        changes.acquire(timeout=1.0)  # of changes before
        acts: tuple[Callable[[], object], ...] = (
            lambda: store.create("loop", entries("a"), head=READY),
            lambda: store.append("loop", entries("b"), expected_rev=1, head=Head("running")),
            lambda: store.delete("loop"),
        )
        for act in acts:
            act()
            is_reported = changes.acquire(timeout=_PATIENCE)
            same("calls of the function after a change", is_reported, True)  # noqa: FBT003 - the expected value


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


def a_checkpoint_is_kept_by_the_holder_of_the_lease(make: MakeStore) -> None:
    """`checkpoint` returns the newest of each meaning, as long as the loop exists; no event or head changes with it."""
    store: Any = emptied(make)
    if not hasattr(store, "keep_checkpoint"):
        return

    def kept() -> list[bytes | None]:
        return [store.checkpoint("loop", meaning=meaning) for meaning in (1, 2)]

    same("checkpoint() of no loop", kept(), [None, None])
    revs = [store.create("loop", entries("a"), head=READY)]
    for name in "bcd":
        revs.append(store.append("loop", entries(name), expected_rev=revs[-1]))
    lease = store.acquire("loop", "me", until=1.0)
    before = store.load("loop"), store.head("loop")
    steps: tuple[tuple[bytes, int, int, list[bytes | None]], ...] = (
        (b"\0one\xff", 2, 1, [b"\0one\xff", None]),
        (b"older", 1, 1, [b"\0one\xff", None]),
        (b"other", 2, 2, [b"\0one\xff", b"other"]),
        (b"newer", 3, 1, [b"newer", b"other"]),
    )
    for body, number, meaning, expected in steps:
        store.keep_checkpoint(lease, body, rev=revs[number - 1], meaning=meaning)
        same(f"checkpoint() after {body!r}", kept(), expected)
    same("the loop beside a checkpoint", (store.load("loop"), store.head("loop")), before)
    store.create("other", entries("a"), head=READY)
    same("checkpoint() of another loop", store.checkpoint("other", meaning=1), None)
    store.release(lease)
    store.keep_checkpoint(lease, b"late", rev=revs[-1], meaning=1)
    same("checkpoint() after one without the lease", kept(), [b"newer", b"other"])
    store.delete("loop")
    store.keep_checkpoint(lease, b"late", rev=revs[-1], meaning=1)
    same("checkpoint() of a deleted loop", kept(), [None, None])
    store.create("loop", entries("a"), head=READY)
    same("checkpoint() of a loop with the same id", kept(), [None, None])


OPTIONAL_RULES = (
    due_loops_are_those_of_the_list,
    metadata_limits_what_is_due_unnotified_and_counted,
    metadata_may_have_alternatives,
    a_loop_that_is_left_says_so_until_it_is_driven,
    a_marked_loop_is_listed_after_its_next_event,
    a_reminder_is_listed_when_it_is_due,
    a_change_is_reported,
    progress_is_kept_beside_the_lease,
    a_checkpoint_is_kept_by_the_holder_of_the_lease,
)
