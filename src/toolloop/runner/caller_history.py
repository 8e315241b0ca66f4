"""Whose history counts: what the caller of a runner made of it between two steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import define, field

from toolloop.face.decisions import to_texts
from toolloop.machine import events as ev
from toolloop.machine.calls import settle_open
from toolloop.machine.errors import ProtocolError
from toolloop.machine.history_edits import unjoined_before_reply
from toolloop.machine.joining import answer_to
from toolloop.machine.jsontext import JSON, canonical, decode, encode
from toolloop.machine.loop import Finished, Loop, Round
from toolloop.machine.replies import ends_in_reply, open_server_calls, read_reply
from toolloop.machine.splicing import splices_between
from toolloop.machine.thinking import all_messages
from toolloop.machine.values import Call

Texts = tuple[str, ...]


@define
class CallerHistory:
    """What the caller sees of the history, and what they changed. It performs nothing.

    If the caller changes nothing, the reply joins the history. If they do, the history is what they made of it.

    Attributes:
        mine: the history as they changed it; None: they changed nothing.
        is_tuned: they changed other parameters since the last step.

    """

    mine: Texts | None = None
    is_tuned: bool = False
    _stands: Texts | None = None  # what they made of the history of a loop that has ended
    _asked: Loop | None = None  # the loop when the reply was asked for that they see
    _seen: Loop | None = None  # the loop with that reply
    _marks: Texts = ()  # a history with one of these texts in it has that reply
    _joined: dict[str, str] = field(factory=dict)  # how each reply joined, by the text of how it was yielded
    _ended: frozenset[str] = frozenset()  # the ids of the calls of the reply that ended the loop: none of them runs

    @property
    def base(self) -> Texts | None:
        """The history that the caller sees if they change nothing; None: that of the loop."""
        return self._stands if self._asked is None else (*self._asked.messages, *self._asked.unjoined)

    @property
    def kept(self) -> Texts | None:
        """The history that counts if they change nothing: with the reply that they see; None: that of the loop."""
        return None if self._seen is None else tuple(all_messages(self._seen))

    def is_untouched(self, loop: Loop) -> bool:
        """Return whether the caller changed nothing, and the loop has the history with which they saw the reply."""
        seen = self._seen
        if seen is None or self.mine is not None or self.is_tuned:
            return False
        is_same = loop.messages is seen.messages and loop.unjoined is seen.unjoined
        return is_same and (loop.round and loop.round.reply) == (seen.round and seen.round.reply)

    def show(self, loop: Loop, asked: Loop) -> None:
        """The caller sees the last reply of a loop. `asked`: the loop as it was when that was asked for."""
        self._asked, self._seen = asked, loop
        reply = decode(loop.response or "{}")
        ids = [block["id"] for block in reply["content"] if block["type"] == "tool_use"]
        self._ended = frozenset(ids if isinstance(loop.phase, Finished) else ())
        unsettled = None if loop.round is None else loop.round.reply
        last = unsettled or (loop.unjoined or loop.messages)[-1]
        length = len(loop.messages) + len(loop.unjoined) + (unsettled is not None)
        if length > len(asked.messages) + len(asked.unjoined) and ends_in_reply((last,)):  # else it did not join
            self._joined[canonical({"role": "assistant", "content": reply["content"]})] = last
            self._marks = (last, *(f'"id":{encode(name)}' for name in ids))

    def shown(self, loop: Loop) -> Texts:
        """Return the history as the caller sees it. The reply joins when the body is over."""
        return self._unchanged(loop) if self.mine is None else self.mine

    def change(self, loop: Loop, texts: Texts) -> None:
        """Take another history from the caller. The same one again is not a change, unless they changed it before."""
        is_changed = self.mine is not None or texts != self._unchanged(loop)
        self.mine = texts if is_changed else None

    def with_reply(self, loop: Loop) -> Texts:
        """Return the history with the reply that the caller sees, unless they left it out."""
        kept = self.kept if self.mine is None else None
        return self.shown(loop) if kept is None else kept

    def leaves_out(self, texts: Texts) -> bool:
        """Return whether the reply that the caller sees is not in this history, not even with other inputs."""
        return bool(self._marks) and not any(mark in text for text in texts for mark in self._marks)

    def over(self, base: Texts | None = None) -> None:
        """The body is over. `base`: what the caller made of the history of a loop that has ended."""
        self._stands, self._asked, self._seen, self.mine, self.is_tuned, self._marks = base, None, None, None, False, ()

    def to_texts(self, messages: Any) -> Texts:
        """Return messages as JSON texts, and each reply in them as it joins by itself.

        Raises:
            TypeError: they are no list, or something in them is not JSON.

        """
        sent_back = [_as_sent_back(decode(text)) for text in to_texts(messages)]
        return tuple(self._joined.get(canonical(message)) or encode(message) for message in sent_back)

    def without_ended(self, loop: Loop, texts: Texts) -> Texts:
        """Return the history in which the calls of a reply that ended the loop are answered as not run."""
        end = len(texts)
        while end and not ends_in_reply(texts[end - 1 : end]):
            end -= 1
        calls, has_results = open_calls(texts[:end]), any('"tool_result"' in text for text in texts[end:])
        if has_results or not calls or not self._ended.issuperset(call.id for call in calls):
            return texts
        round_ = settle_open(Round(0, texts[end - 1], calls), loop.setup.texts)
        return (*texts[:end], answer_to(loop, round_), *texts[end:])

    def _unchanged(self, loop: Loop) -> Texts:
        base = self.base
        return tuple(all_messages(loop)) if base is None else base


def taking(loop: Loop, texts: Texts, at: float) -> ev.HistoryTaken:
    """Return the event by which these messages become the history of a loop. The calls at their end are open."""
    reply = texts[-1] if open_calls(texts) else None
    closed = texts if reply is None else texts[:-1]
    unjoined, old = unjoined_before_reply(loop), tuple(loop.messages)
    keeps = bool(unjoined) and closed == (*old, *unjoined)
    return ev.HistoryTaken(() if keeps else splices_between(old, closed), reply, keeps, at=at)


def end_of_pause(texts: Texts) -> int:
    """Return the length of a history up to a reply after which the API takes only its resumption.

    That is a reply with an open server call, and without a call of the client; else it is the whole length.
    """
    end = len(texts)
    while end and not ends_in_reply(texts[end - 1 : end]):
        end -= 1
    reply = texts[max(0, end - 1) : end]
    return end if open_server_calls(reply) and not open_calls(reply) else len(texts)


def open_at_limit(phase: Finished) -> list[str]:
    """Return the names of the calls, the client's and the server's, that were open where a limit ended a loop."""
    point = phase.resume_point
    if point is None:
        return []
    calls = [] if point.round is None else [call.name for call in point.round.calls if call.result is None]
    reply = () if point.round is None or point.round.reply is None else (point.round.reply,)
    asked = (*point.unjoined, *reply)
    names = {block["id"]: block["name"] for text in asked for block in decode(text)["content"] if "name" in block}
    return [*calls, *(names[name] for name in sorted(open_server_calls(asked)))]


def open_calls(texts: Sequence[str]) -> tuple[Call, ...]:
    """Return the calls that a history ends with; none if its last message makes no sense."""
    if not ends_in_reply(texts):
        return ()
    try:
        return read_reply(decode(texts[-1])).calls()
    except ProtocolError:
        return ()


def _as_sent_back(message: JSON) -> JSON:
    """Return a message as it is sent back: of a reply, its role and its content. These two come first."""
    if not isinstance(message, Mapping) or not {"role", "content"} <= message.keys():
        return message
    rest = {} if message.get("type") == "message" else message
    return {"role": message["role"], "content": message["content"], **rest}
