"""The prompt cache of the fake API (source: rule 34 of the Messages API, and the documentation on prompt caching).

An entry is the beginning of a request up to a mark. It lives for five minutes or an hour after its last use.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from typing import Any, Final

from attrs import define, field, frozen

from toolloop._messages.reading import THINKING, is_blank
from toolloop.compaction.tokens import text_tokens
from toolloop.testing.api.signing import content_blocks, without_marks

Body = dict[str, Any]

LIFETIMES: Final = {"5m": 300.0, "1h": 3600.0}
LEAST_TOKENS: Final = 1_024  # 512 to 4,096, depending on the model
REACH: Final = 20  # how many blocks the API checks for each mark, beginning with that of the mark
_OUTPUT_TOKENS: Final = 5
_SHAPING: Final = ("thinking", "tool_choice")  # a change of these changes how the messages are read


@frozen
class _Block:
    """A block of a request. `digest` and `tokens` are those of the request up to it."""

    digest: bytes
    tokens: int
    mark: str | None


@define
class _Entry:
    lifetime: float
    expires: float


@define
class PromptCache:
    """Keeps the beginnings of requests. `clock` returns seconds."""

    _clock: Callable[[], float]
    _entries: dict[bytes, _Entry] = field(factory=dict)

    def use(self, body: Body) -> Body | None:
        """Read and write the cache for a request. Return the usage of the request; None if it has no marks."""
        blocks = list(_read_blocks(body))
        marks = [place for place, block in enumerate(blocks) if block.mark is not None]
        if not marks:
            return None
        now = self._clock()
        checked = (place for mark in marks for place in range(mark, max(mark - REACH, -1), -1))
        hit = max((place for place in checked if self._refresh(blocks[place], now)), default=None)
        read = last = 0 if hit is None else blocks[hit].tokens
        written = dict.fromkeys(LIFETIMES, 0)
        for block in (blocks[place] for place in marks if hit is None or place > hit):
            if block.tokens >= LEAST_TOKENS and block.mark is not None:
                lifetime = LIFETIMES[block.mark]
                self._entries[block.digest] = _Entry(lifetime, now + lifetime)
                written[block.mark] += block.tokens - last
                last = block.tokens
        return {
            "input_tokens": blocks[-1].tokens - last,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": sum(written.values()),
            "cache_creation": {f"ephemeral_{name}_input_tokens": count for name, count in written.items()},
            "output_tokens": _OUTPUT_TOKENS,
        }

    def _refresh(self, block: _Block, now: float) -> bool:
        """Return whether there is a live entry up to a block, which then lives on."""
        entry = self._entries.get(block.digest)
        if entry is None or entry.expires <= now:
            return False
        entry.expires = now + entry.lifetime
        return True


def _read_blocks(body: Body) -> Iterator[_Block]:
    """Yield the blocks of a request in order: tools, system prompt, messages."""
    parts = [("tools", tool) for tool in body.get("tools") or ()]
    parts += [("system", block) for block in content_blocks(body.get("system"))]
    start = len(parts)
    parts += [(message["role"], block) for message in body["messages"] for block in content_blocks(message["content"])]
    marks = [_mark_of(block) for _, block in parts]
    top = body.get("cache_control")
    end = next((place for place in reversed(range(len(parts))) if _is_cacheable(parts[place][1])), None)
    if top is not None and end is not None and marks[end] is None:
        marks[end] = _lifetime(top)
    digest, tokens = _add(b"", body["model"]), 0
    for place, (role, block) in enumerate(parts):
        text = json.dumps(without_marks(block), sort_keys=True)
        digest = _add(digest, [body.get(name) for name in _SHAPING]) if place == start else digest
        digest, tokens = _add(digest, [role, text]), tokens + text_tokens(text)
        yield _Block(digest, tokens, marks[place])


def _add(digest: bytes, value: Any) -> bytes:
    return hashlib.sha256(digest + json.dumps(value, sort_keys=True).encode()).digest()


def _mark_of(block: Any) -> str | None:
    """Return the lifetime of the mark of a block, or of the last mark inside it."""
    content = block.get("content")
    inside = [_mark_of(inner) for inner in content if isinstance(inner, dict)] if isinstance(content, list) else []
    mark = block.get("cache_control")
    return next(filter(None, reversed(inside)), None) if mark is None else _lifetime(mark)


def _lifetime(mark: Any) -> str:
    return mark.get("ttl") or "5m"


def _is_cacheable(block: Any) -> bool:
    return block.get("type") not in THINKING and not (block.get("type") == "text" and is_blank(block["text"]))
