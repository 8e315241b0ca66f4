"""What a turn gives the caller: `Yielded`, `Completed` or `Error`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn, Protocol

from attrs import evolve, field, frozen

from toolloop.face.calls import calls_of, pending_calls
from toolloop.face.watch_events import WatchEvent
from toolloop.machine.errors import IllegalCommand
from toolloop.machine.jsontext import JSON, a_type, decode
from toolloop.machine.loop import Loop, Waiting, WaitReason
from toolloop.machine.state import State
from toolloop.machine.terminations import Failed, Termination
from toolloop.machine.usage import IterationUsage, Usage
from toolloop.machine.values import (
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
from toolloop.tools.calls import ToolCall, ToolResult

# A call by its id, or by its path joined with "/"; or by the path itself, which is sure.
Named = str | tuple[str, ...]


@frozen
class Moves:
    """What a `Yielded` needs of its handle.

    Attributes:
        decide: records decisions, all or none of them.
        command: records a command.
        edit: returns the closed history as a list to edit.
        tick: records that time has passed.
        look: returns the loop as it is now; None once the wait is over that the `Yielded` shows.

    """

    decide: Callable[[Sequence[tuple[Named, Decision]]], None]
    command: Callable[[Command], None]
    edit: Callable[[], list[JSON]]
    tick: Callable[[], None]
    look: Callable[[], State | None]


class Yielded:
    """It is the caller's turn: decide the calls that wait, then give a command.

    It carries only the legal moves, and is spent by its command.

    Attributes:
        reason: `decision_required`, `tools_executed` or `paused`.
        iteration: which answered request it is about, counted from 1.
        iterations: how many requests were answered.
        usage: of this iteration.
        total_usage: of the loop so far.
        events: what happened since the last result.

    """

    def __init__(self, state: State, moves: Moves, events: tuple[WatchEvent, ...] = ()) -> None:
        """Made by a handle, for a loop that is `Waiting`."""
        loop = state.root
        self.reason: WaitReason = _wait(state).reason
        self.iteration = self.iterations = loop.iterations
        self.usage = _usage_of(loop)
        self.total_usage = loop.total_usage
        self.events = events
        self._message = _message_of(loop)
        self._moves = moves
        self._last = state

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

    @property
    def text(self) -> str | None:
        """The same as `assistant_text`: every result of a turn has a `text`."""
        return self.assistant_text

    # --- the calls ---

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """All calls of the round, in the model's order."""
        state = self._state
        return calls_of(state.root, _wait(state).closed or state.root.round)

    @property
    def pending(self) -> tuple[ToolCall, ...]:
        """The calls that wait for the caller, also those of loops inside of calls: see `ToolCall.path`."""
        return pending_calls(self._state)

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
        moves.tick()  # calls that have expired cannot be approved any more; the others can
        waiting = [call for call in self.pending if call.why == "approval"]
        moves.decide([bound(call, Approve(by=by)) for call in waiting])

    # --- the command ---

    def continue_loop(self) -> None:
        """Go on at the next `next_turn()`.

        Raises:
            UndecidedCalls: calls wait, and the loop is not set to run the others meanwhile.

        """
        self._alive("continue_loop()").command(Continue())

    def inject_and_continue(self, messages: str | Sequence[JSON]) -> None:
        """Add messages, then go on. A string is one user message.

        Raises:
            InvalidHistory: the API would refuse them there.

        """
        self._alive("inject_and_continue()").command(InjectMessages(messages))

    def stop(self, reason: str | None = None) -> None:
        """End the loop; the next `next_turn()` returns `Completed` without a request."""
        self._alive("stop()").command(Stop(reason))

    def resume(self, command: Command) -> None:
        """Give a command as an object: `Continue()`, `InjectMessages(...)` or `Stop(...)`."""
        self._alive("resume()").command(command)

    def messages_mut(self) -> list[JSON]:
        """Return the closed history as a list to edit in place, as `handle.messages_mut()` does.

        Raises:
            IllegalCommand: this `Yielded` is spent.

        """
        return self._alive("messages_mut()").edit()

    def unwrap(self) -> NoReturn:
        """Raise: nothing is complete yet."""
        waiting = ", ".join(f"{call.name} ({'/'.join(call.path)})" for call in self.pending) or "a command"
        raise IllegalCommand(
            f"the loop is not complete: it waits for {waiting}",
            state="Waiting",
            asked="unwrap()",
            allowed=("continue_loop()", "inject_and_continue()", "stop()"),
        )

    @property
    def is_spent(self) -> bool:
        """Whether its command was given."""
        return self._moves.look() is None

    @property
    def _state(self) -> State:
        """The loop as it is now, or as this last saw it in the wait that it shows."""
        self._last = self._moves.look() or self._last
        return self._last

    def _decide(self, call: str | ToolCall, decision: Decision) -> None:
        self._alive("a decision").decide([bound(call, decision)])
        self._last = self._state  # what was decided is shown also when it is spent

    def _alive(self, asked: str) -> Moves:
        if (state := self._moves.look()) is None:
            raise IllegalCommand(
                f"{asked}: this Yielded is spent; a command was given. Call handle.next_turn(), or see "
                "handle.pending_turn",
                state="spent",
                asked=asked,
                allowed=("handle.next_turn()",),
            )
        self._last = state
        return self._moves

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Say what this turn is: who reads another attribute takes it for another result."""
            names = [call.name for call in self.pending] if "_last" in self.__dict__ else []
            wait = f"{len(names)} {'call waits' if len(names) == 1 else 'calls wait'} ({', '.join(names)})"
            raise _has_no(self, name, wait if names else "it waits for a command")

    def __repr__(self) -> str:
        spent = ", spent" if self.is_spent else ""
        return f"<Yielded {self.reason}: iteration {self.iteration}, {len(self.pending)} pending{spent}>"


def _has_no(turn: object, name: str, what: str) -> AttributeError:
    return AttributeError(f"this turn is {type(turn).__name__}: {what}; it has no {name!r}", name=name, obj=turn)


def _wait(state: State) -> Waiting:
    phase = state.root.phase
    if not isinstance(phase, Waiting):
        raise TypeError(f"the loop is {type(phase).__name__}, and does not wait")
    return phase


def _usage_of(loop: Loop) -> Usage:
    """Return that of the last reply; a runner may begin with calls that no request of its own brought."""
    for entry in reversed(loop.usage_log):
        if not entry.path and entry.kind == "reply":
            return entry.usage
    return Usage()


def _message_of(loop: Loop) -> str:
    """Return the last reply; if the open round is not of it, the message that the caller of a runner gave."""
    if loop.round is not None and loop.round.reply is not None:
        blocks = () if loop.response is None else decode(loop.response)["content"]
        if [call.id for call in loop.round.calls] != [block["id"] for block in blocks if block["type"] == "tool_use"]:
            return loop.round.reply
    return loop.response or "{}"


class Shown(Protocol):
    """A call as it was shown: a `ToolCall`, or what a store or an inbox shows of one."""

    @property
    def path(self) -> tuple[str, ...]:
        """The ids that lead to it."""
        ...

    @property
    def digest(self) -> str:
        """What binds a decision to it."""
        ...


def bound(call: str | Shown, decision: Decision) -> tuple[Named, Decision]:
    """Return a call by its name or path, and the decision: bound to exactly what was shown if it is not a name."""
    if isinstance(call, str):
        return call, decision
    if hasattr(call, "path") and hasattr(call, "digest"):
        is_bound = getattr(decision, "digest", "") is not None  # what is not a decision is refused later
        return call.path, decision if is_bound else evolve(decision, digest=call.digest)
    raise TypeError(f"a call is named by its id or by the ToolCall that was shown, not by {a_type(call)}")


def text_of(blocks: Sequence[JSON]) -> str | None:
    """Return the text of some blocks, joined by newlines, or None if there is none."""
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

    @property
    def pending(self) -> tuple[ToolCall, ...]:
        """Empty: no call waits."""
        return ()

    def unwrap(self) -> Completed:
        """Return itself."""
        return self

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Say what this turn is."""
            raise _has_no(self, name, type(self.termination).__name__)


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

    @property
    def pending(self) -> tuple[ToolCall, ...]:
        """Empty: no call waits."""
        return ()

    @property
    def text(self) -> str | None:
        """The same as `partial_text`."""
        return self.partial_text

    def unwrap(self) -> NoReturn:
        """Raise the error."""
        raise self.error

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Say what this turn is."""
            raise _has_no(self, name, type(self.error).__name__)


@frozen
class ToolLoopResult:
    """What came of a loop so far.

    Attributes:
        response: the last reply that made sense, verbatim, or None.
        termination: how the loop ended: `Unfinished()` if it did not, `Failed(error)` if the last turn was an `Error`.
        error: the exception of that `Error`, or None.

    """

    response: dict[str, JSON] | None = field(repr=False)
    termination: Termination | Failed
    iterations: int
    total_usage: Usage
    usage_log: tuple[IterationUsage, ...] = field(repr=False)
    error: Exception | None = None


Turn = Yielded | Completed | Error
