"""`ToolRunner` and `AsyncToolRunner`: iterators over a loop, similar to the SDK's runner."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, Required, Self, TypedDict, Unpack, cast, overload

from attrs import evolve
from typing_extensions import TypeVar

from toolloop._drivers.async_driver import AsyncDriver
from toolloop._drivers.sync_driver import SyncDriver
from toolloop._engine.pace import DriveOptions
from toolloop._engine.questions import ask_each, await_each
from toolloop._handles.assembly import assemble
from toolloop._handles.asynchronous import AsyncToolLoopHandle
from toolloop._handles.handle import CallKey
from toolloop._handles.opening import Here, make_loop
from toolloop._handles.sync import ToolLoopHandle
from toolloop._interface.config import DEFAULT_CONFIG, LoopConfig
from toolloop._interface.loop_params import find_missing_parameter
from toolloop._interface.results import ToolLoopResult, Yielded
from toolloop._public import set_module
from toolloop._requests.params import check_params
from toolloop._runner.caller_history import CallerHistory, find_open_calls
from toolloop._runner.held_effects import HeldEffects
from toolloop._runner.steps import RunnerSteps, runner_refusal
from toolloop._runner.streams import AsyncReplyStream, ReplyStream, drive, drive_async
from toolloop._usage import IterationUsage, Usage
from toolloop.machine.record.effects import Judge, SendRequest
from toolloop.machine.values.calls import Decision
from toolloop.machine.values.jsontext import JSON, decode, describe_type
from toolloop.providers import AsyncProvider, Provider
from toolloop.providers.anthropic import AsyncSdkClient, ProviderOrClient, SdkClient
from toolloop.tools import Context
from toolloop.tools.calls import ToolCall
from toolloop.tools.registry import Tools

Message = dict[str, JSON]
Y = TypeVar("Y", default=Message)  # the type of the items of a runner


@set_module("toolloop.types")
class RunnerParts(TypedDict, total=False):
    """The keyword arguments of a runner, except `stream`."""

    params: Required[Mapping[str, Any]]
    tools: Tools
    config: LoopConfig
    context: Context | None
    ask: Callable[[Yielded], object | Awaitable[object]] | None
    threads: bool | None


class RunnerBase(Generic[ProviderOrClient]):
    """The base class of both runners: properties and commands. Private: see `ToolRunner` and `AsyncToolRunner`."""

    _is_async = False

    def __init__(  # noqa: PLR0913 - the parts of a loop, most of them optional
        self,
        provider: ProviderOrClient,
        *,
        params: Mapping[str, Any],
        tools: Tools = (),
        config: LoopConfig = DEFAULT_CONFIG,
        context: Context | None = None,
        stream: bool = False,
        ask: Callable[[Yielded], object | Awaitable[object]] | None = None,
        threads: bool | None = None,
    ) -> None:
        """Set up the runner, without I/O."""
        config = config if threads is None else evolve(config, threads=threads)
        if ask is not None and not callable(ask):
            raise TypeError(f"ask: expected a callable that takes a Yielded, or None, got {describe_type(ask)}")
        is_async, asked = self._is_async, f"{type(self).__name__}(...)"
        here = Here.of(provider, tools, config, context, is_async=is_async)
        if not check_params(params, asked=asked).get("messages"):
            raise find_missing_parameter("messages")
        texts = CallerHistory().to_texts(params["messages"])
        closed = texts[:-1] if find_open_calls(texts) else texts
        given = {**params, "messages": [decode(text) for text in closed]}
        parts = make_loop(here, given, asked=asked)
        held = HeldEffects(parts.state.root)
        driver_class: Any = AsyncDriver if is_async else SyncDriver
        assembly = assemble(parts, driver_class, DriveOptions(holds=held.holds))
        kind: Any = AsyncToolLoopHandle if is_async else ToolLoopHandle
        self._loop = kind._of(assembly)  # noqa: SLF001 - a runner uses an assembled loop
        self._steps = RunnerSteps(assembly, self._loop, held, drive_async if is_async else drive, ask)
        self._streams = bool(stream)
        self._stops_before = SendRequest if stream else Judge
        if find_open_calls(texts):
            self._steps.take(texts)

    # --- properties ---

    @property
    def params(self) -> dict[str, Any]:
        """A copy of the request parameters. `messages` is the history with all appended messages."""
        return self._steps.params()

    @property
    def pending(self) -> tuple[ToolCall, ...]:
        """The calls waiting for a decision: see `ToolLoopHandle.pending`."""
        return self._steps.handle.pending

    @property
    def total_usage(self) -> Usage:
        """The total usage of all answered requests, including those whose replies were left out."""
        return self._steps.handle.total_usage

    @property
    def usage_log(self) -> tuple[IterationUsage, ...]:
        """The usage of each answered request."""
        return self._steps.handle.usage_log

    @property
    def iterations(self) -> int:
        """The number of answered requests."""
        return self._steps.handle.iterations

    def into_result(self) -> ToolLoopResult:
        """Return the result so far; its termination is `Unfinished()` until the end, `Failed` after an error."""
        return self._steps.handle.into_result()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._steps.phase}: {self.iterations} iterations>"

    # --- commands ---

    def decide(self, decisions: Mapping[CallKey, Decision]) -> None:
        """Decide waiting calls: see `ToolLoopHandle.decide`. Then continue to iterate.

        Raises:
            IllegalCommand: no call is waiting.
            UnknownCall, DecisionConflict: as for a handle.

        """
        if not self.pending:
            text = (
                "decide(): no call is waiting for a decision. Calls can wait after the body of the loop, in the next "
                "step, or in generate_tool_response()"
            )
            raise runner_refusal(
                text, self._steps.phase, "decide()", "iterating the runner", "generate_tool_response()"
            )
        self._steps.handle.decide(decisions)

    def append_messages(self, *messages: Any) -> None:
        """Append messages to the history. Then the reply of this iteration is not appended, unless you append it.

        Args:
            messages: mappings with a role and a content, SDK objects, or a reply as it was yielded.

        Raises:
            TypeError: an argument is not JSON, or not a message.
            IllegalCommand: the runner is busy.

        """
        self._steps.append(messages)

    def set_messages_params(self, params: Mapping[str, Any] | Callable[[dict[str, Any]], Mapping[str, Any]]) -> None:
        """Replace all parameters, including `messages`, by a mapping or by a function of `params`.

        Raises:
            TypeError: a parameter is not JSON.
            ValueError: a parameter is missing, set by toolloop, or refused by the API.
            IllegalCommand: the runner is busy.

        """
        self._steps.set_params(params)


@set_module("toolloop")
class ToolRunner(RunnerBase[Provider | SdkClient], Generic[Y]):
    """An iterator over the replies of the model: `for message in runner`.

    Each step has these parts:

    1. A request is sent, and its reply is yielded.
    2. The body of the `for` loop runs. It may read and change `params` and the history.
    3. If the body changed nothing, the reply is appended to `params["messages"]`.
    4. The unanswered calls at the end of `params["messages"]` run, and their results are appended.

    The iteration ends after a reply without client calls that needs no resumption. `docs/runner.md` has a diagram of a
    step, and says what follows from a change of the history.

    Args:
        provider: as for `ToolLoopHandle`.
        params: the keyword arguments of `client.messages.create`, including `messages`. Unanswered calls at the end of
            the messages run first.
        tools: as for `ToolLoopHandle`.
        config: limits and callables.
        context: an object for the tools, and the depth.
        stream: whether each step yields a stream of the reply instead. The next step reads the rest of the stream.
        ask: called with a `Yielded` when calls wait for a decision; it decides them through the `Yielded`. If calls
            remain undecided, or without `ask`, `UndecidedCalls` is raised. Iterate again after `decide`.
        threads: as in `LoopConfig`; None means the value in `config`.

    Raises:
        InvalidHistory: the API would refuse the messages.
        BadTool, TypeError, ValueError: as for `ToolLoopHandle`.

    """

    _stream: ReplyStream | None = None

    if TYPE_CHECKING:  # at run time the base class has one `__init__` with all parameters by name

        @overload
        def __init__(
            self: ToolRunner[Message],
            provider: Provider | SdkClient,
            *,
            stream: Literal[False] = False,
            **parts: Unpack[RunnerParts],
        ) -> None: ...
        @overload
        def __init__(
            self: ToolRunner[ReplyStream],
            provider: Provider | SdkClient,
            *,
            stream: Literal[True],
            **parts: Unpack[RunnerParts],
        ) -> None: ...
        @overload
        def __init__(
            self: ToolRunner[Any], provider: Provider | SdkClient, *, stream: bool, **parts: Unpack[RunnerParts]
        ) -> None: ...
        def __init__(self, provider: Any, **parts: Any) -> None: ...

    def __iter__(self) -> Iterator[Y]:
        return self

    def __next__(self) -> Y:
        """Return the next reply as plain JSON, or a stream of it. `toolloop.providers.as_sdk` converts a reply.

        Raises:
            ModelError, ProtocolError: the request failed. Nothing was consumed; iterate again to repeat it.
            UndecidedCalls: calls wait for a decision.
            InvalidHistory: the API would refuse the history. Repair it with `set_messages_params`.

        """
        self._finish_stream()
        with self._steps.at_work("the next step"):
            if not ask_each(self._steps.advance(self._stops_before)):
                raise StopIteration
            self._stream = ReplyStream(self._steps) if self._streams else None
            return cast("Y", self._stream or self._steps.show())

    def until_done(self) -> dict[str, JSON] | None:
        """Iterate to the end, and return the last reply; None if there is none."""
        for message in self:
            del message
        return self.into_result().response

    def generate_tool_response(self, retry: Iterable[str] = ()) -> dict[str, JSON] | None:
        """Run the calls at the end of the history, and return the user message with their results; None without calls.

        The runner does the same in its next step; a call that has run does not run again. The history is not changed:
        you may append the message, also with changes, or leave that to the runner.

        Args:
            retry: the ids of calls to run again. Their results are replaced.

        Raises:
            UndecidedCalls: calls wait for a decision.
            UnknownCall: a call to retry is not open.
            IllegalCommand: a call to retry never ran.

        """
        self._finish_stream()
        with self._steps.at_work("generate_tool_response()"):
            return ask_each(self._steps.respond(retry))

    def close(self) -> None:
        """Cancel the current stream if it is not read to its end. Its request has no effect. The runner stays usable.

        Raises:
            IllegalCommand: another thread is reading the stream. That thread must finish or leave it first.

        """
        if self._stream is not None:
            with self._steps.at_work("close()"):
                stream, self._stream = self._stream, None
                stream.cancel()

    def __enter__(self) -> Self:
        """Return the runner; leaving the block closes it."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the runner and its loop."""
        try:
            self.close()
        finally:
            self._loop.close()

    def _finish_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.finish()


@set_module("toolloop")
class AsyncToolRunner(RunnerBase[AsyncProvider | AsyncSdkClient], Generic[Y]):
    """`ToolRunner` for asyncio and trio: `async for message in runner`. `ask` may be async."""

    _is_async = True
    _stream: AsyncReplyStream | None = None

    if TYPE_CHECKING:  # at run time the base class has one `__init__` with all parameters by name

        @overload
        def __init__(
            self: AsyncToolRunner[Message],
            provider: AsyncProvider | AsyncSdkClient,
            *,
            stream: Literal[False] = False,
            **parts: Unpack[RunnerParts],
        ) -> None: ...
        @overload
        def __init__(
            self: AsyncToolRunner[AsyncReplyStream],
            provider: AsyncProvider | AsyncSdkClient,
            *,
            stream: Literal[True],
            **parts: Unpack[RunnerParts],
        ) -> None: ...
        @overload
        def __init__(
            self: AsyncToolRunner[Any],
            provider: AsyncProvider | AsyncSdkClient,
            *,
            stream: bool,
            **parts: Unpack[RunnerParts],
        ) -> None: ...
        def __init__(self, provider: Any, **parts: Any) -> None: ...

    def __aiter__(self) -> AsyncIterator[Y]:
        return self

    async def __anext__(self) -> Y:
        """Return the next reply, or a stream of it. See `ToolRunner.__next__`."""
        await self._finish_stream()
        with self._steps.at_work("the next step"):
            if not await await_each(self._steps.advance(self._stops_before)):
                raise StopAsyncIteration
            self._stream = AsyncReplyStream(self._steps) if self._streams else None
            return cast("Y", self._stream or self._steps.show())

    async def until_done(self) -> dict[str, JSON] | None:
        """Iterate to the end, and return the last reply. See `ToolRunner.until_done`."""
        async for message in self:
            del message
        return self.into_result().response

    async def generate_tool_response(self, retry: Iterable[str] = ()) -> dict[str, JSON] | None:
        """Run the calls at the end of the history. See `ToolRunner.generate_tool_response`."""
        await self._finish_stream()
        with self._steps.at_work("generate_tool_response()"):
            return await await_each(self._steps.respond(retry))

    async def aclose(self) -> None:
        """Cancel the current stream if it is not read to its end. See `ToolRunner.close`."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.cancel()

    async def __aenter__(self) -> Self:
        """Return the runner; leaving the block closes it."""
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close the runner and its loop."""
        try:
            await self.aclose()
        finally:
            await self._loop.aclose()

    async def _finish_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.finish()
