"""What a tool raised, as the content of an error result."""

from __future__ import annotations

import sys
from collections import UserString
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Any, TypeGuard

from toolloop.core.jsontext import JSON, encode
from toolloop.tools.failures import ToolError, well_formed
from toolloop.tools.responses.exceptions import headline, name_of, notes_of, told
from toolloop.tools.responses.jsonable import Unsendable, to_json
from toolloop.tools.responses.parts import is_telling, parts_of, plain
from toolloop.tools.responses.types import FILES, Response

_MOST_BLOCKS = 1000  # of one error; a generator of them may never end
_ONE = (Mapping, UserString, bytes, bytearray, memoryview)  # they have items, and are one thing

Content = str | list[dict[str, JSON]]


def describe_failure(exc: BaseException) -> Content:
    """The error content for an exception that a tool raised: never empty, no traceback.

    At most 4096 characters of its type, its text and its notes; of a group, what is in it. What a `ToolError`
    (toolloop's or the SDK's) says is passed on whole: texts, also those of search results and documents, and data as
    JSON. Images and other files are only named: the API takes nothing but text in an error result (source:
    anthropic-sdk 2.11).
    """
    try:
        return (_own_words(exc) if _says_itself(exc) else None) or told(exc)
    except Exception:  # noqa: BLE001 - whatever is wrong with the exception, the call gets its result
        return name_of(exc).strip() or "Exception"


def _says_itself(exc: BaseException) -> TypeGuard[ToolError]:
    # Whoever raised the SDK's error, which has the same face, has imported the SDK.
    sdk = getattr(sys.modules.get("anthropic.lib.tools"), "ToolError", ToolError)
    return isinstance(exc, (ToolError, sdk))


def _own_words(exc: ToolError) -> Content | None:
    """What it says, with its notes; None where it says nothing."""
    content: Any = getattr(exc, "content", None)
    notes = [note for note in notes_of(exc) if note.strip()]
    if isinstance(content, int | float):
        content = f"{name_of(exc)}: {content}"
    if isinstance(content, str):
        return "\n".join([well_formed(content), *notes]) if content.strip() else None
    if content is None:
        return None
    are_many = isinstance(content, Collection | Iterator) and not isinstance(content, _ONE)
    items = list(islice(content, _MOST_BLOCKS + 1)) if are_many else [content]
    if len(items) > _MOST_BLOCKS:
        items[_MOST_BLOCKS:] = ["[and more]"]
    texts = [well_formed(_words_of(item)) for item in items]
    blocks: list[dict[str, JSON]] = [{"type": "text", "text": text} for text in (*texts, *notes) if text.strip()]
    return blocks or None


def _words_of(item: Any) -> str:
    """The text of a block, of the SDK or not; data as JSON; the name of what is neither."""
    if isinstance(item, BaseException):
        return headline(item)
    try:
        if isinstance(item, Response):
            return "\n".join(plain(part, "") for part in parts_of(item))
        data = to_json(item)
    except Unsendable:
        return f"[{name_of(item)}]"
    if isinstance(data, dict) and data.get("type") == "text" and isinstance(data.get("text"), str):
        data = data["text"]
    elif is_telling(data):
        data = "\n".join(filter(_has_words, _texts_in(data))) or f"[{data['type']}]"
    elif isinstance(item, FILES) and data.startswith("data:"):
        data = f"[{name_of(item)}]"
    return data if isinstance(data, str) else encode(data)


def _texts_in(block: dict[str, JSON]) -> Iterator[JSON]:
    """What stands where a search result or a document has its texts."""
    source = block.get("source")
    yield from (block.get("title"), source)
    inside = source if isinstance(source, dict) else block
    if inside.get("type") == "text":
        yield inside.get("data")
    content = inside.get("content")
    for each in content if isinstance(content, list) else [content]:
        yield each.get("text") if isinstance(each, dict) else each


def _has_words(value: JSON) -> TypeGuard[str]:
    return isinstance(value, str) and bool(value.strip())
