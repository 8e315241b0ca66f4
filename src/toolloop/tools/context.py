"""`ToolContext`: information about the current call, for tools."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Generic, Protocol, cast

from attrs import field, frozen
from typing_extensions import TypeVar

from toolloop._public import set_module
from toolloop._usage import IterationUsage

Report = Callable[[str | None, float | None, float | None], object]
State_co = TypeVar("State_co", covariant=True, default=Any)


def _ignore(*_: object) -> None:
    """Ignore a report."""


class Context(Protocol):
    """The context of a loop: any object with a `depth`. Tools can read its `state`, if it has one."""

    @property
    def depth(self) -> int:
        """Return the number of loops around the loop: 0 for the root."""
        ...


@set_module("toolloop")
@frozen(kw_only=True, eq=False)
class ToolContext(Generic[State_co]):
    """The value of a parameter annotated `ToolContext`, or `ToolContext[State]`, so that type checkers know `state`.

    `toolloop.testing.tool_context` makes one for a test.

    Args:
        call_id: the id of the `tool_use` block.
        loop_id: the id of the loop.
        iteration: the number of the model request that proposed the call, counted from 1.
        depth: the depth for a loop that the tool starts: one more than the depth of the tool's loop.
        idempotency_key: the same for each repeat of one uncertain run, different for any other run.
        state: your own object, from `LoopContext`. It is not part of the repr.
        cancelled: called on each access to `cancelled`; returns whether the call should end early.
        report: called with the arguments of `report`.
        lease_ends_at: called on each access to `lease_ends_at`; returns seconds since the epoch, or None.
        spent: called with the usage of each request of a loop that the tool drives. Any thread may call it, and it
            never raises.

    """

    call_id: str
    loop_id: str
    iteration: int
    depth: int
    idempotency_key: str
    state: State_co = field(default=cast("Any", None), repr=False)
    _cancelled: Callable[[], bool] = field(default=lambda: False, alias="cancelled", repr=False)
    _report: Report = field(default=_ignore, alias="report", repr=False)
    _lease_ends_at: Callable[[], float | None] = field(default=lambda: None, alias="lease_ends_at", repr=False)
    _spent: Callable[[IterationUsage], None] = field(default=_ignore, alias="spent", repr=False)

    @property
    def cancelled(self) -> bool:
        """Whether the call was cancelled, so that the tool should stop."""
        return self._cancelled()

    @property
    def lease_ends_at(self) -> datetime | None:
        """When another driver may take the loop over, unless the lease is renewed before; None without a store.

        An aware datetime in UTC, by the clock of the store. It grows as the lease is renewed, and stays if the host is
        suspended. Pass it to a service that refuses late requests, beside the `idempotency_key`.
        """
        until = self._lease_ends_at()
        return None if until is None else datetime.fromtimestamp(until, UTC)

    def report(self, message: object = None, *, progress: float | None = None, total: float | None = None) -> None:
        """Report progress to observers and `events`, as a `CallProgress`. The model does not see it.

        The views of the loop show the last report, also in other processes if the loop has a store. Any thread may call
        it. It has no effect after the call has ended.

        Args:
            message: a description of the current step; an object is converted with `str`.
            progress: the amount of work done, in the tool's own unit.
            total: the amount of work to do, in the same unit.

        """
        self._report(None if message is None else str(message), progress, total)
