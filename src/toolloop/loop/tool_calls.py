"""One run of a call: what the tool is given, and the result that its end means."""

from __future__ import annotations

import hashlib
import logging
from collections import deque
from collections.abc import Callable, Collection, Generator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, TypeGuard

from attrs import define

from toolloop.machine.jsontext import JSON, canonical, decode, encode
from toolloop.machine.setup import Setup
from toolloop.machine.texts import say
from toolloop.machine.usage import IterationUsage
from toolloop.machine.values import Call, Outcome, Result
from toolloop.messages.blocks import kinds_taken
from toolloop.tools import Tool, ToolContext, ToolRegistry, content_of, describe_failure
from toolloop.tools.function import not_awaitable
from toolloop.tools.responses.adapter import ToolResponseAdapter
from toolloop.tools.responses.types import RawOutputs

LOG = logging.getLogger("toolloop.tools")

Steps = Generator[None, None, Any]
Report = Callable[[str | None, float | None, float | None], None]

_MOST_ITEMS = 1000  # of a list or mapping that counts as quick


@define(eq=False)
class CallRun:
    """One run of a call.

    Attributes:
        call: the call as it stands while it runs.
        setup: the setup of its loop.
        limit: how many seconds the tool may take; None is no limit.
        adapter: makes the result of what the tool returns.
        known: gives the names of all tools, for results that refer to one; None where they are not all known.
        spent: the usage of requests of loops that the tool itself drives.
        around: makes the context manager that observers want around the run, in its thread or task.
        took: how many seconds the tool ran, once it is back.
        result: its result, once it is back; result filters may still change it.

    """

    tool: Tool[..., Any]
    call: Call
    setup: Setup
    context: ToolContext
    limit: float | None
    adapter: ToolResponseAdapter
    known: Callable[[], Collection[str] | None]
    spent: deque[IterationUsage]
    around: Callable[[], AbstractContextManager[object]] = nullcontext
    took: float | None = None
    result: Result | None = None

    @property
    def path(self) -> tuple[str, ...]:
        """The path of its loop."""
        return self.setup.path

    @property
    def identity(self) -> tuple[int, int]:
        """The iteration of the call, and which run of it this is: both counted from 1."""
        return self.context.iteration, self.call.attempts

    def start(self) -> Any:
        """Run the tool. For an async tool: return the awaitable."""
        return self.tool.run(self.tool.prepare(decode(self.call.effective_input)), self.context)

    def perform(self) -> Steps:
        """Run a plain tool to its end. Its exception is a result; KeyboardInterrupt and SystemExit are not."""
        try:
            with self.around():
                value = not_awaitable(self.start(), f"the tool {self.call.name!r}")
        except BaseException as error:
            # Nobody cancels a plain function: a cancellation that leaves it belongs to an event loop inside the tool.
            if isinstance(error, Exception) or type(error).__module__.partition(".")[0] in {"asyncio", "trio"}:
                return failed(self, error)
            raise
        return returned(self, value)
        yield

    async def perform_async(self, _was_read: object = None) -> Result | Callable[[], Result]:
        """Run an async tool to its end, within its limit of time. Its exception is a result; a cancellation is not.

        Returns:
            The result; or the function that makes it, if that may take time: a file is read, or the caller's code runs.
            Call it in a thread, so that the event loop does not wait for it.

        """
        import anyio  # noqa: PLC0415 - an async handle has loaded it

        value, is_back, error = None, False, None
        limit = anyio.move_on_after(self.limit)
        try:
            with limit:
                with self.around():
                    value = await self.start()
                is_back = True  # also after the limit: the tool has answered
        except Exception as raised:  # noqa: BLE001 - whatever a tool raises is its result
            error = raised
        if not is_back:
            if error is None or limit.cancel_called:
                return timed_out(self, left_behind=False)
            return failed(self, error)
        return returned(self, value) if _is_quick(value) else partial(returned, self, value)


def prepare_run(  # noqa: PLR0913 - all that a tool is given
    tools: ToolRegistry,
    setup: Setup,
    iteration: int,
    call: Call,
    *,
    known: Callable[[], Collection[str] | None],
    caller_state: Any = None,
    cancelled: Callable[[], bool] = lambda: False,
    report: Report = lambda *_: None,
) -> CallRun:
    """Return what is to be run for a call whose input fits its tool.

    Args:
        tools: the tools of the loop.
        setup: the setup of the loop.
        iteration: the iteration that the call belongs to.
        call: the call as it stands while it runs.
        known: see `CallRun`.
        caller_state: the caller's own object, `ToolContext.state`.
        cancelled: whether the result is no longer wanted.
        report: takes the tool's progress.

    """
    tool = tools.get(call.name)
    if tool is None:
        raise AssertionError(f"{call.name} was cleared to run, and is no tool")
    spent = deque[IterationUsage]()
    context = ToolContext(
        call_id=call.id,
        loop_id=setup.loop_id,
        iteration=iteration,
        depth=setup.depth + 1,
        idempotency_key=idempotency_key(setup, iteration, call),
        state=caller_state,
        cancelled=cancelled,
        report=report,
        spent=spent.append,
    )
    limit = setup.tool_timeout if tool.timeout is None else tool.timeout
    return CallRun(tool, call, setup, context, limit, tools.adapter, known, spent)


def idempotency_key(setup: Setup, iteration: int, call: Call) -> str:
    """Return a key that is the same for each repeat of one uncertain run of a call, and different for any other run."""
    places: JSON = [*map(list, setup.runs), iteration] if setup.within else iteration  # call ids may repeat
    parts = [setup.loop_id, [*setup.path, call.id], places, call.id, call.run]
    return hashlib.sha256(canonical(parts).encode()).hexdigest()


def _is_quick(value: Any, depth: int = 10) -> bool:
    """Return whether a value is plain JSON, neither large nor deep, of which a result is made in no time."""
    if type(value) in (str, type(None), bool, int, float):
        return True
    if type(value) not in (dict, list) or len(value) > _MOST_ITEMS or not depth:
        return False
    return all(_is_quick(each, depth - 1) for each in (value.values() if type(value) is dict else value))


# --- its result ---


def returned(run: CallRun, value: Any) -> Result:
    """Return the result of a tool that returned a value. A value that cannot be sent makes an error result."""
    try:
        return _adapted(run, value)
    except Exception as error:  # noqa: BLE001 - an adapter of the caller's may raise anything
        return failed(run, error)


def failed(run: CallRun, error: BaseException) -> Result:
    """Return the error result of a tool that raised."""
    try:
        return _adapted(run, error)
    except Exception:
        extra = {"tool": run.call.name, "call_id": run.call.id}
        LOG.exception("the response adapter failed: %s", type(run.adapter).__name__, extra=extra)
        return _error(run, describe_failure(error))


def timed_out(run: CallRun, *, left_behind: bool) -> Result:
    """Return the error result of a tool that took too long. `left_behind`: it may still run in its thread."""
    LOG.warning("a tool took too long", extra={"tool": run.call.name, "call_id": run.call.id})
    text = say(run.setup.texts, "left_behind" if left_behind else "timed_out", seconds=f"{run.limit:g}")
    return Result(encode(text), is_error=True, outcome=Outcome.TIMED_OUT)


def sendable(run: CallRun, content: Any, *, is_error: bool = False) -> JSON:
    """Return the content of a result in the form that the API takes, whoever made it.

    Raises:
        TypeError, ValueError: it cannot be sent.

    """
    if not isinstance(content, list):
        return content_of(content, kinds=kinds_for(run.call), is_error=is_error)
    has_reference = any(isinstance(block, dict) and block.get("type") == "tool_reference" for block in content)
    blocks = RawOutputs(content) if content else ""
    known = run.known() if has_reference else None
    return content_of(blocks, kinds=kinds_for(run.call), is_error=is_error, known_tools=known)


def kinds_for(call: Call) -> frozenset[str]:
    """Return the types of blocks that the result of a call may hold."""
    return kinds_taken(by_code=call.by_code, toolset=call.toolset)


def _adapted(run: CallRun, response: Any) -> Result:
    """Return the result that the adapter makes of a tool's value, or of its exception."""
    block = _only_block(run, run.adapter.create_messages(_tool_use(run.call), response))
    is_error = block.get("is_error") is True or issubclass(type(response), BaseException)
    content: Any = block.get("content", "")
    if _is_one_text(content) and (is_error or not _returned_a_block(response, content[0]["text"])):
        content = content[0]["text"]  # the same to the API, and what the SDK sends for a text
    content = sendable(run, content, is_error=is_error)
    return _error(run, content) if is_error else Result(encode(content))


def _tool_use(call: Call) -> dict[str, JSON]:
    """Return the `tool_use` block of a call, with the input that ran."""
    block = {"type": "tool_use", "id": call.id, "name": call.name, "input": decode(call.effective_input)}
    if call.by_code:
        block["caller"] = {"type": "code_execution"}
    if call.toolset is not None:
        block["toolset_name"] = call.toolset
    return block


# The fields of a `tool_result` that an adapter may set. The toolset is always that of the call.
_FIELDS = frozenset({"content", "is_error", "toolset_name"})


def _only_block(run: CallRun, messages: Any) -> dict[str, JSON]:
    """Return the one `tool_result` of the message that an adapter made, without its type and id."""
    match messages:
        case [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": run.call.id, **rest}]}]:
            block = {str(key): value for key, value in rest.items()}
            content, is_error = block.get("content", ""), block.get("is_error")
            if block.keys() <= _FIELDS and isinstance(content, str | list) and isinstance(is_error, bool | None):
                return block
    raise TypeError(
        f"{type(run.adapter).__name__}.create_messages gave something else than one user message with the one "
        f"tool_result block of the call {run.call.id}, with a content (a string or a list) and perhaps is_error"
    )


def _is_one_text(content: Any) -> TypeGuard[list[dict[str, JSON]]]:
    match content:
        case [{"type": "text", "text": str(), **rest}]:
            return isinstance(content, list) and not rest
    return False


def _returned_a_block(response: Any, text: str) -> bool:
    """Return whether a tool returned this text as a block. It compares types: a response may be any object."""
    if type(response) is not list or len(response) != 1 or type(response[0]) is not dict:
        return type(response) is RawOutputs
    block = response[0]
    return type(block.get("type")) is str and type(block.get("text")) is str and block["text"] == text


def _error(run: CallRun, content: JSON) -> Result:
    if _is_one_text(content):
        content = content[0]["text"]
    if isinstance(content, str):
        content = say(run.setup.texts, "failed", error=content)
    return Result(encode(content), is_error=True, outcome=Outcome.FAILED)
