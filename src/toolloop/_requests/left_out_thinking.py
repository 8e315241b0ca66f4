"""Select the stale thinking that a request leaves out. Newer models bind thinking to its prefix.

`Loop.stale_thinking` counts the messages whose thinking was generated after a different prefix. The model determines
whether a request leaves that thinking out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from toolloop._messages.models import binds_thinking
from toolloop._messages.reading import THINKING
from toolloop.machine.record.loop import Finished, Judging, Loop, count_messages, list_messages
from toolloop.machine.record.replies import ends_in_reply, ends_in_server_call
from toolloop.machine.values.chain import Chain
from toolloop.machine.values.jsontext import JSON, decode, encode
from toolloop.machine.values.stop_reasons import ReplyAction


def leaves_out(params: Mapping[str, Any]) -> bool:
    """Return whether requests with these parameters leave stale thinking out.

    They do for models that bind thinking and for unknown models, unless the parameters say how the API handles it.
    With manual thinking, all thinking is sent: the API requires it, and no model supports both (source: rules 27, 29
    and 31 of the Messages API).
    """
    thinking = params.get("thinking")
    thinking = thinking if isinstance(thinking, Mapping) else {}
    binding = thinking.get("block_binding")
    if isinstance(binding, Mapping) and binding.get("prefix_mismatch_behavior") is not None:
        return False
    return binds_thinking(params.get("model")) is not False and thinking.get("type") != "enabled"


def hangs_on_thinking(loop: Loop) -> bool:
    """Return whether a paused reply can be sent only with its thinking, so that its prefix must not change.

    Such a reply does not end in a server call. The API accepts it as the last message only if it is complete.
    """
    texts = _find_paused_reply(loop)
    if not texts or ends_in_server_call(texts[-1]) or not any('thinking"' in text for text in texts):
        return False
    return leaves_out(decode(loop.setup.params))


def has_lost_its_pause(loop: Loop) -> bool:
    """Return whether the prefix of a paused reply that can be sent only with its thinking has changed."""
    before = count_messages(loop) - len(_find_paused_reply(loop))
    return loop.stale_thinking > before and hangs_on_thinking(loop)


def _find_paused_reply(loop: Loop) -> list[str]:
    """Return the messages of the paused reply: the API reads adjacent assistant messages as one."""
    phase = loop.phase
    is_pause = isinstance(phase, Judging) and phase.action is ReplyAction.PAUSE and phase.round.reply is not None
    if isinstance(phase, Finished) or (loop.round is not None and not is_pause):
        return []
    texts = list(loop.open_messages)
    start = len(texts)
    while ends_in_reply(texts[:start]):
        start -= 1
    return texts[start:]


def count_newly_left_out(before: Loop, after: Loop) -> int:
    """Return the number of thinking blocks that requests leave out after an event, but did not before."""
    if not after.stale_thinking:
        return 0
    known = set(_list_left_out(before))
    return sum(block not in known for block in _list_left_out(after))


def _list_left_out(loop: Loop) -> Iterator[str]:
    """Yield the thinking blocks that requests leave out, as texts."""
    if not loop.stale_thinking or not leaves_out(decode(loop.setup.params)):
        return
    for text in list_messages(loop)[: loop.stale_thinking]:
        yield from (encode(block) for block in _list_thinking(decode(text)))


class ThinkingFilter:
    """Remove stale thinking from messages. If a history has grown, only its new messages are processed."""

    def __init__(self) -> None:
        """Start without a history."""
        # Of the last request: the count, the history, and the history without stale thinking.
        self._last: tuple[int, Chain[str], Chain[str]] = (0, Chain(), Chain())

    def take(self, history: Chain[str], unjoined: Sequence[str], stale: int) -> tuple[Chain[str], list[str]]:
        """Return both lists without the thinking of the first `stale` messages, counted over both."""
        mark, known, kept = self._last
        new = history.since(known) if mark == stale <= len(known) else None
        kept = Chain(drop_thinking(history, stale)) if new is None else kept.extend(new)
        self._last = stale, history, kept
        return kept, drop_thinking(unjoined, max(0, stale - len(history)))


def drop_thinking(texts: Sequence[str], stale: int) -> list[str]:
    """Return messages, the first `stale` of them without thinking. Messages that become empty are removed."""
    kept = (_drop_thinking(text) for text in texts[:stale])
    return [*(text for text in kept if text is not None), *texts[stale:]]


def _drop_thinking(text: str) -> str | None:
    message = decode(text)
    thinking = _list_thinking(message)
    if not thinking:
        return text
    left = [block for block in message["content"] if block not in thinking]
    return encode({**message, "content": left}) if left else None


def _list_thinking(message: JSON) -> list[JSON]:
    content = message["content"]
    if message["role"] != "assistant" or not isinstance(content, list):
        return []
    return [block for block in content if block["type"] in THINKING]
