"""The stop reasons: all of the API's words in one table, and what each means for the loop.

Source: `StopReason` and `BetaStopReason` of anthropic-sdk; a test compares the table with them, so that a new reason
fails the build instead of a user's loop.
"""

from __future__ import annotations

from enum import Enum

from toolloop.core.errors import ProtocolError
from toolloop.core.replies import Reply


class Fate(Enum):
    """What becomes of a reply, and of the loop."""

    RUN = "its calls are to be run"
    END = "it ends the loop"
    PAUSE = "it is to be sent back, so that the server goes on"
    CUT = "it was cut off: no call in it may run"
    REFUSE = "it is a refusal: nothing of it joins the history"


STOP_REASONS: dict[str, Fate] = {
    "tool_use": Fate.RUN,
    "end_turn": Fate.END,
    "stop_sequence": Fate.END,
    "pause_turn": Fate.PAUSE,
    "compaction": Fate.PAUSE,
    "max_tokens": Fate.CUT,
    "model_context_window_exceeded": Fate.CUT,
    "refusal": Fate.REFUSE,
}


def fate_of(reply: Reply) -> Fate:
    """What becomes of a reply. An unknown stop reason ends the loop: nothing runs on a word nobody has read.

    Raises:
        ProtocolError: there is no stop reason, or it is `tool_use` and there is no call.

    """
    if reply.stop_reason is None:
        raise ProtocolError("the reply has no stop reason: it was cut off on the way", retryable=True)
    fate = STOP_REASONS.get(reply.stop_reason, Fate.END)
    has_calls = any(block["type"] == "tool_use" for block in reply.blocks)
    if fate is Fate.RUN and not has_calls:
        raise ProtocolError("the reply stopped for tool_use and has no tool_use block", retryable=True)
    if fate is Fate.PAUSE and has_calls:
        return Fate.RUN
    return fate
