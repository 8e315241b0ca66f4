"""The ways in which a loop ends."""

from toolloop.machine.terminations import (
    BudgetExceeded,
    Failed,
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
    "Failed",
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
