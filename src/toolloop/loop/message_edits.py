"""The working list of `messages_mut()`, and the messages by which an edit or an injection is checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, SupportsIndex

from attrs import frozen

from toolloop.face.decisions import refuse_invalid, to_texts
from toolloop.face.loop_params import all_params
from toolloop.machine.chain import Chain
from toolloop.machine.errors import IllegalCommand, InvalidHistory
from toolloop.machine.joining import result_block, stays_unjoined, user_message
from toolloop.machine.jsontext import JSON, decode
from toolloop.machine.loop import Finished, Judging, Loop, Requesting, Round, TooDeep
from toolloop.machine.replies import ends_in_reply, ends_in_server_call, without_open_calls
from toolloop.machine.values import Result
from toolloop.requests.thinking import has_lost_its_pause
from toolloop.tools import ToolRegistry

_ANY_USER = '{"role":"user","content":"-"}'
_ANY_REPLY = '{"role":"assistant","content":"-"}'


def stale_edit(what: str) -> IllegalCommand:
    """Return the error for an edit of a history that the loop has no more."""
    return IllegalCommand(
        f"{what}; call messages_mut() again",
        state="spent",
        asked="an edit of the history",
        allowed=("messages_mut()",),
    )


class WorkingList(list[JSON]):
    """The closed history, to be edited in place. A list from an earlier wait refuses to change."""

    def __init__(self, messages: Iterable[JSON]) -> None:
        """Start from the messages as they are."""
        super().__init__(messages)
        self.spent = False

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return list, (list(self),)


def _refusing(name: str) -> Callable[..., Any]:
    original = getattr(list, name)

    def method(self: WorkingList, *args: Any, **kwargs: Any) -> Any:
        if self.spent:
            raise stale_edit("this list is of an earlier wait, and changing it would change nothing")
        return original(self, *args, **kwargs)

    method.__name__, method.__doc__ = name, original.__doc__
    return method


_CHANGES = "__delitem__ __iadd__ __imul__ __setitem__ append clear extend insert pop remove reverse sort"
for _name in _CHANGES.split():
    setattr(WorkingList, _name, _refusing(_name))


@frozen
class Edit:
    """What the caller made of a closed history. `base`: that history."""

    base: Chain[str]
    messages: tuple[str, ...]


class MessageEdits:
    """The edits that a caller makes through `messages_mut()`: one list for each wait."""

    def __init__(self) -> None:
        """Start without a list; `working` makes it."""
        self._list: WorkingList | None = None
        self._base: Chain[str] = Chain()

    def working(self, loop: Loop, *, is_driven: bool) -> list[JSON]:
        """Return the list of this wait. `is_driven`: this handle drives the loop right now.

        Raises:
            IllegalCommand: a turn is in progress, or the loop may not run at all.

        """
        if is_driven or isinstance(loop.phase, (TooDeep, Requesting)):
            raise IllegalCommand(
                "messages_mut(): it is not the caller's turn: "
                + (
                    "this loop may not run at all"
                    if isinstance(loop.phase, TooDeep)
                    else "a turn is in progress; wait until next_turn() returns"
                ),
                state=type(loop.phase).__name__,
                asked="messages_mut()",
                allowed=(),
            )
        if self._list is None or not self._is_current(loop):
            self.taken()
            self._list, self._base = WorkingList(map(decode, loop.messages)), loop.messages
        return self._list

    def shown(self, loop: Loop) -> tuple[JSON, ...]:
        """Return copies of the closed history with the caller's edits in it.

        Raises:
            TypeError: the caller's list holds something that is not JSON.

        """
        texts = self._texts() if self._is_current(loop) else loop.messages
        return tuple(map(decode, texts))

    def edit(self, loop: Loop) -> Edit | None:
        """Return what the caller made of the closed history of a loop; None if it is the same.

        Raises:
            IllegalCommand: the loop has gone on since. The list is given up, and refuses every change from now on.
            TypeError: the list holds something that is not JSON.

        """
        if self._list is None:
            return None
        if self._is_current(loop):
            texts = self._texts()
            return None if texts == tuple(self._base) else Edit(self._base, texts)
        was_edited = self._list != list(map(decode, self._base))
        self.taken()
        if was_edited:
            raise stale_edit("somebody else drove the loop on, and the edit of its history is of an earlier wait")
        return None

    def settle(self, loop: Loop, edit: Edit) -> None:
        """Note what became of an edit: the list goes on for this wait, unless others changed the history meanwhile."""
        if tuple(loop.messages) == edit.messages:
            self._base = loop.messages
        elif not self._is_current(loop):
            self.taken()

    def taken(self) -> None:
        """Give the list up: the wait is over, so it refuses every change from now on."""
        if self._list is not None:
            self._list.spent = True
        self._list, self._base = None, Chain()

    def _texts(self) -> tuple[str, ...]:
        return to_texts(self._list or (), known=frozenset(self._base))

    def _is_current(self, loop: Loop) -> bool:
        """Return whether there is a list, and the loop still has the history that it was made of."""
        if self._list is None or isinstance(loop.phase, Requesting):
            return False
        return self._base is loop.messages or self._base == loop.messages


# --- what is checked -------------------------------------------------------------------------------------------------


def outgoing(loop: Loop, closed: Sequence[str], injected: Sequence[str] = ()) -> list[str]:
    """Return the messages that a request would have to carry next, with `closed` as the closed history.

    Open calls count as answered, for their results will be; after the end of a loop, a user says something.
    """
    if isinstance(loop.phase, Finished):
        return [*closed, *(injected or (_ANY_USER,)), *loop.queued]
    if loop.round is not None:
        if isinstance(loop.phase, Judging) and not loop.round.calls:  # the reply ends the loop, or pauses it
            return [*closed, *without_open_calls(_with_reply(loop, loop.round)), _ANY_USER]
        return [
            *closed,
            *_with_results(loop, loop.round),
            *(() if _takes_only_results(loop, loop.round) else (*loop.queued, *injected)),
        ]
    if not loop.unjoined:
        return [*closed, *injected]
    # A paused reply is sent back as it came; unless a server call ends it, no check knows that it may be last.
    beside = list(loop.unjoined)
    while ends_in_reply(beside) and not ends_in_server_call(beside[-1]):
        beside.pop()
    return [*closed, *beside]


def refuse_unsendable(loop: Loop, tools: ToolRegistry, *, asked: str) -> None:
    """Refuse a loop whose next request the API would refuse.

    Raises:
        InvalidHistory: says where, which rule, and how to mend it.

    """
    refuse_invalid(outgoing(loop, list(loop.messages)), all_params(decode(loop.setup.params), tools), asked=asked)


def landing(loop: Loop, injected: Sequence[str]) -> list[str]:
    """Return injected messages with what they will follow: enough to check them by, however long the history is."""
    if isinstance(loop.phase, Finished):
        return [*_last_round(loop.messages), *injected, *loop.queued]
    if loop.round is not None and not _takes_only_results(loop, loop.round):
        return [*_with_results(loop, loop.round), *loop.queued, *injected]
    if loop.round is None and not loop.unjoined:
        return [*_last_round(loop.messages), *loop.queued, *injected]
    return [_ANY_USER, _ANY_REPLY, *loop.queued, *injected]  # they join after a reply that is still to come


def _last_round(messages: Sequence[str]) -> list[str]:
    """Return the last message of the model, and what follows it."""
    start = len(messages)
    while start:
        start -= 1
        if '"assistant"' in messages[start] and decode(messages[start])["role"] == "assistant":
            break
    return list(messages[start:])


def _with_results(loop: Loop, round_: Round) -> list[str]:
    """Return what stands beside the history, the open reply included, with a result for each of its calls."""
    blocks = [result_block(call, Result('"-"')) for call in round_.calls]
    return [*_with_reply(loop, round_), *([user_message(blocks)] if blocks else [])]


def _with_reply(loop: Loop, round_: Round) -> list[str]:
    return [*loop.unjoined, *([] if round_.reply is None else [round_.reply])]


def _takes_only_results(loop: Loop, round_: Round) -> bool:
    """Return whether nothing but its results may follow the open round."""
    return stays_unjoined(_with_reply(loop, round_), round_)


def refuse_lost_pause(loop: Loop, *, asked: str) -> None:
    """Refuse a change of what stands before a paused reply that goes out only with its thinking. `loop`: after it.

    Raises:
        IllegalCommand: says what to do.

    """
    if has_lost_its_pause(loop):
        raise IllegalCommand(
            f"{asked}: the model pauses, and what it said so far goes out only with its thinking, which is bound to "
            "the history, system prompt and tools as they are. Let it go on first, or end its turn with resume(Stop())",
            state=type(loop.phase).__name__,
            asked=asked,
            allowed=("continue_loop()", "resume(Stop())"),
        )


def explained(error: InvalidHistory, texts: Sequence[str], loop: Loop) -> InvalidHistory:
    """Return the error for messages of which some stay beside the history, so that they are not looked for in it."""
    if loop.round is not None:
        return error
    beside = [f"messages[{index}]" for index, text in enumerate(texts) if text in loop.unjoined]
    if not any(problem.path.startswith(tuple(beside)) for problem in error.problems):
        return error
    return InvalidHistory(
        f"{error} From {beside[0]} on, the messages stay beside the history until the model ends its turn, and "
        "messages_mut() does not show them: change or shorten there what comes before, or end the turn with "
        "resume(Stop())",
        problems=error.problems,
        messages=error.messages,
    )
