"""One run of a call: the arguments of the tool, and the result of its end."""

from __future__ import annotations

import hashlib
import logging
from collections import deque
from collections.abc import Callable, Collection, Generator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from attrs import define

from toolloop._usage import IterationUsage
from toolloop.machine.record.loop import Loop
from toolloop.machine.rules.calls import make_error_result
from toolloop.machine.values.calls import Call, Outcome, Result
from toolloop.machine.values.jsontext import JSON, decode, to_canonical
from toolloop.machine.values.setup import Setup
from toolloop.machine.values.texts import fill_text
from toolloop.tools import Tool, ToolContext, ToolRegistry
from toolloop.tools.responses.results import ResultMaker
from toolloop.tools.result_reader import ResultReader
from toolloop.tools.signature import refuse_awaitable

LOG = logging.getLogger("toolloop.tools")

Steps = Generator[None, None, Any]

_MOST_ITEMS = 1000  # the largest list or mapping that counts as quick


@define(eq=False)
class CallRun:
    """One run of a call.

    Attributes:
        call: the call while it runs.
        setup: the setup of its loop.
        limit: the limit in seconds; None means no limit.
        results: makes its results.
        spent: the usage of requests of loops that the tool itself drives.
        around: makes the observers' context manager around the run, in its thread or task.
        result: its result, after the tool returned; result filters may still change it.

    """

    tool: Tool[..., Any]
    call: Call
    setup: Setup
    context: ToolContext
    limit: float | None
    results: ResultMaker
    spent: deque[IterationUsage]
    around: Callable[[], AbstractContextManager[object]] = nullcontext
    result: Result | None = None

    @property
    def identity(self) -> tuple[int, int]:
        """The iteration of the call, and the number of the run, both counted from 1."""
        return self.context.iteration, self.call.attempts

    def make_timeout(self, *, left_behind: bool) -> Result:
        """Return the result of a run that took too long. `left_behind`: whether it may still run in its thread."""
        return self.results.make_timeout(self.limit or 0.0, left_behind=left_behind)

    def make_not_run(self) -> Result:
        """Return the result of a run that the loop ended before it began."""
        return make_error_result(fill_text(self.setup.texts, "not_run"), Outcome.NOT_RUN)

    def start(self) -> Any:
        """Run the tool. For an async tool, return the awaitable."""
        return self.tool.run(self.tool.prepare(decode(self.call.effective_input)), self.context)

    def perform(self) -> Steps:
        """Run a plain tool to its end. An exception becomes a result, except KeyboardInterrupt and SystemExit."""
        try:
            with self.around():
                value = refuse_awaitable(self.start(), f"the tool {self.call.name!r}")
        except BaseException as error:
            # A plain function is never cancelled, so a cancellation from it belongs to an event loop inside the tool.
            if isinstance(error, Exception) or type(error).__module__.partition(".")[0] in {"asyncio", "trio"}:
                return self.results.to_error_result(error)
            raise
        return self.results.to_result(value)
        yield

    async def perform_async(self, _was_read: object = None) -> Result | Callable[[], Result]:
        """Run an async tool to its end, within its time limit. An exception becomes a result, except a cancellation.

        Returns:
            The result, or a function that makes it if that may take time, because it reads a file or runs the caller's
            code. Call the function in a thread, so that the event loop does not wait for it.

        """
        import anyio  # noqa: PLC0415 - an async handle has loaded it

        value, is_back, error = None, False, None
        limit = anyio.move_on_after(self.limit)
        try:
            with limit:
                with self.around():
                    value = await self.start()
                is_back = True  # even after the limit, because the tool has returned
        except Exception as raised:  # noqa: BLE001 - any exception of a tool becomes its result
            error = raised
        if not is_back:
            if error is None or limit.cancel_called:
                return self.make_timeout(left_behind=False)
            return self.results.to_error_result(error)
        return self.results.to_result(value) if _is_quick(value) else partial(self.results.to_result, value)


def prepare_run(  # noqa: PLR0913 - everything that a tool needs
    tools: ToolRegistry,
    loop: Loop,
    call: Call,
    *,
    known: Callable[[], Collection[str] | None],
    make_context: Callable[..., ToolContext] = ToolContext,
    around: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> CallRun:
    """Return the run of a call whose input fits its tool.

    Args:
        tools: the tools of the loop.
        loop: the loop, in the iteration that the call belongs to.
        call: the call while it runs.
        known: see `ResultMaker`.
        make_context: makes the context of the tool, from the arguments that are about the call.
        around: see `CallRun`.

    """
    tool, setup, iteration = tools.get(call.name), loop.setup, loop.iterations
    if tool is None:
        raise AssertionError(f"{call.name} was cleared to run, but is not a tool")
    if isinstance(tool, ResultReader):
        tool = tool.bind_results(loop.results)
    spent = deque[IterationUsage]()
    context = make_context(
        call_id=call.id,
        loop_id=setup.loop_id,
        iteration=iteration,
        depth=setup.depth + 1,
        idempotency_key=make_idempotency_key(setup, iteration, call),
        spent=spent.append,
    )
    limit = setup.tool_timeout if tool.timeout is None else tool.timeout
    results = ResultMaker(call, tools.adapter, setup.texts, known, setup.loop_id)
    return CallRun(tool, call, setup, context, limit, results, spent, around)


def make_idempotency_key(setup: Setup, iteration: int, call: Call) -> str:
    """Return an idempotency key: the same for each repeat of an uncertain run of a call, different for other runs."""
    places: JSON = [*map(list, setup.runs), iteration] if setup.within else iteration  # call ids may repeat
    parts = [setup.loop_id, [*setup.path, call.id], places, call.id, call.run]
    return hashlib.sha256(to_canonical(parts).encode()).hexdigest()


def _is_quick(value: Any, depth: int = 10) -> bool:
    """Return whether a value is plain JSON, neither large nor deep, so that its result is made quickly."""
    if type(value) in (str, type(None), bool, int, float):
        return True
    if type(value) not in (dict, list) or len(value) > _MOST_ITEMS or not depth:
        return False
    return all(_is_quick(each, depth - 1) for each in (value.values() if type(value) is dict else value))
