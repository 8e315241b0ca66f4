"""Call a store, with every failure as a `StoreError`; and read the state of a stored loop from its journal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Generic, Protocol, TypeVar
from weakref import finalize

from attrs import field, frozen

from toolloop._forks import ProcessState
from toolloop._journal.event_bus import LOG
from toolloop.errors import LoopNotFound, StaleRevision, StoreError, UnreadableSnapshot
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import State
from toolloop.stores.arguments import check_text
from toolloop.stores.optional import find_kept_checkpoint, find_whole_store, keeps_checkpoints
from toolloop.stores.protocol import Entry, Lease, Store, StoredJournal, StoredLoop
from toolloop.stores.revisions import Revision

T = TypeVar("T")

_MANY = 256  # states that are remembered
_ATTEMPTS = 20  # to read a row and a journal between two changes of a loop
_LARGE = 64_000_000  # of their weight
_TIMES = 8  # how many bytes of a checkpoint are read in the time of one byte of events, at least


@frozen
class Weight:
    """What it takes to read a state, nearly in bytes.

    Attributes:
        checkpoint: the size of the last known checkpoint.
        behind: the size of the events after it.

    """

    checkpoint: int = 0
    behind: int = 0

    def plus(self, entries: Iterable[Entry]) -> Weight:
        """Return the weight after further events."""
        return Weight(self.checkpoint, self.behind + sum(len(entry.body) + len(entry.text or "") for entry in entries))

    def is_due(self, least: int, *, is_open: bool) -> bool:
        """Return whether a checkpoint is due, because reading the events takes longer than reading a checkpoint of all.

        Args:
            least: the bytes of events that do not need one.
            is_open: whether a round is open, such as one with a long nested loop. Then it is due later.

        """
        return self.behind > (1 + is_open) * max(least, self.checkpoint / _TIMES)


@frozen
class Place:
    """Where a loop is stored, and up to where it is known.

    Attributes:
        store: the store.
        rev: the number of known events of its journal; 0 if it does not exist yet.
        first_id: the id of the first of them.
        first: the first event, if it does not exist yet.
        metadata: stored with a new loop.
        weight: what it takes to read the known events.

    """

    store: Store
    rev: int = 0
    first_id: str | None = None
    first: ev.Opened | ev.Adopted | None = None
    metadata: Mapping[str, str] = field(factory=dict)
    weight: Weight = Weight()


@frozen
class Known:
    """The state of a stored loop at a revision.

    Attributes:
        state: the state.
        rev: the revision.
        first_id: the id of the first event of the journal.
        weight: what it takes to read it.

    """

    state: State
    rev: int
    first_id: str
    weight: Weight = Weight()

    def place(self, store: Store) -> Place:
        """Return where it is stored."""
        return Place(store, self.rev, self.first_id, weight=self.weight)


def call_store(loop_id: str | None, ask: Callable[[], T]) -> T:
    """Call a store. Every exception becomes a `StoreError`.

    Args:
        loop_id: the loop that it is about, or None.
        ask: calls the store.

    Raises:
        StoreError: the store failed.
        TypeError, ValueError: `loop_id` is not an id that a store can keep.

    """
    if loop_id is not None:
        check_text("loop_id", loop_id)
    try:
        return ask()
    except StoreError:
        raise
    except Exception as error:
        of = "" if loop_id is None else f" for the loop {loop_id!r}"
        raise StoreError(f"the store failed{of}: {type(error).__name__}: {error}") from error


class ReadState(Protocol):
    """What was read of a stored loop: `Known`, or a value with more."""

    @property
    def state(self) -> State:
        """See `Known`."""
        ...

    @property
    def rev(self) -> int:
        """See `Known`."""
        ...

    @property
    def weight(self) -> Weight:
        """See `Known`."""
        ...


K = TypeVar("K", bound=ReadState)


class KnownStates(Generic[K]):
    """The newest states of stored loops that this process knows, of a bounded number and size.

    A state is only read together with the events after its revision, so that the store says whether its journal still
    has that revision. Any thread may use it, and none waits for another one.
    """

    def __init__(self) -> None:
        """Know no state yet."""
        self._known: dict[tuple[int, str], K] = {}  # by the store, and the loop; the newest last
        self._stores: set[int] = set()

    def find(self, store: Store, loop_id: str) -> K | None:
        """Return the newest known state of a loop."""
        return self._known.get((id(find_whole_store(store)), loop_id))

    def keep(self, store: Store, known: K) -> None:
        """Keep a state. The oldest ones make room. A revision that is only a number does not identify a journal."""
        whole = getattr(store, "whole_store", store)
        if getattr(known.rev, "digest", None) is None or (id(whole) not in self._stores and not self._follow(whole)):
            return
        key = id(whole), known.state.root.setup.loop_id
        self._known.pop(key, None)
        self._known[key] = known
        size = 0
        for number, (each, other) in enumerate(reversed([*self._known.copy().items()])):
            size += other.weight.checkpoint + other.weight.behind
            if number >= _MANY or size > _LARGE:
                self._known.pop(each, None)

    def _follow(self, store: Store) -> bool:
        """Forget the states of a store when it is gone. Return whether that is possible."""
        try:
            finalize(store, self._forget, id(store)).atexit = False
        except TypeError:
            return False  # it cannot be referred to weakly
        self._stores.add(id(store))
        return True

    def _forget(self, store: int) -> None:
        self._stores.discard(store)
        for key in self._known.copy():
            if key[0] == store:
                self._known.pop(key, None)


KNOWN: ProcessState[KnownStates[Known]] = ProcessState(KnownStates)


def load_state(store: Store, loop_id: str) -> Known:
    """Return the state of a stored loop. Only the events after a known state are read, if its journal still has it.

    Args:
        store: the store.
        loop_id: the id of the loop.

    Raises:
        LoopNotFound: it does not exist.
        UnreadableSnapshot: it is damaged, not from toolloop, in a newer format, or a copy of another loop.
        StoreError: the store failed.

    """

    def read_whole() -> Known:
        state, journal = load_journal(store, loop_id)
        return Known(state, journal.rev, journal.entries[0].id, Weight().plus(journal.entries))

    follow = partial(_read_on, store, loop_id)
    found = read_newest(store, loop_id, KNOWN.value.find(store, loop_id), follow, follow, read_whole)
    KNOWN.value.keep(store, found)
    return found


def read_newest(  # noqa: PLR0913, PLR0917 - the ways to read a loop, the cheapest first
    store: Store,
    loop_id: str,
    known: K | None,
    follow: Callable[[K], K],
    begin: Callable[[Known], K | None],
    read_whole: Callable[[], K],
) -> K:
    """Read a loop from what is known of it, else from its checkpoint, else from its first event.

    Args:
        store: the store.
        loop_id: the id of the loop.
        known: what this process knows of it, if anything.
        follow: reads on from there.
        begin: reads on from its checkpoint; None: that cannot be used.
        read_whole: reads it from its first event.

    """
    if known is not None:
        with suppress(LoopNotFound, StaleRevision, UnreadableSnapshot):  # it is of another loop, or of another branch
            return follow(known)
    try:
        kept = read_kept(store, loop_id)
        if kept is not None and (found := begin(kept)) is not None:
            return found
    except LoopNotFound:  # or another loop has its id
        pass
    except StoreError as error:
        LOG.warning("could not use a checkpoint, so the whole journal is read: %s", error, extra={"loop_id": loop_id})
    return read_whole()


def read_with_row(store: Store, loop_id: str, read: Callable[[], K]) -> tuple[StoredLoop, K]:
    """Return the row of a loop, and what `read` reads of it: both at the same revision.

    A driver may store events between the two reads, and the store may be restored from a backup there.

    Raises:
        LoopNotFound: the loop does not exist.
        StoreError: the store failed, or the loop changed during each attempt.

    """
    read_row = partial(call_store, loop_id, partial(store.head, loop_id))
    row = read_row()
    for _ in range(_ATTEMPTS):
        found = read()
        if found.rev == row.rev:
            return row, found
        if found.rev == (row := read_row()).rev:  # a row takes less to read than a journal
            return row, found
    raise StoreError(f"the loop {loop_id!r} changed during each of {_ATTEMPTS} attempts to read it. Try again")


def read_kept(store: Store, loop_id: str) -> Known | None:
    """Return the state of the checkpoint of a loop, if it has one.

    Raises:
        UnreadableSnapshot: it is damaged, or of another loop.
        StoreError: the store failed.

    """
    from toolloop.stores.checkpoints import MEANING, read_checkpoint  # noqa: PLC0415 - likewise

    body = call_store(loop_id, partial(find_kept_checkpoint, find_whole_store(store), loop_id, MEANING))
    if body is None:
        return None
    found = read_checkpoint(loop_id, body)
    return Known(found.state, found.rev, found.first_id, Weight(len(body)))


def keep_checkpoint(store: Store, lease: Lease, known: Known) -> Weight:
    """Keep a checkpoint, if the store supports that. Return what it takes to read the state then.

    A failure is logged, and the next attempt is made when as many events are stored again.
    """
    if not keeps_checkpoints(store) or (rev := Revision.of(known.rev)).digest is None:
        return known.weight
    from toolloop.stores.checkpoints import MEANING, Checkpoint, write_checkpoint  # noqa: PLC0415 - likewise

    whole: Any = store
    try:
        body = write_checkpoint(Checkpoint(known.state, rev, known.first_id))
        call_store(lease.loop_id, lambda: whole.keep_checkpoint(lease, body, rev=rev, meaning=MEANING))
    except (StoreError, ValueError) as error:
        LOG.warning("could not keep a checkpoint: %s", error, extra={"loop_id": lease.loop_id})
        return Weight(known.weight.checkpoint + known.weight.behind)
    return Weight(len(body))


def _read_on(store: Store, loop_id: str, known: Known) -> Known:
    """Return the state after the events that follow a known one."""
    from toolloop.stores.codec import replay  # noqa: PLC0415 - cattrs is loaded when it is first needed

    journal = call_store(loop_id, partial(store.load, loop_id, after=known.rev, first_id=known.first_id))
    state = known.state
    for _, after in replay(journal.entries, state, known.rev):
        state = after
    return Known(state, journal.rev, known.first_id, known.weight.plus(journal.entries))


def load_journal(store: Store, loop_id: str) -> tuple[State, StoredJournal]:
    """Return the state of a stored loop, and its journal, which is read from its first event.

    It has the arguments and the errors of `load_state`.
    """
    from toolloop.stores.codec import read_journal  # noqa: PLC0415 - likewise

    journal = call_store(loop_id, partial(store.load, loop_id))
    state = read_journal(journal.entries)
    check_owner(state, loop_id)
    return state, journal


def check_owner(state: State, loop_id: str) -> None:
    """Raise `UnreadableSnapshot` if a journal belongs to another loop than the one that it is stored as."""
    if (found := state.root.setup.loop_id) != loop_id:
        raise UnreadableSnapshot(
            f"the journal stored as {loop_id!r} belongs to the loop {found!r}: it was copied. Open that "
            "loop, or use fork() to continue with an independent copy"
        )


def load_after(
    store: Store, loop_id: str, rev: int, first_id: str | None, count: Callable[[Iterable[Entry]], object]
) -> tuple[int, dict[str, ev.Event]]:
    """Return the revision of a stored loop, and the events behind a known revision, by their ids.

    Args:
        store: the store.
        loop_id: the id of the loop.
        rev: the known revision.
        first_id: the id of the first event, if it is known.
        count: called with the entries.

    Raises:
        StaleRevision: the store was restored, and lacks events up to the known revision.
        StoreError: the store failed, or is damaged.

    """
    from toolloop.stores.codec import decode_event  # noqa: PLC0415 - cattrs is loaded when it is first needed

    found = call_store(loop_id, partial(store.load, loop_id, after=rev, first_id=first_id))
    if found.rev < rev:  # a store without digests notices no more than this
        raise StaleRevision(f"the store has revision {found.rev} of the loop {loop_id!r}, not {rev}", loop_id=loop_id)
    count(found.entries)
    return found.rev, {entry.id: decode_event(entry) for entry in found.entries}
