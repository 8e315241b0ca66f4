"""The for-loop face: `ToolRunner` and `AsyncToolRunner`, the well-known iterators over a loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, Required, Self, TypedDict, Unpack, cast, overload

from typing_extensions import TypeVar

from toolloop.face.config import DEFAULT_CONFIG, LoopConfig
from toolloop.face.loop_params import missing
from toolloop.face.results import ToolLoopResult, Yielded
from toolloop.loop.assembly import assemble
from toolloop.loop.async_driver import AsyncDriver
from toolloop.loop.asynchronous import AsyncToolLoopHandle
from toolloop.loop.handle import CallKey
from toolloop.loop.opening import Here, new_loop
from toolloop.loop.questions import ask_each, await_each
from toolloop.loop.sync import ToolLoopHandle
from toolloop.loop.sync_driver import SyncDriver
from toolloop.machine.effects import Judge, SendRequest
from toolloop.machine.jsontext import JSON, a_type, decode
from toolloop.machine.usage import IterationUsage, Usage
from toolloop.machine.values import Decision
from toolloop.requests.params import check_params
from toolloop.runner.caller_history import CallerHistory, open_calls
from toolloop.runner.steps import RunnerSteps, not_possible
from toolloop.runner.streams import AsyncReplyStream, ReplyStream, drive, drive_async
from toolloop.tools import Context, ToolRegistry
from toolloop.tools.calls import ToolCall

Message = dict[str, JSON]
Y = TypeVar("Y", default=Message)  # what a runner yields


class RunnerParts(TypedDict, total=False):
    """The keyword arguments of a runner, but for `stream`."""

    params: Required[Mapping[str, Any]]
    tools: Iterable[Any] | ToolRegistry
    config: LoopConfig
    context: Context | None
    ask: Callable[[Yielded], object | Awaitable[object]] | None


class RunnerBase:
    """What both runners share: reads, and what the caller says. Not public: see `ToolRunner` and `AsyncToolRunner`."""

    _is_async = False

    def __init__(  # noqa: PLR0913 - the parts of a loop, all but two of them optional
        self,
        provider: Any,
        *,
        params: Mapping[str, Any],
        tools: Iterable[Any] | ToolRegistry = (),
        config: LoopConfig = DEFAULT_CONFIG,
        context: Context | None = None,
        stream: bool = False,
        ask: Callable[[Yielded], object | Awaitable[object]] | None = None,
    ) -> None:
        """Set the runner up; nothing is sent."""
        if ask is not None and not callable(ask):
            raise TypeError(f"ask is {a_type(ask)}; give a callable that takes a Yielded, or None")
        is_async, asked = self._is_async, f"{type(self).__name__}(...)"
        if not check_params(params, asked=asked).get("messages"):
            raise missing("messages")
        texts = CallerHistory().to_texts(params["messages"])
        closed = texts[:-1] if open_calls(texts) else texts
        given = {**params, "messages": [decode(text) for text in closed]}
        parts = new_loop(Here.of(tools, config, context, is_async=is_async), given, asked=asked)
        assembly = assemble(provider, parts, AsyncDriver if is_async else SyncDriver)
        kind: Any = AsyncToolLoopHandle if is_async else ToolLoopHandle
        self._loop = kind._of(assembly)  # noqa: SLF001 - a runner is over an assembled loop
        self._steps = RunnerSteps(assembly, self._loop, drive_async if is_async else drive, ask)
        self._streams = bool(stream)
        self._stops_before = SendRequest if stream else Judge
        if open_calls(texts):
            self._steps.take(texts)

    # --- what the caller reads ---

    @property
    def params(self) -> dict[str, Any]:
        """The request parameters, and under `messages` the history: a copy, with all that was appended so far."""
        return self._steps.params()

    @property
    def pending(self) -> tuple[ToolCall, ...]:
        """The calls that wait for a decision: see `ToolLoopHandle.pending`."""
        return self._steps.handle.pending

    @property
    def total_usage(self) -> Usage:
        """What all answered requests used together, also those whose replies were left out."""
        return self._steps.handle.total_usage

    @property
    def usage_log(self) -> tuple[IterationUsage, ...]:
        """What each answered request used."""
        return self._steps.handle.usage_log

    @property
    def iterations(self) -> int:
        """How many requests were answered."""
        return self._steps.handle.iterations

    def into_result(self) -> ToolLoopResult:
        """What came of it so far, and why it ended; `Unfinished()` while it goes on, `Failed(error)` after an error."""
        return self._steps.handle.into_result()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._steps.phase}: {self.iterations} iterations>"

    # --- what the caller says ---

    def decide(self, decisions: Mapping[CallKey, Decision]) -> None:
        """Decide calls that wait: see `ToolLoopHandle.decide`. Then go on iterating.

        Raises:
            IllegalCommand: no call waits.
            UnknownCall, DecisionConflict: as for a handle.

        """
        if not self.pending:
            text = (
                "decide(): no call waits for a decision now. Calls are asked about after your code, in the next step, "
                "or in generate_tool_response()"
            )
            raise not_possible(text, self._steps.phase, "decide()", "iterating the runner", "generate_tool_response()")
        self._steps.handle.decide(decisions)

    def append_messages(self, *messages: Any) -> None:
        """Append messages to the history. In this iteration the reply is then yours to append, or to leave out.

        Args:
            messages: mappings with a role and a content, or objects of the SDK; a reply as it was yielded, too.

        Raises:
            TypeError: something in them is not JSON, or is not a message.
            IllegalCommand: the runner is at work.

        """
        self._steps.append(messages)

    def set_messages_params(self, params: Mapping[str, Any] | Callable[[dict[str, Any]], Mapping[str, Any]]) -> None:
        """Replace all parameters, `messages` among them: by a mapping, or by a function of `params`.

        Raises:
            TypeError: a parameter is not JSON.
            ValueError: one that is missing, not the caller's to give, or that the API refuses.
            IllegalCommand: the runner is at work.

        """
        self._steps.set_params(params)


class ToolRunner(RunnerBase, Generic[Y]):
    """An iterator over the replies of the model: `for message in runner`.

    One step: a request goes out, and its reply is yielded. The body of the loop runs, and may read and change what is
    to come. When it is over the reply is appended to `params["messages"]`, unless the body changed something: then what
    is there counts. The calls with which this history ends, and which it does not answer, are run, and their results
    appended there. It ends with a reply that asks for no call and for no resumption.

    Args:
        provider: as for `ToolLoopHandle`.
        params: the keyword arguments of `client.messages.create`, `messages` included. If these end with calls that are
            not answered, those are run first.
        tools: as for `ToolLoopHandle`.
        config: limits and callables.
        context: an object for the tools, and the depth.
        stream: each step yields a stream of the reply instead; what the body leaves unread is read before the next one.
        ask: called with a `Yielded` when calls wait for a decision, and decides them through it. Without it, or if it
            leaves some undecided, `UndecidedCalls` is raised, and after `decide` the iteration goes on.

    Raises:
        InvalidHistory: the API would refuse the messages.
        BadTool, TypeError, ValueError: as for `ToolLoopHandle`.

    """

    _stream: ReplyStream | None = None

    if TYPE_CHECKING:  # at run time there is the one of the base class, with all parameters by name

        @overload
        def __init__(
            self: ToolRunner[Message], provider: Any, *, stream: Literal[False] = False, **parts: Unpack[RunnerParts]
        ) -> None: ...
        @overload
        def __init__(
            self: ToolRunner[ReplyStream], provider: Any, *, stream: Literal[True], **parts: Unpack[RunnerParts]
        ) -> None: ...
        @overload
        def __init__(self: ToolRunner[Any], provider: Any, *, stream: bool, **parts: Unpack[RunnerParts]) -> None: ...
        def __init__(self, provider: Any, **parts: Any) -> None: ...

    def __iter__(self) -> Iterator[Y]:
        return self

    def __next__(self) -> Y:
        """The next reply, as plain JSON (`toolloop.providers.as_sdk` gives the SDK's object); or a stream of it.

        Raises:
            ModelError, ProtocolError: the request failed; iterating again makes it again. Nothing was consumed.
            UndecidedCalls: calls wait for a decision.
            InvalidHistory: the API would refuse the history; it stays to be mended with `set_messages_params`.

        """
        self._finish_stream()
        with self._steps.at_work("the next step"):
            if not ask_each(self._steps.advance(self._stops_before)):
                raise StopIteration
            self._stream = ReplyStream(self._steps) if self._streams else None
            return cast("Y", self._stream or self._steps.show())

    def until_done(self) -> dict[str, JSON] | None:
        """Iterate to the end, and give the last reply; None if there never was one."""
        for message in self:
            del message
        return self.into_result().response

    def generate_tool_response(self, retry: Iterable[str] = ()) -> dict[str, JSON] | None:
        """Run the calls with which the history ends, and give the user message that answers them; None: there are none.

        It is what the runner itself does next, and does it once: a call that has run is not run again. The history
        stays as it is; you may append the message, changed or not, or leave that to the runner.

        Args:
            retry: the ids of calls that are to be run again, and whose results are to be replaced.

        Raises:
            UndecidedCalls: calls wait for a decision.
            UnknownCall: a call to retry is not open.
            IllegalCommand: a call to retry never ran.

        """
        self._finish_stream()
        with self._steps.at_work("generate_tool_response()"):
            return ask_each(self._steps.respond(retry))

    def close(self) -> None:
        """Hang up on a stream that is not read to its end: that request was not made. The runner stays usable.

        Raises:
            IllegalCommand: another thread is reading the stream. Let that one leave it, by an exception or at its end.

        """
        if self._stream is not None:
            with self._steps.at_work("close()"):
                stream, self._stream = self._stream, None
                stream.hang_up()

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


class AsyncToolRunner(RunnerBase, Generic[Y]):
    """The same under asyncio or trio: `async for message in runner`. See `ToolRunner`; `ask` may be async."""

    _is_async = True
    _stream: AsyncReplyStream | None = None

    if TYPE_CHECKING:  # at run time there is the one of the base class, with all parameters by name

        @overload
        def __init__(
            self: AsyncToolRunner[Message],
            provider: Any,
            *,
            stream: Literal[False] = False,
            **parts: Unpack[RunnerParts],
        ) -> None: ...
        @overload
        def __init__(
            self: AsyncToolRunner[AsyncReplyStream],
            provider: Any,
            *,
            stream: Literal[True],
            **parts: Unpack[RunnerParts],
        ) -> None: ...
        @overload
        def __init__(
            self: AsyncToolRunner[Any], provider: Any, *, stream: bool, **parts: Unpack[RunnerParts]
        ) -> None: ...
        def __init__(self, provider: Any, **parts: Any) -> None: ...

    def __aiter__(self) -> AsyncIterator[Y]:
        return self

    async def __anext__(self) -> Y:
        """The next reply, or a stream of it. See `ToolRunner.__next__`."""
        await self._finish_stream()
        with self._steps.at_work("the next step"):
            if not await await_each(self._steps.advance(self._stops_before)):
                raise StopAsyncIteration
            self._stream = AsyncReplyStream(self._steps) if self._streams else None
            return cast("Y", self._stream or self._steps.show())

    async def until_done(self) -> dict[str, JSON] | None:
        """Iterate to the end, and give the last reply. See `ToolRunner.until_done`."""
        async for message in self:
            del message
        return self.into_result().response

    async def generate_tool_response(self, retry: Iterable[str] = ()) -> dict[str, JSON] | None:
        """Run the calls with which the history ends. See `ToolRunner.generate_tool_response`."""
        await self._finish_stream()
        with self._steps.at_work("generate_tool_response()"):
            return await await_each(self._steps.respond(retry))

    async def aclose(self) -> None:
        """Hang up on a stream that is not read to its end. See `ToolRunner.close`."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.hang_up()

    async def __aenter__(self) -> Self:
        """Return the runner; leaving the block closes it."""
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close the runner and its loop."""
        try:
            await self.aclose()
        finally:
            await self._loop.close()

    async def _finish_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.finish()
