"""The lease of a handle: the right to drive a stored loop, from its first use to its last.

The owner of a lease is a handle in a process. A lease ends in one of these ways:

- the owner gives it back;
- its owner is a process of this machine that has ended;
- another driver takes it over explicitly;
- it expires, if it is unknown whether its owner is alive. A live owner on this machine never loses it by time.

While a process holds leases, one of its threads renews them, and gives back those that could not be given back at once.

While a handle holds its lease, it watches its store. If another program has stored a decision, a command or a takeover,
the thread of the watch reads it into the journal and notifies the driver. So a running tool notices a stop, even if the
driver itself is inside that tool. The thread that renews leases looks, too, for stores that do not report changes.
"""

from __future__ import annotations

import inspect
import threading
import uuid
import weakref
from collections.abc import Callable, Coroutine, Generator
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any

from attrs import field, frozen

from toolloop._forks import ProcessState
from toolloop._interface.progress import Progress
from toolloop._journal.event_bus import LOG
from toolloop._journal.progress import KeptProgress
from toolloop._journal.shared_journal import SharedJournal
from toolloop._journal.store_access import call_store
from toolloop.errors import Conflict, LoopNotFound, StoreError, ToolLoopError
from toolloop.stores.optional import find_kept_progress, read_time, watch_store
from toolloop.stores.process import describe_owner, find_standing, name_this_process
from toolloop.stores.protocol import Lease, Store, StoredLoop

StepsOrTask = Generator[Any, Any, Any] | Coroutine[Any, Any, Any]

_LOOK_EVERY = 2.0


@frozen
class DriverName:
    """The name of a driver in a store, as a string. In a forked child it is another one."""

    _id: str = field(factory=lambda: uuid.uuid4().hex[:12])

    def __str__(self) -> str:
        return f"{name_this_process()} {self._id}"


class DriverLease:
    """The lease of one handle.

    It is needed as long as a generator or coroutine that was given to `keep` is open: a turn, or a `run()`. So no
    cleanup is needed after an interrupt, or when the garbage collector closes a turn. `acquire` and `give_back_if_free`
    block while the store works; the other methods never wait.

    Attributes:
        progress: what the driver does now, as other processes see it.

    """

    def __init__(  # noqa: PLR0913 - its parts
        self,
        journal: SharedJournal,
        name: DriverName | None = None,
        *,
        in_use: Callable[[], bool] = bool,
        show: Callable[..., Progress] = lambda **_: Progress(),
        on_change: Callable[[], object] = bool,
        live: float | None = None,
        take_over: bool = False,
    ) -> None:
        """Hold no lease yet.

        Args:
            journal: the journal of the loop.
            name: the name of the driver.
            in_use: returns whether something else needs the lease, such as a running tool.
            show: returns what the driver does now, for other processes.
            on_change: notifies the driver that others stored events, in any thread.
            live: see `DriveOptions`.
            take_over: take it the first time even if a live driver holds it.

        """
        self._in_use = in_use
        self._on_change = on_change
        self.progress: KeptProgress = KeptProgress(journal.store, journal.loop_id, show, live)
        self._watch: AbstractContextManager[object] | None = None
        self._journal = journal
        self._take_over = take_over
        self._name = DriverName() if name is None else name
        self._holders: list[weakref.ref[StepsOrTask]] = []  # each one is removed when it is deallocated
        self._lease: Lease | None = None  # the one in the store, as far as known
        self._is_late = False  # whether an attempt to give it back failed

    @property
    def owner(self) -> str:
        """The name of the driver in the store."""
        return str(self._name)

    @property
    def is_needed(self) -> bool:
        """Whether the lease is needed."""
        return self._count_holders() > 0 or self._in_use()

    @property
    def is_shared(self) -> bool:
        """Whether it is held for two uses, so that it is not about to be given back when one of them checks."""
        return self._journal.lease is not None and self._count_holders() > 1

    def _count_holders(self) -> int:
        holders = [holder() for holder in tuple(self._holders)]  # a copy, because an item may be removed at any moment
        return sum(steps is not None and is_on_its_way(steps) for steps in holders)

    def keep(self, steps: StepsOrTask) -> None:
        """Keep the lease, once it is taken, while a generator or coroutine is open."""
        self._holders.append(weakref.ref(steps, self._holders.remove))

    def acquire(self) -> None:
        """Take the lease if this handle does not have it.

        Raises:
            Conflict: another driver holds it. The error has the owner and the expiry.
            StoreError: the store failed.

        """
        with self._journal.io:
            self._journal.leave_if_set_back()
            if self._journal.lease is None:
                self._claim()

    def give_back_if_free(self) -> None:
        """Give the lease back if it is not needed, once everything recorded under it is stored.

        If the store fails, the thread that renews leases tries again.
        """
        if self.is_needed or KEEPER.value.leases.get(self.owner) is not self:
            return
        journal = self._journal
        with journal.io:
            if self.is_needed:
                return
            is_known = self._is_late or journal.is_failing
            try:
                journal.commit()
                journal.lease = None
                lease = self._lease or call_store(journal.loop_id, partial(journal.store.head, journal.loop_id)).lease
                if lease is not None and lease.owner == self.owner:
                    call_store(journal.loop_id, partial(journal.store.release, lease))
            except LoopNotFound:
                pass
            except ToolLoopError:
                self._is_late = True
                if not is_known:
                    LOG.warning("could not give a lease back; will retry", extra={"loop_id": journal.loop_id})
                return
            self._lease, self._is_late = None, False
            KEEPER.value.forget(self.owner)
        journal.bus.tell()

    def store_late_ends(self) -> None:
        """Store the ends of calls that came after the turn. Give the lease back once no tool runs."""
        journal = self._journal
        is_known = journal.is_failing
        try:
            journal.commit()
        except StoreError as error:  # the next commit tries again, and raises
            if not is_known:
                extra = {"loop_id": journal.loop_id}
                LOG.warning("could not persist the end of a call; will retry: %s", error, extra=extra)
        finally:
            self.give_back_if_free()
            journal.bus.tell()

    def _claim(self) -> None:
        journal, store = self._journal, self._journal.store
        if journal.rev == 0:
            journal.commit()
        self._lease, names = None, (journal.loop_id, self.owner)
        wanted: dict[str, Any] = {"first_id": journal.first_id, "instead_of": None}
        KEEPER.value.keep(self)  # from here on, the store may have granted it
        while True:
            try:
                self._lease = lease = journal.term.ask(lambda until: store.acquire(*names, until=until, **wanted))
                break
            except Conflict as held:
                if held.token is None or held.owner is None or held.until is None:
                    raise
                is_void = self._take_over or held.owner == self.owner
                if not (is_void or has_ended(held.owner, held.until, journal.term.now())):
                    KEEPER.value.forget(self.owner)
                    raise _make_refusal(held, held.owner, held.until) from None
                wanted["instead_of"] = held.token
        self._take_over = False
        if lease.rev != journal.rev:
            journal.refresh()  # events from before this lease do not mean that it was taken over
        with journal.lock:
            journal.lease, journal.lost = lease, None
        self.progress.begin(lease)

    def renew(self) -> None:
        """Renew the lease if it is due, or give it back if it is not needed. A failure is retried."""
        lease = self._lease
        if not self.is_needed:
            self.give_back_if_free()
        elif lease is not None and self._journal.term.is_due:
            try:
                self._journal.term.renew(lease)
            except (Conflict, LoopNotFound):  # another driver took it over; the next append will fail with that
                if self._lease is lease:
                    KEEPER.value.forget(self.owner)
            except StoreError:
                LOG.warning("could not renew a lease; will retry", extra={"loop_id": lease.loop_id})

    def begin_watch(self) -> None:
        """Watch the store, unless it is watched already."""
        if self._watch is None:
            watch = watch_store(self._journal.store, self.look)
            watch.__enter__()
            self._watch = watch

    def end_watch(self) -> None:
        """Stop watching the store."""
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.__exit__(None, None, None)

    def look(self) -> None:
        """Read the events that others stored, if there are any, and notify the driver. Failures are left to its calls.

        The head is read first, without a lock: this thread must not hold up the driver while nothing has changed.
        """
        journal = self._journal
        known = journal.rev
        with suppress(Exception):  # whatever a store raises
            row = call_store(journal.loop_id, partial(journal.store.head, journal.loop_id))
            if row.rev not in (known, journal.rev) and self._lease is not None:
                with suppress(Conflict):
                    if not journal.refresh():
                        return
                self._on_change()

    def read_progress(self) -> tuple[bool | None, Progress]:
        """Return whether another driver holds the loop, and what it does now; None if the store fails."""
        journal = self._journal
        try:
            return read_progress(
                journal.store, call_store(journal.loop_id, partial(journal.store.head, journal.loop_id))
            )
        except ToolLoopError:
            return None, Progress()


def is_on_its_way(steps: StepsOrTask) -> bool:
    """Return whether a generator or coroutine has begun and has not ended."""
    if inspect.isgenerator(steps):
        return inspect.getgeneratorstate(steps) in (inspect.GEN_RUNNING, inspect.GEN_SUSPENDED)
    if inspect.iscoroutine(steps):
        return inspect.getcoroutinestate(steps) in (inspect.CORO_RUNNING, inspect.CORO_SUSPENDED)
    return False


def has_ended(owner: str, until: float, now: float) -> bool:
    """Return whether a lease that was not given back has certainly ended.

    Args:
        owner: the owner of the lease.
        until: its end.
        now: the time by the clock of the store, see `read_time`.

    """
    process = owner.rpartition(" ")[0]
    if process == name_this_process():
        lease = KEEPER.value.leases.get(owner)
        return lease is None or not lease.is_needed
    match find_standing(process):
        case "gone":
            return True
        case "alive":
            return False
    return until <= now


def is_held(store: Store, loop_id: str) -> bool:
    """Return whether a driver holds a loop.

    Raises:
        LoopNotFound: the loop does not exist.
        StoreError: the store failed.

    """
    return is_driven(store, call_store(loop_id, partial(store.head, loop_id)))


def is_driven(store: Store, row: StoredLoop) -> bool:
    """Return whether a driver holds the loop of a row.

    Raises:
        StoreError: the store failed.

    """
    lease = row.lease
    return lease is not None and not has_ended(
        lease.owner, lease.until, call_store(row.loop_id, partial(read_time, store))
    )


def read_progress(store: Store, row: StoredLoop) -> tuple[bool, Progress]:
    """Return whether a driver holds the loop of a row, and what it does now.

    Raises:
        StoreError: the store failed.

    """
    if not is_driven(store, row):
        return False, Progress()
    if row.status in ("ended", "failed"):  # what its driver last kept may be there until it gives the lease back
        return True, Progress()
    return True, Progress.of(call_store(row.loop_id, partial(find_kept_progress, store, row.loop_id)))


def _make_refusal(held: Conflict, owner: str, until: float) -> Conflict:
    moment = datetime.fromtimestamp(until, UTC).isoformat(timespec="seconds")
    return Conflict(
        f"the loop {held.loop_id!r} is being driven by {describe_owner(owner.rpartition(' ')[0])}, with a lease until "
        f"{moment}. You can still decide its calls. Retry when that driver has finished, or pass take_over=True if you "
        "are sure that it never will",
        loop_id=held.loop_id,
        owner=owner,
        until=until,
        token=held.token,
    )


class LeaseKeeper:
    """The `leases` of one process by owner, each of which may hold one in a store, and the thread that renews them."""

    def __init__(self) -> None:
        """Keep no lease yet, and start no thread."""
        self.leases: dict[str, DriverLease] = {}
        self._thread: threading.Thread | None = None
        self._never = threading.Event()
        # Reentrant, because a signal handler may close a handle in the thread that holds it.
        self._lock = threading.RLock()

    def keep(self, lease: DriverLease) -> None:
        """Renew a lease from now on, and watch its store."""
        with self._lock:
            self.leases[lease.owner] = lease
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._renew_until_free, name="leases-of-toolloop", daemon=True)
                self._thread.start()
        lease.begin_watch()

    def forget(self, owner: str) -> None:
        """Renew a lease no longer."""
        with self._lock:
            lease = self.leases.pop(owner, None)
        if lease is not None:
            lease.end_watch()
            lease.progress.end()

    def renew_all(self) -> None:
        """Renew the leases that are needed, and give back the others."""
        for lease in tuple(self.leases.values()):
            try:
                lease.renew()
            except Exception:  # noqa: BLE001 - whatever a store raises, the other leases must be renewed
                LOG.exception("could not renew a lease; gave up", extra={"loop_id": lease.owner})
                self.forget(lease.owner)

    def _renew_until_free(self) -> None:
        earlier: frozenset[str] = frozenset()  # the poll behind the watch is for turns that take long
        while True:
            self._never.wait(_LOOK_EVERY)
            with self._lock:
                if not self.leases:
                    self._thread = None
                    return
            self.renew_all()
            earlier = self._look(earlier)

    def _look(self, earlier: frozenset[str]) -> frozenset[str]:
        """Look at the stores of these owners; return those of now. A thread that waits has no lease and no store."""
        for owner, lease in (held := dict(self.leases)).items():
            if owner in earlier:
                lease.look()
        return frozenset(held)


KEEPER = ProcessState(LeaseKeeper)
