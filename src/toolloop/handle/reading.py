"""What a handle tells of its loop: plain reads, safe from any thread at any time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from toolloop.core import limits
from toolloop.core.errors import IllegalCommand
from toolloop.core.jsontext import JSON, decode
from toolloop.core.machine import next_deadline
from toolloop.core.states import Deciding, Failed, Finished, Judging, Requesting, Running, State, TooDeep
from toolloop.core.terminations import Unfinished
from toolloop.core.usage import IterationUsage, Usage
from toolloop.handle.core import HandleCore
from toolloop.handle.editing import WorkingList
from toolloop.handle.turns import ToolLoopResult, Yielded, text_of
from toolloop.handle.views import ToolCall


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
        """How many requests were answered."""
        return self._state.ledger.iterations

    @property
    def total_usage(self) -> Usage:
        """What all answered requests used together."""
        return self._state.ledger.total_usage

    @property
    def usage_log(self) -> tuple[IterationUsage, ...]:
        """What each answered request used."""
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
        """The calls that wait for the caller's word."""
        state = self._state
        if not isinstance(state, Judging | Deciding | Running):
            return ()
        calls = (ToolCall(call, state.ledger.setup, state.round.iteration) for call in state.round.calls)
        return tuple(call for call in calls if call.why is not None)

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
        """The loop as JSON, for a page: state, pending calls, last text, usage, what is left of the limits."""
        with self._recorder.lock:
            state, ledger = self._state, self._state.ledger
            pending = [_call_view(call) for call in self.pending]
        response = None if ledger.response is None else decode(ledger.response)
        total = ledger.total_usage
        return {
            "loop_id": ledger.setup.loop_id,
            "state": type(state).__name__,
            "depth": ledger.setup.depth,
            "iterations": ledger.iterations,
            "pending": pending,
            "text": None if response is None else text_of(response["content"]),
            "termination": state.termination.kind if isinstance(state, Finished) else None,
            "error": str(self._error()) if isinstance(state, Failed | TooDeep) else None,
            "usage": {
                "input_tokens": total.total_input_tokens,
                "output_tokens": total.output_tokens,
                "total_tokens": total.total_tokens,
            },
            "left": limits.left(ledger),
        }


def _call_view(call: ToolCall) -> dict[str, Any]:
    return {
        "id": call.id,
        "path": list(call.path),
        "name": call.name,
        "input": call.effective_input,
        "why": call.why,
        "reason": call.reason,
        "expires_at": None if call.expires_at is None else call.expires_at.isoformat(),
        "digest": call.digest,
    }
