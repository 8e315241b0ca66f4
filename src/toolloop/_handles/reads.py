"""The reads of both handles: safe from any thread at any time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar, Generic

from toolloop._drivers.driver import D
from toolloop._handles.assembly import Assembly
from toolloop._interface.calls import list_pending_calls
from toolloop._interface.grants import Grants, list_standing_grants
from toolloop._interface.loop_view import LoopView, view_of
from toolloop._interface.progress import Progress
from toolloop._interface.results import ToolLoopResult, Yielded
from toolloop._usage import IterationUsage, Usage
from toolloop.machine.queries import LoopStatus, next_deadline, status_of
from toolloop.machine.record.loop import State
from toolloop.machine.values.jsontext import JSON
from toolloop.tools.calls import ToolCall


class LoopReads(Generic[D]):
    """The reads of a handle, and the parts of its loop. Not public."""

    _driver_class: ClassVar[type[Any]]  # the class of its driver, `D`
    _parts: Assembly[D]

    @property
    def state(self) -> State:
        """The state of the loop: a frozen value of `toolloop.machine`."""
        return self._parts.journal.state

    @property
    def loop_id(self) -> str:
        """The id of the loop."""
        return self.state.root.setup.loop_id

    @property
    def depth(self) -> int:
        """How deep the loop is nested; 0 for an outermost loop."""
        return self.state.root.setup.depth

    @property
    def iterations(self) -> int:
        """The number of answered requests of this loop, without those of loops inside its calls."""
        return self.state.root.iterations

    @property
    def total_usage(self) -> Usage:
        """The total usage of all answered requests, including those of loops inside its calls."""
        return self.state.root.total_usage

    @property
    def usage_log(self) -> tuple[IterationUsage, ...]:
        """The usage of each answered request, including those of loops inside its calls: see `IterationUsage.path`."""
        return tuple(self.state.root.usage_log)

    @property
    def status(self) -> LoopStatus:
        """The status, as in `store.list()`: `needs_decision`, `needs_command`, `runnable` and so on."""
        return status_of(self.state)

    @property
    def is_finished(self) -> bool:
        """Whether this handle has returned a `Completed` or an `Error`, and no command has continued the loop since."""
        return self._parts.turns.is_finished

    @property
    def messages(self) -> tuple[JSON, ...]:
        """Copies of the closed history, with your edits. The API accepts it once a user message follows."""
        return self._parts.issuer.edits.show(self.state.root)

    @property
    def pending(self) -> tuple[ToolCall, ...]:
        """The calls that wait for a decision, including those of loops inside calls: see `ToolCall.path`."""
        return list_pending_calls(self.state)

    @property
    def pending_turn(self) -> Yielded | None:
        """The `Yielded` that waits for a command, or None."""
        return self._parts.turns.pending

    @property
    def next_deadline(self) -> datetime | None:
        """When the first waiting call expires, an aware UTC time; None if none expires. Call `tick()` then."""
        deadline = next_deadline(self.state)
        return None if deadline is None else datetime.fromtimestamp(deadline, UTC)

    @property
    def grants(self) -> Grants:
        """The standing grants: calls that they cover run without approval. `grants.revoke(...)` revokes one."""
        return Grants(list_standing_grants(self.state, self._parts.journal.now()), self._parts.issuer.revoke)

    def messages_mut(self) -> list[JSON]:
        """Return the closed history as a list to edit in place: the same list until the next command or `next_turn()`.

        An edit shows in `messages` at once. The next command or `next_turn()` applies it. If that raises
        `InvalidHistory`, correct the same list. A list of an earlier wait refuses changes, but a change inside one of
        its messages has no effect and raises nothing.

        Raises:
            IllegalCommand: a turn is in progress, or the loop is nested too deep to run.

        """
        return self._parts.issuer.edits.open_list(self.state.root, is_driven=self._parts.driving.is_active)

    def into_result(self) -> ToolLoopResult:
        """Return the outcome so far; before the end, its termination is `Unfinished()` or `Failed(error)`."""
        return self._parts.turns.make_result()

    def view(self, *, messages: bool = False) -> LoopView:
        """Return the loop as JSON, for a page: its state, pending calls, last text, usage and remaining limits.

        `children` has the loops inside its calls, each with its path and its own children. `running` has the calls that
        run. If another process runs them, a sync handle reads their progress from the store. `messages`: whether it has
        the conversation, each message with its id.
        """
        error = self._parts.turns.find_error()
        text = None if error is None else str(error)
        return view_of(self.state, error=text, doing=self._read_progress(), messages=messages)

    def _read_progress(self) -> tuple[bool | None, Progress]:
        """Return whether the loop has a driver, and what that does now."""
        if self._parts.driving.is_active or self._parts.progress.has_runs():
            return True, self._parts.progress.show()
        lease = self._parts.lease
        if lease is None or status_of(self.state) not in ("running", "stopping"):
            return False, Progress()
        return (None, Progress()) if self._driver_class.is_async else lease.read_progress()

    def __repr__(self) -> str:
        loop = self.state.root
        phase = type(loop.phase).__name__
        return f"<{type(self).__name__} {phase}: {loop.iterations} iterations, id {loop.setup.loop_id}>"
