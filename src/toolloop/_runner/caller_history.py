"""The history of a runner as its caller sees and changes it between two steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import define, field, frozen

from toolloop._interface.decisions import to_texts
from toolloop.errors import ProtocolError
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import Finished, Loop, Round, find_round_calls, list_messages
from toolloop.machine.record.replies import ends_in_reply, find_open_server_calls, read_reply
from toolloop.machine.rules.calls import settle_open
from toolloop.machine.rules.history_edits import list_unjoined_before_reply
from toolloop.machine.rules.joining import make_answer
from toolloop.machine.values.calls import Call
from toolloop.machine.values.jsontext import JSON, decode, encode, to_canonical
from toolloop.machine.values.splicing import find_splices

MessageTexts = tuple[str, ...]


@define
class CallerHistory:
    """Track the history that the caller sees, and the caller's changes. It performs nothing.

    If the caller changes nothing, the reply joins the history. Otherwise, the caller's version is the history.

    Attributes:
        edited: the history as the caller changed it; None without changes.
        is_tuned: whether the caller changed other parameters since the last step.

    """

    edited: MessageTexts | None = None
    is_tuned: bool = False
    _stands: MessageTexts | None = None  # the caller's history of a loop that has ended
    _asked: Loop | None = None  # the loop when the shown reply was requested
    _seen: Loop | None = None  # the loop with the shown reply
    _marks: MessageTexts = ()  # a history with one of these texts contains the shown reply
    _joined: dict[str, str] = field(factory=dict)  # each reply as it joined the history, by its text as yielded
    _ended: frozenset[str] = frozenset()  # the ids of the calls in the reply that ended the loop; they do not run

    @property
    def base(self) -> MessageTexts | None:
        """The history that the caller sees without changes; None means the loop's history."""
        return self._stands if self._asked is None else (*self._asked.messages, *self._asked.unjoined)

    @property
    def kept(self) -> MessageTexts | None:
        """The history that is used without changes, with the shown reply; None means the loop's history."""
        return None if self._seen is None else tuple(list_messages(self._seen))

    def is_untouched(self, loop: Loop) -> bool:
        """Return whether neither the caller nor the loop has changed the history since the reply was shown."""
        seen = self._seen
        if seen is None or self.edited is not None or self.is_tuned:
            return False
        is_same = loop.messages == seen.messages and loop.unjoined is seen.unjoined
        return is_same and (loop.round and loop.round.reply) == (seen.round and seen.round.reply)

    def show(self, loop: Loop, asked: Loop) -> None:
        """Show the last reply of a loop. `asked` is the loop at the time of the request."""
        self._asked, self._seen = asked, loop
        reply = decode(loop.response or "{}")
        ids = [block["id"] for block in reply["content"] if block["type"] == "tool_use"]
        self._ended = frozenset(ids if isinstance(loop.phase, Finished) else ())
        unsettled = None if loop.round is None else loop.round.reply
        last = unsettled or (loop.unjoined or loop.messages)[-1]
        length = len(loop.messages) + len(loop.unjoined) + (unsettled is not None)
        if length > len(asked.messages) + len(asked.unjoined) and ends_in_reply((last,)):  # else it did not join
            self._joined[to_canonical({"role": "assistant", "content": reply["content"]})] = last
            self._marks = (last, *(f'"id":{encode(name)}' for name in ids))

    def shown(self, loop: Loop) -> MessageTexts:
        """Return the history as the caller sees it. The reply joins when the body ends."""
        return self._unchanged(loop) if self.edited is None else self.edited

    def change(self, loop: Loop, texts: MessageTexts) -> None:
        """Store the caller's history. An equal history is not a change, unless it was changed before."""
        is_changed = self.edited is not None or texts != self._unchanged(loop)
        self.edited = texts if is_changed else None

    def add_reply(self, loop: Loop) -> MessageTexts:
        """Return the history with the shown reply, unless the caller left the reply out."""
        kept = self.kept if self.edited is None else None
        return self.shown(loop) if kept is None else kept

    def leaves_out(self, texts: MessageTexts) -> bool:
        """Return whether the shown reply is missing from a history, also with edited inputs."""
        return bool(self._marks) and not any(mark in text for text in texts for mark in self._marks)

    def over(self, base: MessageTexts | None = None) -> None:
        """End the body. `base` is the caller's history of a loop that has ended."""
        self._stands, self._asked, self._seen = base, None, None
        self.edited, self.is_tuned, self._marks = None, False, ()

    def to_texts(self, messages: Any) -> MessageTexts:
        """Return messages as JSON texts, with each reply in the form in which it joins the history.

        Raises:
            TypeError: the value is not a list, or a message is not JSON.

        """
        sent_back = [_as_sent_back(decode(text)) for text in to_texts(messages)]
        return tuple(self._joined.get(to_canonical(message)) or encode(message) for message in sent_back)

    def settle_ended(self, loop: Loop, texts: MessageTexts) -> MessageTexts:
        """Return the history with the calls of the reply that ended the loop answered as not run."""
        end = len(texts)
        while end and not ends_in_reply(texts[end - 1 : end]):
            end -= 1
        calls, has_results = find_open_calls(texts[:end]), any('"tool_result"' in text for text in texts[end:])
        if has_results or not calls or not self._ended.issuperset(call.id for call in calls):
            return texts
        round_ = settle_open(Round(0, texts[end - 1], calls), loop.setup.texts)
        return (*texts[:end], make_answer(loop, round_), *texts[end:])

    def _unchanged(self, loop: Loop) -> MessageTexts:
        base = self.base
        return tuple(list_messages(loop)) if base is None else base


def make_taken(loop: Loop, texts: MessageTexts, at: float, beside: int = 0) -> ev.HistoryTaken:
    """Return the event that makes these messages the history of a loop. The calls at the end are open.

    Args:
        loop: the loop.
        texts: the messages.
        at: the time, in seconds since the epoch.
        beside: the number of messages at the end that only a resumption may follow.

    """
    reply = texts[-1] if find_open_calls(texts) else None
    closed = texts if reply is None else texts[:-1]
    unjoined, old = list_unjoined_before_reply(loop), tuple(loop.messages)
    keeps = bool(unjoined) and closed == (*old, *unjoined)
    return ev.HistoryTaken(() if keeps else find_splices(old, closed), reply, keeps, at=at, beside=beside)


@frozen
class Pause:
    """A history, parted where only a resumption may follow.

    Attributes:
        texts: the messages up to there: a reply with an open server call, and the results of its client calls.
        held: the messages after it.
        beside: the number of messages of that reply with its results; 0 without client calls.

    """

    texts: MessageTexts
    held: MessageTexts = ()
    beside: int = 0


def part_at_pause(texts: MessageTexts) -> Pause:
    """Part a history after a reply with an open server call, and after the results of its client calls."""
    end = len(texts)
    while end and not ends_in_reply(texts[end - 1 : end]):
        end -= 1
    reply = texts[max(0, end - 1) : end]
    if end == len(texts) or not find_open_server_calls(reply):
        return Pause(texts)
    if not find_open_calls(reply):
        return Pause(texts[:end], texts[end:])
    results, held = _part_results(texts[end:])
    return Pause((*texts[:end], *results), held, 1 + len(results)) if results and held else Pause(texts)


def _part_results(texts: MessageTexts) -> tuple[MessageTexts, MessageTexts]:
    """Return the results at the start of these messages, and what follows them."""
    for at, message in enumerate(map(decode, texts)):
        content = message["content"] if isinstance(message, dict) else ""
        blocks = content if isinstance(content, list) else []
        count = next((place for place, block in enumerate(blocks) if not _is_result(block)), len(blocks))
        if not count:
            return texts[:at], texts[at:]
        if count < len(blocks):
            parts = [encode({**message, "content": part}) for part in (blocks[:count], blocks[count:])]
            return (*texts[:at], parts[0]), (parts[1], *texts[at + 1 :])
    return texts, ()


def _is_result(block: JSON) -> bool:
    return isinstance(block, dict) and block.get("type") == "tool_result"


def list_open_at_limit(loop: Loop) -> list[str]:
    """Return the names of the client and server calls that were open when a limit ended a loop."""
    calls, asked = [call.name for call in find_round_calls(loop) if call.result is None], loop.open_messages
    names = {block["id"]: block["name"] for text in asked for block in decode(text)["content"] if "name" in block}
    return [*calls, *(names[name] for name in sorted(find_open_server_calls(asked)))]


def find_open_calls(texts: Sequence[str]) -> tuple[Call, ...]:
    """Return the calls at the end of a history; an empty tuple if the last message is invalid."""
    if not ends_in_reply(texts):
        return ()
    try:
        return read_reply(decode(texts[-1])).calls()
    except ProtocolError:
        return ()


def _as_sent_back(message: JSON) -> JSON:
    """Return a message as it is sent to the API: a reply is reduced to role and content, which come first."""
    if not isinstance(message, Mapping) or not {"role", "content"} <= message.keys():
        return message
    rest = {} if message.get("type") == "message" else message
    return {"role": message["role"], "content": message["content"], **rest}
