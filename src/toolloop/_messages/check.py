"""Check whether the API would accept a history."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from toolloop._messages.pairing import check_open_calls, check_pairing, check_server_results
from toolloop._messages.parameters import check_parameters, check_references
from toolloop._messages.reading import drop_compacted, make_message_path, role_of, runs_of
from toolloop._messages.rules import Level, Problem, Problems
from toolloop._messages.shape import check_shape
from toolloop._messages.turn_order import check_turns
from toolloop._public import set_module
from toolloop.machine.values.jsontext import make_well_formed


@set_module("toolloop.history")
def check(  # noqa: PLR0913 - the parts of a request, by name
    messages: Any,
    *,
    model: str | None = None,
    tools: Any = None,
    thinking: Any = None,
    tool_choice: Any = None,
    max_tokens: int | None = None,
) -> list[Problem]:
    """Find the problems that would make the API refuse a history, as far as they can be found without the API.

    The history is checked as the messages of a request: a model without prefill refuses a history that ends in an
    assistant message. The check never raises for JSON values. Its time is linear in the size of the history.

    Args:
        messages: plain JSON values; the paths of problems refer to this list.
        model: the id of the model. Rules that depend on the model are checked only for known models.
        tools: the tool definitions of the request; None if unknown.
        thinking: the `thinking` parameter of the request.
        tool_choice: its `tool_choice`; None if unknown.
        max_tokens: its `max_tokens`; None if unknown.

    Returns:
        The problems: first those of tools and thinking, then of shapes, then of order. The API certainly refuses the
        problems of level `error`. If a message is not JSON, shapes and order are not checked.

    """
    findings = Problems()
    check_parameters(
        findings, model=model, tools=tools, thinking=thinking, tool_choice=tool_choice, max_tokens=max_tokens
    )
    if not isinstance(messages, (list, tuple)):
        check_shape(messages, findings)
    elif (plain := _as_json(messages, findings)) is not None:
        check_shape(plain, findings)
        findings.problems.extend(check_order(plain, model=model, tools=tools, thinking=thinking))
        check_references(runs_of(plain), findings, tools=tools)
    return findings.problems


def _as_json(messages: Sequence[Any], findings: Problems) -> list[Any] | None:
    """Return the messages as the API receives them; None if one of them is not JSON."""
    plain = []
    for number, message in enumerate(messages):
        try:
            text = json.dumps(message, ensure_ascii=False, allow_nan=False)
            plain.append(json.loads(make_well_formed(text)))
        except (TypeError, ValueError, RecursionError) as error:
            findings.add("not-encodable", make_message_path(number), f"the message is not JSON: {error}")
            continue
        if make_well_formed(text) != text:
            # A reply with one comes from the API, which accepts it again as an escape.
            level: Level = "warning" if role_of(message) == "assistant" else "error"
            findings.add("not-encodable", make_message_path(number), "a text has a lone surrogate", level=level)
    return plain if len(plain) == len(messages) else None


def check_order(messages: list[Any], *, model: Any = None, tools: Any = None, thinking: Any = None) -> list[Problem]:
    """Check the order of messages and blocks, and that each call has its result."""
    findings = Problems()
    runs = runs_of(messages)
    live = drop_compacted(runs)
    check_pairing(live, findings)
    check_server_results(runs, live, findings)
    check_turns(messages, runs, findings, model=model, tools=tools, thinking=thinking)
    check_open_calls(live, findings, tools=tools)
    return findings.problems
