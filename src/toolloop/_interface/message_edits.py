"""The working list of `messages_mut()`, and the messages with which edits and injections are checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, SupportsIndex

from attrs import frozen

from toolloop._interface.decisions import refuse_invalid, to_texts
from toolloop._interface.loop_params import merge_params
from toolloop._messages.check import check
from toolloop._requests.left_out_thinking import has_lost_its_pause
from toolloop.errors import IllegalCommand, InvalidHistory
from toolloop.machine.record.loop import Finished, Judging, Loop, Requesting, TooDeep
from toolloop.machine.record.replies import drop_open_calls, ends_in_reply, ends_in_server_call
from toolloop.machine.rules.joining import join_rest, make_result_block, make_user_message, stays_unjoined
from toolloop.machine.rules.saying import list_kept_texts
from toolloop.machine.values.calls import Result
from toolloop.machine.values.chain import Chain
from toolloop.machine.values.jsontext import JSON, decode
from toolloop.tools import ToolRegistry

ANY_USER = '{"role":"user","content":"-"}'
_ANY_REPLY = '{"role":"assistant","content":"-"}'


def make_spent_edit_error(what: str) -> IllegalCommand:
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


def _make_refusing(name: str) -> Callable[..., Any]:
    original = getattr(list, name)

    def refuse_if_spent(self: WorkingList, *args: Any, **kwargs: Any) -> Any:
        if self.spent:
            raise make_spent_edit_error("this list belongs to an earlier wait, so a change would have no effect")
        return original(self, *args, **kwargs)

    refuse_if_spent.__name__, refuse_if_spent.__doc__ = name, original.__doc__
    return refuse_if_spent


_CHANGES = "__delitem__ __iadd__ __imul__ __setitem__ append clear extend insert pop remove reverse sort"
for _name in _CHANGES.split():
    setattr(WorkingList, _name, _make_refusing(_name))


@frozen
class HistoryEdit:
    """An edit of a closed history by the caller. `base`: the history before it."""

    base: Chain[str]
    messages: tuple[str, ...]


class MessageEdits:
    """The caller's edits with `messages_mut()`: one list for each wait.

    Attributes:
        working: the list of this wait; None if the caller has not asked for one.

    """

    def __init__(self) -> None:
        """Start without a list. `open_list` makes it."""
        self.working: WorkingList | None = None
        self._base: Chain[str] = Chain()

    def open_list(self, loop: Loop, *, is_driven: bool) -> list[JSON]:
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
        if self.working is None or not self._is_current(loop):
            self.invalidate()
            self._base = join_rest(loop).messages
            self.working = WorkingList(map(decode, self._base))
        return self.working

    def show(self, loop: Loop) -> tuple[JSON, ...]:
        """Return copies of the closed history with the caller's edits in it.

        Raises:
            TypeError: an item of the caller's list is not JSON.

        """
        texts = self._to_texts() if self._is_current(loop) else join_rest(loop).messages
        return tuple(map(decode, texts))

    def find_edit(self, loop: Loop) -> HistoryEdit | None:
        """Return the caller's edit of the closed history of a loop; None if it is unchanged.

        Raises:
            IllegalCommand: the loop has continued since. The list is invalid and refuses changes from now on.
            TypeError: an item of the list is not JSON.

        """
        if self.working is None:
            return None
        if self._is_current(loop):
            texts = self._to_texts()
            return None if texts == tuple(self._base) else HistoryEdit(self._base, texts)
        was_edited = self.working != list(map(decode, self._base))
        self.invalidate()
        if was_edited:
            raise make_spent_edit_error(
                "the loop has continued elsewhere, and the edit of its history belongs to an earlier wait"
            )
        return None

    def settle(self, loop: Loop, edit: HistoryEdit) -> None:
        """Record that an edit was applied. The list stays valid for this wait, unless others changed the history."""
        if tuple(loop.messages) == edit.messages:
            self._base = loop.messages
        elif not self._is_current(loop):
            self.invalidate()

    def invalidate(self) -> None:
        """Invalidate the list, because the wait is over. It refuses changes from now on."""
        if self.working is not None:
            self.working.spent = True
        self.working, self._base = None, Chain()

    def _to_texts(self) -> tuple[str, ...]:
        return to_texts(self.working or (), known=frozenset(self._base))

    def _is_current(self, loop: Loop) -> bool:
        """Return whether there is a list, and the loop still has the history that the list was made from."""
        if self.working is None or isinstance(loop.phase, Requesting):
            return False
        return self._base is loop.messages or self._base == join_rest(loop).messages


# --- checks ----------------------------------------------------------------------------------------------------------


def preview_request(loop: Loop, injected: Sequence[str] = ()) -> list[str]:
    """Return the messages of the next request: open calls count as answered; after an end, a user message is added."""
    loop = join_rest(loop)
    if isinstance(loop.phase, Finished):
        return [*loop.messages, *list_kept_texts(loop), *(injected or (ANY_USER,)), *loop.queued]
    if loop.round is not None:
        if isinstance(loop.phase, Judging) and not loop.calls:  # the reply ends the loop, or pauses it
            return [*loop.messages, *drop_open_calls(loop.open_messages), ANY_USER]
        more = () if _takes_only_results(loop) else (*_list_next(loop), *injected)
        return [*loop.messages, *_answer_open_calls(loop), *more]
    if not loop.unjoined:
        return [*loop.messages, *list_kept_texts(loop), *injected]
    # A paused reply is sent back unchanged. The checks accept it as the last message only if it ends in a server call.
    beside = list(loop.unjoined)
    while ends_in_reply(beside) and not ends_in_server_call(beside[-1]):
        beside.pop()
    return [*loop.messages, *beside]


def refuse_unsendable(loop: Loop, tools: ToolRegistry, *, asked: str) -> None:
    """Refuse messages that the API would refuse.

    Raises:
        InvalidHistory: with the place, the rule and the remedy of each problem.

    """
    refuse_invalid(preview_request(loop), merge_params(decode(loop.setup.params), tools), asked=asked)


def refuse_params(loop: Loop, tools: ToolRegistry, *, asked: str) -> None:
    """Refuse parameters that the API would refuse with any messages, such as those of an old journal.

    Raises:
        InvalidHistory: as for `refuse_unsendable`.

    """
    refuse_invalid((ANY_USER,), merge_params(decode(loop.setup.params), tools), asked=asked)


def preview_injection(loop: Loop, injected: Sequence[str]) -> list[str]:
    """Return injected messages after those that they will follow: enough for a check, however long the history is."""
    loop = join_rest(loop)
    if isinstance(loop.phase, Finished):
        return [*_cut_before_reply(loop.messages), *list_kept_texts(loop), *injected, *loop.queued]
    if loop.round is not None and not _takes_only_results(loop):
        return [*_cut_before_reply(loop.messages, _answer_open_calls(loop)), *_list_next(loop), *injected]
    if loop.round is None and not loop.unjoined:
        return [*_cut_before_reply(loop.messages), *_list_next(loop), *injected]
    return [ANY_USER, _ANY_REPLY, *_list_next(loop), *injected]  # they join after a reply that has not arrived yet


def _list_next(loop: Loop) -> list[str]:
    """Return the messages that join the history next."""
    return [*loop.queued, *list_kept_texts(loop)]


def _cut_before_reply(messages: Sequence[str], beside: Sequence[str] = ()) -> list[str]:
    """Return the messages from a reply on: so many that each server result among them has its call.

    Twice as many replies are added each time, because the call may be gone from a long history.
    """
    part, start, replies = list(beside), len(messages), 1
    while start and not (part and _has_calls(part)):
        for _ in range(replies):
            start = next((at for at in reversed(range(start)) if _is_reply(messages[at])), 0)
        part, replies = [*messages[start:], *beside], replies * 2
    return part


def _is_reply(message: str) -> bool:
    return '"assistant"' in message and decode(message)["role"] == "assistant"


def _has_calls(texts: Sequence[str]) -> bool:
    """Return whether each server result in these messages has its call there."""
    return all(problem.rule != "orphan-server-result" for problem in check([decode(text) for text in texts]))


def _answer_open_calls(loop: Loop) -> list[str]:
    """Return the messages beside the history, including the open reply and a result for each of its calls."""
    blocks = [make_result_block(call, Result('"-"')) for call in loop.calls]
    return [*loop.open_messages, *([make_user_message(blocks)] if blocks else [])]


def _takes_only_results(loop: Loop) -> bool:
    """Return whether only its results may follow the open round."""
    return stays_unjoined(loop.open_messages, loop.calls)


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


def explain_place(error: InvalidHistory, texts: Sequence[str], loop: Loop) -> InvalidHistory:
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
