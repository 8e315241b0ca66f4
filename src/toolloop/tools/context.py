"""What a tool may know about the call it answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import field, frozen

if TYPE_CHECKING:
    from collections.abc import Callable


def _never() -> bool:
    return False


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

    """

    call_id: str
    loop_id: str
    iteration: int
    depth: int
    idempotency_key: str
    state: Any = field(default=None, repr=False)
    _cancelled: Callable[[], bool] = field(default=_never, repr=False)

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for the result any more, so that the tool does well to stop."""
        return self._cancelled()
