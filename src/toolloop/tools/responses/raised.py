"""What a tool raised, as the content of an error result."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any, TypeGuard

from toolloop.core.jsontext import JSON
from toolloop.tools.failures import ToolError, well_formed
from toolloop.tools.responses.exceptions import headline, notes_of, told

Content = str | list[dict[str, JSON]]


def describe_failure(exc: BaseException) -> Content:
    """The error content for an exception that a tool raised: never empty, no traceback.

    At most 4096 characters of its type, its text and its notes; of a group, what is in it. What a `ToolError`
    (toolloop's or the SDK's) says is passed on whole. Its blocks that are not text are only named: the API takes
    nothing but text in an error result (source: anthropic-sdk 2.11).
    """
    try:
        return (_own_words(exc) if _says_itself(exc) else None) or told(exc)
    except Exception:  # noqa: BLE001 - whatever is wrong with the exception, the call gets its result
        return type(exc).__name__.strip() or "Exception"


def _says_itself(exc: BaseException) -> TypeGuard[ToolError]:
    # Whoever raised the SDK's error, which has the same face, has imported the SDK.
    sdk = getattr(sys.modules.get("anthropic.lib.tools"), "ToolError", ToolError)
    return isinstance(exc, (ToolError, sdk))


def _own_words(exc: ToolError) -> Content | None:
    """What it says, with its notes; None where it says nothing."""
    content: Any = getattr(exc, "content", None)
    notes = [note for note in notes_of(exc) if note.strip()]
    if isinstance(content, int | float):
        content = f"{type(exc).__name__}: {content}"
    if isinstance(content, str):
        return "\n".join([well_formed(content), *notes]) if content.strip() else None
    if content is None:
        return None
    is_one = isinstance(content, Mapping | bytes) or not isinstance(content, Iterable)
    texts = [well_formed(_words_of(block)) for block in ([content] if is_one else content)]
    blocks: list[dict[str, JSON]] = [{"type": "text", "text": text} for text in (*texts, *notes) if text.strip()]
    return blocks or None


def _words_of(block: Any) -> str:
    """The text of a block, of the SDK or not; the name of what is no text."""
    if isinstance(block, str):
        return block
    if isinstance(block, BaseException):
        return headline(block)
    face = block.get if isinstance(block, Mapping) else lambda name, other=None: getattr(block, name, other)
    text, kind = face("text"), face("type", type(block).__name__)
    return str(text) if kind in {"text", "TextResponse"} else f"[{kind}]"
