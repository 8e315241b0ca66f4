"""Compaction that masks old tool results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from attrs import evolve, field, frozen

from toolloop._messages.reading import blocks_of, kind_of, read_text, role_of
from toolloop.compaction.segments import Segment, last_compaction, segments_of, tail_of
from toolloop.compaction.strategy import Edit, EditStrategy, at_least, edit_of, last_reply, live_tokens
from toolloop.compaction.tokens import Outline, content_tokens, message_tokens, outline_of
from toolloop.machine.values.long_results import READ_RESULT, name_result

#: The beginning of the text that replaces a result.
MASK_START: Final = "[Left out to save room: "
# The tokens of the shortest message with a masked result.
_SHORTEST: Final = message_tokens(
    {"content": [{"type": "tool_result", "content": f"{MASK_START}the result of a, about 1 tokens.]"}]}
)


@frozen(eq=False)
class MaskResults(EditStrategy):
    """Replace old results with a short text that names the tool and the size of the result.

    Calls and the model's texts are kept, so the model still knows its own steps. Results that load tools are kept, and
    so are results of the API's own tools, which must be sent back unchanged.

    Args:
        keep_rounds: the number of rounds at the end that keep their results.
        min_tokens: results with fewer tokens are kept.
        at_tokens: histories with fewer tokens are not changed; None means no threshold.
        to_tokens: with `at_tokens`, the tokens to which a history is folded: fewer rounds are kept until it has at most
            so many, down to one. At most four fifths of `at_tokens`; None means half of it.

    Raises:
        ValueError: a value is out of range. The message names the field.

    """

    _rounds: ClassVar[str] = "keep_rounds"

    keep_rounds: int = field(default=2, validator=at_least(1))
    min_tokens: int = field(default=500, validator=at_least(0))
    _is_read: bool = field(default=False, alias="is_read", kw_only=True, repr=False)

    def for_reading(self) -> MaskResults:
        """Return the strategy that names the tool with which a masked result is read."""
        return evolve(self, is_read=True)

    def least(self, outlines: Sequence[Outline]) -> int:
        """Return a number of tokens that every plan leaves: what is in messages that may have long results can go."""
        old, shortest = outlines[: last_reply(outlines)], max(self.min_tokens, _SHORTEST)
        may_go = (each for each in old if each.role == "user" and each.tokens >= shortest)
        goes = sum(each.tokens - _SHORTEST for each in may_go if '"tool_result"' in each.text)
        return live_tokens(outlines) - goes

    def plan(self, outlines: Sequence[Outline]) -> Edit | None:
        """Return the history with its old results masked; None if there are none."""
        segments = segments_of(outlines)
        first, tail = last_compaction(segments) + 1, tail_of(segments, self.keep_rounds)
        masked = {id(old): new for segment in segments[first:tail] for old, new in self._masked(segment)}
        edit = edit_of(outlines, (masked.get(id(each), each) for each in outlines))
        return edit if edit.after < edit.before else None

    def _masked(self, segment: Segment) -> list[tuple[Outline, Outline]]:
        """Return the messages with masked results, each after the message that it replaces."""
        names = {
            read_text(block, "id") or "": read_text(block, "name") or ""
            for message in segment.messages
            if role_of(message) == "assistant"
            for _, block, kind in blocks_of(message)
            if kind == "tool_use"
        }
        changed = []
        for old, message in zip(segment.outlines, segment.messages, strict=True):
            if role_of(message) == "user" and isinstance(content := message["content"], list):
                blocks = [self._mask(block, names) for block in content]
                if any(new is not block for new, block in zip(blocks, content, strict=True)):
                    changed.append((old, outline_of({**message, "content": blocks})))
        return changed

    def _mask(self, block: Any, names: Mapping[str, str]) -> Any:
        tokens = content_tokens([block])
        if kind_of(block) != "tool_result" or tokens < self.min_tokens or _stays(block.get("content")):
            return block
        call_id = read_text(block, "tool_use_id") or ""
        name = names.get(call_id) or "a call"
        how = f" Read it with {name_result(call_id)}, ...)." if self._is_read and name != READ_RESULT else ""
        masked = {**block, "content": f"{MASK_START}the result of {name}, about {tokens} tokens.{how}]"}
        return masked if content_tokens([masked]) < tokens else block


def _stays(content: Any) -> bool:
    """Return whether a result loads tools, or is already masked."""
    if isinstance(content, str):
        return content.startswith(MASK_START)
    return isinstance(content, list) and any(kind_of(inner) == "tool_reference" for inner in content)
