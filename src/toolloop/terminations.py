"""How a loop ends."""

from toolloop.core.terminations import (
    BudgetExceeded,
    LoopDetected,
    MaxIterations,
    NaturalEnd,
    PauseLimit,
    Refused,
    StopCondition,
    Termination,
    Timeout,
    Truncated,
    Unfinished,
)

__all__ = [
    "BudgetExceeded",
    "LoopDetected",
    "MaxIterations",
    "NaturalEnd",
    "PauseLimit",
    "Refused",
    "StopCondition",
    "Termination",
    "Timeout",
    "Truncated",
    "Unfinished",
]
