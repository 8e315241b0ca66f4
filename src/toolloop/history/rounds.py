"""Where a history may be cut."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from toolloop.history.reading import SERVER_CALLS, Run, is_server_result, runs_of, text_key


def rounds(messages: Sequence[Any]) -> list[list[Any]]:
    """Part a history so that no cut falls inside a round; put together again, the parts give the messages.

    Kept together: messages of one role in a row (the API reads them as one; so a paused reply stays with its resume);
    an assistant turn with calls and the user turn after it; a server call and all up to its result, or as long as its
    turn is open; a system message and what it follows. Each part is as small as that allows. The messages are the same
    objects.
    """
    runs = runs_of(messages)
    glued = _glued(runs)
    # The first message of each run at which a new part may begin; all others stay with what is before them.
    starts = {run.messages[0] for number, run in enumerate(runs) if number not in glued}
    parts: list[list[Any]] = []
    for index, message in enumerate(messages):
        if index in starts or not parts:
            parts.append([])
        parts[-1].append(message)
    return parts


def _glued(runs: list[Run]) -> set[int]:
    """The runs that belong to the run before them."""
    glued = {number for number, run in enumerate(runs) if run.role == "system"}
    calls_wait = False
    # How far the server calls seen so far reach.
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
    """For each run with a server call: the last run that its calls reach."""
    ends: dict[int, int] = {}
    begun: dict[str, int] = {}
    for number, run in enumerate(runs):
        for spot in run.spots:
            call = text_key(spot.block, "id") or ""
            answered = text_key(spot.block, "tool_use_id") or ""
            if spot.kind in SERVER_CALLS:
                begun[call] = number
            elif is_server_result(spot.kind) and answered in begun:
                start = begun.pop(answered)
                ends[start] = max(ends.get(start, -1), number)
    closing = [number for number, run in enumerate(runs) if run.role == "user" and not run.results_only]
    for start in begun.values():
        # Unanswered: in flight until a user turn closes it, or to the end.
        after = bisect_right(closing, start)
        last = closing[after] if after < len(closing) else len(runs)
        ends[start] = max(ends.get(start, -1), last - 1)
    return ends
