"""Assemble the parts of a driven loop, for a handle or a runner."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Generic

from attrs import frozen

from toolloop._drivers.driver import D
from toolloop._engine.engine import Engine
from toolloop._engine.in_progress import InProgress
from toolloop._engine.model_requests import ModelRequests
from toolloop._engine.operations import exhaust
from toolloop._engine.pace import DriveOptions
from toolloop._engine.runtimes import Runtime, Runtimes
from toolloop._engine.tool_runs import ToolRuns
from toolloop._handles.commands import Commands
from toolloop._handles.issuing import CommandIssuer
from toolloop._handles.opening import LoopParts
from toolloop._handles.turns import Driving, Turns
from toolloop._handles.waking import WakeUp
from toolloop._journal.journal import Journal, LocalJournal
from toolloop._journal.lease import DriverLease, DriverName
from toolloop._journal.shared_journal import SharedJournal
from toolloop._journal.store_access import call_store
from toolloop.errors import Conflict
from toolloop.machine.queries import under_way
from toolloop.machine.record.journal_events import Woken
from toolloop.stores.protocol import Store
from toolloop.tools import ToolContext

ALONE = DriveOptions()


@frozen
class Assembly(Generic[D]):
    """The parts of a loop that is driven.

    Attributes:
        given: the parts that it was assembled from.
        journal: holds its state.
        lease: the right to drive a stored loop; None without a store.
        progress: the operations in progress.
        runtimes: the tools and the configuration of each loop of the tree.
        requests: makes its model requests.
        engine: decides which operation is next.
        commands: the caller's commands, as functions of the state.
        issuer: issues them to the journal.
        driver: performs the operations of the engine, sync or async.
        driving: tracks whether a turn is in progress.
        turns: makes the result of each turn.
        late: stores ends of calls that come while no driver works.

    """

    given: LoopParts
    journal: Journal
    lease: DriverLease | None
    progress: InProgress
    runtimes: Runtimes
    requests: ModelRequests
    engine: Engine
    commands: Commands
    issuer: CommandIssuer
    driver: D
    driving: Driving
    turns: Turns
    late: Callable[[], None]

    def begin_stored(self) -> None:
        """Create a stored loop, or take over an interrupted one that has no driver. This blocks.

        Raises:
            Conflict: a new loop was requested, and its id is in use.
            Drift: a worker leaves the loop to others.
            StoreError: the store failed.

        """
        self.journal.commit()
        if self.lease is None or self.given.is_new:
            return
        if self.given.wake_up is not None and self.given.wake_up.on_drift == "leave":
            self.given.wake_up.compare(self.journal.state, self.runtimes.root)
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
        return self.given.take_over or under_way(self.journal.state)


def assemble(parts: LoopParts, driver_class: type[D], options: DriveOptions = ALONE) -> Assembly[D]:
    """Assemble the parts of a loop. It sends and stores nothing, and starts no clock."""
    setup, here, is_async = parts.state.root.setup, parts.here, driver_class.is_async
    metadata = dict if parts.place is None else partial(_read_metadata, parts.place.store, setup.loop_id)
    runtimes = Runtimes(Runtime.of(setup, here.tools, here.config, parts.secrets), metadata)
    name, stored = DriverName(), None
    if parts.place is not None:
        stored = SharedJournal(parts.state, here.clock, parts.place, runtimes.find_observers, defers=is_async)
    journal = stored or LocalJournal(parts.state, here.clock, runtimes.find_observers)
    report_usage = here.context._spent if isinstance(here.context, ToolContext) else None  # noqa: SLF001 - it exists for this use
    progress = InProgress(journal, report_usage)
    requests = ModelRequests(progress, runtimes, here.provider, options, is_async=is_async)
    runs = ToolRuns(progress, runtimes, getattr(here.context, "state", None))
    woken = partial(_make_woken, parts.wake_up or WakeUp(), journal, None if stored is None else name, runtimes.root)
    is_asleep = parts.wake_up is not None
    engine = Engine(progress, runtimes, requests, runs, woken=woken, is_asleep=is_asleep, holds=options.holds)
    notifier, lease = driver_class.make_notifier(engine), None
    if stored is not None:
        lease = DriverLease(
            stored,
            name,
            in_use=progress.has_runs,
            show=progress.show,
            on_change=notifier.notify,
            live=options.live,
            take_over=parts.take_over,
        )
    late = journal.bus.tell if lease is None else lease.store_late_ends
    driver = driver_class(engine, notifier, late, leaves_behind=options.leaves_behind)
    commands = Commands(runtimes, journal.now)
    issuer, driving = (
        CommandIssuer(commands, journal, notifier, engine.make_woken),
        Driving(journal, lease, engine.leave),
    )
    turns = Turns(journal, issuer, driving, requests.errors, engine.list_running_calls, here.config.typed())
    return Assembly(
        parts, journal, lease, progress, runtimes, requests, engine, commands, issuer, driver, driving, turns, late
    )


def _read_metadata(store: Store, loop_id: str) -> Mapping[str, str]:
    return call_store(loop_id, partial(store.head, loop_id)).metadata


def _make_woken(wake_up: WakeUp, journal: Journal, name: DriverName | None, runtime: Runtime) -> Woken:
    """Return the event with which this driver takes a loop over."""
    runtime.follow_lists(journal.state.root.setup)
    setup, changed_tools = wake_up.compare(journal.state, runtime)
    driver = None if name is None else str(name)
    return Woken(setup, driver, changed_tools, rebinds=bool(changed_tools), at=journal.now())
