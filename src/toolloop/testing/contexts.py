"""A tool's context, for a test that calls the tool without a loop."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, cast

from typing_extensions import TypeVar

from toolloop.tools.context import ToolContext

State = TypeVar("State", default=Any)


def tool_context(  # noqa: PLR0913 - everything that a tool can read
    state: State = cast("Any", None),  # noqa: B008 - None, for any type
    *,
    call_id: str = "toolu_1",
    loop_id: str = "loop_1",
    iteration: int = 1,
    depth: int = 1,
    idempotency_key: str = "key_1",
    cancelled: bool | Callable[[], bool] = False,
    lease_ends_at: datetime | None = None,
    report: Callable[[str | None, float | None, float | None], object] = lambda *_: None,
) -> ToolContext[State]:
    """Return a context like that of a call in a loop, so that a unit test can call a tool without a loop.

    Args:
        state: the object that the tool reads as `context.state`.
        call_id: as in `ToolContext`; so are the following.
        loop_id: the id of the loop.
        iteration: the number of the model request that proposed the call.
        depth: the depth for a loop that the tool starts.
        idempotency_key: the key of the run.
        cancelled: whether the call was cancelled, or a function that is called each time the tool asks.
        lease_ends_at: when another driver may take the loop over, an aware datetime; None without a store.
        report: called with `message`, `progress` and `total` of each report.

    """
    ends_at = None if lease_ends_at is None else lease_ends_at.timestamp()
    return ToolContext(
        call_id=call_id,
        loop_id=loop_id,
        iteration=iteration,
        depth=depth,
        idempotency_key=idempotency_key,
        state=state,
        cancelled=cancelled if callable(cancelled) else lambda: bool(cancelled),
        report=report,
        lease_ends_at=lambda: ends_at,
    )
