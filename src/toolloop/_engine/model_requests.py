"""Make the model requests of a tree of loops, and record their ends."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from attrs import define, evolve, field

from toolloop._engine.compacting import SummaryRequest
from toolloop._engine.failures import describe_error, make_failure
from toolloop._engine.in_progress import InProgress, ask_one
from toolloop._engine.operations import AnyProvider, ModelRequest, Operation
from toolloop._engine.pace import DriveOptions, Slot, WorkerStopped
from toolloop._engine.runtimes import Runtime, Runtimes
from toolloop._interface.message_edits import refuse_lost_pause, refuse_params, refuse_unsendable
from toolloop._journal.reporting import make_delta
from toolloop._requests.params import Secrets
from toolloop._usage import Cost, IterationUsage, ModelUsage, Usage, sum_usage, with_costs
from toolloop.errors import CallerError, ModelError, OutsideError, ProtocolError
from toolloop.events import RequestStarted
from toolloop.machine.message_ids import derive_reply_id
from toolloop.machine.queries import driven_at
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.effects import SendRequest
from toolloop.machine.record.loop import Loop, Path, Requesting
from toolloop.machine.record.replies import read_reply, read_spent
from toolloop.machine.values.jsontext import JSON, decode
from toolloop.machine.values.stop_reasons import STOP_REASONS
from toolloop.prices import refuse_unpriced
from toolloop.providers.accumulate import Accumulator
from toolloop.providers.message_threads import ThreadedRequest
from toolloop.providers.protocol import Request

LOG = logging.getLogger("toolloop")


@define(eq=False)
class ModelRequests:
    """Makes model requests, and records their ends.

    Args:
        progress: the operations in progress.
        runtimes: the runtimes of the loops of the tree.
        provider: sends the requests.
        options: their pace, and whether their replies are streamed in any case.
        is_async: whether the caller's functions may be async.

    Attributes:
        errors: the error of the last failed request of each loop, by path.

    """

    _progress: InProgress
    _runtimes: Runtimes
    provider: AnyProvider
    _options: DriveOptions
    is_async: bool = field(kw_only=True)
    errors: dict[Path, Exception] = field(factory=dict, init=False)

    def begin(self, runtime: Runtime, loop: Loop) -> None:
        """Make the next request of a loop, or first compact its history.

        Raises:
            InvalidHistory: the API would refuse the request.
            UnpricedModel: it names a model without a price, and the loop has a budget for its cost.

        """
        path = loop.setup.path
        if runtime.secrets is not None:
            finish = partial(self._take_secrets, runtime, path)
            self._progress.ask(SendRequest(path), ask_one(runtime.secrets), finish)
            return
        try:
            compactor = runtime.compactor
            compaction = None if compactor is None else compactor.find_compaction(loop, is_async=self.is_async)
            if compaction is None:
                request = self._make_request(runtime, loop)
                self._refuse_unpriced(path, request)
                self._send(loop, request)
            elif isinstance(compaction, SummaryRequest):
                self._refuse_unpriced(path, compaction.request)
                self._send_for_summary(loop, compaction)
            else:
                self._progress.record(compaction)
        except CallerError as error:
            if not path:
                raise
            self._refuse(path, ModelError(str(error)))  # the caller cannot edit the history of a nested loop

    def pause(self, operation: Operation) -> float:
        """Return the seconds until a request may begin, or must ask again; 0 for all that need not wait."""
        request = operation.work
        pace = self._options.pace
        if pace is None or operation.launched or not isinstance(request, ModelRequest):
            return 0.0
        return pace.ask(request.slot)

    def list_pauses(self) -> list[float]:
        """Return the seconds until each request that has not begun may begin, or must ask again."""
        operations = [] if self._options.pace is None else self._progress.operations.values()
        requests = [each for each in operations if isinstance(each.work, ModelRequest)]
        return [self.pause(each) for each in requests if not (each.launched or each.has_thread)]

    @property
    def over(self) -> WorkerStopped | None:
        """The error with which requests that wait are given up, once their worker stops."""
        return WorkerStopped() if self._options.is_over() else None

    def _send_again(self, operation: Operation, request: ModelRequest) -> None:
        """Send a request again that the API refused, once it may begin. The loop still waits for its reply."""
        again = evolve(request, slot=Slot(request.slot.refused), read=Accumulator())
        self._progress.add(Operation(operation.path, operation.key, again, operation.recorded))

    def cancel(self, path: Path) -> None:
        """Give up a request in progress. What it has used is recorded as far as it is known."""
        operation = self._progress.operations.get(("request", *path))
        event = ev.RequestFailed(path=path)
        if operation is not None and operation.launched and isinstance(request := operation.work, ModelRequest):
            event = evolve(event, **self._describe_partial(path, request.read.partial, operation.took))
        if operation is not None:
            operation.cancel(0.0)
            self._progress.drop(operation)
        self._progress.record(event)

    def _describe_partial(self, path: Path, partial: Mapping[str, Any] | None, took: float) -> dict[str, Any]:
        """Return what is known of a reply that did not arrive as a whole, as fields of `RequestFailed`."""
        reply = None if partial is None else read_reply(partial)
        parts = () if reply is None else reply.parts
        costs = [evolve(cost, is_partial=True) for cost in self._find_costs(path, parts)]
        number = self._progress.journal.state.loops[path].iterations + 1
        spent = IterationUsage(number, usage=sum_usage(with_costs((), costs)))
        spent = spent if reply is None else reply.entry(number, took, costs)
        return {
            "spent": evolve(spent, seconds=took, is_partial=True),
            "response": None if reply is None else reply.text,
        }

    def _describe_unreadable(self, path: Path, reply: Any, took: float) -> dict[str, Any]:
        """Return the cost of a reply that cannot be read, as a field of `RequestFailed`; nothing if it has none."""
        number, spent = self._progress.journal.state.loops[path].iterations + 1, read_spent(reply)
        costs = self._find_costs(path, spent.parts)
        entry = spent.entry(number, took, costs)
        return {} if entry.usage == Usage() else {"spent": entry}

    def _find_costs(self, path: Path, parts: Sequence[ModelUsage]) -> tuple[Cost, ...]:
        """Return the costs of the parts of a reply, by the prices of now; empty without prices."""
        prices = self._runtimes.find_prices(self._progress.journal.state, path)
        unknown = ModelUsage(is_partial=True)  # the reply has no usage
        return () if prices is None else prices.costs(parts or (unknown,), self._progress.journal.now())

    def _refuse_unpriced(self, path: Path, request: Request) -> None:
        """Refuse a request that names a model without a price, if its loop or one above has a cost budget."""
        state = self._progress.journal.state
        for above in (path[:depth] for depth in range(len(path) + 1)):
            if (budget := state.loops[above].setup.limits.budget).cost is not None:
                refuse_unpriced(
                    decode(request.params), budget, self._runtimes.find_prices(state, path), asked="the next request"
                )

    def _send(self, loop: Loop, request: Request) -> None:
        path = loop.setup.path
        started = RequestStarted(loop.iterations + 1, path=path, message_id=derive_reply_id(loop))
        is_streamed = self._options.live is not None or self._progress.journal.bus.reader is not None
        is_heard = is_streamed and callable(getattr(self.provider, "stream", None))
        hear = partial(self._take_event, path) if is_heard else None
        self.errors.pop(path, None)
        is_priced = self._runtimes.find_prices(self._progress.journal.state, path) is not None
        recorded = self._progress.record(ev.Requested(is_priced, path=path))
        work = ModelRequest(request, self.provider, hear, self._progress.journal.bus.make_around(started))
        self._progress.add(Operation(path, ("request", *path), work, recorded))

    def _send_for_summary(self, loop: Loop, wanted: SummaryRequest) -> None:
        path = loop.setup.path
        started = RequestStarted(loop.iterations + 1, summary=True, path=path)
        provider, bus = wanted.provider or self.provider, self._progress.journal.bus
        work = ModelRequest(wanted.request, provider, around=bus.make_around(started), summary=wanted)
        self._progress.add(Operation(path, ("request", *path), work))
        bus.note([started])

    def _make_request(self, runtime: Runtime, loop: Loop) -> Request:
        """Return the next request of a loop, or raise a CallerError if the API would refuse it."""
        if loop.stale_thinking:
            refuse_lost_pause(loop, asked="the next request")
        request = runtime.requests.make(
            loop.setup.params,
            loop.messages,
            loop.container,
            unjoined=loop.unjoined,
            stale_thinking=loop.stale_thinking,
            threads=loop.setup.threads and getattr(self.provider, "takes_threads", False),
            thread=loop.thread,
            response=loop.response,
        )
        if runtime.requests.may_be_refused_for_marks() or runtime.is_unchecked:  # each round was checked separately
            refuse_unsendable(loop, runtime.tools, asked="the next request")
            runtime.is_unchecked = False
        elif runtime.checked_params is not loop.setup.params:
            refuse_params(loop, runtime.tools, asked="the next request")
        runtime.checked_params = loop.setup.params
        return request

    def _take_secrets(self, runtime: Runtime, path: Path, came: Secrets | Exception) -> None:
        if isinstance(came, Secrets):
            runtime.requests.secrets, runtime.secrets = came, None
            return
        what = f"the params function of the sub_loop failed: {describe_error(came)}"
        problem = ModelError(what, retryable=True)
        problem.__cause__ = came
        self._refuse(path, problem)

    def _refuse(self, path: Path, error: Exception) -> None:
        """Record that a request failed before it was sent."""
        self._progress.record(ev.Requested(path=path))
        self.errors[path] = error
        self._progress.record(ev.RequestFailed(make_failure(error), path=path), "step")

    def _take_event(self, path: Path, request: ModelRequest, event: Mapping[str, JSON]) -> bool:
        """Take an event of a streamed reply. Return whether the loop still waits for the reply."""
        piece = request.read.add(event)
        with self._progress.journal.lock:
            loop = driven_at(self._progress.journal.state, path)
            operation = self._progress.operations.get(("request", *path))
            if loop is None or operation is None or operation.work is not request:
                return False
            if not self._progress.is_awaited(operation):
                return False
            if piece is not None:
                self._progress.journal.bus.note([make_delta(piece, loop.iterations + 1, path)])
        self._progress.journal.bus.tell()
        return True

    def _record_summary(self, operation: Operation, summary: SummaryRequest, came: Any, took: float) -> None:
        loop = self._progress.journal.state.at(operation.path)
        if loop is None or isinstance(loop.phase, Requesting):
            return
        event = summary.finish(came, loop, took, partial(self._find_costs, operation.path))
        if event.spent is not None or self._progress.is_awaited(operation):
            self._progress.record(event)

    def take_end(self, operation: Operation, request: ModelRequest, reply: Any, error: Exception | None) -> None:
        """Record the end of a request that the loop waits for, or of a request for a summary, which is always paid."""
        path, took, part = operation.path, operation.took, request.request.thread
        pace, spent = self._options.pace, dict[str, Any]()
        if error is not None and pace is not None and pace.must_wait(request.slot, error):
            self._send_again(operation, request)
            return
        if request.summary is not None:
            self._record_summary(operation, request.summary, reply if error is None else error, took)
            return
        if error is None:
            if (error := self._take_reply(operation, part, reply)) is None:
                return
            spent = self._describe_unreadable(path, reply, took)
        elif request.read.partial is not None:
            spent = self._describe_partial(path, request.read.partial, took)
        if part is not None and (refused := part.refused(error)) is not None:
            # The next effect is a request again.
            self._progress.record(ev.RequestFailed(thread=refused, path=path, **spent))
            return
        if not isinstance(error, OutsideError):
            wrapped = ModelError(f"the provider raised {describe_error(error)}")
            wrapped.__cause__, error = error, wrapped
        if request.hear is not None:
            error.partial_text = request.read.partial_text or None
        self.errors[path] = error
        self._progress.record(ev.RequestFailed(make_failure(error), path=path, **spent))

    def _take_reply(self, operation: Operation, part: ThreadedRequest | None, reply: Any) -> ProtocolError | None:
        """Record a reply. Return the error if it is not a message."""
        path = operation.path
        try:
            text, request_id = getattr(reply, "text", None), getattr(reply, "request_id", None)
            read = read_reply(reply, text=text, request_id=request_id)
        except ProtocolError as broken:
            return broken
        if read.stop_reason is not None and read.stop_reason not in STOP_REASONS:
            what = "unknown stop reason %r: the loop ends, and no call runs"
            LOG.warning(what, read.stop_reason, extra=self._progress.log_fields(path))
        thread = None if part is None else part.answered(reply)
        self._progress.record(ev.Replied(read, operation.took, thread, self._find_costs(path, read.parts), path=path))
        return None
