"""Budget, depth, iterations, pauses, time: pure questions to a state, each with the termination it would cause.

A loop counts what the loops inside its calls use as its own: tokens, requests, tools; but no iterations and no pauses.
"""

from __future__ import annotations

from attrs import fields

from tests.oracle.setup import Budget
from tests.oracle.states import Ledger, Ready, Requesting, Running, State
from tests.oracle.terminations import BudgetExceeded, MaxIterations, PauseLimit, Termination, Timeout
from tests.oracle.tree import children, has_inside, is_at_work, loops, open_round

_BUDGET_PARTS = tuple(part.name for part in fields(Budget))
_TOKENS = ("input_tokens", "output_tokens", "total_tokens")
# Which parts forbid that a tool starts, and which a request of a loop inside a call: a tool that was begun may end.
BEFORE_TOOLS = ("tool_calls",)
BEFORE_REQUESTS_BELOW = ("requests", *_TOKENS)


def too_deep(ledger: Ledger) -> bool:
    """Whether the loop is nested too deep to make its first request."""
    limit = ledger.setup.limits.max_depth
    return limit is not None and ledger.iterations == 0 and ledger.setup.depth >= limit


def before_request(state: Ready) -> Termination | None:
    """The limit of the loop that forbids its next request, or None."""
    ledger = state.ledger
    if reached := out_of_time(ledger) or over_budget(ledger):
        return reached
    limits = ledger.setup.limits
    if limits.max_iterations is not None and ledger.turn_iterations >= limits.max_iterations:
        return MaxIterations(limits.max_iterations)
    if limits.max_pauses is not None and ledger.pauses > limits.max_pauses:
        return PauseLimit(limits.max_pauses)
    return None


def out_of_time(ledger: Ledger) -> Timeout | None:
    """The limit of time, if it is reached. Then nothing starts, and what is under way is left behind."""
    timeout = ledger.setup.limits.timeout
    return None if timeout is None or ledger.active < timeout else Timeout(timeout)


def over_budget(ledger: Ledger, parts: tuple[str, ...] = _BUDGET_PARTS) -> BudgetExceeded | None:
    """The first of these parts of the budget that is spent, if any is."""
    if not has_budget(ledger):
        return None
    return next(filter(None, (_over_budget(ledger, what) for what in parts)), None)


def has_budget(ledger: Ledger) -> bool:
    """Whether any part of the budget has a limit. Most loops have none, and every request asks."""
    budget = ledger.setup.limits.budget
    tokens = budget.input_tokens is budget.output_tokens is budget.total_tokens is None
    return not (tokens and budget.requests is budget.tool_calls is None)


def room_for_tools(ledger: Ledger) -> int | None:
    """How many more tools the budget lets start, in the loop and inside its calls; None is no limit."""
    limit = ledger.setup.limits.budget.tool_calls
    return None if limit is None else max(0, limit - len(ledger.ran))


def room_for_requests(state: Running) -> int | None:
    """How many more requests the budget lets go out inside the calls of a loop; None is no limit.

    Those that are under way count as answered. What they use up besides is not known before they are.
    """
    ledger = state.ledger
    budget = ledger.setup.limits.budget
    if any(_over_budget(ledger, what) for what in _TOKENS):
        return 0
    if budget.requests is None:
        return None
    under_way = sum(isinstance(loop, Requesting) for _, loop in loops(state))
    return max(0, budget.requests - len(ledger.usage_log) - under_way)


def lesser(one: int | None, other: int | None) -> int | None:
    """The lesser of two limits; None is no limit."""
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def time_left(state: State) -> float | None:
    """In how many seconds the next loop of the tree that is at work has used up its time; None: none ever does."""
    if not is_at_work(state):  # nor is any inside of its calls: time stands still for them, too
        return None
    timeout = state.ledger.setup.limits.timeout
    own = None if timeout is None or timeout <= state.ledger.active else timeout - state.ledger.active
    round_ = open_round(state)
    if round_ is None or not has_inside(round_):
        return own
    times = (own, *(time_left(child) for _, child in children(round_)))
    return min((seconds for seconds in times if seconds is not None), default=None)


def spent(ledger: Ledger, what: str) -> int:
    """How much of a part of the budget is spent, by the loop and inside its calls."""
    match what:
        case "requests":
            return len(ledger.usage_log)
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
