"""Split a history into rounds, and find the open calls of its last turn."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from toolloop._messages.reading import (
    SERVER_CALLS,
    Run,
    blocks_of,
    drop_compacted,
    find_unanswered_server_calls,
    is_directive,
    is_made_by_code,
    is_server_result,
    read_text,
    role_of,
    runs_of,
)
from toolloop._public import set_module


@set_module("toolloop.history")
def rounds(messages: Sequence[Any]) -> list[list[Any]]:
    """Split a history into the smallest possible parts without splitting a round.

    These stay together:

    - adjacent messages of one role (the API reads them as one, so a paused reply stays with its resumption);
    - an assistant turn with calls and the user turn after it;
    - a server call and everything up to its result, or up to the end of its open turn;
    - a system message and the message before it.

    Args:
        messages: the history.

    Returns:
        The parts, in order. They hold the given objects.

    """
    runs = runs_of(messages)
    glued = _find_glued(runs)
    # The first messages of runs that may begin a part. The other messages stay with those before them.
    starts = {run.messages[0] for number, run in enumerate(runs) if number not in glued}
    parts: list[list[Any]] = []
    for index, message in enumerate(messages):
        if index in starts or not parts:
            parts.append([])
        parts[-1].append(message)
    return parts


def _find_glued(runs: list[Run]) -> set[int]:
    """Return the runs that must stay with the run before them."""
    glued = {number for number, run in enumerate(runs) if run.role == "system"}
    calls_wait = False
    # The last run that belongs to the server calls so far.
    reach = -1
    ends = _ends_of_server_calls(runs)
    for number, run in enumerate(runs):
        if number <= reach or (calls_wait and run.role == "user"):
            glued.add(number)
        if run.role != "system":
            calls_wait = run.role == "assistant" and "tool_use" in run.kinds
        reach = max(reach, ends.get(number, -1))
    return glued


def _ends_of_server_calls(runs: list[Run]) -> dict[int, int]:
    """Return, for each run with a server call, the last run that belongs to its calls."""
    ends: dict[int, int] = {}
    begun: dict[str, int] = {}
    for number, run in enumerate(runs):
        for spot in run.spots:
            call = read_text(spot.block, "id") or ""
            answered = read_text(spot.block, "tool_use_id") or ""
            if spot.kind in SERVER_CALLS:
                begun[call] = number
            elif is_server_result(spot.kind) and answered in begun:
                start = begun.pop(answered)
                ends[start] = max(ends.get(start, -1), number)
    closing = [number for number, run in enumerate(runs) if run.role == "user" and not run.results_only]
    for start in begun.values():
        # Without a result: in flight until a user turn closes it, or to the end.
        after = bisect_right(closing, start)
        last = closing[after] if after < len(closing) else len(runs)
        ends[start] = max(ends.get(start, -1), last - 1)
    return ends


@set_module("toolloop.history")
def open_server_calls(messages: Sequence[Any]) -> frozenset[str]:
    """Return the ids of `server_tool_use` and `mcp_tool_use` blocks without a later result.

    While a server call is open, the next message must be a user message with only results (source: rule 23 of the API
    notes; recorded requests).
    """
    return frozenset(find_unanswered_server_calls(drop_compacted(runs_of(messages))))


@set_module("toolloop.history")
def open_code_calls(messages: Sequence[Any]) -> bool:
    """Return whether code execution made calls of the last assistant turn.

    If so, the user turn after it may hold only results. This includes a history that already ends in the results: the
    API would merge a further user message with them (source: the documentation on programmatic tool calling).
    """
    seen = False
    for message in reversed(messages):
        role = role_of(message)
        if role == "assistant":
            seen = True
            if any(kind == "tool_use" and is_made_by_code(block) for _, block, kind in blocks_of(message)):
                return True
        elif seen and role is not None and not is_directive(message):
            break
    return False
