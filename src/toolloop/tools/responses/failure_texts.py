"""The text of an error result, which tells the model about an exception that a tool raised."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from toolloop._public import set_module
from toolloop.machine.values.jsontext import make_well_formed
from toolloop.tools.tool_errors import shorten

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # differs from run to run


@set_module("toolloop.responses")
class Unsendable(ValueError):
    """A value that cannot be the content of a result. `str()` is the text for the model."""

    def __init__(self, message: str) -> None:
        """Store the message."""
        super().__init__(message)


def describe_failure(exc: BaseException) -> str:
    """Return the text of the error result for an exception. It is never blank.

    The text has the type, the message and the notes of the exception, and the members of an exception group. It has
    at most 4096 characters and no traceback. The content of a `ToolError` (toolloop's or the SDK's) is passed on whole.
    Of its content blocks, only texts are kept: an error result cannot hold others (source: anthropic-sdk 2.11).
    """
    try:
        return make_well_formed(_find_own_text(exc) or shorten("\n".join(_format_lines(exc))))
    except Exception:  # noqa: BLE001 - the call gets a result even if the exception cannot be read
        return type(exc).__name__


def make_headline(exc: BaseException) -> str:
    """Return the type and the message of an exception, such as `ValueError: no such file`."""
    # `str()` of a group ends with the number of its members; they are listed below it.
    message = exc.message if isinstance(exc, BaseExceptionGroup) else str(exc)
    message = _ADDRESS.sub("", message)
    return f"{type(exc).__name__}: {message}" if message.strip() else type(exc).__name__


def _format_lines(exc: BaseException) -> Iterator[str]:
    yield make_headline(exc)
    if isinstance(exc, BaseExceptionGroup):
        for member in exc.exceptions:
            yield "- " + "\n".join(_format_lines(member)).replace("\n", "\n  ")
    yield from _notes(exc)


def _notes(exc: BaseException) -> list[str]:
    return [note for note in getattr(exc, "__notes__", ()) if isinstance(note, str)]


def _find_own_text(exc: BaseException) -> str | None:
    """Return the exception's own text for the model, or None."""
    if isinstance(exc, Unsendable):
        return f"The tool ran, but its result cannot be sent: {exc}"
    if not any(kind.__name__ == "ToolError" for kind in type(exc).__mro__):
        return None
    content: Any = getattr(exc, "content", None)
    items = content if isinstance(content, (list, tuple)) else [content]
    texts = [_text_of(item) for item in items if item is not None]
    return "\n".join([*texts, *_notes(exc)]) if any(map(str.strip, texts)) else None


def _text_of(item: Any) -> str:
    if isinstance(item, str):
        return item
    if not isinstance(item, Mapping):
        item = item.to_dict() if hasattr(item, "to_dict") else {"text": str(item)}
    text = item.get("text")
    return text if isinstance(text, str) else f"[{item.get('type')}]"
