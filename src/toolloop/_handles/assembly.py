"""Assemble the parts of a driven loop, for a handle or a runner."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, ClassVar, Protocol

from attrs import frozen

from toolloop._engine.engine import Engine
from toolloop._engine.in_progress import InProgress
from toolloop._engine.model_requests import ModelRequests
from toolloop._engine.operations import exhaust
from toolloop._engine.runtimes import Runtime, Runtimes
from toolloop._engine.tool_runs import ToolRuns
from toolloop._handles.commands import Commands
from toolloop._handles.issuing import CommandIssuer
from toolloop._handles.opening import LoopParts
from toolloop._handles.waking import WakeUp
from toolloop._journal.event_bus import EventBus
from toolloop._journal.journal import LOG, Journal
from toolloop._journal.lease import DriverLease
from toolloop._journal.shared_journal import SharedJournal
from toolloop.errors import Conflict, StoreError
from toolloop.machine.queries import under_way
from toolloop.machine.record.journal_events import Woken
from toolloop.tools import ToolContext


class Driver(Protocol):
    """The driver that performs the operations of an engine: a `SyncDriver` or an `AsyncDriver`."""

    is_async: ClassVar[bool]
    notifier: Any

    def __init__(self, engine: Engine, when_late: Callable[[], None]) -> None:
        """`when_late`: called in the thread of a tool that ends between two turns."""

    def drive(self, result: Callable[[], Any]) -> Any:
        """Drive until it is the caller's turn. `result`: returns the result of the turn."""

    def read_by(self, unread: Any) -> None:
        """Set the `Unread` or `AsyncUnread` of the turn's reader; None means that the turn is not streamed."""


@frozen
class Assembly:
    """The parts of a loop.

    Attributes:
        parts: the parts that it was assembled from.
        journal: holds its state.
        lease: the right to drive a stored loop; None without a store.
        runtimes: the tools and the configuration of each loop of the tree.
        requests: makes its model requests.
        engine: decides which operation is next.
        commands: the caller's commands, as functions of the state.
        issuer: issues them to the journal.
        driver: performs the operations of the engine, sync or async.
        late: stores ends of calls that come while no driver works.

    """

    parts: LoopParts
    journal: Journal
    lease: DriverLease | None
    runtimes: Runtimes
    requests: ModelRequests
    engine: Engine
    commands: Commands
    issuer: CommandIssuer
    driver: Any
    late: Callable[[], None]

    def begin_stored(self) -> None:
        """Create a stored loop, or take over an interrupted one that has no driver. This blocks.

        Raises:
            Conflict: a new loop was requested, and its id is in use.
            StoreError: the store failed.

        """
        self.journal.commit()
        if self.lease is None or not self.parts.rev:
            return
        if not self._is_to_be_taken_over():
            return
        steps = self._take_over(self.lease)
        self.lease.keep(steps)
        try:
            exhaust(steps)
        except Conflict:
            return  # another driver holds the loop, so this handle only reads and decides
        finally:
            self.lease.give_back_if_free()
        self.journal.bus.tell()

    def _take_over(self, lease: DriverLease) -> Generator[None]:
        """Take the loop over. The lease is kept while this generator is open."""
        lease.acquire()
        if self._is_to_be_taken_over():  # else its driver has ended the turn in the meantime
            self.journal.record(Woken(driver=lease.owner, at=self.journal.now()))
        self.journal.commit()
        yield

    def _is_to_be_taken_over(self) -> bool:
        return self.parts.take_over or under_way(self.journal.state)

    def turn(self, unread: Any) -> AbstractContextManager[None]:
        """Return the context manager of a turn. `unread`: of its reader; None means that it is not streamed.

        It replaces the reader of the previous turn, so no cleanup is needed after an interrupt.
        """
        self.journal.bus.reader = None if unread is None else unread.tell
        self.requests.streams = unread is not None
        self.driver.read_by(unread)
        return _Leaving(self.engine)


class _Leaving:
    """Gives up the operations in progress at the end of a turn, unless the turn's generator is being closed.

    The garbage collector may close a generator in any thread, between any two bytecodes, and that thread may hold any
    lock. So closing takes no lock and stores nothing. `Engine.wake` ends the operations that such a turn left behind,
    and the thread that renews leases gives back its lease.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is GeneratorExit:
            return
        self._engine.leave()
        self._engine.journal.bus.settle()


def assemble(parts: LoopParts, driver_class: type[Driver]) -> Assembly:
    """Assemble the parts of a loop. It sends and stores nothing, and starts no clock."""
    is_async = driver_class.is_async
    setup, here = parts.state.root.setup, parts.here
    runtimes = Runtimes(Runtime.of(setup, here.tools, here.config, parts.secrets))
    bus = EventBus(setup.loop_id)
    lease: DriverLease | None = None
    if parts.store is None:
        journal = Journal(parts.state, here.clock, bus)
    else:
        stored = SharedJournal(
            parts.state,
            here.clock,
            bus,
            store=parts.store,
            rev=parts.rev,
            first_id=parts.first_id,
            first=parts.first,
            metadata=parts.metadata,
            defers=is_async,
        )
        journal, lease = stored, DriverLease(stored, take_over=parts.take_over)
    bus.connect(journal, runtimes.observers)
    report_usage = here.context._spent if isinstance(here.context, ToolContext) else None  # noqa: SLF001 - it exists for this use
    progress = InProgress(journal, report_usage)
    requests = ModelRequests(progress, runtimes, here.provider, is_async=is_async)
    engine = Engine(
        progress,
        runtimes,
        requests,
        ToolRuns(progress, runtimes, getattr(here.context, "state", None)),
        woken=partial(_woken, parts.wake_up or WakeUp(), journal, lease, runtimes.root),
        is_asleep=parts.wake_up is not None,
    )
    if lease is not None:
        lease.in_use, lease.progress.read = engine.has_runs, engine.shown
    late = partial(_store_late_ends, journal, lease)
    driver, commands = driver_class(engine, late), Commands(runtimes, journal.now)
    if lease is not None:
        lease.on_change = driver.notifier.notify
    issuer = CommandIssuer(commands, journal, driver, engine.woken)
    return Assembly(parts, journal, lease, runtimes, requests, engine, commands, issuer, driver, late)


def _woken(wake_up: WakeUp, journal: Journal, lease: DriverLease | None, runtime: Runtime) -> Woken:
    """Return the event with which this driver takes a loop over."""
    owner = None if lease is None else lease.owner
    setup, changed_tools = wake_up.compare(journal.state, runtime)
    return Woken(setup, owner, changed_tools, at=journal.now())


def _store_late_ends(journal: Journal, lease: DriverLease | None) -> None:
    """Store the ends of calls that came after the turn. Give the lease back once no tool runs."""
    is_known = journal.is_failing
    try:
        journal.commit()
    except StoreError as error:  # the next commit tries again, and raises
        if not is_known:
            extra = {"loop_id": journal.state.root.setup.loop_id}
            LOG.warning("could not persist the end of a call; will retry: %s", error, extra=extra)
    finally:
        if lease is not None:
            lease.give_back_if_free()
        journal.bus.tell()
