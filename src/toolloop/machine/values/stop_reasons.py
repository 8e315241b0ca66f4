"""The stop reasons of the API, and the action of the loop for each.

Source: `StopReason` and `BetaStopReason` of anthropic-sdk. A test compares the table with them, so a new reason fails
the build and not a user's loop.
"""

from __future__ import annotations

from enum import Enum


class ReplyAction(Enum):
    """How the loop handles a reply."""

    RUN = "run its calls"
    END = "end the loop"
    PAUSE = "send it back, so that the server continues"
    CUT = "end the loop: it was cut off, and no call in it may run"
    REFUSE = "end the loop: it is a refusal, and does not join the history"


RUN, END, PAUSE, CUT, REFUSE = ReplyAction

STOP_REASONS: dict[str, ReplyAction] = {
    "tool_use": RUN,
    "end_turn": END,
    "stop_sequence": END,
    "pause_turn": PAUSE,
    "compaction": PAUSE,
    "max_tokens": CUT,
    "model_context_window_exceeded": CUT,
    "refusal": REFUSE,
}
