"""What a handle tells of its loop: plain reads, safe from any thread at any time."""

from __future__ import annotations

from datetime import UTC, datetime

from toolloop.core.errors import IllegalCommand
from toolloop.core.jsontext import JSON, decode
from toolloop.core.machine import next_deadline
from toolloop.core.states import Failed, Finished, Requesting, State, TooDeep
from toolloop.core.terminations import Unfinished
from toolloop.core.usage import IterationUsage, Usage
from toolloop.handle.core import HandleCore
from toolloop.handle.editing import WorkingList
from toolloop.handle.paging import view_of
from toolloop.handle.turns import ToolLoopResult, Yielded
from toolloop.handle.views import ToolCall, pending_calls


class Reading(HandleCore):
    """The reads of both handles."""

    @property
    def state(self) -> State:
        """Where the loop is: one of the frozen states of `toolloop.machine`."""
        return self._state

    @property
    def loop_id(self) -> str:
        """The id of the loop."""
        return self._state.ledger.setup.loop_id

    @property
    def depth(self) -> int:
        """How deep the loop is nested; 0 for one that nobody nested."""
        return self._state.ledger.setup.depth

    @property
    def iterations(self) -> int:
        """How many requests of this loop were answered; those of loops inside its calls are not counted."""
        return self._state.ledger.iterations

    @property
    def total_usage(self) -> Usage:
        """What all answered requests used together, those of loops inside its calls too."""
        return self._state.ledger.total_usage

    @property
    def usage_log(self) -> tuple[IterationUsage, ...]:
        """What each answered request used, those of loops inside its calls too: see `IterationUsage.path`."""
        return tuple(self._state.ledger.usage_log)

    @property
    def is_finished(self) -> bool:
        """Whether `next_turn()` would return a `Completed` or an `Error` that is there already."""
        return isinstance(self._state, Finished | Failed | TooDeep)

    @property
    def messages(self) -> tuple[JSON, ...]:
        """The closed history, as copies: what the API accepts once a user message follows."""
        return tuple(decode(text) for text in self._state.ledger.messages)

    @property
    def pending(self) -> tuple[ToolCall, ...]:
        """The calls that wait for the caller's word, also those of loops inside of calls: see `ToolCall.path`."""
        return pending_calls(self._state)

    @property
    def pending_turn(self) -> Yielded | None:
        """The `Yielded` that waits for a command, or None."""
        with self._recorder.lock:
            return self._wait()

    @property
    def next_deadline(self) -> datetime | None:
        """When the first of the waiting calls expires, an aware UTC time: call `tick()` then. None: none does."""
        deadline = next_deadline(self._state)
        return None if deadline is None else datetime.fromtimestamp(deadline, UTC)

    def messages_mut(self) -> list[JSON]:
        """The closed history as a list to edit in place: the same list until the next command or `next_turn()`.

        That one takes the edits over, or raises `InvalidHistory` and leaves the list to be mended.

        Raises:
            IllegalCommand: a turn is in progress, or the loop may not run at all.

        """
        if self._driver.locked() or isinstance(self._state, TooDeep | Requesting):
            raise IllegalCommand(
                "messages_mut(): the caller has not the word: "
                + (
                    "this loop may not run at all"
                    if isinstance(self._state, TooDeep)
                    else "a turn is in progress; wait until next_turn() returns"
                ),
                state=type(self._state).__name__,
                asked="messages_mut()",
                allowed=(),
            )
        if self._working is None:
            self._working = WorkingList(self.messages)
        return self._working

    def into_result(self) -> ToolLoopResult:
        """What came of the loop so far; the termination of an unfinished one is `Unfinished()`."""
        with self._recorder.lock:
            state, ledger = self._state, self._state.ledger
            return ToolLoopResult(
                response=None if ledger.response is None else decode(ledger.response),
                termination=state.termination if isinstance(state, Finished) else Unfinished(),
                iterations=ledger.iterations,
                total_usage=ledger.total_usage,
                usage_log=tuple(ledger.usage_log),
                error=self._error() if isinstance(state, Failed | TooDeep) else None,
            )

    def view(self) -> dict[str, JSON]:
        """The loop as JSON, for a page: state, pending calls, last text, usage, what is left of the limits.

        Under `children` are the loops inside its calls, each with the path that leads to it, and with children of its
        own.
        """
        with self._recorder.lock:
            state = self._state
            error = str(self._error()) if isinstance(state, Failed | TooDeep) else None
        return view_of(state, error=error)
