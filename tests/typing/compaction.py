"""What type checkers see of strategies: mypy checks this file, nothing runs it."""

from __future__ import annotations

from typing import Any, assert_type

from anthropic import Anthropic
from anthropic.types import MessageParam

from toolloop.compaction import DropRounds, MaskResults, Summarize


class Handle:
    def _compact_now(self, strategy: object) -> int:
        return 3


def pinned(message: dict[str, Any]) -> bool:
    return bool(message["content"])


def summary_of(messages: list[Any]) -> str:
    return str(messages)


def uses(client: Anthropic, messages: list[MessageParam], handle: Handle) -> None:
    assert_type(MaskResults()(messages), list[Any])
    assert_type(DropRounds(3, pinned=pinned)(messages), list[Any])
    assert_type(DropRounds(3)(handle), int)
    assert_type(Summarize(client, 2, 90_000, params={"max_tokens": 100})(handle), int)
    Summarize(summary_of, keep_last=2, prompt="What was that?")
    DropRounds()  # type: ignore[call-arg]
    DropRounds("3")  # type: ignore[arg-type]
    DropRounds(3, 4)  # type: ignore[call-arg]
    MaskResults(2, 500, pinned=3)  # type: ignore[arg-type]
    Summarize(params=3)  # type: ignore[arg-type]
    DropRounds(3)(3)  # type: ignore[call-overload]
