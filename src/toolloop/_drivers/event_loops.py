"""Differences of asyncio and trio, and threads for work that an event loop must not wait for."""

from __future__ import annotations

import contextlib
import contextvars
import sys
from collections.abc import Awaitable, Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

from toolloop._forks import ProcessState

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    import anyio

T = TypeVar("T")


# --- tasks -----------------------------------------------------------------------------------------------------------


def call_soon() -> Callable[[Callable[[], None]], object]:
    """Return a function that schedules a call in the running event loop, from any thread."""
    import anyio.lowlevel  # noqa: PLC0415 - loaded when it is first needed

    loop: Any = anyio.lowlevel.current_token().native_token
    # trio's token and asyncio's loop have the same function under different names.
    return partial(_call_if_open, getattr(loop, "run_sync_soon", None) or loop.call_soon_threadsafe)


def _call_if_open(call: Callable[..., object], function: Callable[[], None]) -> None:
    with contextlib.suppress(Exception):  # the event loop is closed
        call(function)


def name_library() -> str:
    """Return the name of the library of the running event loop."""
    return "trio" if (trio := sys.modules.get("trio")) is not None and _is_in(trio) else "asyncio"


def spawn(run: Callable[[], Awaitable[None]]) -> Any:
    """Run an async function in a task that belongs to the event loop."""
    if name_library() == "trio":
        trio = sys.modules["trio"]
        return trio.lowlevel.spawn_system_task(run, context=contextvars.copy_context())
    import asyncio  # noqa: PLC0415 - the other event loop

    return asyncio.get_running_loop().create_task(run())  # type: ignore[arg-type]  # a coroutine function


def _is_in(trio: Any) -> bool:
    try:
        trio.lowlevel.current_task()
    except (RuntimeError, AttributeError):  # without the attribute, another thread is just importing it
        return False
    return True


async def wait_shielded(done: anyio.Event) -> None:
    """Wait for an event. A cancellation is raised only after the event."""
    import anyio  # noqa: PLC0415 - loaded already

    cancelled: BaseException | None = None
    is_gone = False  # the event loop
    while not done.is_set():
        try:
            with anyio.CancelScope(shield=True):
                try:
                    await done.wait()
                except GeneratorExit:
                    is_gone = True
                    raise
        except BaseException as error:  # asyncio's own `cancel()`, or a Ctrl-C, goes through a shield
            if is_gone:
                raise  # this exception, or that of the scope, which cannot be left without the event loop
            cancelled = error
    if cancelled is not None:
        raise cancelled


def is_cancelling_task() -> bool:
    """Return whether asyncio itself cancels this task. anyio handles its own cancellations, and those of trio."""
    import asyncio  # noqa: PLC0415 - anyio has loaded it, or trio runs

    try:
        task = asyncio.current_task()
    except RuntimeError:
        return False
    return task is not None and task.cancelling() > 0


def drop_cancellation(error: BaseException, cancelled: type[BaseException]) -> BaseException | None:
    """Return an exception or a group without its cancellations."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(cancelled)[1]
    return None if isinstance(error, cancelled) else error


def unwrap_only_error(errors: BaseExceptionGroup[BaseException], cancelled: type[BaseException]) -> BaseException:
    """Return the exception to raise for a group: the group without cancellations, or its only exception."""
    rest: BaseException = drop_cancellation(errors, cancelled) or errors
    while isinstance(rest, BaseExceptionGroup) and len(rest.exceptions) == 1:
        rest = rest.exceptions[0]
    return rest


# --- threads that wait for stores -------------------------------------------------------------------------------------

_MOST = 32
# In a thread of `run_in_thread`: the token of the event loop that waits for it.
_WAITING: contextvars.ContextVar[Any] = contextvars.ContextVar("toolloop-event-loop")


async def run_in_thread(work: Callable[[], T]) -> T:
    """Call a function in a thread, and always wait for its end.

    A write to a store is never cancelled half-way, and never continues in the background. A cancellation of any kind is
    raised after the work has ended.
    """
    import anyio.lowlevel  # noqa: PLC0415 - loaded when it is first needed

    done, soon, context = anyio.Event(), call_soon(), contextvars.copy_context()
    context.run(_WAITING.set, anyio.lowlevel.current_token())
    future = _POOL.value().submit(context.run, work)
    future.add_done_callback(lambda _future: soon(done.set))
    await wait_shielded(done)
    return future.result()


def await_from_thread(awaitable: Awaitable[T]) -> T:
    """Await something in the event loop that waits for this thread. See `run_in_thread`."""
    import anyio.from_thread  # noqa: PLC0415 - loaded already

    async def wait() -> T:
        return await awaitable

    return anyio.from_thread.run(wait, token=_WAITING.get())


def _make_pool() -> ThreadPoolExecutor:
    """Return the threads that wait for stores. Tools use other threads."""
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - a handle without a store needs none

    return ThreadPoolExecutor(_MOST, thread_name_prefix="stores-of-toolloop")


_POOL = ProcessState(lambda: cache(_make_pool))
