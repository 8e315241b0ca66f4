"""How a loop ends. A failure is not an end: it is reported as an `Error`, and in a result as `Failed`."""

from __future__ import annotations

from typing import ClassVar

from attrs import frozen


@frozen
class NaturalEnd:
    """The model had nothing more to ask for."""

    kind: ClassVar[str] = "complete"


@frozen
class StopCondition:
    """The caller, or `stop_when`, ended the loop."""

    kind: ClassVar[str] = "stop_condition"
    reason: str | None = None


@frozen
class MaxIterations:
    """As many requests were answered in this user turn as `max_iterations` allows."""

    kind: ClassVar[str] = "max_iterations"
    limit: int


@frozen
class PauseLimit:
    """The model paused, and was resumed, as many times in a row as `max_pauses` allows."""

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
    """The loop was active for as many seconds, in this user turn, as `timeout` allows."""

    kind: ClassVar[str] = "timeout"
    limit: float


@frozen
class BudgetExceeded:
    """A part of the budget is spent. `what` names the field of `Budget`."""

    kind: ClassVar[str] = "budget_exceeded"
    what: str
    limit: int
    spent: int


@frozen
class Truncated:
    """The reply was cut off: at `max_tokens`, or at the end of the context window."""

    kind: ClassVar[str] = "truncated"
    stop_reason: str


@frozen
class Refused:
    """The model refused. `category` and `explanation` are the API's words, where it gave any."""

    kind: ClassVar[str] = "refused"
    category: str | None = None
    explanation: str | None = None


@frozen
class Unfinished:
    """The loop has not ended."""

    kind: ClassVar[str] = "unfinished"


@frozen
class Failed:
    """The last turn was an `Error`. Only in what `into_result()` returns: a failed loop may still go on."""

    kind: ClassVar[str] = "failed"
    error: Exception


# How a loop ends. `Failed` is not among them: it is never stored.
Termination = (
    NaturalEnd
    | StopCondition
    | MaxIterations
    | PauseLimit
    | LoopDetected
    | Timeout
    | BudgetExceeded
    | Truncated
    | Refused
    | Unfinished
)

# The ends that a limit caused: after one of these, `extend` lets the loop go on where it stopped.
LIMITS = (MaxIterations, PauseLimit, Timeout, BudgetExceeded)
