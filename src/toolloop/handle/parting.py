"""A caller's history, parted: what of it is closed, and the calls at its end that are not all answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolloop.core import events as ev
from toolloop.core.closing import is_system, result_block, stays_beside, user_message
from toolloop.core.freezing import frozen
from toolloop.core.jsontext import JSON, decode, encode
from toolloop.core.splicing import splices_between
from toolloop.core.states import Open, Ready, State
from toolloop.core.tree import tail_of
from toolloop.core.values import Outcome, Result


@frozen
class Parts:
    """A history as a loop has it.

    Attributes:
        closed: the messages before the open round; all of them where none is open.
        reply: the assistant message with the calls that are not all answered.
        results: what of them is answered, by call id.
        after: what else the caller says after these.

    """

    closed: tuple[str, ...]
    reply: str | None = None
    results: tuple[tuple[str, Result], ...] = ()
    after: tuple[str, ...] = ()


def parted(texts: Sequence[str]) -> Parts:
    """Part a history. What makes no sense is left as it is, for the check to refuse."""
    at, read = len(texts), list[JSON]()
    while at and not (read and _role(read[-1]) == "assistant"):  # from the end, for what is closed may be long
        at -= 1
        read.append(decode(texts[at]))
    reply, *later = read[::-1] or [None]
    calls = (
        [block for block in _blocks(reply) if block.get("type") == "tool_use"] if _role(reply) == "assistant" else []
    )
    if not calls or not all(map(_is_call, calls)) or not all(map(_is_block, reply["content"])):
        return Parts(tuple(texts))
    asked = [block["id"] for block in calls]
    answers = [block for message in later for block in _blocks(message) if _is_result(block)]
    answered = [block.get("tool_use_id") for block in answers]
    is_odd = len(set(answered)) < len(answered) or not {*answered} <= {*asked} or len({*asked}) < len(asked)
    if is_odd or len(answered) == len(asked):
        return Parts(tuple(texts))
    results = tuple((block["tool_use_id"], _result(block)) for block in answers)
    after = (_without_results(message, text) for message, text in zip(later, texts[at + 1 :], strict=True))
    return Parts(tuple(texts[:at]), texts[at], results, tuple(text for text in after if text is not None))


def taking(state: State, texts: Sequence[str], at: float) -> ev.ReplyDiscarded | ev.RoundAdopted:
    """The event by which this is the history of a loop."""
    parts, old = parted(texts), tuple(state.ledger.messages)
    beside = (*old, *tail_of(state))
    keeps = len(beside) > len(old) and parts.closed == beside
    splices = splices_between(old, old if keeps else parts.closed)
    if parts.reply is None:
        return ev.ReplyDiscarded(splices, keeps_tail=keeps, at=at)
    return ev.RoundAdopted(splices, parts.reply, parts.results, parts.after, keeps_tail=keeps, at=at)


def to_be_sent(state: Ready | Open) -> list[str]:
    """The messages of the next request, as far as they are known: an open call counts as answered."""
    closed = state.ledger.messages
    if isinstance(state, Ready):
        return [*closed, *state.tail]
    round_ = state.round
    answers = [result_block(call, call.result or Result('"-"')) for call in round_.calls]
    reply = [] if round_.reply is None else [round_.reply]
    answered = [*closed, *round_.tail, *reply, user_message(answers)]
    if stays_beside(round_):
        return answered
    after, last = list(round_.after), list[str]()
    while after and is_system(after[-1]):  # what is held joins before these, for nothing but a reply may follow them
        last.insert(0, after.pop())
    return [*answered, *after, *state.ledger.held, *last]


def to_be_said(state: Ready | Open) -> list[str]:
    """What is held back until the model has answered, with such an answer before it; nothing where none is."""
    if isinstance(state, Ready):
        said = state.ledger.held
    else:
        said = (*state.round.after, *state.ledger.held) if stays_beside(state.round) else ()
    return [*_ANSWERED, *said] if said else []


_ANSWERED = ('{"role":"user","content":"-"}', '{"role":"assistant","content":"-"}')


def together(messages: Sequence[str], beside: Sequence[str], join: str | None) -> tuple[str, ...]:
    """A history with what is beside it, and with the reply that joins."""
    return (*messages, *beside) if join is None else (*messages, *beside, join)


def as_sent_back(message: Any) -> Any:
    """A message as it is sent back: of a reply, its role and its content."""
    if isinstance(message, Mapping) and message.get("type") == "message" and message.get("role") == "assistant":
        return {"role": "assistant", "content": message.get("content")}
    if isinstance(message, Mapping) and {"role", "content"} <= message.keys():
        return {"role": message["role"], "content": message["content"], **message}  # in the order of the loop's own
    return message


def _role(message: JSON) -> JSON:
    return message.get("role") if isinstance(message, dict) else None


def _blocks(message: JSON) -> list[dict[str, JSON]]:
    content = message.get("content") if isinstance(message, dict) else None
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _is_result(block: dict[str, JSON]) -> bool:
    return block.get("type") == "tool_result"


def _is_block(block: JSON) -> bool:
    return isinstance(block, dict) and isinstance(block.get("type"), str)


def _is_call(block: dict[str, JSON]) -> bool:
    names = isinstance(block.get("id"), str) and isinstance(block.get("name"), str)
    return names and isinstance(block.get("input"), dict)


def _result(block: dict[str, JSON]) -> Result:
    content = block.get("content")
    return Result(encode("" if content is None else content), bool(block.get("is_error")), Outcome.ANSWERED)


def _without_results(message: JSON, text: str) -> str | None:
    """A message without the results in it; None if nothing is left."""
    if not any(map(_is_result, _blocks(message))):
        return text
    left = [block for block in message["content"] if not (isinstance(block, dict) and _is_result(block))]
    return encode({**message, "content": left}) if left else None
