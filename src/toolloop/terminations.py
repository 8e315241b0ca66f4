"""The ways in which a loop ends. A failure is not an end: it is reported as an `Error`, and in a result as `Failed`."""

from __future__ import annotations

from decimal import Decimal
from typing import ClassVar

from attrs import frozen

__all__ = [
    "LIMITS",
    "BudgetExceeded",
    "Expired",
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


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


@frozen
class NaturalEnd:
    """The model ended its turn without a call."""

    kind: ClassVar[str] = "complete"


@frozen
class StopCondition:
    """The caller, or `stop_when`, ended the loop."""

    kind: ClassVar[str] = "stop_condition"
    reason: str | None = None


@frozen
class MaxIterations:
    """The number of answered requests in this user turn reached `max_iterations`."""

    kind: ClassVar[str] = "max_iterations"
    limit: int


@frozen
class PauseLimit:
    """The model paused, and was resumed, `max_pauses` times in a row."""

    kind: ClassVar[str] = "pause_limit"
    limit: int


@frozen
class LoopDetected:
    """The model repeated itself."""

    kind: ClassVar[str] = "loop_detected"
    tool_name: str
    count: int


@frozen
class Timeout:
    """The active time in this user turn reached `timeout`, in seconds."""

    kind: ClassVar[str] = "timeout"
    limit: float


@frozen
class BudgetExceeded:
    """A part of the budget is spent. `what`: the name of the field of `Budget`; a cost is a `Decimal`, in dollars."""

    kind: ClassVar[str] = "budget_exceeded"
    what: str
    limit: int | Decimal
    spent: int | Decimal


@frozen
class Truncated:
    """The reply was cut off: at `max_tokens`, or at the end of the context window."""

    kind: ClassVar[str] = "truncated"
    stop_reason: str


@frozen
class InvalidOutput:
    """The answer does not fit the class of `LoopConfig(output=...)`. `problems`: a text for each field."""

    kind: ClassVar[str] = "invalid_output"
    problems: tuple[str, ...]


@frozen
class Expired:
    """A call of this tool got no decision before its deadline, and the loop has `on_expiry="stop"`."""

    kind: ClassVar[str] = "expired"
    tool_name: str


@frozen
class Refused:
    """The model refused. `category` and `explanation`: as the API gave them, or None."""

    kind: ClassVar[str] = "refused"
    category: str | None = None
    explanation: str | None = None


@frozen
class Unfinished:
    """The loop has not ended."""

    kind: ClassVar[str] = "unfinished"


@frozen
class Failed:
    """The last turn was an `Error`. Used only by `into_result()`, because a failed loop may still continue."""

    kind: ClassVar[str] = "failed"
    error: Exception


# `Failed` is not included, because it is never stored.
Termination = (
    NaturalEnd
    | StopCondition
    | MaxIterations
    | PauseLimit
    | LoopDetected
    | Timeout
    | BudgetExceeded
    | Truncated
    | InvalidOutput
    | Expired
    | Refused
    | Unfinished
)

# The ends caused by a limit. After one of these, `extend` continues the loop where it stopped.
LIMITS = (MaxIterations, PauseLimit, Timeout, BudgetExceeded)
