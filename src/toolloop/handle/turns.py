"""What a turn gives the caller: `Yielded`, `Completed` or `Error`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NoReturn

from attrs import evolve, field

from toolloop.core.errors import IllegalCommand
from toolloop.core.evolving import quick
from toolloop.core.freezing import frozen
from toolloop.core.jsontext import JSON, decode
from toolloop.core.states import Deciding, Executed, Ledger, Paused, Proposed
from toolloop.core.terminations import Termination
from toolloop.core.usage import IterationUsage, Usage
from toolloop.core.values import (
    Answer,
    Approve,
    Command,
    Continue,
    Decision,
    Deny,
    Grant,
    InjectMessages,
    Rerun,
    Stop,
)
from toolloop.handle.views import ToolCall, ToolResult, pending_calls
from toolloop.handle.watching import WatchEvent

Reason = Literal["decision_required", "tools_executed", "paused"]
# A call by its id, or by its path joined with "/"; or by the path itself, which is sure.
Named = str | tuple[str, ...]

_REASONS: dict[type, Reason] = {
    Deciding: "decision_required",
    Executed: "tools_executed",
    Paused: "paused",
    Proposed: "paused",  # the loop rests there for its runner, and nobody is shown this `Yielded`
}


@quick
@frozen
class Moves:
    """What a `Yielded` needs of its handle: to record decisions, all or none; a command; and that time has passed."""

    decide: Callable[[Sequence[tuple[Named, Decision]]], None]
    command: Callable[[Command], None]
    tick: Callable[[], None]


class Yielded:
    """The caller has the word: decide the calls that wait, then give a command.

    It carries only the legal moves, and is spent by its command.

    Attributes:
        reason: `decision_required`, `tools_executed` or `paused`.
        iteration: which answered request it is about, counted from 1.
        usage: of this iteration.
        total_usage: of the loop so far.
        events: what happened since the last result.

    """

    def __init__(
        self, state: Proposed | Deciding | Executed | Paused, moves: Moves, events: tuple[WatchEvent, ...] = ()
    ) -> None:
        """Made by a handle, for the state it waits in."""
        ledger = state.ledger
        self.reason: Reason = _REASONS[type(state)]
        self._state = type(state).__name__
        self.iteration = ledger.iterations
        self.usage = _usage_of(ledger)
        self.total_usage = ledger.total_usage
        self.events = events
        self._at = state
        self._message = _message_of(state)
        self._moves: Moves | None = moves

    # --- what the model said ---

    @property
    def message(self) -> dict[str, JSON]:
        """The assistant message as received."""
        return {"role": "assistant", "content": decode(self._message)["content"]}

    @property
    def assistant_content(self) -> tuple[JSON, ...]:
        """The blocks beside the calls."""
        return tuple(block for block in self.message["content"] if block["type"] != "tool_use")

    @property
    def assistant_text(self) -> str | None:
        """The text beside the calls, joined by newlines, or None."""
        return text_of(self.message["content"])

    # --- the calls ---

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """All calls of the round, in the model's order."""
        if isinstance(self._at, Paused):
            return ()
        return tuple(ToolCall(call, self._at.ledger.setup, self._at.round.iteration) for call in self._at.round.calls)

    @property
    def pending(self) -> tuple[ToolCall, ...]:
        """The calls that wait for the caller's word, also those of loops inside of calls: see `ToolCall.path`."""
        return pending_calls(self._at)

    @property
    def results(self) -> tuple[ToolResult | None, ...]:
        """One slot for each call, in the model's order; None while it is open."""
        return tuple(call.result for call in self.calls)

    def approve(
        self,
        call: str | ToolCall,
        input: dict[str, JSON] | None = None,  # noqa: A002 - the API's own word for it
        by: str | None = None,
        reason: str | None = None,
        remember: Grant | None = None,
    ) -> None:
        """Let a call run, as proposed or with another input. See `Approve`.

        Raises:
            CallerError: the call is unknown, settled, decided otherwise, another than shown, or not to be approved.

        """
        self._decide(call, Approve(input=input, by=by, reason=reason, remember=remember))

    def deny(self, call: str | ToolCall, reason: str, by: str | None = None) -> None:
        """Do not let a call run; the model is told the reason. See `Deny`."""
        self._decide(call, Deny(reason, by=by))

    def answer(self, call: str | ToolCall, content: JSON, is_error: bool = False, by: str | None = None) -> None:
        """Give the result of a call yourself; it does not run. See `Answer`."""
        self._decide(call, Answer(content, is_error=is_error, by=by))

    def rerun(self, call: str | ToolCall, by: str | None = None) -> None:
        """Run an uncertain call again. See `Rerun`."""
        self._decide(call, Rerun(by=by))

    def approve_all(self, by: str | None = None) -> None:
        """Approve every call that waits for approval, bound to what is shown now."""
        moves = self._alive("approve_all()")
        moves.tick()  # what is over is not to be approved any more, and stops nobody from approving the rest
        waiting = [call for call in self.pending if call.why == "approval"]
        moves.decide([bound(call, Approve(by=by)) for call in waiting])

    # --- the command ---

    def continue_loop(self) -> None:
        """Go on at the next `next_turn()`.

        Raises:
            UndecidedCalls: calls wait, and the loop is not set to run the others meanwhile.

        """
        self._alive("continue_loop()").command(Continue())

    def inject_and_continue(self, messages: Sequence[JSON]) -> None:
        """Add messages, then go on.

        Raises:
            InvalidHistory: the API would refuse them there.

        """
        self._alive("inject_and_continue()").command(InjectMessages(messages))

    def stop(self, reason: str | None = None) -> None:
        """End the loop; the next `next_turn()` returns `Completed` without a request."""
        self._alive("stop()").command(Stop(reason))

    def unwrap(self) -> NoReturn:
        """Raise: nothing is complete yet."""
        waiting = ", ".join(f"{call.name} ({'/'.join(call.path)})" for call in self.pending) or "a command"
        raise IllegalCommand(
            f"the loop is not complete: it waits for {waiting}",
            state=self._state,
            asked="unwrap()",
            allowed=("continue_loop()", "inject_and_continue()", "stop()"),
        )

    @property
    def is_spent(self) -> bool:
        """Whether its command was given."""
        return self._moves is None

    def _show(self, state: Deciding) -> None:
        """Take a later version of the state it waits in; called by the handle."""
        self._at = state

    def _spend(self) -> None:
        """A command was given; called by the handle."""
        self._moves = None

    def _decide(self, call: str | ToolCall, decision: Decision) -> None:
        self._alive("a decision").decide([bound(call, decision)])

    def _alive(self, asked: str) -> Moves:
        if self._moves is None:
            raise IllegalCommand(
                f"{asked}: this Yielded is spent; a command was given. Call next_turn(), or see handle.pending_turn",
                state="spent",
                asked=asked,
                allowed=("next_turn()",),
            )
        return self._moves

    def __repr__(self) -> str:
        spent = "" if self._moves is not None else ", spent"
        return f"<Yielded {self.reason}: iteration {self.iteration}, {len(self.pending)} pending{spent}>"


def _usage_of(ledger: Ledger) -> Usage:
    """Of the last reply; a runner may begin with calls that no request of its own brought."""
    for entry in reversed(ledger.usage_log):
        if not entry.path and entry.kind == "reply":
            return entry.usage
    return Usage()


def _message_of(state: Proposed | Deciding | Executed | Paused) -> str:
    """The last reply; or, where the open round is none of it, the message that the caller of a runner gave."""
    response = state.ledger.response
    if isinstance(state, Deciding) and state.round.reply is not None:
        asked = [call.id for call in state.round.calls]
        blocks = () if response is None else decode(response)["content"]
        if asked != [block["id"] for block in blocks if block["type"] == "tool_use"]:
            return state.round.reply
    return response or "{}"


def bound(call: str | ToolCall, decision: Decision) -> tuple[Named, Decision]:
    """The name of a call, or its path, and the decision: bound to exactly what was shown if a `ToolCall` is given."""
    if isinstance(call, ToolCall):
        return call.path, (decision if decision.digest else evolve(decision, digest=call.digest))
    if isinstance(call, str):
        return call, decision
    raise TypeError(f"a call is named by its id or by the ToolCall that was shown, not by a {type(call).__name__}")


def text_of(blocks: Sequence[JSON]) -> str | None:
    """The text of some blocks, joined by newlines, or None if there is none."""
    texts = [block["text"] for block in blocks if block["type"] == "text"]
    return "\n".join(texts) if texts else None


@frozen
class Completed:
    """The loop has ended.

    Attributes:
        termination: how; see `toolloop.terminations`.
        response: the last reply, verbatim, or None.
        text: its text, joined by newlines, or None.
        iterations: how many requests were answered.
        events: what happened since the last result.

    """

    termination: Termination
    response: dict[str, JSON] | None = field(repr=False)
    text: str | None = field(repr=False)
    iterations: int
    total_usage: Usage = field(repr=False)
    usage_log: tuple[IterationUsage, ...] = field(repr=False)
    events: tuple[WatchEvent, ...] = field(default=(), repr=False)

    def unwrap(self) -> Completed:
        """Itself."""
        return self


@frozen
class Error:
    """The request failed, or the loop may not run at all. `handle.retry()` goes back to before the request.

    Attributes:
        error: the exception.
        retryable: whether the same request may succeed.
        retry_after: seconds to wait first, or None.
        iterations: how many requests were answered.
        events: what happened since the last result.
        path: the ids of the calls that lead to the loop whose request failed; empty if it is this one's.
        partial_text: the text of the reply as far as it came, if it was streamed and broke off; nothing of it is in the
            history.

    """

    error: Exception
    retryable: bool
    retry_after: float | None
    iterations: int
    total_usage: Usage = field(repr=False)
    events: tuple[WatchEvent, ...] = field(default=(), repr=False)
    path: tuple[str, ...] = ()
    partial_text: str | None = field(default=None, repr=False)

    def unwrap(self) -> NoReturn:
        """Raise the error."""
        raise self.error


@frozen
class ToolLoopResult:
    """What came of a loop, finished or not: an unfinished one has the termination `Unfinished()`."""

    response: dict[str, JSON] | None = field(repr=False)
    termination: Termination
    iterations: int
    total_usage: Usage
    usage_log: tuple[IterationUsage, ...] = field(repr=False)
    error: Exception | None = None
