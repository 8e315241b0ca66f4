"""The common part of both workers: their arguments, and the order of their work."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Generic, Protocol

from attrs import frozen

from toolloop._engine.pace import DriveOptions, Pace
from toolloop._engine.questions import FunctionCall, Questions
from toolloop._handles.opening import Here, Opening
from toolloop._interface.config import DEFAULT_CONFIG, DEFAULT_CONTEXT, LoopConfig
from toolloop._public import set_module
from toolloop._worker import desk
from toolloop._worker.desk import LOG, POLL, Agenda, Desk
from toolloop._worker.due_loops import seconds_after
from toolloop.errors import StoreError, UnreadableSnapshot
from toolloop.inbox.items import InboxCall
from toolloop.machine.values.jsontext import describe_type
from toolloop.providers.anthropic import ProviderOrClient
from toolloop.stores.arguments import check_integer, check_metadata, check_seconds, require_store
from toolloop.stores.protocol import Store, StoredLoop
from toolloop.tools import Context
from toolloop.tools.registry import Tools
from toolloop.tools.signature import is_async as is_declared_async

Until = Callable[[], bool] | None
_WELL = 60.0  # seconds without a look at the store after which a worker is not well
_NOTIFYING = ""  # the key of the job that notifies; the others have the ids of loops, which are not empty


@set_module("toolloop.types")
@frozen
class WorkerHealth:
    """How a worker is.

    Attributes:
        is_well: whether it runs, and could read its store in the last minute.
        looked: how many seconds ago it could read its store; None if it never could, or does not run.
        driving: the ids of the loops that it drives now.

    """

    is_well: bool
    looked: float | None
    driving: tuple[str, ...]


class Jobs(Protocol):
    """Threads or tasks, each with a key, which answer questions.

    Attributes:
        busy: the keys of the jobs that have not ended.

    """

    busy: set[str]

    def start(self, key: str, questions: Questions[None]) -> None:
        """Start a job that answers questions."""

    def wait(self, seconds: float) -> Any:
        """Wait until a job ends or the worker stops, at most this long."""

    def wait_for_all(self) -> Any:
        """Wait until all jobs have ended."""

    def is_over(self) -> bool:
        """Return whether the worker stops: it starts no further jobs."""
        ...


class WorkerBase(ABC, Generic[ProviderOrClient]):
    """A worker of either kind. Not public: see `Worker` and `AsyncWorker`."""

    _is_async: ClassVar[bool]

    def __init__(  # noqa: PLR0913 - the parts of its loops, all but three of them optional
        self,
        store: Store,
        provider: ProviderOrClient,
        tools: Tools,
        *,
        params: Mapping[str, Any] | Callable[[str], Any] | None = None,
        context: Context | Callable[[str], Any] | None = None,
        config: LoopConfig | None = None,
        concurrency: int = 8,
        notify: Callable[[InboxCall], object] | None = None,
        remind_after: Sequence[float] = (),
        max_attempts: int = 5,
        metadata: Mapping[str, str] | None = None,
        backoff: Callable[[int], float] | None = None,
        adopt_after: float | None = None,
        live: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Check the arguments, without driving a loop. See `Worker`."""
        require_store(store)
        check_integer("concurrency", concurrency, least=1)
        check_integer("max_attempts", max_attempts, least=1)
        metadata = check_metadata(metadata)
        for seconds in remind_after:
            _check_span("remind_after", seconds, may_be_zero=True)
        _check_span("live", live, may_be_zero=False)
        _check_span("adopt_after", adopt_after, may_be_zero=True)
        for name, given in (("params", params), ("context", context), ("notify", notify)):
            if callable(given) and is_declared_async(given) and not self._is_async:
                raise TypeError(f"{name} is async, but Worker is sync: use AsyncWorker, or give a sync function")
        if not (notify is None or callable(notify)):
            raise TypeError(f"notify is {describe_type(notify)}; give a function that takes an InboxCall")
        _check_backoff(backoff)
        first = DEFAULT_CONTEXT if callable(context) else context
        limits = DEFAULT_CONFIG if config is None else config
        here = Here.of(provider, tools, limits, first, clock, is_async=self._is_async)
        if not callable(params):
            _check_params(params)
        self._given: dict[str, Any] = {"params": params, "context": context}
        self._store = store
        self._make_here = partial(Here.of, here.provider, here.tools, config, clock=clock, is_async=self._is_async)
        self._concurrency = concurrency
        self._notify: Any = notify
        self._live = live
        wait = partial(seconds_after, backoff=backoff)
        self._pace = Pace(wait, max_attempts)
        takes: dict[str, Any] = {"metadata": metadata, "adopt_after": adopt_after, "remind_after": remind_after}
        self._desk = Desk(store, clock, max_attempts, wait, notifies=notify is not None, **takes)
        self._looked: float | None = None  # by `time.monotonic`
        self._driven: set[str] = set()

    def health(self) -> WorkerHealth:
        """Return how the worker is, while `run` or `run_until_idle` works. Any thread may call this."""
        looked = None if self._looked is None else time.monotonic() - self._looked
        driving = tuple(sorted(self._driven.copy() - {_NOTIFYING}))
        return WorkerHealth(looked is not None and looked < _WELL, looked, driving)

    # --- its work, as generators of questions: see `questions` -------------------------------------------------------

    def _blocking(self, work: Callable[..., Any], *arguments: Any) -> FunctionCall:
        """Return the question for a function that blocks on the store."""
        return work, arguments

    def _open(self, loop_id: str, given: dict[str, Any]) -> Opening:
        here = self._make_here(context=given["context"])
        return Opening(here, self._store, loop_id, given["params"], on_drift=given["on_drift"])

    def _options(self, until: Until) -> DriveOptions:
        return DriveOptions(self._pace, until or bool, self._live, leaves_behind=True)

    @abstractmethod
    def _drive(self, loop_id: str, until: Until, given: dict[str, Any]) -> Any:
        """Open a loop and drive it, if it is still due; return the result."""

    @abstractmethod
    def _tell(self, call: InboxCall) -> Any:
        """Notify of a call; raise NotifyHangs after `NOTIFY_SECONDS`."""

    def _one(self, loop_id: str, until: Until) -> Questions[StoredLoop]:
        """Drive one loop if it is due. Return its row after that."""
        loop: StoredLoop = yield self._blocking(self._desk.head, loop_id)
        if self._desk.is_due(loop):
            outcome = yield from self._outcome(loop, until)
            yield self._blocking(self._desk.record, loop, outcome)
            if isinstance(outcome, StoreError) and not isinstance(outcome, UnreadableSnapshot):
                raise outcome
            loop = yield self._blocking(self._desk.head, loop_id)
        return loop

    def _once(self, jobs: Jobs) -> Questions[int]:
        """Drive all loops that are due now. Return their number."""
        due = (yield self._blocking(self._desk.look)).due
        for loop in due:
            while len(jobs.busy) >= self._concurrency:
                yield jobs.wait, (POLL,)
            if not jobs.is_over():
                jobs.start(loop.loop_id, self._driving(loop, jobs))
        yield jobs.wait_for_all, ()
        yield from self._notifying((yield self._blocking(self._desk.look)).unnotified, jobs.is_over)
        return len(due)

    def _on_and_on(self, jobs: Jobs, *, until_idle: bool) -> Questions[None]:
        """Drive loops as they become due, until the worker stops, or is idle; then wait for the jobs."""
        self._driven = jobs.busy
        while not jobs.is_over():
            try:
                agenda = yield self._blocking(self._desk.look_again, frozenset(jobs.busy))
                self._looked = time.monotonic()
                is_done = until_idle and not (jobs.busy or agenda.due or agenda.unnotified)
                if is_done and (yield self._blocking(self._desk.is_idle)):
                    break
            except Exception:  # noqa: BLE001 - a store may raise anything
                LOG.exception("the store failed; the worker tries again")
                agenda = Agenda()
            room = self._concurrency - len(jobs.busy - {_NOTIFYING})
            for loop in agenda.due[:room]:
                jobs.start(loop.loop_id, self._driving(loop, jobs))
            if agenda.unnotified and _NOTIFYING not in jobs.busy:
                jobs.start(_NOTIFYING, self._notifying(agenda.unnotified, jobs.is_over))
            yield jobs.wait, (agenda.seconds,)
        LOG.info("the worker stops and waits for its running jobs: %s", ", ".join(sorted(jobs.busy)) or "none")
        yield jobs.wait_for_all, ()
        self._looked = None

    def _driving(self, loop: StoredLoop, jobs: Jobs) -> Questions[None]:
        outcome = yield from self._outcome(loop, jobs.is_over)
        yield self._blocking(self._desk.ended, loop, outcome)

    def _outcome(self, loop: StoredLoop, until: Until) -> Questions[Any]:
        """Drive a loop. Return its result, or the exception that was raised."""
        try:
            given = {**self._given, "on_drift": self._desk.drift_mode(loop)}
            for name, value in self._given.items():
                if callable(value):
                    given[name] = yield value, (loop.loop_id,)
            _check_params(given["params"])
            return (yield self._drive, (loop.loop_id, until, given))
        except Exception as error:  # noqa: BLE001 - the desk handles each kind of failure
            return error

    def _notifying(self, unnotified: Sequence[tuple[str, str]], is_over: Callable[[], bool]) -> Questions[None]:
        for each in unnotified:
            if is_over() or (call := (yield self._blocking(self._desk.claim, *each))) is None:
                continue
            try:
                yield self._tell, (call,)
            except desk.NotifyHangs:
                what = "notify of call %r did not return within %g s and is given up: limit the time of what it does"
                LOG.error(what, call.id, desk.NOTIFY_SECONDS, extra={"loop_id": call.loop_id})
            except Exception:  # noqa: BLE001 - it is logged, and does not affect the loop
                LOG.exception("notify failed", extra={"loop_id": call.loop_id})
            yield self._blocking(self._desk.notified, call)


def _check_backoff(backoff: object) -> None:
    if callable(backoff) and is_declared_async(backoff):
        raise TypeError("backoff is async: give a sync function of the attempt that returns seconds")
    if not (backoff is None or callable(backoff)):
        raise TypeError(f"backoff is {describe_type(backoff)}; give a function of the attempt that returns seconds")


def _check_span(name: str, value: float | None, *, may_be_zero: bool) -> None:
    """Refuse all values but None and a number of seconds that is not negative."""
    if value is not None:
        check_seconds(name, value)
        if value < 0 or (value == 0 and not may_be_zero):
            raise ValueError(
                f"{name} is {value}; give {'0 or more' if may_be_zero else 'more than 0'} seconds, or None"
            )


def _check_params(params: object) -> None:
    """Refuse the parameters of a whole request: with these, `open` would recreate a loop that was just deleted."""
    if not isinstance(params, Mapping | None):
        raise TypeError(
            f"params is {describe_type(params)}; give a mapping, or a function of a loop's id that returns one"
        )
    if params is not None and "model" in params:
        raise ValueError(
            "the params of a worker have a model, which the store keeps with each loop: give only parameters that the "
            "store does not keep, such as extra_headers, timeout, and mcp_servers with their tokens"
        )
