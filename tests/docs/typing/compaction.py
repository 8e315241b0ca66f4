"""What type checkers see of strategies: mypy and pyright check this file, nothing runs it."""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from typing import Any, assert_type

from anthropic import Anthropic
from anthropic.types import MessageParam

from toolloop.compaction import DropRounds, MaskResults, Summarize


def summary_of(messages: list[Any]) -> str:
    return str(messages)


def uses(client: Anthropic, messages: list[MessageParam]) -> None:
    assert_type(MaskResults()(messages), list[Any])
    assert_type(DropRounds(3, at_tokens=9)(messages), list[Any])
    assert_type(Summarize(client, 2, at_tokens=90_000, params={"max_tokens": 100})(messages), Any)
    Summarize(summary_of, keep_last=2, prompt="What was that?")
    DropRounds()  # type: ignore[call-arg]
    DropRounds("3")  # type: ignore[arg-type]
    DropRounds(3, 4)  # type: ignore[call-arg]
    MaskResults(2, "500")  # type: ignore[arg-type]
    Summarize(params=3)  # type: ignore[arg-type]
    DropRounds(3)(3)  # type: ignore[arg-type]
