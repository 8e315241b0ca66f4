"""The working list of `messages_mut()`, and what would go out next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, SupportsIndex

from toolloop.core.closing import result_block, stays_beside, user_message
from toolloop.core.errors import IllegalCommand, InvalidHistory
from toolloop.core.jsontext import JSON, decode
from toolloop.core.replies import ends_in_reply, ends_in_server_call, without_open_calls
from toolloop.core.states import (
    Deciding,
    Executed,
    Failed,
    Finished,
    Judging,
    Paused,
    Proposed,
    Ready,
    Requesting,
    Running,
    State,
)
from toolloop.core.values import Result, Round
from toolloop.handle.binding import has_lost_its_pause

_ANYBODY = '{"role":"user","content":"-"}'


class WorkingList(list[JSON]):
    """The closed history, to be edited in place. A list from an earlier wait refuses to change."""

    def __init__(self, messages: Iterable[JSON]) -> None:
        """Start from the messages as they are."""
        super().__init__(messages)
        self.spent = False

    def _open(self) -> None:
        if self.spent:
            raise IllegalCommand(
                "this list is of an earlier wait, and changing it would change nothing; call messages_mut() again",
                state="spent",
                asked="an edit of the history",
                allowed=("messages_mut()",),
            )

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return list, (list(self),)


def _guarded(name: str) -> Callable[..., Any]:
    original = getattr(list, name)

    def method(self: WorkingList, *args: Any, **kwargs: Any) -> Any:
        self._open()
        return original(self, *args, **kwargs)

    method.__name__ = name
    method.__doc__ = original.__doc__
    return method


for _name in (
    "__delitem__",
    "__iadd__",
    "__imul__",
    "__setitem__",
    "append",
    "clear",
    "extend",
    "insert",
    "pop",
    "remove",
    "reverse",
    "sort",
):
    setattr(WorkingList, _name, _guarded(_name))


def outgoing(state: State, closed: Sequence[str], injected: Sequence[str] = ()) -> list[str]:
    """The messages that a request would have to carry next, with `closed` as the closed history.

    Open calls count as answered, for their results will be; after the end of a loop, somebody says something.
    """
    held = state.ledger.held
    match state:
        case Judging(round=Round(calls=())):  # the reply ends the loop, or pauses it
            return [*closed, *without_open_calls(_with_results(state.round)), _ANYBODY]
        case Proposed() | Judging() | Deciding() | Running() | Failed(round=Round()):
            round_ = state.round or Round(0, None)
            later = () if stays_beside(round_) else (*round_.after, *held, *injected)
            return [*closed, *_with_results(round_), *later]
        case Ready(tail=()) | Requesting(tail=()) | Executed(tail=()) | Paused(tail=()) | Failed(tail=()):
            return [*closed, *injected]
        case Ready() | Requesting() | Executed() | Paused() | Failed():
            # A paused reply is sent back as it came; unless a server call ends it, no checker knows it may be last.
            judged = list(state.tail)
            while ends_in_reply(judged) and not ends_in_server_call(judged[-1]):
                judged.pop()
            return [*closed, *judged]
        case Finished():
            return [*closed, *(injected or (_ANYBODY,)), *held]
    return list(closed)


def refuse_lost_pause(state: State, *, asked: str) -> None:
    """Refuse a change of what stands before a paused reply that goes out only with its thinking. `state`: after it.

    Raises:
        IllegalCommand: says what to do.

    """
    if has_lost_its_pause(state):
        raise IllegalCommand(
            f"{asked}: the model pauses, and what it said so far goes out only with its thinking, which is bound to "
            "the history, system prompt and tools as they are. Let it go on first, or end its turn with resume(Stop())",
            state=type(state).__name__,
            asked=asked,
            allowed=("continue_loop()", "resume(Stop())"),
        )


def explained(error: InvalidHistory, texts: Sequence[str], state: State) -> InvalidHistory:
    """The error for messages of which some stay beside the history, so that nobody looks for them in it."""
    tail = getattr(state, "tail", ())
    beside = [f"messages[{index}]" for index, text in enumerate(texts) if text in tail]
    if not any(problem.path.startswith(tuple(beside)) for problem in error.problems):
        return error
    return InvalidHistory(
        f"{error} From {beside[0]} on, the messages stay beside the history until the model ends its turn, and "
        "messages_mut() does not show them: change or shorten there what comes before, or end the turn with "
        "resume(Stop())",
        problems=error.problems,
        messages=error.messages,
    )


def landing(state: State, injected: Sequence[str]) -> list[str]:
    """Injected messages with what they will follow: enough to judge them by, whatever the length of the history."""
    held = state.ledger.held
    match state:
        case Proposed() | Judging() | Deciding() | Running() if not stays_beside(state.round):
            return [*_with_results(state.round), *state.round.after, *held, *injected]
        case Ready(tail=()) | Requesting(tail=()) | Executed(tail=()) | Paused(tail=()) | Failed(tail=()):
            return [*last_round(state.ledger.messages), *held, *injected]
        case Finished():
            return [*last_round(state.ledger.messages), *injected, *held]
    # They join after the reply that ends the pause, which is the model's.
    return [_ANYBODY, '{"role":"assistant","content":"-"}', *held, *injected]


def last_round(messages: Sequence[str]) -> list[str]:
    """The last message of the model, and what follows it."""
    start = len(messages)
    while start:
        start -= 1
        if '"assistant"' in messages[start] and decode(messages[start])["role"] == "assistant":
            break
    return list(messages[start:])


def _with_results(round_: Round) -> list[str]:
    blocks = [result_block(call, Result('"-"')) for call in round_.calls]
    reply = [] if round_.reply is None else [round_.reply]
    return [*round_.tail, *reply, *([user_message(blocks)] if blocks else [])]
