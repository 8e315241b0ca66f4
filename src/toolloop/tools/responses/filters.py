"""Ready-made result filters for `LoopConfig.result_filters`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from attrs import field, frozen

from toolloop._public import set_module
from toolloop.machine.values.jsontext import JSON

_LEAST = 100  # the note alone has about half of these characters


def _check_length(_filter: Any, attribute: Any, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < _LEAST:
        raise ValueError(f"{attribute.name}: expected an int, {_LEAST} or more, got {value!r}")


def _check_names(_filter: Any, attribute: Any, value: Any) -> None:
    if value is not None and (isinstance(value, str) or not isinstance(value, Collection)):
        raise ValueError(f"{attribute.name}: expected a list of tool names, or None for all tools, got {value!r}")


@set_module("toolloop.responses")
@frozen
class TruncateResults:
    """Shorten long texts in results: keep the head and the tail, with a note between them.

    The note has the number of missing characters. Each text block is cut separately; images and documents are kept.

    Args:
        max_chars: the maximum number of characters of a text, including the note; 100 or more.
        only: the names of the tools whose results are cut; None means all tools.

    Raises:
        ValueError: a value is invalid; the message names the field.

    """

    max_chars: int = field(validator=_check_length)
    only: Collection[str] | None = field(default=None, validator=_check_names)

    def __call__(self, call: Any, content: JSON) -> JSON:
        """Return the content with its long texts cut, or None if `only` does not name the tool."""
        if self.only is not None and call.name not in self.only:
            return None
        if isinstance(content, str):
            return self._cut(content)
        return [{**block, "text": self._cut(block["text"])} if block["type"] == "text" else block for block in content]

    def _cut(self, text: str) -> str:
        if len(text) <= self.max_chars:
            return text
        kept = self.max_chars - len(_note(len(text)))
        head, tail = text[: kept - kept // 2], text[len(text) - kept // 2 :]
        return f"{head}{_note(len(text) - kept)}{tail}"


def _note(missing: int) -> str:
    return f"\n[... {missing} characters were left out here ...]\n"
