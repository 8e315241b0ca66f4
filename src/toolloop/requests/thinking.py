"""Thinking that newer models bind to its prefix: which of it a request leaves out.

The mark of a loop, `Loop.stale_thinking`, counts the messages whose thinking was produced after other words than those
before it now. Whether a request leaves that thinking out depends on the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from toolloop.machine.chain import Chain
from toolloop.machine.jsontext import JSON, decode, encode
from toolloop.machine.loop import Judging, Loop
from toolloop.machine.replies import ends_in_reply, ends_in_server_call
from toolloop.machine.stop_reasons import ReplyAction
from toolloop.machine.thinking import all_messages
from toolloop.messages.models import binds_thinking
from toolloop.messages.reading import THINKING


def leaves_out(params: Mapping[str, Any]) -> bool:
    """Return whether requests with these parameters leave stale thinking out.

    That is so for models that bind thinking, and for those of which nothing is known, unless the caller has said what
    the API is to do about it. With manual thinking nothing is left out: the API asks for it, and no model has both
    (source: rules 27, 29 and 31 of the Messages API).
    """
    thinking = params.get("thinking")
    thinking = thinking if isinstance(thinking, Mapping) else {}
    binding = thinking.get("block_binding")
    if isinstance(binding, Mapping) and binding.get("prefix_mismatch_behavior") is not None:
        return False
    return binds_thinking(params.get("model")) is not False and thinking.get("type") != "enabled"


def hangs_on_thinking(loop: Loop) -> bool:
    """Return whether a paused reply goes out only with its thinking: then no other words may come before that.

    No server call ends it: without all that it had, the API would not know it as its own, and takes no other last.
    """
    texts = loop.unjoined
    if loop.round is not None:
        if loop.round.reply is None or loop.phase != Judging(ReplyAction.PAUSE):
            return False
        texts = (*texts, loop.round.reply)
    if not texts or ends_in_server_call(texts[-1]) or not any('thinking"' in text for text in texts):
        return False
    return ends_in_reply(texts) and leaves_out(decode(loop.setup.params))


def has_lost_its_pause(loop: Loop) -> bool:
    """Return whether other words came before a paused reply that goes out only with its thinking."""
    return loop.stale_thinking > len(loop.messages) and hangs_on_thinking(loop)


def newly_left_out(before: Loop, after: Loop) -> int:
    """Return how many thinking blocks requests leave out from now on that they did not leave out before."""
    if not after.stale_thinking:
        return 0
    known = set(_left_out(before))
    return sum(block not in known for block in _left_out(after))


def _left_out(loop: Loop) -> Iterator[str]:
    """Yield each thinking block that requests leave out, as a text."""
    if not loop.stale_thinking or not leaves_out(decode(loop.setup.params)):
        return
    for text in all_messages(loop)[: loop.stale_thinking]:
        yield from (encode(block) for block in _thinking(decode(text)))


class ThinkingFilter:
    """Leaves stale thinking out of messages. Of a history that has grown, only what is new is looked at."""

    def __init__(self) -> None:
        """Start without a history."""
        # Of the last request: the mark, the history, and what was left of it.
        self._last: tuple[int, Chain[str], Chain[str]] = (0, Chain(), Chain())

    def take(self, history: Chain[str], unjoined: Sequence[str], stale: int) -> tuple[Chain[str], list[str]]:
        """Return both without the thinking of the first `stale` messages, counted over both."""
        mark, known, kept = self._last
        new = history.since(known) if mark == stale <= len(known) else None
        kept = Chain(without_thinking(history, stale)) if new is None else kept.extend(new)
        self._last = stale, history, kept
        return kept, without_thinking(unjoined, max(0, stale - len(history)))


def without_thinking(texts: Sequence[str], stale: int) -> list[str]:
    """Return messages, the first `stale` of them without thinking; one in which nothing is left is left out."""
    kept = (_without_thinking(text) for text in texts[:stale])
    return [*(text for text in kept if text is not None), *texts[stale:]]


def _without_thinking(text: str) -> str | None:
    message = decode(text)
    thinking = _thinking(message)
    if not thinking:
        return text
    left = [block for block in message["content"] if block not in thinking]
    return encode({**message, "content": left}) if left else None


def _thinking(message: JSON) -> list[JSON]:
    content = message["content"]
    if message["role"] != "assistant" or not isinstance(content, list):
        return []
    return [block for block in content if block["type"] in THINKING]
