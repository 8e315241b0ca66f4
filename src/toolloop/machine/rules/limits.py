"""The limits of a loop: budget, depth, iterations, pauses and time, each with the termination that it causes.

A loop also counts the tokens, requests and tools of the loops inside its calls, but not their iterations and pauses.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, TypeVar

from attrs import fields, frozen

from toolloop._usage import Cost
from toolloop.errors import ProtocolError
from toolloop.machine.record.loop import Loop
from toolloop.machine.record.replies import ParsedReply
from toolloop.machine.values.setup import Budget
from toolloop.terminations import BudgetExceeded, MaxIterations, PauseLimit, Termination, Timeout

N = TypeVar("N", int, float)
_BUDGET_PARTS = tuple(part.name for part in fields(Budget))
_UNLIMITED = Budget()
_USAGE = ("input_tokens", "output_tokens", "total_tokens", "cost")
# The parts that keep a tool from starting, and those that keep a loop inside a call from sending a request.
BEFORE_TOOLS = ("tool_calls",)
BEFORE_REQUESTS_BELOW = ("requests", *_USAGE)


@frozen
class Room:
    """How many requests and tools the loops above a loop allow; None means no limit."""

    requests: int | None = None
    tools: int | None = None


ANY = Room()


def is_too_deep(loop: Loop) -> bool:
    """Return whether the loop is nested too deep to make its first request."""
    limit = loop.setup.limits.max_depth
    return limit is not None and loop.iterations == 0 and loop.setup.depth >= limit


def find_request_limit(loop: Loop) -> Termination | None:
    """Return the limit that forbids the next request of the loop, or None."""
    if reached := find_time_limit(loop) or find_budget_limit(loop):
        return reached
    limits = loop.setup.limits
    if limits.max_iterations is not None and loop.turn_iterations >= limits.max_iterations:
        return MaxIterations(limits.max_iterations)
    if limits.max_pauses is not None and loop.pauses > limits.max_pauses:
        return PauseLimit(limits.max_pauses)
    return None


def refuse_too_many_calls(loop: Loop, reply: ParsedReply) -> None:
    """Refuse a reply with more client calls than the loop allows.

    Raises:
        ProtocolError: it has more.

    """
    limit = loop.setup.limits.max_calls_per_reply
    count = sum(block["type"] == "tool_use" for block in reply.blocks)
    if limit is not None and count > limit:
        raise ProtocolError(
            f"the reply has {count} calls, and the limit is {limit}, so none of them runs. Call retry() for another "
            "reply, or open the loop with a higher LoopConfig.max_calls_per_reply"
        )


def find_time_limit(loop: Loop) -> Timeout | None:
    """Return the time limit if it is reached. Nothing starts then, and the loop does not wait for running calls."""
    timeout = loop.setup.limits.timeout
    return None if timeout is None or loop.active < timeout else Timeout(timeout)


def find_budget_limit(loop: Loop, parts: tuple[str, ...] = _BUDGET_PARTS) -> BudgetExceeded | None:
    """Return the first of these parts of the budget that is spent, or None."""
    if loop.setup.limits.budget == _UNLIMITED:
        return None
    return next(filter(None, (_check_budget(loop, what) for what in parts)), None)


def count_tools_left(loop: Loop) -> int | None:
    """Return how many more tools the budget allows in the loop and inside its calls; None means no limit."""
    limit = loop.setup.limits.budget.tool_calls
    return None if limit is None else max(0, limit - len(loop.started))


def count_requests_left(loop: Loop, in_progress: int) -> int | None:
    """Return how many more requests the budget allows inside the calls of a loop; None means no limit.

    Args:
        loop: the loop with the calls.
        in_progress: how many requests are in progress inside them. They count as answered; their tokens are unknown.

    """
    budget = loop.setup.limits.budget
    if any(_check_budget(loop, what) for what in _USAGE):
        return 0
    if budget.requests is None:
        return None
    return max(0, budget.requests - len(loop.usage_log) - in_progress)


def take_lesser(one: N | None, other: N | None) -> N | None:
    """Return the lesser of two limits; None means no limit."""
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def count_spent(loop: Loop, what: str) -> int | Decimal:
    """Return how much of one part of the budget is spent, by the loop and inside its calls."""
    match what:
        case "cost":
            return (loop.total_usage.cost or Cost()).dollars
        case "requests":
            return len(loop.usage_log)
        case "tool_calls":
            return len(loop.started)
        case "input_tokens":
            return loop.total_usage.total_input_tokens
        case "output_tokens":
            return loop.total_usage.output_tokens
        case _:
            return loop.total_usage.total_tokens


def _check_budget(loop: Loop, what: str) -> BudgetExceeded | None:
    limit: int | Decimal | None = getattr(loop.setup.limits.budget, what)
    if limit is None or ((used := count_spent(loop, what)) < limit and not (what == "cost" and _is_unpriced(loop))):
        return None
    return BudgetExceeded(what, limit, used)


def _is_unpriced(loop: Loop) -> bool:
    """Return whether a model without a price has answered, so that the cost of the loop is unknown."""
    return loop.total_usage.cost is not None and bool(loop.total_usage.cost.unpriced)


def count_left(loop: Loop) -> dict[str, int | float | None]:
    """Return the remainder of each limit, at least zero; None means no limit."""
    limits = loop.setup.limits
    rest: dict[str, Any] = {
        "iterations": _subtract(limits.max_iterations, loop.turn_iterations),
        "pauses": _subtract(limits.max_pauses, max(0, loop.pauses - 1)),
        "seconds": _subtract(limits.timeout, loop.active),
    }
    rest |= {what: _subtract(getattr(limits.budget, what), count_spent(loop, what)) for what in _BUDGET_PARTS}
    return {what: float(value) if isinstance(value, Decimal) else value for what, value in rest.items()}


def _subtract(limit: Any, used: Any) -> Any:
    """Return the remainder of a limit, of the type of the limit."""
    return None if limit is None else max(type(limit)(0), limit - used)
