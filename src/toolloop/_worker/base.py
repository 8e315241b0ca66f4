"""The common part of both workers: their arguments, and the order of their work."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, Generic, Protocol

from toolloop._engine.questions import FunctionCall, Questions
from toolloop._handles.opening import Here
from toolloop._interface.config import DEFAULT_CONFIG, DEFAULT_CONTEXT, LoopConfig
from toolloop._worker.desk import LOG, POLL, Agenda, Desk
from toolloop.errors import StoreError, UnreadableSnapshot
from toolloop.inbox.items import InboxCall
from toolloop.machine.values.jsontext import a_type
from toolloop.providers.anthropic import ProviderOrClient
from toolloop.stores.arguments import check_integer, check_seconds
from toolloop.stores.checks import require_store
from toolloop.stores.protocol import Store, StoredLoop
from toolloop.tools import Context
from toolloop.tools.function import is_async as is_declared_async
from toolloop.tools.registry import Tools

Until = Callable[[], bool] | None
_NOTIFYING = ""  # the key of the job that notifies; the others have the ids of loops, which are not empty


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
    _open: ClassVar[Callable[..., Any]]

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
        max_attempts: int = 5,
        live: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Check the arguments, without driving a loop. See `Worker`."""
        require_store(store)
        check_integer("concurrency", concurrency, least=1)
        check_integer("max_attempts", max_attempts, least=1)
        if live is not None:
            check_seconds("live", live)
            if live <= 0:
                raise ValueError(f"live is {live}; give more than 0 seconds, or None")
        for name, given in (("params", params), ("context", context), ("notify", notify)):
            if callable(given) and is_declared_async(given) and not self._is_async:
                raise TypeError(f"{name} is async, but Worker is sync: use AsyncWorker, or give a sync function")
        if not (notify is None or callable(notify)):
            raise TypeError(f"notify is {a_type(notify)}; give a function that takes an InboxCall")
        first = DEFAULT_CONTEXT if callable(context) else context
        limits = DEFAULT_CONFIG if config is None else config
        here = Here.of(provider, tools, limits, first, clock, is_async=self._is_async)
        if not callable(params):
            _check_params(params)
        self._given: dict[str, Any] = {"params": params, "context": context}
        self._opening = partial(self._open, store, provider=here.provider, tools=here.tools, config=config, clock=clock)
        self._concurrency = concurrency
        self._notify: Any = notify
        self._live = live
        self._desk = Desk(store, clock, max_attempts, notifies=notify is not None)

    # --- its work, as generators of questions: see `questions` -------------------------------------------------------

    def _blocking(self, work: Callable[..., Any], *arguments: Any) -> FunctionCall:
        """Return the question for a function that blocks on the store."""
        return work, arguments

    @abstractmethod
    def _drive(self, loop_id: str, until: Until, given: dict[str, Any]) -> Any:
        """Open a loop and drive it, if it is still due; return the result."""

    def _one(self, loop_id: str, until: Until) -> Questions[StoredLoop]:
        """Drive one loop if it is due. Return its row after that."""
        loop: StoredLoop = yield self._blocking(self._desk.head, loop_id)
        if self._desk.is_due(loop):
            outcome = yield from self._outcome(loop_id, until)
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
        yield from self._notifying((yield self._blocking(self._desk.look)), jobs)
        return len(due)

    def _on_and_on(self, jobs: Jobs) -> Questions[None]:
        """Drive loops as they become due, until the worker stops; then wait for the jobs."""
        while not jobs.is_over():
            try:
                agenda = yield self._blocking(self._desk.look_again, frozenset(jobs.busy))
            except Exception:  # noqa: BLE001 - a store may raise anything
                LOG.exception("the store failed; the worker tries again")
                agenda = Agenda()
            room = self._concurrency - len(jobs.busy - {_NOTIFYING})
            for loop in agenda.due[:room]:
                jobs.start(loop.loop_id, self._driving(loop, jobs))
            if agenda.unnotified and _NOTIFYING not in jobs.busy:
                jobs.start(_NOTIFYING, self._notifying(agenda, jobs))
            yield jobs.wait, (agenda.seconds,)
        LOG.info("the worker stops and waits for its running jobs: %s", ", ".join(sorted(jobs.busy)) or "none")
        yield jobs.wait_for_all, ()

    def _driving(self, loop: StoredLoop, jobs: Jobs) -> Questions[None]:
        outcome = yield from self._outcome(loop.loop_id, jobs.is_over)
        yield self._blocking(self._desk.ended, loop, outcome)

    def _outcome(self, loop_id: str, until: Until) -> Questions[Any]:
        """Drive a loop. Return its result, or the exception that was raised."""
        try:
            given = dict(self._given)
            for name, value in self._given.items():
                if callable(value):
                    given[name] = yield value, (loop_id,)
            _check_params(given["params"])
            return (yield self._drive, (loop_id, until, given))
        except Exception as error:  # noqa: BLE001 - the desk handles each kind of failure
            return error

    def _notifying(self, agenda: Agenda, jobs: Jobs) -> Questions[None]:
        for each in agenda.unnotified:
            if jobs.is_over() or (call := (yield self._blocking(self._desk.claim, *each))) is None:
                continue
            try:
                yield self._notify, (call,)
            except Exception:  # noqa: BLE001 - it is logged, and does not affect the loop
                LOG.exception("notify failed", extra={"loop_id": call.loop_id})
            yield self._blocking(self._desk.notified, call)


def _check_params(params: object) -> None:
    """Refuse the parameters of a whole request: with these, `open` would recreate a loop that was just deleted."""
    if not isinstance(params, Mapping | None):
        raise TypeError(f"params is {a_type(params)}; give a mapping, or a function of a loop's id that returns one")
    if params is not None and "model" in params:
        raise ValueError(
            "the params of a worker have a model, which the store keeps with each loop: give only parameters that the "
            "store does not keep, such as extra_headers, timeout, and mcp_servers with their tokens"
        )
