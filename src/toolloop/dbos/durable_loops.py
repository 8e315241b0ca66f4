"""Loops that DBOS dispatches to processes, on any number of machines."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, Literal, TypeVar, overload

from dbos import DBOS, DBOSConfig

from toolloop._handles.sync import ToolLoopHandle
from toolloop._interface.config import LoopConfig
from toolloop._interface.loop_params import as_registry
from toolloop._interface.standing import Standing
from toolloop._worker.desk import Desk
from toolloop._worker.sync import Worker
from toolloop.dbos.settings import preset_wal, settings_of
from toolloop.dbos.stretches import WORKFLOW, Stretch, Stretches, stretch_id
from toolloop.errors import CallerError, LoopNotFound, StoreError
from toolloop.inbox.inbox import CallKey, Inbox
from toolloop.inbox.items import InboxCall, ShownLoop
from toolloop.machine.values.calls import Decision
from toolloop.machine.values.jsontext import JSON
from toolloop.machine.values.names import Person
from toolloop.providers import Provider
from toolloop.providers.anthropic import SdkClient
from toolloop.providers.scripted import ScriptedProvider
from toolloop.stores.arguments import check_seconds, require_store
from toolloop.stores.optional import clock_of
from toolloop.stores.protocol import Store, StoredLoop
from toolloop.tools import Context
from toolloop.tools.registry import Tools

T = TypeVar("T")
LOG = logging.getLogger("toolloop.dbos")
_PAUSE = 0.5  # seconds before the first retry of a stretch, on average; each later pause is twice as long
_DOUBLINGS = 5
_POLL = 0.1  # seconds between the first two polls of `result`
_LONGEST_POLL = 1.0
_MOST = 1000  # the maximum number of loops that a sweep enqueues; the next one continues
_DRAIN = 600  # the maximum seconds that `close` waits for turns in progress
_LAUNCHED: list[DurableLoops] = []  # one at most, because a process has one DBOS


@DBOS.step(name="toolloop.drive")
def _drive(loop_id: str, tries: int) -> float | None:
    return _LAUNCHED[0]._drive(loop_id, tries)  # noqa: SLF001 - DBOS calls functions that are registered before it starts


@DBOS.workflow(name=WORKFLOW, max_recovery_attempts=None)
def _stretch(loop_id: str) -> None:
    # If you change the order of these steps, change `settings.VERSION`, too.
    for tries in count():
        if (pause := _drive(loop_id, tries)) is None:
            return
        DBOS.sleep(pause)


class DurableLoops:
    """Drive the loops of a store on any number of machines, dispatched by DBOS.

    The store keeps the loops. DBOS keeps their ids, and assigns them to processes. Without a provider and tools, this
    object is a client: it starts loops, decides their calls and reads them, and other processes drive them.

    Args:
        store: the store with the loops. Every process must be able to reach it.
        provider: as for a handle. Tools and callables of the configuration must be sync.
        tools: the tools of the loops; as for `Worker`.
        dbos: the configuration of DBOS, with `name`, `system_database_url`, and on PostgreSQL an `executor_id` for each
            process that drives loops.
        queue: the options of `DBOS.register_queue`, such as `worker_concurrency`, `global_concurrency` and `limiter`;
            `name` defaults to `"toolloop"`. Options for partitions are refused.
        params: parameters that the store does not keep; as for `Worker`.
        context: as for `Worker`.
        config: as for `Worker`, and the limits of loops that `start` creates.
        notify: as for `Worker`. Each sweep of a process that drives loops calls it.
        remind_after: as for `Worker`.
        sweep_every: seconds between two sweeps, on average.

    Raises:
        ValueError: two arguments do not fit together: see the guide to DBOS.
        BadTool, TypeError: an argument has a wrong type.

    """

    def __init__(  # noqa: PLR0913 - the parts of its loops, most of them optional
        self,
        store: Store,
        provider: Provider | SdkClient | None = None,
        tools: Tools = (),
        *,
        dbos: DBOSConfig,
        queue: Mapping[str, Any] | None = None,
        params: Mapping[str, Any] | Callable[[str], Any] | None = None,
        context: Context | Callable[[str], Any] | None = None,
        config: LoopConfig | None = None,
        notify: Callable[[InboxCall], object] | None = None,
        remind_after: Sequence[float] = (),
        sweep_every: float = 10.0,
    ) -> None:
        require_store(store)
        check_seconds("sweep_every", sweep_every)
        if sweep_every <= 0:
            raise ValueError(f"sweep_every is {sweep_every}; give more than 0 seconds")
        self._settings = settings_of(dbos, store, drives=provider is not None)
        self._queue: dict[str, Any] = {"name": "toolloop", **(queue or {})}
        if partitioned := sorted(name for name in self._queue if name.startswith("partition")):
            raise ValueError(f"queue has {', '.join(partitioned)}: leave it out, loops cannot use a partitioned queue")
        if provider is None and notify is not None:
            raise ValueError("notify needs a provider and tools: only processes that drive loops call it")
        tools, more = as_registry(tools), {"notify": notify, "remind_after": remind_after}
        parts: dict[str, Any] = {"params": params, "context": context, "config": config, **more}
        self._worker: Any = None if provider is None else Worker(store, provider, tools, **parts)
        self._notifies = notify is not None
        self._create = partial(ToolLoopHandle.open, store, provider=ScriptedProvider(()), tools=tools, config=config)
        self._inbox = Inbox(store, via="dbos")
        self._desk = Desk(store, time.time, 1, notifies=False)
        self._stretches = Stretches(self._settings, self._queue["name"], clock_of(store))
        self._sweep_every = sweep_every
        self._stopping = threading.Event()
        self._seemed_lost: set[Stretch] = set()  # at the last sweep
        self._sweeper: threading.Thread | None = None

    # --- anywhere ----------------------------------------------------------------------------------------------------

    def start(self, loop_id: str, params: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> None:
        """Create a loop in the store, and enqueue it. If it already exists, nothing changes.

        Args:
            loop_id: an id that you choose, such as the number of an order: starting it again is harmless.
            params: as for a handle. Parameters that the store does not keep are dropped: pass them to the processes
                that drive loops.
            metadata: as for `ToolLoopHandle.open`.

        Raises:
            InvalidHistory, TypeError, ValueError: as for a handle.
            StoreError: the store failed.

        """
        self._create(loop_id, params=params, metadata=metadata).close()
        self._enqueue(loop_id)

    @overload
    def decide(
        self, loop_id: str, decisions: Mapping[CallKey, Decision], *, each: Literal[False] = False
    ) -> dict[CallKey, Standing]: ...
    @overload
    def decide(
        self, loop_id: str, decisions: Mapping[CallKey, Decision], *, each: bool
    ) -> dict[CallKey, Standing | CallerError]: ...
    def decide(self, loop_id: str, decisions: Mapping[CallKey, Decision], *, each: bool = False) -> dict[CallKey, Any]:
        """Decide calls of a loop, like `Inbox.decide`. When no call waits any longer, enqueue the loop.

        Raises:
            StoreError, LoopNotFound, UnknownCall, AlreadyDecided, DecisionConflict, IllegalCommand: as `Inbox.decide`.

        """
        standing = self._inbox.decide(loop_id, decisions, each=each)
        self._enqueue(loop_id)
        return standing

    def say(
        self, loop_id: str, messages: str | Sequence[JSON], by: str | Person | None = None, key: str | None = None
    ) -> str:
        """Say something to the model, like `Inbox.say`, and return its id. If the loop continues, enqueue it.

        Raises:
            StoreError, LoopNotFound, InvalidHistory: as `Inbox.say`.

        """
        said = self._inbox.say(loop_id, messages, by, key)
        self._enqueue(loop_id)
        return said

    def result(self, loop_id: str, timeout: float | None = None) -> ShownLoop:
        """Wait until a loop needs a person or has ended, and return it.

        Args:
            loop_id: the loop.
            timeout: in seconds. None: no limit.

        Raises:
            LoopNotFound: the loop does not exist.
            StoreError: the store failed.
            TimeoutError: the loop is still running or waiting to run.

        """
        if timeout is not None:
            check_seconds("timeout", timeout)
        begun, wait = time.monotonic(), _POLL
        while not _rests(loop := self._desk.head(loop_id)):
            left = wait if timeout is None else timeout - (time.monotonic() - begun)
            if left <= 0:
                raise TimeoutError(
                    f"the loop {loop_id!r} is still in progress after {timeout} seconds: it is {loop.status}. Wait "
                    "longer, or check that a process drives the loops of this queue"
                )
            time.sleep(min(wait, left))
            wait = min(wait * 2, _LONGEST_POLL)
        return self._inbox.show(loop_id)

    # --- where loops are driven --------------------------------------------------------------------------------------

    def launch(self) -> None:
        """Launch DBOS in this process, and start to drive loops.

        DBOS recovers the workflows that this executor left. Then the sweeps begin: see `sweep`. To run your own
        workflows beside the loops, register them first.

        Raises:
            RuntimeError: this is a client, or the process has already created DBOS.

        """
        if self._worker is None:
            raise RuntimeError("this client cannot drive loops: create it with a provider and the tools")
        if _LAUNCHED:
            raise RuntimeError("this process already drives other loops with DBOS: close that DurableLoops first")
        preset_wal(self._settings.get("system_database_url"))
        DBOS(config=self._settings)
        if DBOS.application_version != self._stretches.version:
            raise RuntimeError("this process has already created DBOS with other settings: let DurableLoops create it")
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
        """Finish the turns in progress, leave their loops to other processes, and stop DBOS. A client disconnects."""
        self._stopping.set()
        if self._sweeper is not None:
            self._sweeper.join()
            self._sweeper = None
            self._destroy()
        self._stretches.close()

    def sweep(self) -> list[str]:
        """Enqueue lost stretches, and return their ids; send notifications. A thread calls this every few seconds.

        A stretch is lost in these cases:

        - Two sweeps in a row find that an executor began it, but no live driver has the loop.
        - Two sweeps in a row find that it waits for another version of the application, and that of this process is the
          latest one that DBOS knows.
        - Its loop is due, but it is not in the queue. For example, the call was decided in the store without DBOS.

        Raises:
            StoreError: the store failed.

        """
        stretches = self._stretches.open()
        found = self._seem_lost(stretches)
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
        if self._notifies:
            self._worker._notify_of_all(self._stopping.is_set)  # noqa: SLF001 - of the same library
        return lost

    def _seem_lost(self, stretches: Collection[Stretch]) -> set[Stretch]:
        """Return the stretches that look lost. Each may still continue or end at this moment."""
        running = {each for each in stretches if each.is_running}
        strange = {each for each in stretches if each.version != self._stretches.version} - running
        driven = self._desk.list_driven() if running else set()
        lost = {each for each in running if each.loop_id not in driven}
        # Otherwise processes of two versions would take stretches from each other during a deploy.
        return lost | strange if strange and self._stretches.is_latest() else lost

    def _sweep_on_and_on(self) -> None:
        while True:
            try:
                self.sweep()
            except Exception as error:
                LOG.warning("could not sweep; will retry: %s", error, exc_info=not isinstance(error, StoreError))
            # Processes that were started together do not sweep together.
            if self._stopping.wait(self._sweep_every * (0.5 + random.random())):  # noqa: S311 - no secret
                return

    def _drive(self, loop_id: str, tries: int) -> float | None:
        """Drive a loop to its next pause. Return the seconds until the next attempt; None: the stretch has ended."""
        if self._stopping.is_set():
            return None  # a sweep of another process puts it back
        pause: float = _PAUSE * 2 ** min(tries, _DOUBLINGS) * (0.5 + random.random())  # noqa: S311 - no secret
        try:
            loop: StoredLoop = self._worker.drive(loop_id, self._stopping.is_set)
        except LoopNotFound:
            return None
        except StoreError as error:
            LOG.info("will retry the loop %r in %.1f s: %s", loop_id, pause, error, extra={"loop_id": loop_id})
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
        """Call DBOS, and log a failure. The loops are in the store, and the next sweep enqueues those that are due."""
        try:
            return ask()
        except Exception as error:  # noqa: BLE001 - a database may raise anything
            LOG.warning("DBOS failed; a sweep will retry: %s: %s", type(error).__name__, str(error).partition("\n")[0])
            return None

    @staticmethod
    def _destroy() -> None:
        DBOS.destroy(workflow_completion_timeout_sec=_DRAIN)
        _LAUNCHED.clear()


def _rests(loop: StoredLoop) -> bool:
    """Return whether a loop needs a person, or has ended."""
    return loop.status not in ("runnable", "running", "stopping") and (loop.status != "failed" or loop.due_at is None)
