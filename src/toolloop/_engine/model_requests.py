"""Make the model requests of a tree of loops, and record their ends."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from attrs import evolve

from toolloop._engine.compacting import SummaryRequest
from toolloop._engine.failures import describe_error, failure_of
from toolloop._engine.in_progress import InProgress, one_question
from toolloop._engine.operations import ModelRequest, Operation
from toolloop._engine.runtimes import Runtime, Runtimes
from toolloop._interface.message_edits import refuse_lost_pause, refuse_unsendable
from toolloop._journal.reporting import delta_of
from toolloop._requests.params import Secrets
from toolloop._usage import IterationUsage
from toolloop.errors import CallerError, ModelError, OutsideError, ProtocolError
from toolloop.events import RequestStarted
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.effects import SendRequest
from toolloop.machine.record.loop import Loop, Requesting
from toolloop.machine.record.replies import read_reply
from toolloop.machine.record.state import Path
from toolloop.machine.values.stop_reasons import STOP_REASONS
from toolloop.providers.protocol import Request

LOG = logging.getLogger("toolloop")


class ModelRequests:
    """Makes model requests, and records their ends.

    Attributes:
        provider: sends the requests.
        errors: the error of the last failed request of each loop, by path.
        streams: whether replies are streamed to a reader of the turn.
        is_live: whether they are streamed in any case, because other processes see their text.

    """

    def __init__(self, progress: InProgress, runtimes: Runtimes, provider: Any, *, is_async: bool) -> None:
        """Keep the parts. `is_async`: whether the caller's functions may be async."""
        self.errors: dict[Path, Exception] = {}
        self.streams = False
        self.is_live = False
        self._progress = progress
        self._runtimes = runtimes
        self.provider = provider
        self._is_async = is_async

    def begin(self, runtime: Runtime, loop: Loop) -> None:
        """Make the next request of a loop, or first compact its history.

        Raises:
            InvalidHistory: the API would refuse the request.

        """
        path = loop.setup.path
        if runtime.secrets is not None:
            finish = partial(self._take_secrets, runtime, path)
            self._progress.ask(SendRequest(path), one_question(runtime.secrets), finish)
            return
        try:
            compaction = runtime.compactor.next_compaction(loop, is_async=self._is_async)
            if compaction is None:
                self._send(loop, self._request_of(runtime, loop))
            elif isinstance(compaction, SummaryRequest):
                self._send_for_summary(loop, compaction)
            else:
                self._progress.record(compaction)
        except CallerError as error:
            if not path:
                raise
            self._refuse(path, ModelError(str(error)))  # the caller cannot edit the history of a nested loop

    def cancel(self, path: Path) -> None:
        """Give up a request in progress. What it has used is recorded as far as it is known."""
        operation = self._progress.operations.get(("request", *path))
        event = ev.RequestFailed(path=path)
        if operation is not None and operation.launched and isinstance(request := operation.work, ModelRequest):
            event = evolve(event, **self._known_of(path, request, operation.took))
        if operation is not None:
            operation.cancel(0.0)
            self._progress.drop(operation)
        self._progress.record(event)

    def _known_of(self, path: Path, request: ModelRequest, took: float) -> dict[str, Any]:
        """Return what is known of a reply that did not arrive as a whole, as fields of `RequestFailed`."""
        loop, partial = self._progress.state.loops[path], request.read.partial
        reply = None if partial is None else read_reply(partial)
        spent = IterationUsage(loop.iterations + 1) if reply is None else reply.entry(loop.iterations + 1, took)
        return {
            "spent": evolve(spent, seconds=took, is_partial=True),
            "response": None if reply is None else reply.text,
        }

    def _send(self, loop: Loop, request: Request) -> None:
        path = loop.setup.path
        started = RequestStarted(loop.iterations + 1, path=path)
        operation, work = self._add(path, request, self.provider, started)
        if (self.streams or self.is_live) and callable(getattr(self.provider, "stream", None)):
            work.hear = partial(self._hear, operation, work)
        self.errors.pop(path, None)
        operation.recorded = self._progress.record(ev.Requested(path=path))

    def _send_for_summary(self, loop: Loop, wanted: SummaryRequest) -> None:
        path = loop.setup.path
        started = RequestStarted(loop.iterations + 1, summary=True, path=path)
        _, work = self._add(path, wanted.request, wanted.provider or self.provider, started)
        work.summary = wanted
        self._progress.journal.bus.note([started])

    def _add(
        self, path: Path, request: Request, provider: Any, started: RequestStarted
    ) -> tuple[Operation, ModelRequest]:
        work = ModelRequest(request, provider)
        if self._runtimes.observers(path):
            work.around = partial(self._progress.journal.bus.around, started)
        operation = Operation(path, ("request", *path), work)
        self._progress.add(operation)
        return operation, work

    def _request_of(self, runtime: Runtime, loop: Loop) -> Request:
        """Return the next request of a loop, or raise a CallerError if the API would refuse it."""
        refuse_lost_pause(loop, asked="the next request")
        request = runtime.requests.make(
            loop.setup.params,
            loop.messages,
            loop.container,
            unjoined=loop.unjoined,
            stale_thinking=loop.stale_thinking,
            threads=loop.setup.threads and getattr(self.provider, "takes_threads", False),
            thread=loop.thread,
        )
        if runtime.requests.may_have_too_many_marks() or runtime.is_unchecked:  # each round was checked separately
            refuse_unsendable(loop, runtime.tools, asked="the next request")
            runtime.is_unchecked = False
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
        self._progress.record(ev.RequestFailed(failure_of(error), path=path), "step")

    def _hear(self, operation: Operation, request: ModelRequest, event: Any) -> bool:
        """Take an event of a streamed reply. Return whether the loop still waits for the reply."""
        piece = request.read.add(event)
        with self._progress.journal.lock:
            loop = self._progress.loop(operation.path)
            if loop is None or not self._progress.is_awaited(operation):
                return False
            if piece is not None:
                self._progress.journal.bus.note([delta_of(piece, loop.iterations + 1, operation.path)])
        self._progress.journal.bus.tell()
        return True

    def _summary_ended(self, operation: Operation, summary: SummaryRequest, came: Any, took: float) -> None:
        loop = self._progress.state.at(operation.path)
        if loop is None or isinstance(loop.phase, Requesting):
            return
        event = summary.finish(came, loop, took)
        if event.spent is not None or self._progress.is_awaited(operation):
            self._progress.record(event)

    def ended(self, operation: Operation, request: ModelRequest, reply: Any, error: Exception | None) -> None:
        """Record the end of a request that the loop waits for, or of a request for a summary, which is always paid."""
        path, took, part = operation.path, operation.took, request.request.thread
        if request.summary is not None:
            self._summary_ended(operation, request.summary, reply if error is None else error, took)
            return
        if error is None:
            try:
                text, request_id = getattr(reply, "text", None), getattr(reply, "request_id", None)
                read = read_reply(reply, text=text, request_id=request_id)
            except ProtocolError as broken:
                error = broken
            else:
                if read.stop_reason is not None and read.stop_reason not in STOP_REASONS:
                    what = "unknown stop reason %r: the loop ends, and no call runs"
                    LOG.warning(what, read.stop_reason, extra=self._progress.log_fields(path))
                thread = None if part is None else part.answered(reply)
                self._progress.record(ev.Replied(read, took, thread, path=path))
                return
        if part is not None and (refused := part.refused(error)) is not None:
            self._progress.record(ev.RequestFailed(thread=refused, path=path))  # the next effect is a request again
            return
        if not isinstance(error, OutsideError):
            wrapped = ModelError(f"the provider raised {describe_error(error)}")
            wrapped.__cause__, error = error, wrapped
        if request.hear is not None:
            error.partial_text = request.read.partial_text or None
        self.errors[path] = error
        self._progress.record(ev.RequestFailed(failure_of(error), path=path))
