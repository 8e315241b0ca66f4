"""What a caller may ask of a loop between its turns that takes a request: a compaction by hand, a count of tokens."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, cast

from toolloop.handle.tasks import AsyncDriving
from toolloop.handle.threads import SyncDriving
from toolloop.handle.watching import Compacted
from toolloop.history.compaction import EditStrategy, Strategy


class SyncByHand(SyncDriving):
    """For the sync handle."""

    def count_tokens(self) -> int:
        """How many input tokens the next request has, by the API's own count. Calls that are open count as answered.

        `toolloop.history.estimate_tokens` asks nobody.

        Raises:
            TypeError: the provider counts no tokens.
            IllegalCommand: a turn is in progress.
            ModelError: the request failed.

        """
        with self._driving("count_tokens()"):
            tokens: int = self._counter().count_tokens(self._to_count())
            return tokens

    def _compact_now(self, strategy: Strategy) -> Compacted:
        """Compact the history by hand: what `strategy(handle)` does."""
        with self._driving(f"{strategy.name}(handle)"):
            begun = self._begin_by_hand(strategy)
            if isinstance(begun, Compacted):
                return begun
            try:
                came = (begun.provider or self._provider).send(begun.request)
            except Exception as error:  # noqa: BLE001 - whatever it was, there is no summary
                return self._end_by_hand(begun, error)
            return self._end_by_hand(begun, came)


class AsyncByHand(AsyncDriving):
    """For the async handle."""

    async def count_tokens(self) -> int:
        """How many input tokens the next request has, by the API's own count. See `ToolLoopHandle.count_tokens`."""
        with self._driving("count_tokens()"):
            tokens: int = await self._counter().count_tokens(self._to_count())
            return tokens

    def _compact_now(self, strategy: Strategy) -> Compacted | Coroutine[Any, Any, Compacted]:
        """Compact the history by hand: what `strategy(handle)` does. What needs a summary is awaited."""
        if not isinstance(strategy, EditStrategy):
            return self._summarize_now(strategy)
        with self._driving(f"{strategy.name}(handle)"):
            return cast("Compacted", self._begin_by_hand(strategy))  # it needs no summary

    async def _summarize_now(self, strategy: Strategy) -> Compacted:
        with self._driving(f"{strategy.name}(handle)"):
            begun = self._begin_by_hand(strategy)
            if isinstance(begun, Compacted):
                return begun
            try:
                came = await (begun.provider or self._provider).send(begun.request)
            except Exception as error:  # noqa: BLE001 - whatever it was, there is no summary
                return self._end_by_hand(begun, error)
            return self._end_by_hand(begun, came)
