"""Running one call: what a tool is given, and what its end means. Pure halves; the drivers call and await."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Literal

from attrs import define, field

from toolloop.core.jsontext import JSON, canonical, decode, encode
from toolloop.core.setup import Setup, ToolFacts
from toolloop.core.states import Running
from toolloop.core.texts import Texts, say
from toolloop.core.values import Call, Outcome, Result
from toolloop.history import check
from toolloop.tools import Tool, ToolContext, ToolRegistry, describe_failure, render

LOG = logging.getLogger("toolloop.tools")


class Stopwatch:
    """Active seconds since it was last read."""

    def __init__(self) -> None:
        """Start now."""
        self._last = time.monotonic()

    def lap(self) -> float:
        """Seconds since the last lap."""
        now = time.monotonic()
        seconds, self._last = now - self._last, now
        return seconds


@define(eq=False)
class Job:
    """One run of a call.

    Attributes:
        texts: what the model is told.
        text_only: the call was made by code, whose result may hold nothing but text.
        entered: a thread or task has it, so that somebody will tell its end.
        thread: the thread that was made for it.

    """

    tool: Tool[..., Any]
    given: JSON
    context: ToolContext
    texts: Texts
    text_only: bool = False
    entered: bool = False
    thread: threading.Thread | None = None
    begun: float = field(factory=time.monotonic)

    @property
    def has_runner(self) -> bool:
        """Whether somebody runs it, or is about to."""
        return self.entered or (self.thread is not None and self.thread.is_alive())

    def run(self) -> Any:
        """Run the tool; of an async one, what is to be awaited."""
        return self.tool.run(self.tool.prepare(self.given), self.context)


class Toolbox:
    """Prepares calls, and tells what their ends mean."""

    def __init__(self, tools: ToolRegistry, caller_state: Any) -> None:
        """`caller_state`: the caller's own object, which tools see as `ToolContext.state`."""
        self._tools = tools
        self._caller_state = caller_state

    def job(self, state: Running, call: Call, cancelled: Callable[[], bool]) -> Job:
        """What to run for a call whose input was found to fit."""
        tool = self._tools.get(call.name)
        if tool is None:
            raise AssertionError(f"{call.name} was cleared to run, and is no tool")
        setup = state.ledger.setup
        context = ToolContext(
            call_id=call.id,
            loop_id=setup.loop_id,
            iteration=state.round.iteration,
            depth=setup.depth + 1,
            idempotency_key=idempotency_key(setup, state.round.iteration, call),
            state=self._caller_state,
            cancelled=cancelled,
        )
        return Job(tool, decode(call.effective_input), context, setup.texts, text_only=call.by_code)


def idempotency_key(setup: Setup, iteration: int, call: Call) -> str:
    """The same for every repeat of one uncertain run of a call, and for nothing else."""
    first_run = 1  # a run that somebody asks for anew will have a number of its own
    parts = [setup.loop_id, [call.id], iteration, call.id, first_run]
    return hashlib.sha256(canonical(parts).encode()).hexdigest()


def returned(job: Job, value: Any) -> Result:
    """The result of a tool that came back with a value; one that cannot be sent is an error result."""
    try:
        return Result(encode(rendered(value, text_only=job.text_only)))
    except Exception as error:  # noqa: BLE001 - a value may raise anything while it is read
        return failed(job, error)


def rendered(value: Any, *, text_only: bool, is_error: bool = False) -> JSON:
    """The content of a result, from what a tool returned or a person answered.

    Args:
        value: what was returned or answered.
        text_only: the call was made by code (source: rule 25 of the Messages API).
        is_error: it is the content of an error, which may not be empty.

    Raises:
        TypeError: it is nothing that can be sent there; whatever else the value raises comes through.

    """
    content = render(value)
    if isinstance(content, str):
        if is_error and not content.strip():
            raise TypeError("the content of an error may not be empty; say what went wrong")
        return content
    if text_only and any(block["type"] != "text" for block in content):
        raise TypeError("the call was made by code, and the result of such a call may hold nothing but text")
    if problem := _misfit(content, is_error=is_error):
        if any(block["type"] != "text" for block in content):
            raise TypeError(problem)
        return encode(content)  # data that only looks like text blocks
    return content


def _misfit(content: JSON, *, is_error: bool) -> str | None:
    """What the API would not take of content blocks in a result."""
    block = {"type": "tool_result", "tool_use_id": "call", "content": content, "is_error": is_error}
    history = [
        {"role": "user", "content": "-"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "call", "name": "tool", "input": {}}]},
        {"role": "user", "content": [block]},
    ]
    return next((problem.message for problem in check(history) if problem.level == "error"), None)


def failed(job: Job, error: BaseException) -> Result:
    """The error result of a tool that raised."""
    LOG.info("a tool failed: %s", type(error).__name__)
    try:
        content = rendered(describe_failure(error), text_only=True, is_error=True)
    except Exception:  # noqa: BLE001 - an exception may raise anything while it is read, too
        content = f"The tool failed with {type(error).__name__}, which says nothing more."
    if isinstance(content, str):
        content = say(job.texts, "failed", error=content)
    return Result(encode(content), is_error=True, outcome=Outcome.FAILED)


def facts_of(tool: Tool[..., Any]) -> ToolFacts:
    """What the machine must know of a tool, and what is compared when a loop wakes up."""
    needs = tool.needs_approval
    approval: Literal["always", "never", "predicate"] = "predicate"
    if isinstance(needs, bool):
        approval = "always" if needs else "never"
    digest = hashlib.sha256(canonical(tool.definition()).encode()).hexdigest()
    return ToolFacts(tool.name, tool.effect, approval, digest)
