"""What a tool may know about the call it answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import field

from toolloop.core.freezing import frozen

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolloop.core.usage import IterationUsage


def _never() -> bool:
    return False


def _nobody(_message: str | None, _progress: float | None, _total: float | None) -> None:
    """Nobody watches."""


def _uncounted(_usage: IterationUsage) -> None:
    """Nobody counts."""


@frozen(kw_only=True, eq=False)
class ToolContext:
    """What a tool is given for a parameter annotated `ToolContext`.

    Args:
        call_id: the id of the `tool_use` block.
        loop_id: the id of the loop.
        iteration: which answered model request proposed the call, counted from 1.
        depth: the depth that a loop started inside the tool has: one more than that of its own loop.
        idempotency_key: the same for every repeat of one uncertain run, different for any other run.
        state: the caller's own object, from `LoopContext`. Never shown in a repr.
        cancelled: asked each time `cancelled` is read: whether the call should end early.
        report: told what `report` is told.
        spent: told of each answered request of a loop that the tool drives, from any thread; it never raises.

    """

    call_id: str
    loop_id: str
    iteration: int
    depth: int
    idempotency_key: str
    state: Any = field(default=None, repr=False)
    _cancelled: Callable[[], bool] = field(default=_never, repr=False)
    _report: Callable[[str | None, float | None, float | None], None] = field(default=_nobody, repr=False)
    _spent: Callable[[IterationUsage], None] = field(default=_uncounted, repr=False)

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for the result any more, so that the tool does well to stop."""
        return self._cancelled()

    def report(self, message: object = None, *, progress: float | None = None, total: float | None = None) -> None:
        """Say how far the call has come: observers and `events` get a `CallProgress`. The model is told nothing.

        Safe from any thread. After the call has ended it does nothing.

        Args:
            message: what is being done; anything is turned into its text.
            progress: how much is done, in the tool's own unit.
            total: how much there is to do, in the same unit.

        Raises:
            TypeError: `progress` or `total` is no number.

        """
        given: dict[str, object] = {"progress": progress, "total": total}
        for name, value in given.items():
            if isinstance(value, bool) or not isinstance(value, int | float | None):
                raise TypeError(f"report(): {name} is a {type(value).__name__}; give a number, or leave it out")
        self._report(None if message is None else str(message), progress, total)
