"""Long results: the model gets both ends of the text, and reads the rest by the id of the call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from toolloop.machine.values.jsontext import JSON, decode, encode
from toolloop.machine.values.setup import KeepResults

#: The name of the tool that reads them.
READ_RESULT: Final = "read_result"

_TEXT: Final = {"type", "text", "cache_control", "citations"}

# The texts of results that are kept, each after the id of its call. Of two with one id, the last one counts.
KeptResults = Iterable[tuple[str, str]]


def name_result(call_id: str) -> str:
    """Return the beginning of the call of the tool that reads a result, as the model is to write it."""
    return f"{READ_RESULT}(name={encode(call_id)}"


def find_text_alone(content: JSON) -> str | None:
    """Return the text of a result that is nothing but text; else None."""
    if isinstance(content, str):
        return content
    if all(block["type"] == "text" and block.keys() <= _TEXT and not block.get("citations") for block in content):
        return "\n".join(block["text"] for block in content)
    return None


def cut_content(keep: KeepResults, call_id: str, content: str) -> tuple[str, str] | None:
    """Return the content of a long result that the model gets, as JSON text, and the whole text; None if it is short.

    It keeps the last cache mark of the content.

    Args:
        keep: what is long, and how much of it the model gets.
        call_id: the id of the call.
        content: the JSON text of the content.

    """
    if len(content) <= keep.over:
        return None
    whole = decode(content)
    text = find_text_alone(whole)
    if text is None or len(text) <= keep.over:
        return None
    end, size = len(text) - keep.tail, keep.head + keep.tail
    note = (
        f"[Left out: the characters from {keep.head} to {end} of {len(text)}. Read them with "
        f"{name_result(call_id)}, start={keep.head}, length={size}).]"
    )
    cut = "\n".join([text[: keep.head], note, text[end:]])
    marks = [] if isinstance(whole, str) else [block["cache_control"] for block in whole if block.get("cache_control")]
    return encode([{"type": "text", "text": cut, "cache_control": marks[-1]}] if marks else cut), text


def read_part(results: KeptResults, name: str, start: int, length: int) -> str:
    """Return a part of a result that is kept.

    Raises:
        ValueError: no result has the name, or the part is outside of it.

    """
    text = dict(results).get(name)
    if text is None:
        raise ValueError(f"no long result has the name {name!r}. Take the name from the note in the result")
    if not (0 <= start < len(text) and length > 0):
        raise ValueError(f"the result has {len(text)} characters: give a start below that, and a length of at least 1")
    return text[start : start + length]
