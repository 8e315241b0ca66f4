"""Loops that DBOS dispatches: which process drives which loop, on any number of machines."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import count
from typing import Any, TypeVar

from dbos import DBOS, DBOSConfig

from toolloop.dbos.settings import preset_wal, settings_of
from toolloop.dbos.stretches import WORKFLOW, Stretch, Stretches, stretch_id
from toolloop.face.config import LoopConfig
from toolloop.face.loop_view import LoopView
from toolloop.inbox.inbox import CallKey, Inbox
from toolloop.loop.sync import ToolLoopHandle
from toolloop.machine.errors import LoopNotFound, StoreError
from toolloop.machine.values import Decision
from toolloop.providers.scripted import ScriptedProvider
from toolloop.stores.arguments import check_seconds
from toolloop.stores.protocol import Store, StoredLoop, check_store
from toolloop.tools import Context, ToolRegistry
from toolloop.worker.desk import Desk
from toolloop.worker.sync import Worker

T = TypeVar("T")
LOG = logging.getLogger("toolloop.dbos")
_PAUSE = 0.5  # seconds before a stretch tries again, on average and at first; then twice as long each time
_DOUBLINGS = 5
_POLL = 0.1  # seconds between two looks of `result`, at first
_LONGEST_POLL = 1.0
_MOST = 1000  # loops that a sweep enqueues at most; the next one goes on
_DRAIN = 600  # seconds that `close` waits at most for turns in progress
_LAUNCHED: list[DurableLoops] = []  # one at most: a process has one DBOS


@DBOS.step(name="toolloop.drive")
def _drive(loop_id: str, tries: int) -> float | None:
    return _LAUNCHED[0]._drive(loop_id, tries)  # noqa: SLF001 - DBOS calls functions that are registered before it starts


@DBOS.workflow(name=WORKFLOW, max_recovery_attempts=None)
def _stretch(loop_id: str) -> None:
    # A change of the order of these steps needs another `settings.VERSION`.
    for tries in count():
        if (pause := _drive(loop_id, tries)) is None:
            return
        DBOS.sleep(pause)


class DurableLoops:
    """Drive the loops of a store on any number of machines, dispatched by DBOS.

    The store keeps the loops. DBOS keeps their ids, and assigns them to processes. Without a provider and tools, this
    is a client: it starts loops, decides their calls and reads them, and other processes drive.

    Args:
        store: where the loops are. It must be one that every process can reach.
        provider: as for a handle. Tools and callables of the configuration are sync.
        tools: of the loops; as for `Worker`.
        dbos: the configuration of DBOS, with `name`, `system_database_url`, and on PostgreSQL an `executor_id` for each
            process that drives.
        queue: the options of `DBOS.register_queue`, such as `worker_concurrency`, `global_concurrency` and `limiter`;
            `name` is `"toolloop"` if it is left out. Options of partitions are refused.
        params: what no store keeps; as for `Worker`.
        context: as for `Worker`.
        config: as for `Worker`, and the limits of loops that are started here.
        sweep_every: seconds between two sweeps, on average.

    Raises:
        ValueError: parts that do not fit: see the guide to DBOS.
        BadTool, TypeError: a part is of a type that it cannot be.

    """

    def __init__(  # noqa: PLR0913 - the parts of its loops, most of them optional
        self,
        store: Store,
        provider: Any = None,
        tools: Iterable[Any] | ToolRegistry = (),
        *,
        dbos: DBOSConfig,
        queue: Mapping[str, Any] | None = None,
        params: Mapping[str, Any] | Callable[[str], Any] | None = None,
        context: Context | Callable[[str], Any] | None = None,
        config: LoopConfig | None = None,
        sweep_every: float = 10.0,
    ) -> None:
        check_store(store)
        check_seconds("sweep_every", sweep_every)
        if sweep_every <= 0:
            raise ValueError(f"sweep_every is {sweep_every}; give seconds above zero")
        self._settings = settings_of(dbos, store, drives=provider is not None)
        self._queue: dict[str, Any] = {"name": "toolloop", **(queue or {})}
        if partitioned := sorted(name for name in self._queue if name.startswith("partition")):
            raise ValueError(f"queue has {', '.join(partitioned)}; the queue of the loops has no partitions")
        tools = ToolRegistry(tools) if not isinstance(tools, ToolRegistry) else tools
        self._worker: Any = (
            None if provider is None else Worker(store, provider, tools, params=params, context=context, config=config)
        )
        self._create = partial(ToolLoopHandle.open, store, provider=ScriptedProvider(()), tools=tools, config=config)
        self._inbox = Inbox(store)
        self._desk = Desk(store, time.time, 1, notifies=False)
        self._stretches = Stretches(self._settings, self._queue["name"])
        self._sweep_every = sweep_every
        self._stopping = threading.Event()
        self._seemed_lost: set[Stretch] = set()  # at the last sweep
        self._sweeper: threading.Thread | None = None

    # --- anywhere ----------------------------------------------------------------------------------------------------

    def start(self, loop_id: str, params: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> None:
        """Create a loop in the store, and enqueue it. If it is there already, nothing changes.

        Args:
            loop_id: a name of your own, such as the number of an order: a second start with it is harmless.
            params: as for a handle. What no store keeps is left out: give that to the processes that drive.
            metadata: as for `ToolLoopHandle.open`.

        Raises:
            InvalidHistory, TypeError, ValueError: as for a handle.
            StoreError: the store failed.

        """
        self._create(loop_id, params=params, metadata=metadata).close()
        self._enqueue(loop_id)

    def decide(self, loop_id: str, decisions: Mapping[CallKey, Decision]) -> None:
        """Decide calls of a loop, as `Inbox.decide` does. Once none waits, the loop is enqueued.

        Raises:
            StoreError, LoopNotFound, UnknownCall, AlreadyDecided, DecisionConflict, IllegalCommand: as `Inbox.decide`.

        """
        self._inbox.decide(loop_id, decisions)
        self._enqueue(loop_id)

    def result(self, loop_id: str, timeout: float | None = None) -> LoopView:
        """Wait until a loop needs a person or has ended, and return it.

        Args:
            loop_id: the loop.
            timeout: in seconds. None: wait as long as it takes.

        Raises:
            LoopNotFound: it is not there.
            StoreError: the store failed.
            TimeoutError: the loop still goes on.

        """
        if timeout is not None:
            check_seconds("timeout", timeout)
        begun, wait = time.monotonic(), _POLL
        while not _rests(loop := self._desk.head(loop_id)):
            left = wait if timeout is None else timeout - (time.monotonic() - begun)
            if left <= 0:
                raise TimeoutError(
                    f"the loop {loop_id!r} still goes on after {timeout} seconds: it is {loop.status}. Wait longer, or "
                    "look whether a process that drives it is there"
                )
            time.sleep(min(wait, left))
            wait = min(wait * 2, _LONGEST_POLL)
        return self._inbox.show(loop_id)

    # --- where loops are driven --------------------------------------------------------------------------------------

    def launch(self) -> None:
        """Launch DBOS in this process, and drive loops from now on.

        DBOS recovers what this executor left. Then the sweeps begin: see `sweep`. Your own workflows may run beside the
        loops, if they are registered before.

        Raises:
            RuntimeError: this is a client, or the process has created DBOS already.

        """
        if self._worker is None:
            raise RuntimeError("this client cannot drive loops: create it with a provider and the tools")
        if _LAUNCHED:
            raise RuntimeError("this process drives other loops with DBOS already: close those first")
        preset_wal(self._settings.get("system_database_url"))
        DBOS(config=self._settings)
        if DBOS.application_version != self._stretches.version:
            raise RuntimeError("this process has created DBOS already, with other settings: leave that to DurableLoops")
        self._stopping.clear()
        _LAUNCHED.append(self)
        try:
            DBOS.launch()
            DBOS.register_queue(**self._queue)
        except BaseException:
            self._destroy()
            raise
        self._sweeper = threading.Thread(target=self._sweep_on_and_on, name="sweeps-of-toolloop", daemon=True)
        self._sweeper.start()

    def close(self) -> None:
        """End the turns in progress, leave their loops to other processes, and end DBOS. A client disconnects."""
        self._stopping.set()
        if self._sweeper is not None:
            self._sweeper.join()
            self._sweeper = None
            self._destroy()
        self._stretches.close()

    def sweep(self) -> list[str]:
        """Enqueue lost stretches, and return their ids. After `launch`, a thread calls this every few seconds.

        A stretch is lost if an executor began it and no live driver has the loop, or if it waits for another version of
        the application; both if two sweeps in a row find it so. The stretch of a loop that is due is lost if it is not
        in the queue, for example because the loop was decided in the store alone.

        Raises:
            StoreError: the store failed.

        """
        stretches = self._stretches.open()
        found = {stretch for stretch in stretches if self._seems_lost(stretch)}
        lost = [stretch.id for stretch in found & self._seemed_lost]
        self._seemed_lost = found
        agenda = self._desk.look({each.loop_id for each in stretches})
        due = {stretch_id(loop): loop for loop in agenda.due[:_MOST]}  # a query takes a limited number of ids
        used = self._stretches.used(due)
        for each in [*lost, *used]:
            self._safely(partial(self._stretches.put_back, each))
        for each in due.keys() - used:
            self._safely(partial(self._stretches.enqueue, due[each]))
        lost += due
        if lost:
            LOG.info("enqueued lost stretches: %s", ", ".join(lost))
        return lost

    def _seems_lost(self, stretch: Stretch) -> bool:
        """Return whether a stretch is lost, unless it continues or ends in this moment."""
        if not stretch.is_running:
            return stretch.version != self._stretches.version
        try:
            return not self._desk.is_driven(self._desk.head(stretch.loop_id))
        except LoopNotFound:
            return True  # put back, the stretch finds that out, and ends

    def _sweep_on_and_on(self) -> None:
        while True:
            try:
                self.sweep()
            except Exception:  # whatever a store or a database may do: the next sweep may do better
                LOG.exception("a sweep failed")
            # Processes that were started together do not sweep together.
            if self._stopping.wait(self._sweep_every * (0.5 + random.random())):  # noqa: S311 - no secret
                return

    def _drive(self, loop_id: str, tries: int) -> float | None:
        """Drive a loop to its next pause. Return after how many seconds to try again; None: the stretch has ended."""
        if self._stopping.is_set():
            return None  # a sweep of another process puts it back
        pause: float = _PAUSE * 2 ** min(tries, _DOUBLINGS) * (0.5 + random.random())  # noqa: S311 - no secret
        try:
            loop: StoredLoop = self._worker.drive(loop_id, self._stopping.is_set)
        except LoopNotFound:
            return None
        except StoreError as error:
            LOG.info("the loop %r is tried again in %.1f s: %s", loop_id, pause, error, extra={"loop_id": loop_id})
            return pause
        if loop.due_at is None:
            return None
        if self._desk.is_due(loop) and not self._stopping.is_set():
            return pause
        self._safely(partial(self._stretches.enqueue, loop))
        return None

    def _enqueue(self, loop_id: str) -> None:
        loop = self._desk.head(loop_id)
        if self._desk.is_due(loop) and not self._desk.is_driven(loop):
            self._safely(partial(self._stretches.enqueue, loop))

    @staticmethod
    def _safely(ask: Callable[[], T]) -> T | None:
        """Ask DBOS, and log a failure. The loops are in the store, and the next sweep enqueues those that are due."""
        try:
            return ask()
        except Exception as error:  # noqa: BLE001 - whatever a database may do
            LOG.warning("DBOS failed, a sweep tries again: %s: %s", type(error).__name__, str(error).partition("\n")[0])
            return None

    @staticmethod
    def _destroy() -> None:
        DBOS.destroy(workflow_completion_timeout_sec=_DRAIN)
        _LAUNCHED.clear()


def _rests(loop: StoredLoop) -> bool:
    """Return whether a loop needs a person, or has ended."""
    return loop.status not in ("runnable", "running") and (loop.status != "failed" or loop.due_at is None)
