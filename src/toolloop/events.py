"""What happened, for those who watch: on each result, and for `LoopConfig.observers`."""

from toolloop.handle.watching import (
    BlocksLeftOut,
    CallDecided,
    CallFinished,
    CallProposed,
    CallStarted,
    CallWaiting,
    HistoryReplaced,
    LoopFinished,
    MessageHeld,
    RequestAnswered,
    RequestFailed,
    RequestStarted,
    WatchEvent,
)

__all__ = [
    "BlocksLeftOut",
    "CallDecided",
    "CallFinished",
    "CallProposed",
    "CallStarted",
    "CallWaiting",
    "HistoryReplaced",
    "LoopFinished",
    "MessageHeld",
    "RequestAnswered",
    "RequestFailed",
    "RequestStarted",
    "WatchEvent",
]
