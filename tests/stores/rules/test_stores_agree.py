"""The store in memory and the one in a file agree at every step, whatever is done, and however often it is reopened."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable
from typing import Any

from attrs import evolve
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from tests.kit.effort import examples
from tests.stores.support import contents
from toolloop.stores import (
    Entry,
    Head,
    Lease,
    MemoryStore,
    PendingCall,
    Revision,
    SqliteStore,
    Store,
    StoredJournal,
    StoredLoop,
)

loop_ids = st.sampled_from(["a", "b", "c", "ä b", "'"])
journals = st.lists(
    st.builds(Entry, st.sampled_from("abcdefgh"), st.sampled_from(["", "{}", "ü" * 3000]), st.none() | st.just("text")),
    max_size=4,
    unique_by=lambda entry: entry.id,
)
_APPROVAL = {"kind": "approve", "by": "\0\ud800", "groups": [], "at": 1.5, "via": None}
calls = st.builds(
    PendingCall,
    st.just(("p", "c")),
    st.just(("ask", "\0\ud800")),
    st.just("approval"),
    st.just(("deny",)),
    st.just("digest"),
    named=st.sampled_from([{}, {"edited": "judged", "approvals": [_APPROVAL]}]),
)
heads = st.builds(
    Head,
    st.sampled_from(["running", "ended"]),
    st.none() | st.sampled_from([0.5, 1e9, -1]),
    st.lists(calls, max_size=1).map(tuple),
    st.booleans(),
    retry_at=st.none() | st.just(1.5),
    attempts=st.none() | st.integers(0, 3),
    changed=st.sampled_from([0.0, 0.25]),
    notified=st.none() | st.dictionaries(st.sampled_from(["a", "ü"]), st.sampled_from(["", "me"])),
)
metadata = st.none() | st.dictionaries(st.sampled_from(["a", "'"]), st.sampled_from(["", "ü"]))
first_ids = st.none() | st.sampled_from("ab")
statuses = st.sampled_from([None, "running", "ended", "x"])
moments = st.sampled_from([0, 1.5, 1_800_000_000.123456])
few = st.integers(0, 9)


def drop_digests(value: Any) -> Any:
    """Each store has digests of its own."""
    if isinstance(value, (list, tuple)):
        return [drop_digests(each) for each in value]
    if isinstance(value, dict):
        return {name: drop_digests(each) for name, each in value.items()}
    if isinstance(value, (StoredLoop, StoredJournal)):
        return evolve(value, rev=int(value.rev))
    return int(value) if isinstance(value, Revision) else value


class Stores(RuleBasedStateMachine):
    """Does everything twice: in memory, and in a file that is opened again and again."""

    leases = Bundle("leases")

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.memory = MemoryStore()
        self.file = self.open()

    def open(self) -> SqliteStore:
        return SqliteStore(f"{self.folder.name}/loops.db")

    def both(self, act: Callable[[Store], Any]) -> Any:
        one, other = outcome(self.memory, act), outcome(self.file, act)
        assert drop_digests(one) == drop_digests(other)
        return one[1]

    @rule(loop_id=loop_ids, entries=journals, head=heads, metadata=metadata)
    def create(self, loop_id: str, entries: list[Entry], head: Head, metadata: dict[str, str] | None) -> None:
        self.both(lambda store: store.create(loop_id, entries, head=head, metadata=metadata))

    @rule(loop_id=loop_ids, entries=journals, head=st.none() | heads, expected=st.none() | few, first_id=first_ids)
    def append(
        self, loop_id: str, entries: list[Entry], head: Head | None, expected: int | None, first_id: str | None
    ) -> None:
        self.both(lambda store: store.append(loop_id, entries, expected_rev=expected, head=head, first_id=first_id))

    @rule(loop_id=loop_ids, head=heads, other=st.none() | heads)
    def replace_head(self, loop_id: str, head: Head, other: Head | None) -> None:
        """Instead of the one that is there, or of one that is not."""
        found = [loop.head for loop in self.memory.list() if loop.loop_id == loop_id]
        replaced = other or next(iter(found), None)
        self.both(lambda store: store.append(loop_id, [], expected_rev=None, head=head, instead_of=replaced))

    @rule(loop_id=loop_ids, entries=journals, head=st.none() | heads, lease=leases)
    def append_next(self, loop_id: str, entries: list[Entry], head: Head | None, lease: Lease) -> None:
        """As drivers do: at the right revision, under a lease that may be lost."""
        rev = {loop.loop_id: int(loop.rev) for loop in self.memory.list()}.get(loop_id, 0)
        self.both(lambda store: store.append(loop_id, entries, expected_rev=rev, head=head, lease=lease))

    @rule(loop_id=loop_ids, after=few, first_id=first_ids)
    def load(self, loop_id: str, after: int, first_id: str | None) -> None:
        self.both(lambda store: store.load(loop_id, after=after, first_id=first_id))

    @rule(
        status=statuses | st.lists(statuses.filter(bool)), metadata=metadata, limit=few, before=st.none() | few.map(str)
    )
    def list(self, status: Any, metadata: dict[str, str] | None, limit: int, before: str | None) -> None:
        self.both(lambda store: store.list(status, metadata=metadata, limit=limit, before=before))

    @rule(loop_id=loop_ids)
    def delete(self, loop_id: str) -> None:
        self.both(lambda store: store.delete(loop_id))

    @rule(target=leases, loop_id=loop_ids, owner=st.sampled_from(["me", "you"]), until=moments, other=st.none() | few)
    def acquire(self, loop_id: str, owner: str, until: float, other: int | None) -> Any:
        got = self.both(lambda store: store.acquire(loop_id, owner, until=until, instead_of=other))
        return got if isinstance(got, Lease) else multiple()

    @rule(target=leases, lease=leases, until=moments)
    def renew(self, lease: Lease, until: float) -> Any:
        got = self.both(lambda store: store.renew(lease, until=until))
        return got if isinstance(got, Lease) else multiple()

    @rule(lease=consumes(leases))
    def release(self, lease: Lease) -> None:
        self.both(lambda store: store.release(lease))

    @rule()
    def reopen(self) -> None:
        """After a close."""
        self.file.close()
        self.file = self.open()

    @rule()
    def open_again(self) -> None:
        """The first one stays open until it is collected."""
        self.file = self.open()

    @rule()
    def look_from_another_thread(self) -> None:
        """It sees the same."""
        seen: list[Any] = []
        thread = threading.Thread(target=lambda: seen.append(contents(self.file)))
        thread.start()
        thread.join()
        assert drop_digests(seen) == drop_digests([contents(self.memory)])

    @invariant()
    def have_the_same_contents(self) -> None:
        assert drop_digests(contents(self.file)) == drop_digests(contents(self.memory))

    def teardown(self) -> None:
        self.file.close()
        self.folder.cleanup()


def outcome(store: Store, act: Callable[[Store], Any]) -> tuple[Any, Any]:
    try:
        return "gave", act(store)
    except Exception as error:  # noqa: BLE001 - errors are to be the same too, to the last word
        return type(error), (str(error), vars(error))


TestStores = Stores.TestCase
TestStores.settings = examples(25, stateful_step_count=40, deadline=None)
