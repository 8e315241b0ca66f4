"""Whose history counts: what the caller of a runner made of it between two steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
from toolloop.machine.replies import ends_in_reply, read_reply
from toolloop.machine.splicing import splices_between
from toolloop.machine.thinking import all_messages
from toolloop.machine.values import Call

Texts = tuple[str, ...]


@define
class CallerHistory:
    """What the caller sees of the history, and what they changed. It performs nothing.

    If the caller changes nothing, the reply joins the history. If they do, the history is what they made of it.

    Attributes:
        mine: the history as the caller changed it, until a step takes it over; None: they changed nothing.
        stands: the history as they made it of the last reply, after which the loop had ended.
        is_tuned: the caller changed the other parameters, and no step has noticed.
        is_ahead: a response was generated, so the loop has taken `mine` over already.
        reply: the reply that the caller sees; None once the next step begins.
        asked: the loop as it was when that was asked for.
        join: the message that joins by itself for the reply; None if none does.

    """

    mine: Texts | None = None
    stands: Texts | None = None
    is_tuned: bool = False
    is_ahead: bool = False
    reply: dict[str, JSON] | None = None
    asked: Loop | None = None
    join: str | None = None
    _joined: dict[str, str] = field(factory=dict)  # how each reply joined that did not do so as it was yielded
    _ended: frozenset[str] = frozenset()  # the ids of the calls of the reply that ended the loop: none of them runs

    def show(self, loop: Loop) -> None:
        """The caller sees the last reply of a loop."""
        reply: dict[str, JSON] = decode(loop.response or "{}")
        sent = 0 if self.asked is None else len(self.asked.messages) + len(self.asked.unjoined)
        after = loop.unjoined or loop.messages[sent:]
        joined = after[-1] if ends_in_reply(after) else None  # not if its calls were answered as not run
        self.reply, self.join = reply, joined if loop.round is None else loop.round.reply
        self._ended = _call_ids(reply) if isinstance(loop.phase, Finished) else frozenset()
        if self.join is not None and canonical(decode(self.join)) != (yielded := _as_yielded(reply)):
            self._joined[yielded] = self.join

    def shown(self, loop: Loop) -> Texts:
        """Return the history as the caller sees it. The reply joins when the body is over."""
        return self._unchanged(loop) if self.mine is None else self.mine

    def change(self, loop: Loop, texts: Texts) -> None:
        """Take another history from the caller; one that is as it was is no change."""
        self.mine = None if texts == self._unchanged(loop) else texts

    def kept(self) -> Texts:
        """Return the history with which it goes on if the caller changes nothing."""
        return self._base() if self.join is None else (*self._base(), self.join)

    def ahead(self) -> Texts | None:
        """Return the history that a response is asked for, if the loop does not have it; or had another one before."""
        return self.kept() if self.mine is None and self.is_ahead else self.mine

    def changed(self) -> Texts | None:
        """Return the history that counts from now on, the body being over; None: the reply joins."""
        if self.mine is None:
            return self._base() if self.is_tuned and self.reply is not None else None
        joins = self.reply is not None and self.join is not None and self.mine == self.kept()
        return None if joins else self.mine

    def leaves_out(self, texts: Texts) -> bool:
        """Return whether the reply that the caller sees is not in this history, not even with other inputs."""
        if self.reply is None or self.join is None or self.join in texts:
            return False
        ids = [f'"id":{encode(name)}' for name in _call_ids(self.reply)]
        return not any(name in text for text in texts for name in ids)

    def over(self) -> None:
        """The body is over, and its history was taken over."""
        self.mine = self.reply = None
        self.is_tuned = self.is_ahead = False

    def to_texts(self, messages: Any) -> Texts:
        """Return messages as JSON texts, and each reply in them as it joins by itself.

        Raises:
            TypeError: they are no list, or something in them is not JSON.

        """
        if isinstance(messages, Iterable) and not isinstance(messages, str | bytes | Mapping):
            messages = [_as_sent_back(message) for message in messages]
        texts, joined = to_texts(messages), self._joined
        if self.reply is not None and self.join is not None:
            joined = {**joined, _as_yielded(self.reply): self.join}
        return tuple(joined.get(canonical(decode(text)), text) for text in texts) if joined else texts

    def without_ended(self, loop: Loop, texts: Texts) -> Texts:
        """Return the history in which the calls of a reply that ended the loop are answered as not run."""
        end = next((at for at in range(len(texts), 0, -1) if ends_in_reply(texts[:at])), 0) if self._ended else 0
        calls, has_results = open_calls(texts[:end]), any('"tool_result"' in text for text in texts[end:])
        if has_results or not calls or not self._ended.issuperset(call.id for call in calls):
            return texts
        round_ = settle_open(Round(0, texts[end - 1], calls), loop.setup.texts)
        return (*texts[:end], answer_to(loop, round_), *texts[end:])

    def _unchanged(self, loop: Loop) -> Texts:
        if self.reply is not None:
            return self._base()
        return tuple(all_messages(loop)) if self.stands is None else self.stands

    def _base(self) -> Texts:
        return () if self.asked is None else (*self.asked.messages, *self.asked.unjoined)


def taking(loop: Loop, texts: Texts, at: float) -> ev.HistoryTaken:
    """Return the event by which these messages become the history of a loop. The calls at their end are open."""
    reply = texts[-1] if open_calls(texts) else None
    closed = texts if reply is None else texts[:-1]
    unjoined, old = unjoined_before_reply(loop), tuple(loop.messages)
    keeps = bool(unjoined) and closed == (*old, *unjoined)
    return ev.HistoryTaken(() if keeps else splices_between(old, closed), reply, keeps, at=at)


def open_calls(texts: Sequence[str]) -> tuple[Call, ...]:
    """Return the calls that a history ends with; none if its last message makes no sense."""
    if not ends_in_reply(texts):
        return ()
    try:
        return read_reply(decode(texts[-1])).calls()
    except ProtocolError:
        return ()


def _as_sent_back(message: Any) -> Any:
    """Return a message as it is sent back: of a reply, its role and its content. These two come first."""
    if not isinstance(message, Mapping) or not {"role", "content"} <= message.keys():
        return message
    rest = {} if message.get("type") == "message" else message
    return {"role": message["role"], "content": message["content"], **rest}


def _as_yielded(reply: Mapping[str, JSON]) -> str:
    """Return the text by which a reply is found in a history in which it stands word by word."""
    return canonical({"role": "assistant", "content": reply["content"]})


def _call_ids(reply: Mapping[str, JSON]) -> frozenset[str]:
    return frozenset(block["id"] for block in reply["content"] if block["type"] == "tool_use")
