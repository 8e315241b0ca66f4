"""The rules of a store: what it takes, and that it takes nothing else. Each is a function that fails where broken."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

from toolloop.core.errors import LoopNotFound
from toolloop.stores.protocol import Entry, Head, Lease, Store, StoredJournal
from toolloop.testing.store_checks import READY, MakeStore, emptied, entries, names, refused, same

# Texts that are easily taken for another, or for something else than a text.
_ODD = (
    *("a", "A", "a ", " a", "\ta\n", "ä", "a\u0308", "\u00e4\u200b", "\U0001f600", "\ufeff", "\uffff", "\x01\x7f"),
    *("0", "00", "7", "7.0", "1e3", "null", "%", "_", "*", "?", "a/b", "../a", "a'b", 'a"b', "'; DROP TABLE loops; --"),
    "long" * 500,
)
_BIG = 3_000_000

_ENTRY = Entry("x", "y")


def odd_texts_stay_as_they_are(make: MakeStore) -> None:
    """Ids, owners, statuses and bodies come back to the last character, and none is taken for another."""
    store = emptied(make)
    for text in _ODD:
        store.create(text, [Entry(name, name) for name in _ODD], head=Head(text))
        store.acquire(text, text, until=1.0)
    same("how many loops there are", [loop.loop_id for loop in store.list(limit=1000)], list(reversed(_ODD)))
    for text in _ODD:
        journal = store.load(text)
        same(f"the events of loop {text!r}", [entry.body for entry in journal.entries], list(_ODD))
        same("their ids", names(journal), list(_ODD))
        same(f"the loops of status {text!r}", [loop.loop_id for loop in store.list(text)], [text])
        lease = store.lease(text)
        same(f"the owner {text!r}", lease and lease.owner, text)


def a_body_may_be_big_or_empty(make: MakeStore) -> None:
    """A body of some megabytes comes back as it was, and so does an empty one."""
    store = emptied(make)
    bodies = ["", '"' + "äx" * _BIG + '"', ""]
    given = tuple(Entry(str(at), body) for at, body in enumerate(bodies))
    store.create("loop", given, head=READY)
    same("load() gives the same bodies", store.load("loop") == StoredJournal(3, given), expected=True)


_BAD_TEXTS: tuple[Any, ...] = (None, 7, b"a", "a\0b", "\0", "\ud800", "a\udfffb")
_BAD_NUMBERS: tuple[Any, ...] = (-1, 1.0, "1", True, 2**63)
_BAD_MOMENTS: tuple[Any, ...] = ("1", True, float("nan"), float("inf"), 10**400)

_BAD: dict[str, tuple[Callable[[Store, Any], object], tuple[Any, ...]]] = {
    "create(loop_id)": (lambda at, bad: at.create(bad, [], head=READY), (*_BAD_TEXTS, "")),
    "create(entries)": (lambda at, bad: at.create("n", bad, head=READY), (None, 7, {_ENTRY}, [_ENTRY, None], ["x"])),
    "an entry's id": (lambda at, bad: at.create("n", [_ENTRY, Entry(bad, "b")], head=READY), (*_BAD_TEXTS, "")),
    "an entry's body": (lambda at, bad: at.create("n", [_ENTRY, Entry("b", bad)], head=READY), _BAD_TEXTS),
    "create(head)": (lambda at, bad: at.create("n", [], head=bad), (None, "ended")),
    "a status": (lambda at, bad: at.create("n", [], head=Head(bad)), (*_BAD_TEXTS, "")),
    "a deadline": (lambda at, bad: at.create("n", [], head=Head("s", bad)), _BAD_MOMENTS),
    "append(loop_id)": (lambda at, bad: at.append(bad, [], expected_rev=0), (*_BAD_TEXTS, "")),
    "append(entries)": (lambda at, bad: at.append("loop", bad, expected_rev=1), (None, 7, [_ENTRY, None])),
    "an appended id": (lambda at, bad: at.append("loop", [_ENTRY, Entry(bad, "b")], expected_rev=1), _BAD_TEXTS),
    "an appended body": (lambda at, bad: at.append("loop", [_ENTRY, Entry("b", bad)], expected_rev=1), _BAD_TEXTS),
    "append(expected_rev)": (lambda at, bad: at.append("loop", [_ENTRY], expected_rev=bad), _BAD_NUMBERS),
    "append(head)": (lambda at, bad: at.append("loop", [_ENTRY], expected_rev=1, head=bad), ("ended", Head(""))),
    "append(lease)": (lambda at, bad: at.append("loop", [_ENTRY], expected_rev=1, lease=bad), (7, "lease")),
    "load(loop_id)": (lambda at, bad: at.load(bad), (*_BAD_TEXTS, "")),
    "load(after)": (lambda at, bad: at.load("loop", after=bad), (*_BAD_NUMBERS, None)),
    "list(status)": (lambda at, bad: at.list(bad), (*_BAD_TEXTS[1:], "")),
    "list(limit)": (lambda at, bad: at.list(limit=bad), (*_BAD_NUMBERS, 0, None)),
    "list(before)": (lambda at, bad: at.list(before=bad), (*_BAD_TEXTS[1:], "")),
    "delete(loop_id)": (lambda at, bad: at.delete(bad), (*_BAD_TEXTS, "")),
    "lease(loop_id)": (lambda at, bad: at.lease(bad), (*_BAD_TEXTS, "")),
    "acquire(loop_id)": (lambda at, bad: at.acquire(bad, "me", until=1.0), (*_BAD_TEXTS, "")),
    "acquire(owner)": (lambda at, bad: at.acquire("loop", bad, until=1.0), (*_BAD_TEXTS, "")),
    "acquire(until)": (lambda at, bad: at.acquire("loop", "me", until=bad), (*_BAD_MOMENTS, None)),
    "acquire(instead_of)": (lambda at, bad: at.acquire("loop", "me", until=1.0, instead_of=bad), _BAD_NUMBERS),
    "renew(lease)": (lambda at, bad: at.renew(bad, until=1.0), (None, 7, Lease("", "me", 1, 1.0))),
    "renew(until)": (lambda at, bad: at.renew(Lease("loop", "me", 1, 1.0), until=bad), (*_BAD_MOMENTS, None)),
    "release(lease)": (lambda at, bad: at.release(bad), (None, 7, Lease("loop", "me", cast("int", "1"), 1.0))),
}


def bad_arguments_are_refused(make: MakeStore) -> None:
    """What is of a wrong kind raises `TypeError` or `ValueError`, before anything is stored."""
    store = emptied(make)
    store.create("loop", entries("a"), head=READY)
    for what, (act, bads) in _BAD.items():
        for bad in bads:
            refused(f"{what} = {bad!r:.40}", (TypeError, ValueError), partial(act, store, bad))
    same("load() after it", names(store.load("loop")), ["a"])
    same("list() after it", [(loop.loop_id, loop.status) for loop in store.list()], [("loop", "runnable")])
    same("lease() after it", store.lease("loop"), None)
    refused("load() of a loop that was refused", LoopNotFound, lambda: store.load("n"))


RULES = (odd_texts_stay_as_they_are, a_body_may_be_big_or_empty, bad_arguments_are_refused)
