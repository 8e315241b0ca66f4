"""The working list of `messages_mut()`, and the messages with which edits and injections are checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, SupportsIndex

from attrs import frozen

from toolloop._interface.decisions import refuse_invalid, to_texts
from toolloop._interface.loop_params import all_params
from toolloop._requests.left_out_thinking import has_lost_its_pause
from toolloop.errors import IllegalCommand, InvalidHistory
from toolloop.machine.record.loop import Finished, Judging, Loop, Requesting, Round, TooDeep
from toolloop.machine.record.replies import ends_in_reply, ends_in_server_call, without_open_calls
from toolloop.machine.rules.joining import result_block, stays_unjoined, user_message
from toolloop.machine.rules.saying import kept_texts
from toolloop.machine.values.calls import Result
from toolloop.machine.values.chain import Chain
from toolloop.machine.values.jsontext import JSON, decode
from toolloop.tools import ToolRegistry

_ANY_USER = '{"role":"user","content":"-"}'
_ANY_REPLY = '{"role":"assistant","content":"-"}'


def stale_edit(what: str) -> IllegalCommand:
    """Return the error for an edit of a history that has changed since."""
    return IllegalCommand(
        f"{what}; call messages_mut() again",
        state="spent",
        asked="an edit of the history",
        allowed=("messages_mut()",),
    )


class WorkingList(list[JSON]):
    """The closed history as a list to edit in place. A list of an earlier wait refuses changes."""

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
            raise stale_edit("this list belongs to an earlier wait, so a change would have no effect")
        return original(self, *args, **kwargs)

    method.__name__, method.__doc__ = name, original.__doc__
    return method


_CHANGES = "__delitem__ __iadd__ __imul__ __setitem__ append clear extend insert pop remove reverse sort"
for _name in _CHANGES.split():
    setattr(WorkingList, _name, _refusing(_name))


@frozen
class HistoryEdit:
    """An edit of a closed history by the caller. `base`: the history before it."""

    base: Chain[str]
    messages: tuple[str, ...]


class MessageEdits:
    """The caller's edits with `messages_mut()`: one list for each wait."""

    def __init__(self) -> None:
        """Start without a list. `working` makes it."""
        self._list: WorkingList | None = None
        self._base: Chain[str] = Chain()

    def working(self, loop: Loop, *, is_driven: bool) -> list[JSON]:
        """Return the list of this wait. `is_driven`: whether this handle is driving the loop.

        Raises:
            IllegalCommand: a turn is in progress, or the loop is nested too deep to run.

        """
        if is_driven or isinstance(loop.phase, (TooDeep, Requesting)):
            raise IllegalCommand(
                "messages_mut(): it is not the caller's turn: "
                + (
                    "this loop is nested too deep to run"
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
            TypeError: an item of the caller's list is not JSON.

        """
        texts = self._texts() if self._is_current(loop) else loop.messages
        return tuple(map(decode, texts))

    def edit(self, loop: Loop) -> HistoryEdit | None:
        """Return the caller's edit of the closed history of a loop; None if it is unchanged.

        Raises:
            IllegalCommand: the loop has continued since. The list is invalid and refuses changes from now on.
            TypeError: an item of the list is not JSON.

        """
        if self._list is None:
            return None
        if self._is_current(loop):
            texts = self._texts()
            return None if texts == tuple(self._base) else HistoryEdit(self._base, texts)
        was_edited = self._list != list(map(decode, self._base))
        self.taken()
        if was_edited:
            raise stale_edit("the loop has continued elsewhere, and the edit of its history belongs to an earlier wait")
        return None

    def settle(self, loop: Loop, edit: HistoryEdit) -> None:
        """Record that an edit was applied. The list stays valid for this wait, unless others changed the history."""
        if tuple(loop.messages) == edit.messages:
            self._base = loop.messages
        elif not self._is_current(loop):
            self.taken()

    def taken(self) -> None:
        """Invalidate the list, because the wait is over. It refuses changes from now on."""
        if self._list is not None:
            self._list.spent = True
        self._list, self._base = None, Chain()

    def _texts(self) -> tuple[str, ...]:
        return to_texts(self._list or (), known=frozenset(self._base))

    def _is_current(self, loop: Loop) -> bool:
        """Return whether there is a list, and the loop still has the history that the list was made from."""
        if self._list is None or isinstance(loop.phase, Requesting):
            return False
        return self._base is loop.messages or self._base == loop.messages


# --- checks ----------------------------------------------------------------------------------------------------------


def outgoing(loop: Loop, closed: Sequence[str], injected: Sequence[str] = ()) -> list[str]:
    """Return the messages of the next request, with `closed` as the closed history.

    Open calls count as answered. After the end of a loop, a user message is added.
    """
    if isinstance(loop.phase, Finished):
        return [*closed, *kept_texts(loop), *(injected or (_ANY_USER,)), *loop.queued]
    if loop.round is not None:
        if isinstance(loop.phase, Judging) and not loop.round.calls:  # the reply ends the loop, or pauses it
            return [*closed, *without_open_calls(_with_reply(loop, loop.round)), _ANY_USER]
        return [
            *closed,
            *_with_results(loop, loop.round),
            *(() if _takes_only_results(loop, loop.round) else (*_next(loop), *injected)),
        ]
    if not loop.unjoined:
        return [*closed, *kept_texts(loop), *injected]
    # A paused reply is sent back unchanged. The checks accept it as the last message only if it ends in a server call.
    beside = list(loop.unjoined)
    while ends_in_reply(beside) and not ends_in_server_call(beside[-1]):
        beside.pop()
    return [*closed, *beside]


def refuse_unsendable(loop: Loop, tools: ToolRegistry, *, asked: str) -> None:
    """Refuse messages that the API would refuse.

    Raises:
        InvalidHistory: with the place, the rule and the remedy of each problem.

    """
    refuse_invalid(outgoing(loop, list(loop.messages)), all_params(decode(loop.setup.params), tools), asked=asked)


def landing(loop: Loop, injected: Sequence[str]) -> list[str]:
    """Return injected messages after those that they will follow: enough for a check, however long the history is."""
    if isinstance(loop.phase, Finished):
        return [*_last_round(loop.messages), *kept_texts(loop), *injected, *loop.queued]
    if loop.round is not None and not _takes_only_results(loop, loop.round):
        return [*_with_results(loop, loop.round), *_next(loop), *injected]
    if loop.round is None and not loop.unjoined:
        return [*_last_round(loop.messages), *_next(loop), *injected]
    return [_ANY_USER, _ANY_REPLY, *_next(loop), *injected]  # they join after a reply that has not arrived yet


def _next(loop: Loop) -> list[str]:
    """Return the messages that join the history next."""
    return [*loop.queued, *kept_texts(loop)]


def _last_round(messages: Sequence[str]) -> list[str]:
    """Return the last message of the model, and the messages after it."""
    start = len(messages)
    while start:
        start -= 1
        if '"assistant"' in messages[start] and decode(messages[start])["role"] == "assistant":
            break
    return list(messages[start:])


def _with_results(loop: Loop, round_: Round) -> list[str]:
    """Return the messages beside the history, including the open reply and a result for each of its calls."""
    blocks = [result_block(call, Result('"-"')) for call in round_.calls]
    return [*_with_reply(loop, round_), *([user_message(blocks)] if blocks else [])]


def _with_reply(loop: Loop, round_: Round) -> list[str]:
    return [*loop.unjoined, *([] if round_.reply is None else [round_.reply])]


def _takes_only_results(loop: Loop, round_: Round) -> bool:
    """Return whether only its results may follow the open round."""
    return stays_unjoined(_with_reply(loop, round_), round_)


def refuse_lost_pause(loop: Loop, *, asked: str) -> None:
    """Refuse a change of the prefix of a paused reply that must be sent with its thinking. `loop`: after the change.

    Raises:
        IllegalCommand: the change would make that thinking stale.

    """
    if has_lost_its_pause(loop):
        raise IllegalCommand(
            f"{asked}: the model has paused, and its reply must be sent back with its thinking, which is only valid "
            "with the current history, system prompt and tools. Continue first, or end the turn with resume(Stop())",
            state=type(loop.phase).__name__,
            asked=asked,
            allowed=("continue_loop()", "resume(Stop())"),
        )


def explained(error: InvalidHistory, texts: Sequence[str], loop: Loop) -> InvalidHistory:
    """Return the error with a note if some of the messages are beside the history, where you cannot edit them."""
    if loop.round is not None:
        return error
    beside = [f"messages[{index}]" for index, text in enumerate(texts) if text in loop.unjoined]
    if not any(problem.path.startswith(tuple(beside)) for problem in error.problems):
        return error
    return InvalidHistory(
        f"{error} The messages from {beside[0]} on are beside the history until the model ends its turn, so "
        "messages_mut() does not show them. Change or shorten the messages before them, or end the turn with "
        "resume(Stop())",
        problems=error.problems,
        messages=error.messages,
    )
