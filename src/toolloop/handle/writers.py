"""Who writes a summary for a loop: its own provider, another one, or a function of the caller's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from toolloop.core.freezing import frozen
from toolloop.core.jsontext import JSON
from toolloop.history.compaction import Strategy
from toolloop.providers.protocol import Request

if TYPE_CHECKING:
    from toolloop.handle.summarizing import Summarize
    from toolloop.history.summarizing import Summary


@frozen
class _Function:
    """A function that takes the messages to summarize. It has the face of a provider, and gives a text."""

    function: Callable[[list[JSON]], Any]
    summary: Summary

    def send(self, _request: Request) -> Any:
        return self.function(self.summary.messages())


class _AsyncFunction(_Function):
    """One that is awaited."""

    async def send(self, _request: Request) -> Any:
        return await self.function(self.summary.messages())


class _InThread(_Function):
    """An ordinary one, beside an event loop that must not wait for it."""

    async def send(self, _request: Request) -> Any:
        from anyio import to_thread  # noqa: PLC0415 - an async handle has loaded it

        work = partial(self.function, self.summary.messages())
        return await to_thread.run_sync(work, abandon_on_cancel=True)


def writer_of(strategy: Summarize, summary: Summary, *, is_async: bool) -> Any:
    """Who writes this summary; None: the loop's own provider."""
    function = strategy.function
    if function is None:
        return strategy.provider_for(is_async=is_async)
    if not is_async:
        return _Function(function, summary)
    return _AsyncFunction(function, summary) if strategy.awaits else _InThread(function, summary)


def refuse_misfits(strategies: Sequence[Strategy], *, is_async: bool) -> None:
    """Refuse strategies whose summaries a handle cannot wait for.

    Raises:
        TypeError: one has an async provider or function, and the handle is sync; or a sync provider, and it is async.

    """
    if not strategies:
        return
    from toolloop.handle.summarizing import Summarize  # noqa: PLC0415 - most loops never summarize

    for strategy in strategies:
        if not isinstance(strategy, Summarize):
            continue
        if strategy.function is not None and strategy.awaits and not is_async:
            raise TypeError("the function of Summarize is async, and ToolLoopHandle is not: use AsyncToolLoopHandle")
        strategy.provider_for(is_async=is_async)
