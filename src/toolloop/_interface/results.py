"""The results of a turn: `Yielded`, `Completed` and `Error`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn

from attrs import field, frozen

from toolloop._interface.calls import (
    RunningCall,
    calls_of,
    find_last_message,
    find_last_usage,
    list_pending_calls,
    text_of,
)
from toolloop._interface.shown import Named, bind_to_digest
from toolloop._interface.standing import Standing
from toolloop._public import set_module
from toolloop._usage import IterationUsage, Usage
from toolloop.errors import IllegalCommand
from toolloop.events import WatchEvent
from toolloop.machine.record.loop import State, Waiting, WaitReason
from toolloop.machine.values.calls import (
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
from toolloop.machine.values.jsontext import JSON, decode
from toolloop.machine.values.names import Person
from toolloop.terminations import Failed, Termination
from toolloop.tools.calls import ToolCall, ToolResult


@frozen
class Moves:
    """The functions of its handle that a `Yielded` needs.

    Attributes:
        decide: records decisions, all or none of them, and returns what stands in each call.
        command: records a command.
        edit: returns the closed history as a list to edit.
        now: returns the time, in seconds since the epoch.
        look: returns the current loop, or None after the end of the wait that the `Yielded` shows.

    """

    decide: Callable[[Sequence[tuple[Named, Decision]]], Sequence[Standing]]
    command: Callable[[Command], None]
    edit: Callable[[], list[JSON]]
    now: Callable[[], float]
    look: Callable[[], State | None]


@set_module("toolloop")
class Yielded:
    """The loop has paused; it is your turn. Decide the waiting calls, then give a command.

    It has only methods that are legal now. It accepts one command; after that it is stale.

    Attributes:
        reason: `decision_required`, `tools_executed` or `paused`.
        iterations: the number of answered requests.
        total_usage: the usage of the loop so far.
        events: the events since the last result.

    """

    def __init__(self, state: State, moves: Moves, events: tuple[WatchEvent, ...] = ()) -> None:
        """Made by a handle, for a loop that is `Waiting`."""
        loop, phase = state.root, state.root.phase
        if not isinstance(phase, Waiting):
            raise TypeError(f"the loop does not wait: it is {type(phase).__name__}")
        self.reason: WaitReason = phase.reason
        self.iterations: int = loop.iterations
        self.total_usage: Usage = loop.total_usage
        self.events = events
        self._shown = loop
        self._moves = moves
        self._last = state

    # --- the reply ---

    @property
    def message(self) -> dict[str, JSON]:
        """The assistant message as received."""
        return {"role": "assistant", "content": decode(find_last_message(self._shown))["content"]}

    @property
    def usage(self) -> Usage:
        """The usage of this iteration."""
        return find_last_usage(self._shown)

    @property
    def assistant_content(self) -> tuple[JSON, ...]:
        """The blocks other than calls."""
        return tuple(block for block in self.message["content"] if block["type"] != "tool_use")

    @property
    def text(self) -> str | None:
        """The text of the message, joined by newlines, or None."""
        return text_of(self.message["content"])

    @property
    def assistant_text(self) -> str | None:
        """The text of the message. Deprecated: use `text`."""
        warnings.warn("Yielded.assistant_text is now Yielded.text", DeprecationWarning, stacklevel=2)
        return self.text

    @property
    def iteration(self) -> int:
        """The number of answered requests. Deprecated: use `iterations`."""
        warnings.warn("Yielded.iteration is now Yielded.iterations", DeprecationWarning, stacklevel=2)
        return self.iterations

    # --- the calls ---

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """All calls of the round, in the model's order."""
        loop = self._state.root
        closed = loop.phase.closed if isinstance(loop.phase, Waiting) else None
        return calls_of(loop, closed or loop.round)

    @property
    def pending(self) -> tuple[ToolCall, ...]:
        """The calls waiting for your decision, including those of nested loops: see `ToolCall.path`."""
        return list_pending_calls(self._state)

    @property
    def results(self) -> tuple[ToolResult | None, ...]:
        """The results of the calls, in the model's order; None for an open call."""
        return tuple(call.result for call in self.calls)

    def approve(
        self,
        call: str | ToolCall,
        input: dict[str, JSON] | None = None,  # noqa: A002 - the API's own word for it
        by: str | Person | None = None,
        reason: str | None = None,
        remember: Grant | None = None,
    ) -> Standing:
        """Approve a call, as proposed or with an edited input, and return what stands in it. See `Approve`.

        Raises:
            CallerError: the call is unknown, settled, differs from the one shown, has another decision, or does not
                accept an approval.

        """
        return self._decide(call, Approve(input=input, by=by, reason=reason, remember=remember))

    def deny(self, call: str | ToolCall, reason: str, by: str | Person | None = None) -> Standing:
        """Deny a call; it does not run. The model sees the reason. See `Deny`."""
        return self._decide(call, Deny(reason, by=by))

    def answer(
        self, call: str | ToolCall, content: JSON, *, is_error: bool = False, by: str | Person | None = None
    ) -> Standing:
        """Supply the result of a call; it does not run. See `Answer`."""
        return self._decide(call, Answer(content, is_error=is_error, by=by))

    def rerun(self, call: str | ToolCall, by: str | Person | None = None) -> Standing:
        """Run an uncertain call again. See `Rerun`."""
        return self._decide(call, Rerun(by=by))

    def approve_all(self, by: str | Person | None = None) -> Mapping[ToolCall, Standing]:
        """Give one approval, bound to the call as it is now, to each call that waits for one and has not expired.

        Raises:
            IllegalCommand: an approval cannot count; without `by`, that holds for each call that needs more than one
                person, or persons of a group. Then none is approved.

        """
        moves = self._check_alive("approve_all()")
        now = datetime.fromtimestamp(moves.now(), UTC)
        waiting = [call for call in self.pending if call.why == "approval"]
        in_time = [call for call in waiting if call.expires_at is None or call.expires_at > now]
        outcomes = moves.decide([bind_to_digest(call, Approve(by=by)) for call in in_time])
        return dict(zip(in_time, outcomes, strict=True))

    # --- the command ---

    def continue_loop(self, by: str | Person | None = None) -> None:
        """Continue the loop with the next `next_turn()`.

        Raises:
            UndecidedCalls: calls wait for a decision, and `execution` is not `"ready"`.

        """
        self._check_alive("continue_loop()").command(Continue(by=by))

    def inject_and_continue(self, messages: str | Sequence[JSON], by: str | Person | None = None) -> None:
        """Add messages, then continue. A string is one user message.

        If the model paused, only a resumption may come next: the messages join after the reply to it, and the same turn
        then sends a second request.

        Raises:
            InvalidHistory: the API would refuse the messages at this point.

        """
        self._check_alive("inject_and_continue()").command(InjectMessages(messages, by=by))

    def stop(self, reason: str | None = None, by: str | Person | None = None) -> None:
        """End the loop; the next `next_turn()` returns `Completed` without a request."""
        self._check_alive("stop()").command(Stop(reason, by=by))

    def resume(self, command: Command) -> None:
        """Give a command as an object: `Continue()`, `InjectMessages(...)` or `Stop(...)`."""
        self._check_alive("resume()").command(command)

    def messages_mut(self) -> list[JSON]:
        """Return the closed history as a list to edit in place, as `handle.messages_mut()` does.

        Raises:
            IllegalCommand: this `Yielded` is stale.

        """
        return self._check_alive("messages_mut()").edit()

    def unwrap(self) -> NoReturn:
        """Raise `IllegalCommand`, because the loop is not complete."""
        waiting = ", ".join(f"{call.name} ({'/'.join(call.path)})" for call in self.pending) or "a command"
        raise IllegalCommand(
            f"the loop is not complete: it waits for {waiting}",
            state="Waiting",
            asked="unwrap()",
            allowed=("continue_loop()", "inject_and_continue()", "stop()"),
        )

    @property
    def is_spent(self) -> bool:
        """Whether it is stale, because a command was given."""
        return self._moves.look() is None

    @property
    def _state(self) -> State:
        """The current state, or the last one of the wait that this object shows."""
        self._last = self._moves.look() or self._last
        return self._last

    def _decide(self, call: str | ToolCall, decision: Decision) -> Standing:
        (standing,) = self._check_alive("a decision").decide([bind_to_digest(call, decision)])
        self._last = self._state  # decisions are also shown when it is stale
        return standing

    def _check_alive(self, asked: str) -> Moves:
        if (state := self._moves.look()) is None:
            raise IllegalCommand(
                f"{asked}: this Yielded is stale, because a command was given. Call handle.next_turn(), or see "
                "handle.pending_turn",
                state="stale",
                asked=asked,
                allowed=("handle.next_turn()",),
            )
        self._last = state
        return self._moves

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Name the type of this turn in the error, because the attribute belongs to another result."""
            names = [call.name for call in self.pending] if "_last" in self.__dict__ else []
            wait = f"{len(names)} {'call waits' if len(names) == 1 else 'calls wait'} ({', '.join(names)})"
            raise _has_no(self, name, wait if names else "the loop waits for a command")

    def __repr__(self) -> str:
        stale = ", stale" if self.is_spent else ""
        return f"<Yielded {self.reason}: iteration {self.iterations}, {len(self.pending)} pending{stale}>"


def _has_no(turn: object, name: str, what: str) -> AttributeError:
    return AttributeError(f"this turn is {type(turn).__name__}: {what}; it has no {name!r}", name=name, obj=turn)


@set_module("toolloop")
@frozen
class Completed:
    """The loop has ended.

    Attributes:
        termination: how the loop ended; see `toolloop.terminations`.
        response: the last reply as received, or None.
        text: its text, joined by newlines, or None.
        iterations: the number of answered requests.
        events: the events since the last result.
        output: the result, for a loop with `LoopConfig(output=...)` that has ended by itself: an object of that class,
            or its JSON if this process does not have the class. Else None.
        running: calls whose tools did not end within `stop_grace` seconds. The loop ends when they do.

    """

    termination: Termination
    response: dict[str, JSON] | None = field(repr=False)
    text: str | None = field(repr=False)
    iterations: int
    total_usage: Usage = field(repr=False)
    usage_log: tuple[IterationUsage, ...] = field(repr=False)
    events: tuple[WatchEvent, ...] = field(default=(), repr=False)
    running: tuple[RunningCall, ...] = field(default=(), repr=False)
    output: Any = field(default=None, repr=False)

    @property
    def pending(self) -> tuple[ToolCall, ...]:
        """An empty tuple, because no call waits."""
        return ()

    def unwrap(self) -> Completed:
        """Return this object."""
        return self

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Name the type of this turn in the error."""
            raise _has_no(self, name, type(self.termination).__name__)


@set_module("toolloop")
@frozen
class Error:
    """A request failed, or the loop is nested too deeply. `handle.retry()` returns to the point before the request.

    Attributes:
        error: the exception.
        retryable: whether the same request may succeed.
        retry_after: seconds to wait before a retry, or None.
        iterations: the number of answered requests.
        events: the events since the last result.
        path: the path of the loop whose request failed; empty for the root.
        partial_text: the partial text of a streamed reply that failed. It is not part of the history.

    """

    error: Exception
    retryable: bool
    retry_after: float | None
    iterations: int
    total_usage: Usage = field(repr=False)
    events: tuple[WatchEvent, ...] = field(default=(), repr=False)
    path: tuple[str, ...] = ()
    partial_text: str | None = field(default=None, repr=False)

    @property
    def pending(self) -> tuple[ToolCall, ...]:
        """An empty tuple, because no call waits."""
        return ()

    @property
    def text(self) -> str | None:
        """An alias of `partial_text`."""
        return self.partial_text

    def unwrap(self) -> NoReturn:
        """Raise the error."""
        raise self.error

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Name the type of this turn in the error."""
            raise _has_no(self, name, type(self.error).__name__)


@set_module("toolloop")
@frozen
class ToolLoopResult:
    """The result of a loop so far.

    Attributes:
        response: the last valid reply as received, or None.
        termination: how the loop ended: `Unfinished()` if it did not, `Failed(error)` after an `Error`.
        error: the exception of that `Error`, or None.

    """

    response: dict[str, JSON] | None = field(repr=False)
    termination: Termination | Failed
    iterations: int
    total_usage: Usage
    usage_log: tuple[IterationUsage, ...] = field(repr=False)
    error: Exception | None = None


Turn = Yielded | Completed | Error
