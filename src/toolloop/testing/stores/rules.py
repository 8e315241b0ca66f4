"""The conformance suite for stores, and its rules for journals, lists and arguments.

A rule is a function that raises `AssertionError` if the rule is broken.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from attrs import evolve

from toolloop.errors import Conflict, LoopNotFound, StaleRevision, UnreadableSnapshot
from toolloop.stores.pending import PendingCall
from toolloop.stores.protocol import Entry, Head, Lease, Store, StoredJournal, StoredLoop
from toolloop.testing.stores.branch_rules import BRANCH_RULES
from toolloop.testing.stores.checks import (
    READY,
    MakeStore,
    check_refused,
    emptied,
    entries,
    ids,
    list_ids,
    same,
    with_loop,
)
from toolloop.testing.stores.lease_rules import LEASE_RULES
from toolloop.testing.stores.optional_rules import OPTIONAL_RULES

# Texts that are easily confused with other texts, or with other values.
_TEXTS = (*"aA0%\u00e4\U0001f600", "a ", " a", "\ta\n", "a\u0308", "00", "7.0", "null", "../a", "'--")
_PENDING = (
    PendingCall(("p", "c"), ("ask\0", "pay \ud800"), "approval", ("approve", "deny"), "12ab"),
    PendingCall(
        ("d",), ("\u00e4",), "uncertain", ("rerun",), "34cd", "why?", 1700000000.5, '{"a":"\u20ac"}', truncated=True
    ),
    PendingCall(("n",), ("named",), "approval", (), "56ef", named={"\u00e4": [{"at": 1.5, "by": None}], "b": "\ud800"}),
)
_BIG = '"' + "\u00e4x" * 3_000_000 + '"'


def a_journal_is_kept_as_it_was_stored(make: MakeStore) -> None:
    """`load` returns each event unchanged and in order, from empty to several MB; the revision is their number."""
    store = emptied(make)
    same("create() of two events", store.create("loop", entries("a", "b"), head=READY), 2)
    more = [Entry("c", "", ""), Entry("d", "body", "text"), Entry("e", _BIG, _BIG)]
    same("append() of three more", store.append("loop", more, expected_rev=2), 5)
    same("load()", store.load("loop"), StoredJournal(5, (*entries("a", "b"), *more)))
    same("create() without an event", store.create("empty", [], head=READY), 0)
    same("load() of a loop without an event", store.load("empty"), StoredJournal(0, ()))


def a_journal_is_read_from_a_revision_on(make: MakeStore) -> None:
    """`load(after=...)` returns only the events after that revision, and the revision of the whole journal."""
    store = with_loop(make, *"abc")
    for after, expected in ((0, "abc"), (1, "bc"), (3, ""), (2**40, "")):
        same(f"load(after={after})", store.load("loop", after=after), StoredJournal(3, tuple(entries(*expected))))


def a_loop_is_created_once(make: MakeStore) -> None:
    """`create` with an id that exists raises `Conflict`, and changes nothing."""
    store = with_loop(make, "a")
    act = partial(store.create, "loop", entries("b"), head=Head("ended"))
    check_refused("create() of a loop that exists", Conflict, act, loop_id="loop", owner=None, until=None, token=None)
    same("the events after it", ids(store), ["a"])
    same("the loops with the old status after it", list_ids(store, "runnable"), ["loop"])


def an_append_expects_the_revision(make: MakeStore) -> None:
    """`append` at another revision than expected raises `StaleRevision` and changes nothing; None is any revision."""
    store = with_loop(make, "a", "b")
    for expected in (0, 1, 3):
        act = partial(store.append, "loop", entries("c"), expected_rev=expected, head=Head("ended"))
        check_refused(f"append(expected_rev={expected}) at revision 2", StaleRevision, act, loop_id="loop", rev=2)
    same("the events after it", ids(store), ["a", "b"])
    same("the loops with the old status after it", list_ids(store, "runnable"), ["loop"])
    for at, name in enumerate("cd", 3):
        same("append(expected_rev=None)", store.append("loop", entries(name), expected_rev=None), at)
    same("the events after it", ids(store), [*"abcd"])


def an_event_is_stored_once(make: MakeStore) -> None:
    """Known events are not added again; if all are known, nothing changes, and any revision may be expected."""
    store = with_loop(make, "a", "b")
    for expected in (0, 2, 9, None):
        got = store.append("loop", [Entry("b", "else"), *entries("a")], expected_rev=expected, head=Head("ended"))
        same(f"append(expected_rev={expected}) of known events", got, 2)
    same("the loops with the old status after it", list_ids(store, "runnable"), ["loop"])
    same("load() after it", store.load("loop").entries, tuple(entries("a", "b")))
    act = partial(store.append, "loop", entries("b", "c"), expected_rev=1)
    check_refused("append() of a known and a new event at a stale revision", StaleRevision, act)
    same("append() of a known and two new events", store.append("loop", entries("c", "b", "d"), expected_rev=2), 4)
    same("the events after it", ids(store), [*"abcd"])
    store.create("other", entries("a"), head=READY)
    same("append() of an id of another loop", store.append("other", entries("b"), expected_rev=1), 2)


def a_list_describes_each_loop(make: MakeStore) -> None:
    """A row has the revision, lease, creation time and metadata of a loop, and its last head."""
    store = emptied(make)
    first = Head("needs_decision", 1700000000.123456, _PENDING, changed=1.5)
    store.create("loop", [], head=first, metadata={"owner": "ana", "tag": ""})
    failed = Head("failed", retryable=True, retry_at=9.5, attempts=2, changed=2.25)
    notified = {"\u00e4": "me", "0": ""}
    failed = evolve(failed, notified=notified)
    kept = Head("running", 0.1, changed=3.0)  # without `attempts` and `notified`
    fresh, then_kept = first.behind(first), evolve(kept, attempts=2, notified=notified)
    heads = [(None, fresh), (failed, failed), (kept, then_kept), (None, None)]
    shown = first
    for rev, (head, then) in enumerate(heads, 1):
        store.append("loop", entries(str(rev)), expected_rev=None, head=head)
        shown = then or shown
        row = StoredLoop("loop", shown, rev, None, 1.5, {"owner": "ana", "tag": ""})
        same(f"list() after append(head={head})", store.list(), [row])
        same(f"head() after append(head={head})", store.head("loop"), row)
    same("the loops with an earlier status", list_ids(store, "needs_decision"), [])
    before, lease = store.head("loop"), store.acquire("loop", "me", until=3.25)
    same("list() of a leased loop", store.list("running"), [evolve(before, lease=lease)])


def a_head_may_bring_other_metadata(make: MakeStore) -> None:
    """`append` replaces the metadata by `Head.metadata`, and `forked_from` stays from `create` on."""
    store = emptied(make)
    store.create("loop", entries("a"), head=evolve(READY, forked_from="first"), metadata={"owner": "ana"})
    store.append("loop", entries("b"), expected_rev=1, head=evolve(READY, metadata={"owner": "bo", "title": "\u00e4"}))
    store.append("loop", entries("c"), expected_rev=2, head=READY)
    row = store.head("loop")
    same("the metadata of the loop", row.metadata, {"owner": "bo", "title": "\u00e4"})
    same("`metadata` and `forked_from` of its head", (row.head.metadata, row.head.forked_from), (None, "first"))
    same("the loops with the new metadata", [each.loop_id for each in store.list(metadata={"owner": "bo"})], ["loop"])
    same("the loops with the old metadata", store.list(metadata={"owner": "ana"}), [])


def a_head_is_replaced_alone(make: MakeStore) -> None:
    """`append` without events replaces the head, under the same guards."""
    store = with_loop(make, "a", "b")
    head = Head("failed", retryable=True, retry_at=7.0, attempts=3, notified={"a": "me"})
    same("append() of nothing", store.append("loop", [], expected_rev=2, head=head), 2)
    same("the head after it", store.head("loop").head, head)
    for expected in (1, 3):
        act = partial(store.append, "loop", [], expected_rev=expected, head=READY)
        check_refused(f"append(expected_rev={expected}) of nothing", StaleRevision, act)
    same("append() of nothing at all", store.append("loop", [], expected_rev=2), 2)
    same("the head after that", store.head("loop").head, head)
    other = evolve(head, changed=9.0, notified={"a": ""})
    act = partial(store.append, "loop", [], expected_rev=2, head=READY, instead_of=other)
    check_refused("append(instead_of) of a head that is not there", StaleRevision, act)
    same("the head after it", store.head("loop").head, head)
    same("append(instead_of) of the head", store.append("loop", [], expected_rev=2, head=other, instead_of=head), 2)
    same("the head after it", store.head("loop").head, other)
    same("the events after it", ids(store), ["a", "b"])


def another_loop_of_the_same_id_is_refused(make: MakeStore) -> None:
    """A method with the argument `first_id` raises `LoopNotFound` if the journal begins with another event."""
    store = with_loop(make, "a", "b")
    same("load(first_id) of the loop", store.load("loop", after=1, first_id="a").rev, 2)
    same("append(first_id) to it", store.append("loop", entries("c"), expected_rev=2, first_id="a"), 3)
    store.release(store.acquire("loop", "me", until=1.0, first_id="a"))
    store.delete("loop")
    acts: dict[str, Callable[[], object]] = {
        "append()": lambda: store.append("loop", entries("d"), expected_rev=3, first_id="a"),
        "append() of a known event": lambda: store.append("loop", entries("b"), expected_rev=3, first_id="a"),
        "load()": lambda: store.load("loop", after=3, first_id="a"),
        "acquire()": lambda: store.acquire("loop", "me", until=1.0, first_id="a"),
    }
    for names in ("bac", ""):
        store.create("loop", entries(*names), head=READY)
        for what, act in acts.items():
            check_refused(f"{what} to a loop that was created again", LoopNotFound, act, loop_id="loop")
        same("the events of that", ids(store), [*names])
        same("the lease of that", store.head("loop").lease, None)
        store.delete("loop")


def a_list_has_the_newest_first(make: MakeStore) -> None:
    """`list` orders loops by their creation, newest first, whatever happened to them later."""
    store = emptied(make)
    for loop_id in "mazb":
        store.create(loop_id, entries("1"), head=READY)
    store.append("m", entries("2"), expected_rev=1, head=Head("ended"))
    store.acquire("a", "me", until=1.0)
    same("list()", list_ids(store), [*"bzam"])
    store.delete("a")
    store.create("a", [], head=READY)
    same("list() after a loop was created again", list_ids(store), [*"abzm"])


def a_list_is_read_by_status_and_by_page(make: MakeStore) -> None:
    """`list` returns at most `limit` loops with the statuses, created before the cursor, even of a deleted loop."""
    store = emptied(make)
    for at in range(12):
        store.create(f"loop-{at}", [], head=Head("ended" if at % 3 else "runnable"))
    everything = [f"loop-{at}" for at in reversed(range(12))]
    ended = [f"loop-{at}" for at in reversed(range(12)) if at % 3]
    several: tuple[tuple[Any, list[str]], ...] = (
        (None, everything),
        ("ended", ended),
        ("running", []),
        (("runnable", "ended"), everything),
        (["running", "ended"], ended),
        ([], []),
    )
    for status, expected in several:
        for limit in (1, 5, 12, 100):
            before = None
            for start in range(0, len(expected) + 1, limit):
                page = store.list(status, limit=limit, before=before)
                wanted = expected[start : start + limit]
                same(f"a page of list({status!r}, limit={limit})", [loop.loop_id for loop in page], wanted)
                before = page[-1].cursor if page else before
    anchors = [loop for loop in store.list() if loop.loop_id in ("loop-11", "loop-10", "loop-5")]
    for anchor in anchors:
        store.delete(anchor.loop_id)
    store.create("new", [], head=Head("ended"))
    for anchor, left in zip(anchors, (["loop-8", "loop-7"], ["loop-8", "loop-7"], ["loop-4"]), strict=True):
        rows = store.list("ended", limit=len(left), before=anchor.cursor)
        same(f"list() before the deleted {anchor.loop_id}", [loop.loop_id for loop in rows], left)


def a_list_is_read_by_metadata(make: MakeStore) -> None:
    """`list` returns the loops that have all of the given metadata, with any characters."""
    store = emptied(make)
    given: dict[str, dict[str, str]] = {
        "one": {"owner": "ana", "team": "x"},
        "two": {"owner": "ana", "team": "y", "more": ""},
        "three": {"owner": "bo"},
        "four": {},
        "five": {text: text for text in _TEXTS},
    }
    for loop_id, metadata in given.items():
        store.create(loop_id, [], head=READY, metadata=metadata)
    searches: tuple[tuple[dict[str, str] | None, list[str]], ...] = (
        (None, ["five", "four", "three", "two", "one"]),
        ({}, ["five", "four", "three", "two", "one"]),
        ({"owner": "ana"}, ["two", "one"]),
        ({"owner": "ana", "team": "y"}, ["two"]),
        ({"team": "y", "owner": "bo"}, []),
        ({"more": ""}, ["two"]),
        ({"owner": "Ana"}, []),
        ({"ana": "owner"}, []),
        *(({text: text}, ["five"]) for text in _TEXTS),
    )
    for wanted, expected in searches:
        same(f"list(metadata={wanted})", [loop.loop_id for loop in store.list(metadata=wanted)], expected)
    page = store.list("runnable", metadata={"owner": "ana"}, limit=1)
    rest = store.list("runnable", metadata={"owner": "ana"}, before=page[0].cursor)
    same("list() by metadata and by page", [loop.loop_id for loop in (*page, *rest)], ["two", "one"])


def a_deleted_loop_is_gone(make: MakeStore) -> None:
    """`delete` removes journal, head and lease of one loop; the id can be used again for a new loop."""
    store = emptied(make)
    for loop_id in ("one", "two"):
        store.create(loop_id, entries("a", "b"), head=READY)
        store.acquire(loop_id, "me", until=1.0)
    store.delete("one")
    check_refused("load() of it", LoopNotFound, lambda: store.load("one"))
    same("list() after it", list_ids(store), ["two"])
    same("the events of the other", ids(store, "two"), ["a", "b"])
    same("create() of the id again", store.create("one", entries("a"), head=Head("ended")), 1)
    same("the events of that", ids(store, "one"), ["a"])
    same("the lease of that", store.head("one").lease, None)
    same("append() to that", store.append("one", entries("b"), expected_rev=1), 2)


def a_secret_stays(make: MakeStore) -> None:
    """`secret` returns the same text each time, and another one for another store."""
    store = emptied(make)
    secret = store.secret()
    same("secret() has at least 32 characters", min(len(secret), 32), 32)
    same("secret() again", store.secret(), secret)


def a_missing_loop_is_named(make: MakeStore) -> None:
    """A method that needs a loop raises `LoopNotFound` with its id, and does not create it."""
    store = emptied(make)
    lease = Lease("ghost", "me", 1, 1.0)
    acts: dict[str, Callable[[], object]] = {
        "append()": lambda: store.append("ghost", entries("a"), expected_rev=0),
        "append() of nothing": lambda: store.append("ghost", [], expected_rev=None, lease=lease),
        "load()": lambda: store.load("ghost"),
        "head()": lambda: store.head("ghost"),
        "delete()": lambda: store.delete("ghost"),
        "acquire()": lambda: store.acquire("ghost", "me", until=1.0),
        "renew()": lambda: store.renew(lease, until=2.0),
    }
    for what, act in acts.items():
        check_refused(what, LoopNotFound, act, loop_id="ghost")
    store.release(lease)
    same("list() after it", store.list(), [])


def unusual_texts_stay_as_they_are(make: MakeStore) -> None:
    """Ids, owners, statuses and bodies are returned unchanged, and are not confused with each other."""
    store = emptied(make)
    events = tuple(Entry(text, text, text) for text in _TEXTS)
    rows = []
    for text in _TEXTS:
        store.create(text, events, head=Head(text))
        rows.append(
            StoredLoop(text, Head(text, attempts=0, notified={}), len(events), store.acquire(text, text, until=1.0))
        )
    same("list()", store.list(), rows[::-1])
    for text, row in zip(_TEXTS, rows, strict=True):
        same(f"load({text!r})", store.load(text).entries, events)
        same(f"list({text!r})", store.list(text), [row])
        same(f"the owner {text!r}", row.lease and row.lease.owner, text)


def damage_is_found(make: MakeStore, damage: Callable[[], object]) -> None:
    """`load` of a journal with a damaged event raises `UnreadableSnapshot`."""
    store = with_loop(make, *"abc")
    damage()
    check_refused("load() of a damaged journal", UnreadableSnapshot, partial(store.load, "loop"))


_RULES = (
    a_journal_is_kept_as_it_was_stored,
    a_journal_is_read_from_a_revision_on,
    a_loop_is_created_once,
    an_append_expects_the_revision,
    an_event_is_stored_once,
    a_list_describes_each_loop,
    a_head_may_bring_other_metadata,
    a_head_is_replaced_alone,
    another_loop_of_the_same_id_is_refused,
    a_list_has_the_newest_first,
    a_list_is_read_by_status_and_by_page,
    a_list_is_read_by_metadata,
    a_deleted_loop_is_gone,
    a_secret_stays,
    a_missing_loop_is_named,
    unusual_texts_stay_as_they_are,
    *LEASE_RULES,
    *BRANCH_RULES,
    *OPTIONAL_RULES,
)


def check_store(make_store: Callable[[], Store], *, damage: Callable[[], object] | None = None) -> None:
    """Check a store against the rules of `toolloop.stores.Store`.

    The check deletes everything in the store: use a store for tests only. It takes a few seconds, and does not need a
    test framework.

    Args:
        make_store: opens the store. It is called many times. Each call may open the same store, which must then still
            have its content; or it may return a new, empty store, like `MemoryStore`.
        damage: changes a stored event of the loop named `loop`, without using the store. None skips this rule, for a
            store that keeps nothing outside this process.

    Raises:
        AssertionError: the store breaks a rule. The message names the rule, the expected value and the actual one.

    """
    checks: dict[Callable[..., None], Callable[[], None]] = {rule: partial(rule, make_store) for rule in _RULES}
    if damage is not None:
        checks[damage_is_found] = partial(damage_is_found, make_store, damage)
    for rule, check in checks.items():
        says = f"{rule.__name__.replace('_', ' ')}. {rule.__doc__}"
        try:
            check()
        except AssertionError as error:
            raise AssertionError(f"broken rule: {says} {error}") from error
        except Exception as error:
            raise AssertionError(f"broken rule: {says} The store raised {type(error).__name__}: {error}") from error
