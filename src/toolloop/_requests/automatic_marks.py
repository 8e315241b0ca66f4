"""The cache marks that `LoopConfig.cache` adds to a request.

One is the top-level mark of the API, which it applies to the end of the request. It finds an entry of the cache only if
that is at most 20 blocks back (source: the documentation on prompt caching). So after many blocks, the end of the last
request gets a mark, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from attrs import frozen

from toolloop._messages.blocks import MOST_CACHE_MARKS
from toolloop._messages.reading import is_blank, kind_of, role_of
from toolloop._requests.encoded_messages import CacheMarks, count_marks
from toolloop.machine.values.jsontext import JSON, decode, encode

CacheLifetime = Literal["5m", "1h"]

_MOST_NEW_BLOCKS = 15  # fewer than the API looks back, because it may count other blocks
# The API accepts a mark on these blocks in messages of any role.
_MARKABLE = frozenset({"document", "image", "search_result", "text", "tool_result", "tool_use"})


@frozen
class GivenMarks:
    """The marks of the caller in a request, which come first.

    Attributes:
        top: the top-level mark; None if there is none.
        params: the marks in the parameters, including the top-level one.
        messages: the marks in the messages.

    """

    top: JSON
    params: CacheMarks
    messages: CacheMarks

    @property
    def room(self) -> int:
        """The number of further marks that the API accepts."""
        return MOST_CACHE_MARKS - self.params.count - self.messages.count

    def allow(self, mark: JSON, rest: Sequence[bytes]) -> bool:
        """Return whether the API accepts another mark in view of the order of lifetimes (rule 34).

        Args:
            mark: the other mark.
            rest: the messages from that with the mark on.

        """
        if isinstance(mark, dict) and mark.get("ttl") == "1h":
            return not (self.params.has_short or self.messages.has_short)
        return not count_marks(rest).has_long


@frozen
class Marked:
    """A request with its marks: its parameters, and its messages as texts and as bytes."""

    body: str
    texts: Sequence[str]
    encoded: Sequence[bytes]


def add_marks(request: Marked, given: GivenMarks, lifetime: CacheLifetime) -> Marked:
    """Return a request with the marks for which the caller's marks leave room. Only one message is encoded again."""
    body, texts, encoded, room = request.body, request.texts, request.encoded, given.room
    mark = {"type": "ephemeral", "ttl": lifetime} if given.top is None else given.top
    if given.top is None and room > 0 and given.allow(mark, encoded[-1:]):
        body, room = f'{body[:-1]},"cache_control":{encode(mark)}}}', room - 1
    place = _end_of_last_request(texts) if room > 0 else None
    if place is not None and given.allow(mark, encoded[place:]) and (text := _mark_end(texts[place], mark)) is not None:
        texts = [*texts[:place], text, *texts[place + 1 :]]
        encoded = [*encoded[:place], text.encode(), *encoded[place + 1 :]]
    return Marked(body, texts, encoded)


def _end_of_last_request(texts: Sequence[str]) -> int | None:
    """Return the index of the last message of the last request; None if few blocks follow it, or it is unknown."""
    new = 0
    for place in range(len(texts) - 1, 0, -1):
        message = decode(texts[place])
        new += len(message["content"]) if isinstance(message["content"], list) else 1
        if role_of(message) == "assistant":
            return place - 1 if new > _MOST_NEW_BLOCKS else None
    return None


def _mark_end(text: str, mark: JSON) -> str | None:
    """Return a message with a mark on the last block that may have one; None if it has a mark, or may not."""
    message = decode(text)
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
    place = next((place for place in reversed(range(len(blocks))) if _is_markable(blocks[place])), None)
    if place is None or '"cache_control"' in text:
        return None
    blocks[place] = {**blocks[place], "cache_control": mark}
    return encode({**message, "content": blocks})


def _is_markable(block: JSON) -> bool:
    return kind_of(block) in _MARKABLE and not (kind_of(block) == "text" and is_blank(block["text"]))
