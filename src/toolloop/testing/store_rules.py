"""The rules of a store: journals, heads and lists. Each is a function that fails where the rule is broken."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from toolloop.core.errors import Conflict, LoopNotFound, StaleRevision
from toolloop.stores.protocol import Entry, Head, Lease, Store, StoredJournal, StoredLoop
from toolloop.testing.store_checks import READY, MakeStore, emptied, entries, names, parts, refused, same


def a_journal_is_kept_as_it_was_stored(make: MakeStore) -> None:
    """`load` gives every event, as it was given and in that order; the revision is their number."""
    store = emptied(make)
    same("create() of two events", store.create("loop", entries("a", "b"), head=READY), 2)
    same("append() of two more", store.append("loop", entries("c", "d"), expected_rev=2), 4)
    same("load()", store.load("loop"), StoredJournal(4, tuple(entries("a", "b", "c", "d"))))
    same("create() without an event", store.create("empty", [], head=READY), 0)
    same("load() of a loop without an event", store.load("empty"), StoredJournal(0, ()))


def a_journal_is_read_from_a_revision_on(make: MakeStore) -> None:
    """`load(after=...)` gives only the events after that revision, and the revision of the whole journal."""
    store = emptied(make)
    store.create("loop", entries("a", "b", "c"), head=READY)
    for after, expected in ((0, "abc"), (1, "bc"), (3, ""), (7, "")):
        same(f"load(after={after})", store.load("loop", after=after), StoredJournal(3, tuple(entries(*expected))))


def a_loop_is_created_once(make: MakeStore) -> None:
    """`create` of an id that is there raises `Conflict`, and changes nothing."""
    store = emptied(make)
    store.create("loop", entries("a"), head=READY)
    error = refused(
        "create() of a loop that is there", Conflict, lambda: store.create("loop", entries("b"), head=Head("ended"))
    )
    same("the error's parts", parts(error, "loop_id", "owner", "until", "token"), ["loop", None, None, None])
    same("load() after it", names(store.load("loop")), ["a"])
    same("its status after it", store.list()[0].status, "runnable")


def an_append_expects_the_revision(make: MakeStore) -> None:
    """`append` at another revision than expected raises `StaleRevision` with the right one, and changes nothing."""
    store = emptied(make)
    store.create("loop", entries("a", "b"), head=READY)
    for expected in (0, 1, 3):
        error = refused(
            f"append(expected_rev={expected}) at revision 2",
            StaleRevision,
            partial(store.append, "loop", entries("c"), expected_rev=expected, head=Head("ended")),
        )
        same("the error's parts", parts(error, "loop_id", "rev"), ["loop", 2])
    same("load() after it", names(store.load("loop")), ["a", "b"])
    same("its status after it", store.list()[0].status, "runnable")


def a_merge_expects_no_revision(make: MakeStore) -> None:
    """`append(expected_rev=None)` adds at the end, wherever that is."""
    store = emptied(make)
    store.create("loop", entries("a"), head=READY)
    same("append()", store.append("loop", entries("b"), expected_rev=None), 2)
    same("append() again", store.append("loop", entries("c"), expected_rev=None), 3)
    same("load()", names(store.load("loop")), ["a", "b", "c"])


def an_event_is_stored_once(make: MakeStore) -> None:
    """Events that are known are not added again; where all are, nothing changes, and any revision may be expected."""
    store = emptied(make)
    store.create("loop", entries("a", "b"), head=READY)
    for expected in (0, 2, 9, None):
        got = store.append("loop", [Entry("b", "else"), *entries("a")], expected_rev=expected, head=Head("ended"))
        same(f"append(expected_rev={expected}) of known events", got, 2)
    same("append() of nothing", store.append("loop", [], expected_rev=9, head=Head("ended")), 2)
    same("its status after it", store.list()[0].status, "runnable")
    same("load() after it", store.load("loop").entries, tuple(entries("a", "b")))
    refused(
        "append() of a known and a new event at a stale revision",
        StaleRevision,
        lambda: store.append("loop", entries("b", "c"), expected_rev=1),
    )
    same("append() of a known and two new events", store.append("loop", entries("c", "b", "d"), expected_rev=2), 4)
    same("load() after it", names(store.load("loop")), ["a", "b", "c", "d"])
    store.create("other", entries("a"), head=READY)
    same("append() of an id that another loop has", store.append("other", entries("b"), expected_rev=1), 2)


def an_id_names_one_event(make: MakeStore) -> None:
    """Two events of one id in one call raise `ValueError`, and nothing is stored."""
    store = emptied(make)
    twice = [Entry("x", "one"), Entry("x", "two")]
    refused("create()", ValueError, lambda: store.create("new", twice, head=READY))
    store.create("loop", entries("a"), head=READY)
    refused("append()", ValueError, lambda: store.append("loop", twice, expected_rev=1))
    same("load() after it", names(store.load("loop")), ["a"])
    same("the loops after it", [loop.loop_id for loop in store.list()], ["loop"])


def a_head_is_what_was_said_last(make: MakeStore) -> None:
    """A list shows status and deadline as `create` or the last `append` with a head said; without one they stay."""
    store = emptied(make)
    store.create("loop", entries("a"), head=Head("needs_decision", 1700000000.123456))
    for at, (head, expected) in enumerate(
        (
            (None, Head("needs_decision", 1700000000.123456)),
            (Head("running"), Head("running")),
            (Head("running", 0.1), Head("running", 0.1)),
            (Head("ended", 0.1), Head("ended", 0.1)),
            (None, Head("ended", 0.1)),
        ),
        2,
    ):
        store.append("loop", entries(str(at)), expected_rev=None, head=head)
        (loop,) = store.list()
        same(f"its head after append(head={head})", Head(loop.status, loop.deadline), expected)
        same("list() of that status", store.list(loop.status), [loop])
    same("list() of a status that it had", store.list("running"), [])


def a_list_has_the_newest_first(make: MakeStore) -> None:
    """`list` gives loops by their creation, the newest first, and not by what happened to them since."""
    store = emptied(make)
    ids = ["m", "a", "z", "b"]
    for loop_id in ids:
        store.create(loop_id, entries("1"), head=READY)
    store.append("m", entries("2"), expected_rev=1, head=Head("ended"))
    store.acquire("a", "me", until=1.0)
    same("list()", [loop.loop_id for loop in store.list()], ids[::-1])
    store.delete("a")
    store.create("a", [], head=READY)
    same("list() after a loop was made anew", [loop.loop_id for loop in store.list()], ["a", "b", "z", "m"])


def a_list_is_read_by_status_and_by_page(make: MakeStore) -> None:
    """`list` gives at most `limit` loops, only those of `status`, only those created before the loop `before`."""
    store = emptied(make)
    for at in range(12):
        store.create(f"loop-{at}", [], head=Head("ended" if at % 3 else "runnable"))
    everything = [f"loop-{at}" for at in reversed(range(12))]
    ended = [f"loop-{at}" for at in reversed(range(12)) if at % 3]
    for status, expected in ((None, everything), ("ended", ended), ("running", [])):
        for limit in (1, 5, 12, 100):
            seen: list[str] = []
            while page := store.list(status, limit=limit, before=seen[-1] if seen else None):
                same(f"a page of list({status!r}, limit={limit}) is no longer", len(page) <= limit, expected=True)
                seen += [loop.loop_id for loop in page]
                same(f"the pages of list({status!r}, limit={limit})", seen, expected[: len(seen)])
            same(f"the pages of list({status!r}, limit={limit})", seen, expected)
    before = [loop.loop_id for loop in store.list("ended", before="loop-6")]  # itself of another status
    same("list('ended', before='loop-6')", before, [f"loop-{at}" for at in (5, 4, 2, 1)])


def a_list_tells_of_each_loop(make: MakeStore) -> None:
    """A row of `list` has the loop's revision, status, deadline and lease."""
    store = emptied(make)
    store.create("loop", entries("a", "b"), head=Head("running", 7.5))
    same("list()", store.list(), [StoredLoop("loop", "running", 7.5, 2, None)])
    lease = store.acquire("loop", "me", until=3.25)
    same("list() of a leased loop", store.list(), [StoredLoop("loop", "running", 7.5, 2, lease)])


def a_deleted_loop_is_gone(make: MakeStore) -> None:
    """`delete` forgets journal, head and lease, of that loop only; the id can be used again, for a loop of its own."""
    store = emptied(make)
    for loop_id in ("one", "two"):
        store.create(loop_id, entries("a", "b"), head=READY)
        store.acquire(loop_id, "me", until=1.0)
    store.delete("one")
    refused("load() of it", LoopNotFound, lambda: store.load("one"))
    same("list() after it", [loop.loop_id for loop in store.list()], ["two"])
    same("load() of the other", names(store.load("two")), ["a", "b"])
    same("create() of the id again", store.create("one", entries("a"), head=Head("ended")), 1)
    same("load() of that", names(store.load("one")), ["a"])
    same("the lease of that", store.lease("one"), None)
    same("append() to that", store.append("one", entries("b"), expected_rev=1), 2)


def a_missing_loop_is_named(make: MakeStore) -> None:
    """What needs a loop that is not there raises `LoopNotFound` with its id, and makes none."""
    store = emptied(make)
    lease = Lease("ghost", "me", 1, 1.0)
    acts: dict[str, Callable[[Store], object]] = {
        "append()": lambda at: at.append("ghost", entries("a"), expected_rev=0),
        "append() of nothing": lambda at: at.append("ghost", [], expected_rev=None, lease=lease),
        "load()": lambda at: at.load("ghost"),
        "list(before=...)": lambda at: at.list(before="ghost"),
        "delete()": lambda at: at.delete("ghost"),
        "lease()": lambda at: at.lease("ghost"),
        "acquire()": lambda at: at.acquire("ghost", "me", until=1.0),
        "renew()": lambda at: at.renew(lease, until=2.0),
    }
    for what, act in acts.items():
        error = refused(what, LoopNotFound, partial(act, store))
        same(f"{what}: the error's loop_id", parts(error, "loop_id"), ["ghost"])
    store.release(lease)
    same("list() after it", store.list(), [])


RULES = (
    a_journal_is_kept_as_it_was_stored,
    a_journal_is_read_from_a_revision_on,
    a_loop_is_created_once,
    an_append_expects_the_revision,
    a_merge_expects_no_revision,
    an_event_is_stored_once,
    an_id_names_one_event,
    a_head_is_what_was_said_last,
    a_list_has_the_newest_first,
    a_list_is_read_by_status_and_by_page,
    a_list_tells_of_each_loop,
    a_deleted_loop_is_gone,
    a_missing_loop_is_named,
)
