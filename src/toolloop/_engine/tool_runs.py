"""Start the calls of a tree of loops, and record their ends."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from attrs import evolve, frozen

from toolloop._engine.in_progress import InProgress, ask_one
from toolloop._engine.operations import DIGITS, Operation
from toolloop._engine.questions import Questions
from toolloop._engine.runtimes import Runtime, Runtimes
from toolloop._engine.sub_loops import SubLoop
from toolloop._engine.tool_calls import CallRun, prepare_run
from toolloop._interface.config import ResultFilter
from toolloop._journal.records import Kind
from toolloop.events import CallProgress, CallStarted, ResultFiltered
from toolloop.machine.queries import answer_of, driven_at, outstanding
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.effects import Conclude, RunCall
from toolloop.machine.record.loop import Loop
from toolloop.machine.rules.calls import digest_of
from toolloop.machine.values.calls import Call, Outcome, Result, Status
from toolloop.machine.values.jsontext import decode, encode
from toolloop.tools import ToolContext
from toolloop.tools.calls import ToolCall

LOG = logging.getLogger("toolloop")
TOOLS_LOG = logging.getLogger("toolloop.tools")

_THREADS = 8  # tools that run in threads at once
_LENGTH = 16  # characters of a digest, enough for an audit


@frozen(eq=False)
class ToolRuns:
    """Starts calls, and records their ends.

    Args:
        progress: the operations in progress.
        runtimes: the runtimes of the loops of the tree.
        caller_state: the caller's own object, which tools read as `ToolContext.state`.

    """

    _progress: InProgress
    _runtimes: Runtimes
    _caller_state: Any

    def has_place(self, effect: RunCall) -> bool:
        """Return whether a call can begin now: at most so many threads run tools at once."""
        state, operations = self._progress.journal.state, self._progress.operations.values()
        if sum(each.runs_in_thread for each in operations) < _THREADS:
            return True
        runtime, loop = self._runtimes.at(state, effect.path), state.at(effect.path)
        tool = None if runtime is None or loop is None else runtime.tools.get(_find_call(loop, effect.call_id).name)
        return tool is None or tool.is_async or isinstance(tool, SubLoop)

    def begin(self, runtime: Runtime, loop: Loop, effect: RunCall) -> None:
        """Start a call."""
        call = _find_call(loop, effect.call_id)
        tool = runtime.tools.get(call.name)
        if isinstance(tool, SubLoop):
            now, iteration = self._progress.journal.now(), loop.iterations
            asking = ask_one(partial(tool.begun, loop.setup, iteration, call, at=now))
            finish = partial(self._begin_nested, effect, loop, call, tool)
            self._progress.ask(effect, asking, finish)
        else:
            self._start(runtime, loop, call)

    def _start(self, runtime: Runtime, loop: Loop, call: Call) -> tuple[Operation, CallRun]:
        """Record that a call starts."""
        path, iteration, journal = loop.setup.path, loop.iterations, self._progress.journal
        operation: Operation

        def report(*progress: Any) -> None:
            operation.report = progress
            if self._progress.is_awaited(operation):
                self._progress.announce(CallProgress(iteration, call.id, call.name, *progress, path=path))

        make_context = partial(
            ToolContext,
            state=self._caller_state,
            cancelled=lambda: operation.interrupted or not self._progress.is_awaited(operation),
            report=report,
            lease_ends_at=journal.find_lease_end,
        )
        started = call._replace(status=Status.RUNNING, attempts=call.attempts + 1)
        known = partial(runtime.list_known_tools, loop)
        around = journal.bus.make_around(CallStarted(iteration, call.id, call.name, path=path))
        run = prepare_run(runtime.tools, loop, started, known=known, make_context=make_context, around=around)
        digest = digest_of(loop.setup, iteration, call)[:_LENGTH] if journal.is_stored else None
        recorded = self._progress.record(ev.Started(call.id, digest, path=path))
        operation = Operation(path, ("run", *path, call.id), run, recorded)
        self._progress.add(operation)
        return operation, run

    def _begin_nested(self, effect: RunCall, seen: Loop, call: Call, tool: SubLoop, came: Any) -> None:
        """Open the loop inside a call. If that fails, the error is the result of the call."""
        loop = driven_at(self._progress.journal.state, effect.path)
        runtime = self._runtimes.at(self._progress.journal.state, effect.path)
        if loop is None or runtime is None or effect not in outstanding(self._progress.journal.state):
            return
        if loop.setup != seen.setup or _find_call(loop, call.id) != call:
            return  # the effect is begun again with the new state
        if isinstance(came, Exception):
            operation, run = self._start(runtime, loop, call)
            self.record_end(operation, run, run.results.to_error_result(came), kind="step")
            self._progress.drop(operation)
        else:
            opened, secrets = came
            self._progress.record(opened)
            self._runtimes.begin(opened.setup, tool, secrets)

    def take_end(self, operation: Operation, run: CallRun, result: Result, *, is_awaited: bool) -> None:
        """Record the result of a run, once the result filters have seen it."""
        record = partial(self.record_end, operation, run, took=operation.took)
        may_count = self._progress.may_count(run, result)
        runtime = self._runtimes.at(self._progress.journal.state, operation.path) if may_count else None
        filters = () if runtime is None else runtime.config.result_filters
        if not is_awaited:
            extra = {**self._progress.log_fields(operation.path), "call_id": run.call.id}
            LOG.info("a call ended after the loop stopped waiting for it", extra=extra)
            if not self._progress.journal.is_stored and not may_count:
                return  # with a store, the journal keeps late ends
        if not filters or result.outcome is not Outcome.RETURNED:
            record(result)
            return
        asking = call_filters(filters, run, result, self._progress.announce)
        self._progress.ask_filters(run, result, asking, record)

    def record_end(
        self,
        operation: Operation,
        run: CallRun,
        result: Result | None,
        *,
        took: float | None = None,
        kind: Kind | None = None,
    ) -> None:
        """Record the end of a run.

        Args:
            operation: the operation that performs it.
            run: the run.
            result: None if it was cancelled, so that its effects are unknown.
            took: the duration in seconds; None means until now.
            kind: see `Journal.record`.

        """
        ended = ev.Ended(
            run.call.id,
            result,
            operation.took if took is None else took,
            *run.identity,
            above=run.setup.runs,
            spent=tuple(run.spent),
            path=operation.path,
        )
        self._progress.record(ended, kind)

    def conclude(self, runtime: Runtime, loop: Loop, effect: Conclude) -> None:
        """End a call whose loop is over, with the result of that loop."""
        call, loops = _find_call(loop, effect.call_id), self._progress.journal.state.loops
        nested = loops[*effect.path, effect.call_id]
        result = answer_of(nested, loop.setup.texts)
        finish = partial(self._record_conclusion, effect, loop, call.attempts, round(nested.active, DIGITS))
        if runtime.tools.get(call.name) is None:
            finish(result)
            return
        known = partial(runtime.list_known_tools, loop)
        run = prepare_run(runtime.tools, loop, call, known=known)
        asking = call_filters(runtime.config.result_filters, run, result, self._progress.announce)
        self._progress.ask(effect, asking, finish)

    def _record_conclusion(self, effect: Conclude, loop: Loop, attempt: int, took: float, result: Result) -> None:
        run, above = (loop.iterations, attempt), loop.setup.runs
        ended = ev.Ended(effect.call_id, result, took, *run, above=above, path=effect.path)
        self._progress.record(ended, "step")  # it can be derived again


def _find_call(loop: Loop, call_id: str) -> Call:
    """Return a call of the open round."""
    call = loop.calls.find(call_id)
    if call is None:
        raise AssertionError(f"the effect names {call_id!r}, which is not in the open round")
    return call


def call_filters(
    filters: Sequence[ResultFilter], run: CallRun, result: Result, tell: Callable[[ResultFiltered], None]
) -> Questions[Result]:
    """Call each result filter in turn, with the content that the previous one returned.

    A filter that fails is logged, and changes nothing.

    Args:
        filters: `result_filters` of the configuration.
        run: the run that ended. Its `result` is updated after each filter, in case a later one is cancelled.
        result: its result. Errors are not filtered.
        tell: called with an event for each change.

    """
    run.result = result
    if result.outcome is not Outcome.RETURNED:
        return result
    call, iteration = ToolCall(run.call, run.setup, run.context.iteration), run.context.iteration
    for each in filters:
        name = type(each).__name__
        try:
            name = str(getattr(each, "__name__", name))
            new = yield each, (call, decode(result.content))
            if new is None:
                continue
            content = encode(run.results.to_sendable(new))
        except Exception:  # noqa: BLE001 - it is logged
            TOOLS_LOG.exception("a result filter failed: %s", name, extra=run.results.log_fields())
            continue
        if content != result.content:
            sizes = len(result.content), len(content)
            tell(ResultFiltered(iteration, call.id, call.name, name, *sizes, path=run.setup.path))
            run.result = result = evolve(result, content=content, plain=None)
    return result
