"""Whether the API would take a history."""

from __future__ import annotations

from typing import Any

from toolloop.history.images import check_images
from toolloop.history.pairing import check_open_calls, check_pairing
from toolloop.history.parameters import check_parameters, check_references
from toolloop.history.reading import after_compaction, runs_of
from toolloop.history.rules import Findings, Problem
from toolloop.history.shape import check_shape
from toolloop.history.turns import check_turns


def check(messages: Any, *, model: str | None = None, tools: Any = None, thinking: Any = None) -> list[Problem]:
    """Find what the API would refuse in a history, as far as that can be known without it.

    The history is judged as what a request would send: one that ends in an assistant message is refused by models that
    take no prefill. Never raises, whatever it is given; the time it takes grows with the history, not faster.

    Args:
        messages: plain JSON values; indices in the problems are those of this list.
        model: the id of the model; without it, or if it is unknown, what depends on the model is not judged.
        tools: the definitions that go with it; None means unknown.
        thinking: the `thinking` parameter of the request.

    Returns:
        The problems, those of tools and thinking first, then those of shape. Those of the level `error` are certain.

    """
    findings = Findings()
    check_parameters(findings, model=model, tools=tools, thinking=thinking)
    check_shape(messages, findings)
    if isinstance(messages, list | tuple):
        runs = runs_of(messages)
        check_pairing(after_compaction(runs), findings)
        check_turns(messages, runs, findings, model=model, tools=tools, thinking=thinking)
        check_references(runs, findings, tools=tools)
        check_open_calls(after_compaction(runs), findings, tools=tools)
        check_images(runs, findings, model=model)
    return findings.problems
