"""Budget, depth, iterations, pauses, time: pure questions to a state, each with the termination it would cause."""

from __future__ import annotations

from attrs import fields

from toolloop.core.setup import Budget
from toolloop.core.states import Ledger, Ready
from toolloop.core.terminations import BudgetExceeded, MaxIterations, PauseLimit, Termination, Timeout

_BUDGET_PARTS = tuple(part.name for part in fields(Budget))


def too_deep(ledger: Ledger) -> bool:
    """Whether the loop is nested too deep to make its first request."""
    limit = ledger.setup.limits.max_depth
    return limit is not None and ledger.iterations == 0 and ledger.setup.depth >= limit


def before_request(state: Ready) -> Termination | None:
    """The limit that forbids the next request, or None."""
    ledger = state.ledger
    limits = ledger.setup.limits
    if limits.timeout is not None and ledger.active >= limits.timeout:
        return Timeout(limits.timeout)
    for what in _BUDGET_PARTS:
        if getattr(limits.budget, what) is not None and (over := _over_budget(ledger, what)) is not None:
            return over
    if limits.max_iterations is not None and ledger.turn_iterations >= limits.max_iterations:
        return MaxIterations(limits.max_iterations)
    if limits.max_pauses is not None and ledger.pauses > limits.max_pauses:
        return PauseLimit(limits.max_pauses)
    return None


def before_tool(ledger: Ledger) -> Termination | None:
    """The limit that forbids another tool to start, or None."""
    limits = ledger.setup.limits
    if limits.timeout is not None and ledger.active >= limits.timeout:
        return Timeout(limits.timeout)
    return _over_budget(ledger, "tool_calls")


def room_for_tools(ledger: Ledger, *, running: int) -> int | None:
    """How many more tools may start at this moment; None is no limit."""
    setup = ledger.setup
    rooms = []
    if setup.max_parallel_tools is not None:
        rooms.append(max(0, setup.max_parallel_tools - running))
    if setup.limits.budget.tool_calls is not None:
        rooms.append(max(0, setup.limits.budget.tool_calls - len(ledger.ran)))
    return min(rooms, default=None)


def spent(ledger: Ledger, what: str) -> int:
    """How much of a part of the budget is spent."""
    match what:
        case "requests":
            return ledger.iterations
        case "tool_calls":
            return len(ledger.ran)
        case "input_tokens":
            return ledger.total_usage.total_input_tokens
        case "output_tokens":
            return ledger.total_usage.output_tokens
        case _:
            return ledger.total_usage.total_tokens


def _over_budget(ledger: Ledger, what: str) -> BudgetExceeded | None:
    limit: int | None = getattr(ledger.setup.limits.budget, what)
    if limit is None or (used := spent(ledger, what)) < limit:
        return None
    return BudgetExceeded(what, limit, used)


def left(ledger: Ledger) -> dict[str, int | float | None]:
    """What is left of each limit; None where there is none. Never below zero."""
    limits = ledger.setup.limits
    rest: dict[str, int | float | None] = {
        "iterations": _rest(limits.max_iterations, ledger.turn_iterations),
        "pauses": _rest(limits.max_pauses, max(0, ledger.pauses - 1)),
        "seconds": _rest(limits.timeout, ledger.active),
    }
    return rest | {what: _rest(getattr(limits.budget, what), spent(ledger, what)) for what in _BUDGET_PARTS}


def _rest(limit: float | None, used: float) -> float | None:
    return None if limit is None else max(0, limit - used)
