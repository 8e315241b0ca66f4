"""What happened, for those who watch: on each result, and for `LoopConfig.observers`."""

from toolloop.handle.watching import (
    BlocksLeftOut,
    CallDecided,
    CallFinished,
    CallProgress,
    CallProposed,
    CallStarted,
    CallWaiting,
    HistoryReplaced,
    LoopDetected,
    LoopFinished,
    MessageHeld,
    RequestAnswered,
    RequestFailed,
    RequestStarted,
    ResultFiltered,
    WatchEvent,
)

__all__ = [
    "BlocksLeftOut",
    "CallDecided",
    "CallFinished",
    "CallProgress",
    "CallProposed",
    "CallStarted",
    "CallWaiting",
    "HistoryReplaced",
    "LoopDetected",
    "LoopFinished",
    "MessageHeld",
    "RequestAnswered",
    "RequestFailed",
    "RequestStarted",
    "ResultFiltered",
    "WatchEvent",
]
