"""The async handle, for asyncio and trio. Its driver awaits, fans out to tasks, locks and records; it decides nothing.

Whatever can be async under it is awaited: policies, `stop_when`, tools. Sync tools run in threads of their own.
"""

from __future__ import annotations

import inspect
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Self

from attrs import frozen

from toolloop.core.effects import EndTurn, Judge, RunCall, SendRequest
from toolloop.core.machine import outstanding
from toolloop.core.states import Running
from toolloop.core.values import Result
from toolloop.handle.bell import AsyncBell
from toolloop.handle.config import DEFAULT_CONFIG, DEFAULT_CONTEXT, LoopConfig, LoopContext, check_parts
from toolloop.handle.driving import Driving
from toolloop.handle.judging import discard
from toolloop.handle.making import to_open
from toolloop.handle.tooling import Job, failed, returned, timed_out
from toolloop.handle.turns import Completed, Error, Yielded
from toolloop.providers import provider_for
from toolloop.tools import ToolContext, ToolRegistry

if TYPE_CHECKING:
    from anyio.abc import TaskGroup


class AsyncToolLoopHandle(Driving):
    """A tool-use loop that its caller drives, turn by turn, under asyncio or trio.

    The same as `ToolLoopHandle`, over an `anthropic.AsyncAnthropic` client or an `AsyncProvider`, with `await` before
    `next_turn()` and `run()`.
    """

    _is_async = True

    def __init__(  # noqa: PLR0913 - the parts of a loop, all but two of them optional
        self,
        provider: Any,
        *,
        params: Mapping[str, Any],
        tools: Iterable[Any] | ToolRegistry = (),
        config: LoopConfig = DEFAULT_CONFIG,
        context: LoopContext | ToolContext | None = None,
        loop_id: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Set the loop up; nothing is sent and no clock starts. See `ToolLoopHandle`."""
        context = DEFAULT_CONTEXT if context is None else context
        check_parts(config, context, loop_id=loop_id, clock=clock)
        self._make_bell()
        self._open(
            provider_for(provider, is_async=True),
            params=params,
            tools=tools,
            config=config,
            context=context,
            loop_id=loop_id or uuid.uuid4().hex,
            clock=clock,
        )

    async def __aenter__(self) -> Self:
        """Open what the tools open: each context manager once, async or not, in the order of the tools."""
        self._refuse_open()
        opening = AsyncExitStack()
        try:
            for each in to_open(self._tools):
                if hasattr(each, "__aenter__"):
                    await opening.enter_async_context(each)
                else:
                    opening.enter_context(each)
        except BaseException:
            await opening.__aexit__(*sys.exc_info())  # one of them may swallow the exception, and we do not
            raise
        self._opened = opening
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close what the tools opened, the last one first. The loop itself stays as it is."""
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.__aexit__(*error)

    async def next_turn(self) -> Yielded | Completed | Error:
        """Drive to the next point where the caller has a say. See `ToolLoopHandle.next_turn`."""
        with self._driving("next_turn()"):
            return self._ready_to_drive() or await self._drive()

    async def run(
        self, ask: Callable[[Yielded], object | Awaitable[object]] | None = None
    ) -> Yielded | Completed | Error:
        """Keep going while nothing needs the caller; `ask` may be async. See `ToolLoopHandle.run`."""
        while True:
            turn = self.pending_turn
            if turn is None:
                result = await self.next_turn()
                if not isinstance(result, Yielded):
                    return result
                turn = result
            if turn.pending and ask is not None:
                await _settled(ask(turn))
            if not self._goes_on(turn):
                return turn

    async def _drive(self) -> Yielded | Completed | Error:
        while True:
            match self._effects():
                case (SendRequest(),):
                    await self._send()
                case (Judge(),):
                    if (questions := self._judging()) is not None:
                        self._judged(await _await_each(questions))
                case (EndTurn(),):
                    self._turn_ended()
                case _ if isinstance(self._state, Running):
                    await self._run_calls()
                case _:
                    if (result := self._result()) is not None:
                        return result

    async def _send(self) -> None:
        with self._flight() as request:
            if request is None:
                return
            try:
                reply = await self._provider.send(request)
            except Exception as error:  # noqa: BLE001 - any failure of a provider is an Error result
                self._fault(error)
            else:
                self._answer(reply)

    async def _run_calls(self) -> None:
        """Run what may run, and wait until nothing of the round runs any more."""
        import anyio  # noqa: PLC0415 - loaded when it is first needed

        for job in tuple(self._jobs.values()):
            job.taken = False  # nobody but this driver filters, and an earlier one may have been cancelled
        try:
            with self._bell.listening():
                async with anyio.create_task_group() as group:
                    await self._fan_out(group)
                    group.cancel_scope.cancel()  # what the caller stopped meanwhile; nothing runs otherwise
        except BaseExceptionGroup as errors:
            # No task lets anything out, so what is in the group befell the driver itself: a Ctrl-C under trio.
            raise (errors.exceptions[0] if len(errors.exceptions) == 1 else errors) from None

    async def _fan_out(self, group: TaskGroup) -> None:
        import anyio  # noqa: PLC0415 - loaded already

        while self._abort is None:
            heard = self._bell.fresh()
            self._expire()
            for job in tuple(self._jobs.values()):
                if job.result is not None and not job.taken and self._is_live(job):
                    job.taken = True
                    group.start_soon(self._guarded, self._filter_task, job)
            starts = [effect for effect in outstanding(self._state) if isinstance(effect, RunCall)]
            for effect in starts:
                self._launch(group, effect.call_id)
            if starts:
                continue
            if not self._calls_run():
                return
            with anyio.move_on_after(self._patience(inf)):
                await heard.wait()

    def _launch(self, group: TaskGroup, call_id: str) -> None:
        job = self._start(call_id)
        if job is None:
            return
        if job.tool.is_async:
            group.start_soon(self._guarded, self._run_task, job)
        else:
            self._spawn(job)

    async def _run_task(self, job: Job) -> None:
        """Run an async tool, for as long as it may take."""
        if not self._enter(job):
            return
        came = await (_called(job) if job.limit is None else _within_limit(job))
        if not isinstance(came, Result) and not _is_at_hand(came.value, _DEPTH):
            self._spawn(job, partial(returned, job, came.value))
            return
        job.took = time.monotonic() - job.begun
        result = came if isinstance(came, Result) else returned(job, came.value)
        self._end(job, await _await_each(self._filtering(job, result)))

    async def _filter_task(self, job: Job) -> None:
        """Filter what a sync tool brought back from its thread."""
        if job.result is not None:
            self._end(job, await _await_each(self._filtering(job, job.result)))

    def _filter(self, job: Job, result: Result) -> None:  # noqa: ARG002 - the other driver asks them right here
        self._ring()  # filters may be async, so the driver asks them, in its event loop

    async def _guarded(self, work: Callable[[Job], Awaitable[None]], job: Job) -> None:
        """Work in a task that lets nothing out but a real cancellation."""
        import anyio  # noqa: PLC0415 - loaded already
        import anyio.lowlevel  # noqa: PLC0415 - likewise

        try:
            await work(job)
        except GeneratorExit:  # the event loop was closed over the task
            self._cut(job)
            raise
        except BaseException as error:  # noqa: BLE001 - sorted out below
            self._sort_out(job, error, anyio.get_cancelled_exc_class())
            # Real cancellation goes on; a tool that only raised the exception itself has ended, and that is all.
            await anyio.lowlevel.checkpoint_if_cancelled()

    def _sort_out(self, job: Job, error: BaseException, cancelled: type[BaseException]) -> None:
        """A tool ended by something that is no exception of its own: a cancellation, an exit, or both in a group."""
        rest: BaseException | None = None if isinstance(error, cancelled) else error
        if isinstance(error, BaseExceptionGroup):
            rest = error.split(cancelled)[1]
        if isinstance(rest, Exception):
            self._end(job, failed(job, rest))
        else:
            self._cut(job, rest)

    def _settle(self, awaitable: Awaitable[Any]) -> Any:
        try:
            return self._bell.wait_for(awaitable)
        finally:
            discard(awaitable)  # if the event loop is over

    def _make_bell(self) -> None:
        self._bell = AsyncBell()

    def _ring(self) -> None:
        self._bell.ring()


def _is_at_hand(value: Any, depth: int) -> bool:
    """Whether a result can be made of it at once: without reading a file, or running code of the caller's."""
    if type(value) in (str, type(None), bool, int, float):
        return True
    if type(value) not in (dict, list) or len(value) > _FEW or not depth:
        return False
    return all(_is_at_hand(each, depth - 1) for each in (value.values() if type(value) is dict else value))


_FEW = 1000
_DEPTH = 10  # what is nested deeper, or in itself, can wait for a thread


@frozen
class _Value:
    """What a tool returned."""

    value: Any


async def _called(job: Job) -> _Value | Result:
    """Run an async tool to its end."""
    try:
        return _Value(await _settled(job.run()))
    except Exception as error:  # noqa: BLE001 - a tool's exception is a result; cancellation and SystemExit are not
        return failed(job, error)


async def _within_limit(job: Job) -> _Value | Result:
    """The same, but cancel it when its time is over. If it answers in spite of that, it has answered."""
    import anyio  # noqa: PLC0415 - loaded already

    came: _Value | Result | None = None
    scope = anyio.move_on_after(job.limit)
    try:
        with scope:
            came = await _called(job)
    except Exception as error:  # noqa: BLE001 - what a task group made of the cancellation and errors of its own
        came = failed(job, error)
    if came is None or (scope.cancel_called and isinstance(came, Result)):
        return timed_out(job, left_behind=False)
    return came


async def _settled(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


async def _await_each(questions: Generator[Any, Any, Any]) -> Any:
    """Answer each question of a generator by calling it, and awaiting what is to be awaited."""
    answer: Any = None
    error: Exception | None = None
    while True:
        try:
            function, arguments = questions.send(answer) if error is None else questions.throw(error)
        except StopIteration as done:
            return done.value
        except RuntimeError as wrapped:
            if error is not None and wrapped.__cause__ is error:
                raise error from None  # Python wraps a StopIteration that passes through a generator
            raise
        answer, error = None, None
        try:
            answer = await _settled(function(*arguments))
        except Exception as raised:  # noqa: BLE001 - the generator knows what a failing policy means
            error = raised
