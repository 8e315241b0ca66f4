"""Running one call: what a tool is given, and what its end means. Pure halves; the drivers call and await."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, TypeGuard

from attrs import define, field

from toolloop.core.blocks import kinds_taken
from toolloop.core.jsontext import JSON, canonical, decode, encode
from toolloop.core.setup import Setup, ToolFacts
from toolloop.core.states import Running
from toolloop.core.texts import Texts, say
from toolloop.core.usage import IterationUsage
from toolloop.core.values import Call, Outcome, Result
from toolloop.handle.staged import Staged
from toolloop.providers.accumulate import Accumulator
from toolloop.providers.protocol import Request
from toolloop.tools import Tool, ToolContext, ToolRegistry, content_of, describe_failure
from toolloop.tools.responses.adapter import AnthropicMessagesToolResponseAdapter, ToolResponseAdapter
from toolloop.tools.responses.types import RawOutputs

LOG = logging.getLogger("toolloop.tools")

Report = Callable[[str | None, float | None, float | None], None]


_DIGITS = 6  # microseconds: a clock knows no more, and every event of a journal carries them


class Stopwatch:
    """Active seconds since it was last read."""

    def __init__(self) -> None:
        """Start now."""
        self._last = time.monotonic()
        self._paused: float | None = None

    def pause(self) -> None:
        """Waiting for the caller does not count."""
        self._paused = time.monotonic()

    def resume(self) -> None:
        """The caller is back."""
        paused, self._paused = self._paused, None
        if paused is not None:
            self._last += time.monotonic() - paused

    def so_far(self) -> float:
        """Seconds since the last lap, which goes on."""
        return (time.monotonic() if self._paused is None else self._paused) - self._last

    def lap(self) -> float:
        """Seconds since the last lap."""
        now = time.monotonic() if self._paused is None else self._paused
        seconds, self._last = now - self._last, now
        return round(seconds, _DIGITS)


def _nothing() -> None:
    """Nobody waits for it in a task."""


@define(eq=False)
class Flight:
    """One model request under way.

    Attributes:
        path: of the loop that makes it.
        recorded: that it goes out, on its way to the store, if there is one.
        cancel: ends the task that waits for the reply, if one does.
        begun: when, by `time.monotonic`.
        wanted: the summary that it asks for, if it does: a `Wanted`.
        provider: who is to answer it, if that is another than the loop's own.
        read: what came of the reply so far, if that is read piece by piece.

    """

    path: tuple[str, ...]
    request: Request
    begun: float = field(factory=time.monotonic)
    wanted: Any = None
    provider: Any = None
    read: Accumulator | None = None
    recorded: Staged | None = None
    cancel: Callable[[], object] = _nothing


@define(eq=False)
class Job:
    """One run of a call.

    Attributes:
        call: the call, as it stands while it runs.
        setup: what its loop was set up with then.
        path: of that loop.
        key: the ids of the calls that lead to it, from the outermost down; its own comes last.
        limit: how many seconds the tool may take; None is no limit.
        adapter: makes a result of what the tool returns.
        known: gives the names of all tools, for results that refer to one; None where they cannot all be known.
        recorded: its start, on its way to the store, if there is one.
        launched: a thread or task is about to have it.
        entered: a thread or task has it, so that somebody will tell its end.
        thread: the thread that was made for it.
        took: how many seconds the tool ran, once it is back.
        result: what the tool came back with, while the filters look at it; what they made of it so far.
        taken: a filter looks at it, or did.
        cancel: ends the task that runs it, if one does.
        around: gives what observers want around the tool's run, in the thread or task that runs it.

    """

    tool: Tool[..., Any]
    call: Call
    setup: Setup
    path: tuple[str, ...]
    key: tuple[str, ...]
    context: ToolContext
    limit: float | None
    adapter: ToolResponseAdapter
    known: Callable[[], Collection[str] | None]
    recorded: Staged | None = None
    launched: bool = False
    entered: bool = False
    thread: threading.Thread | None = None
    begun: float = field(factory=time.monotonic)
    took: float | None = None
    result: Result | None = None
    taken: bool = False
    cancel: Callable[[], object] = _nothing
    around: Callable[[], AbstractContextManager[object]] = nullcontext

    @property
    def texts(self) -> Texts:
        """What the model is told."""
        return self.setup.texts

    @property
    def has_runner(self) -> bool:
        """Whether somebody runs it, or is about to, or its result is there to be taken up."""
        return self.entered or self.result is not None or (self.thread is not None and self.thread.is_alive())

    @property
    def is_ready(self) -> bool:
        """Whether its start is recorded, and nobody has it: it can be run yet."""
        return not (self.launched or self.has_runner) and (self.recorded is None or self.recorded.stored)

    @property
    def deadline(self) -> float | None:
        """Until when (`time.monotonic`) the tool may take; None: it has no limit, is not running yet, or is back."""
        if self.limit is None or not self.entered or self.result is not None:
            return None
        return self.begun + self.limit

    def run(self) -> Any:
        """Run the tool; of an async one, what is to be awaited."""
        return self.tool.run(self.tool.prepare(decode(self.call.effective_input)), self.context)


class Toolbox:
    """Prepares calls, and tells what their ends mean."""

    def __init__(self, tools: ToolRegistry, caller_state: Any) -> None:
        """`caller_state`: the caller's own object, which tools see as `ToolContext.state`."""
        self._tools = tools
        self._caller_state = caller_state

    def job(  # noqa: PLR0913 - what a tool may ask for, each of it optional
        self,
        state: Running,
        call: Call,
        *,
        cancelled: Callable[[], bool],
        report: Report,
        spent: Callable[[IterationUsage], None],
        known: Callable[[], Collection[str] | None],
    ) -> Job:
        """What to run for a call whose input was found to fit. `call`: as it stands while it runs."""
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
            report=report,
            spent=spent,
        )
        return Job(
            tool,
            call,
            setup,
            setup.path,
            (*setup.path, call.id),
            context,
            limit=setup.tool_timeout if tool.timeout is None else tool.timeout,
            adapter=self._tools.adapter,
            known=known,
        )


def idempotency_key(setup: Setup, iteration: int, call: Call) -> str:
    """The same for every repeat of one uncertain run of a call, and for nothing else."""
    places: JSON = [*map(list, setup.runs), iteration] if setup.within else iteration  # ids may come again
    parts = [setup.loop_id, [*setup.path, call.id], places, call.id, call.run]
    return hashlib.sha256(canonical(parts).encode()).hexdigest()


def kinds_for(call: Call) -> frozenset[str]:
    """The kinds of blocks that the result of a call may hold."""
    return kinds_taken(by_code=call.by_code, toolset=call.toolset)


def returned(job: Job, value: Any) -> Result:
    """The result of a tool that came back with a value; one that cannot be sent is an error result."""
    try:
        return _adapted(job, value)
    except Exception as error:  # noqa: BLE001 - an adapter of the caller's own may raise anything
        return failed(job, error)


def failed(job: Job, error: BaseException) -> Result:
    """The error result of a tool that raised."""
    try:
        return _adapted(job, error)
    except Exception:
        about = {"tool": job.call.name, "call_id": job.call.id}
        LOG.exception("the response adapter failed: %s", type(job.adapter).__name__, extra=about)
        return _error(job, describe_failure(error))


def _adapted(job: Job, response: Any) -> Result:
    """What the adapter makes of what a tool returned, or of the exception that it raised."""
    adapter = job.adapter
    if type(response) is str and isinstance(adapter, AnthropicMessagesToolResponseAdapter):
        text = adapter.text_of(job.call.id, response)
        if text is not None:
            return Result(encode(text))
    block = _the_one_block(job, job.adapter.create_messages(_block(job.call), response))
    is_error = block.get("is_error") is True or issubclass(type(response), BaseException)
    content: Any = block.get("content", "")
    if _is_lone_text(content) and (is_error or not _gave_it_as_block(response, content[0]["text"])):
        content = content[0]["text"]  # the same to the API, and what the SDK sends for a text
    content = sendable(job, content, is_error=is_error)
    return _error(job, content) if is_error else Result(encode(content))


def _block(call: Call) -> dict[str, JSON]:
    """The `tool_use` block of a call, with the input that ran."""
    block = {"type": "tool_use", "id": call.id, "name": call.name, "input": decode(call.effective_input)}
    if call.by_code:
        block["caller"] = {"type": "code_execution"}
    if call.toolset is not None:
        block["toolset_name"] = call.toolset
    return block


def sendable(job: Job, content: Any, *, is_error: bool = False) -> JSON:
    """The content of a result, looked at once more: whoever made it, the API has to take it."""
    known = job.known() if isinstance(content, list) and any(map(_is_reference, content)) else None
    given = (RawOutputs(content) if content else "") if isinstance(content, list) else content
    return content_of(given, kinds=kinds_for(job.call), is_error=is_error, known_tools=known)


def _is_reference(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "tool_reference"


def _the_one_block(job: Job, messages: Any) -> dict[str, JSON]:
    """The `tool_result` of an adapter's message; whatever else an adapter gives has no place in a round."""
    match messages:
        case [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": job.call.id, **rest}]}]:
            block = {str(key): value for key, value in rest.items()}
            content, failed = block.get("content", ""), block.get("is_error")
            if block.keys() <= _OF_RESULTS and isinstance(content, str | list) and isinstance(failed, bool | None):
                return block
    raise TypeError(
        f"{type(job.adapter).__name__}.create_messages gave something else than one user message with the one "
        f"tool_result block of the call {job.call.id}, with a content (a string or a list) and perhaps is_error"
    )


# What of a `tool_result` an adapter says. The toolset is that of the call in any case.
_OF_RESULTS = frozenset({"content", "is_error", "toolset_name"})


def _is_lone_text(content: Any) -> TypeGuard[list[dict[str, JSON]]]:
    if type(content) is not list or len(content) != 1 or type(content[0]) is not dict or len(content[0]) != 2:  # noqa: PLR2004 - a type, a text
        return False
    return content[0].get("type") == "text" and isinstance(content[0].get("text"), str)


def _gave_it_as_block(response: Any, text: str) -> bool:
    """Whether a tool returned this text in a block; a response may be anything, so only its type is asked."""
    if type(response) is not list or len(response) != 1 or type(response[0]) is not dict:
        return type(response) is RawOutputs
    given = response[0].get("text")
    return type(response[0].get("type")) is str and type(given) is str and given == text


def _error(job: Job, content: JSON) -> Result:
    if _is_lone_text(content):
        content = content[0]["text"]
    if isinstance(content, str):
        content = say(job.texts, "failed", error=content)
    return Result(encode(content), is_error=True, outcome=Outcome.FAILED)


def timed_out(job: Job, *, left_behind: bool) -> Result:
    """The error result of a tool that took too long. `left_behind`: it may still be running in its thread."""
    LOG.warning("a tool took too long", extra={"tool": job.call.name, "call_id": job.call.id})
    text = say(job.texts, "left_behind" if left_behind else "timed_out", seconds=f"{job.limit:g}")
    return Result(encode(text), is_error=True, outcome=Outcome.TIMED_OUT)


def facts_of(tool: Tool[..., Any]) -> ToolFacts:
    """What the machine must know of a tool, and what is compared when a loop wakes up."""
    needs = tool.needs_approval
    approval: Literal["always", "never", "predicate"] = "predicate"
    if isinstance(needs, bool):
        approval = "always" if needs else "never"
    return ToolFacts(tool.name, tool.effect, approval, _digest(tool.compared()))


def _digest(parts: Mapping[str, JSON]) -> str:
    """Of what is compared; where it has several parts, so that it can be said later which of them changed."""
    digests = {name: hashlib.sha256(canonical(part).encode()).hexdigest() for name, part in parts.items()}
    if len(digests) == 1:
        return "".join(digests.values())
    return ",".join(f"{name}={digest[:16]}" for name, digest in digests.items())


def changed_parts(then: ToolFacts, now: ToolFacts) -> list[str]:
    """Which parts of a tool are others than they were."""
    old, new = _parts(then), _parts(now)
    if old.keys() != new.keys():
        return ["definition"]
    return [name for name, digest in new.items() if old[name] != digest]


def _parts(facts: ToolFacts) -> dict[str, str]:
    named = (part.partition("=") for part in facts.digest.split(","))
    return {name if digest else "definition": digest or name for name, _, digest in named}


def facts_in_order(setup: Setup, tools: ToolRegistry) -> tuple[ToolFacts, ...]:
    """The facts of tools, in the order in which a loop has had them so far."""
    places = {facts.name: place for place, facts in enumerate(setup.tools)}
    return tuple(facts_of(tool) for tool in sorted(tools, key=lambda tool: places.get(tool.name, len(places))))


def definitions_in_order(setup: Setup, tools: ToolRegistry) -> list[dict[str, Any]]:
    """The definitions, in the order in which the loop has its tools: so a loop that slept sends the same bytes."""
    places = {facts.name: place for place, facts in enumerate(setup.tools)}
    return sorted(tools.definitions(), key=lambda tool: places.get(str(tool["name"]), len(places)))
