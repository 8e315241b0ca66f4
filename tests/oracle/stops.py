"""The stop reasons: all of the API's words in one table, and what each means for the loop.

Source: `StopReason` and `BetaStopReason` of anthropic-sdk; a test compares the table with them, so that a new reason
fails the build instead of a user's loop.
"""

from __future__ import annotations

from enum import Enum

from tests.oracle.errors import ProtocolError
from tests.oracle.replies import Reply


class Fate(Enum):
    """What becomes of a reply, and of the loop."""

    RUN = "its calls are to be run"
    END = "it ends the loop"
    PAUSE = "it is to be sent back, so that the server goes on"
    CUT = "it was cut off: no call in it may run"
    REFUSE = "it is a refusal: nothing of it joins the history"


RUN, END, PAUSE, CUT, REFUSE = Fate  # for what every reply asks: see the statuses in `values`

STOP_REASONS: dict[str, Fate] = {
    "tool_use": RUN,
    "end_turn": END,
    "stop_sequence": END,
    "pause_turn": PAUSE,
    "compaction": PAUSE,
    "max_tokens": CUT,
    "model_context_window_exceeded": CUT,
    "refusal": REFUSE,
}


def fate_of(reply: Reply) -> Fate:
    """What becomes of a reply. An unknown stop reason ends the loop: nothing runs on a word nobody has read.

    Raises:
        ProtocolError: there is no stop reason, or it is `tool_use` and there is no call.

    """
    if reply.stop_reason is None:
        raise ProtocolError("the reply has no stop reason: it was cut off on the way", retryable=True)
    fate = STOP_REASONS.get(reply.stop_reason, END)
    if fate is not RUN and fate is not PAUSE:
        return fate
    for block in reply.blocks:
        if block["type"] == "tool_use":
            return RUN
    if fate is RUN:
        raise ProtocolError("the reply stopped for tool_use and has no tool_use block", retryable=True)
    return fate
