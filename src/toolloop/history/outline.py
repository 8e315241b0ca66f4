"""What a compaction must know of a message, found once: its size, its skeleton, the results in it.

A skeleton is the message without its words, images and inputs: small enough to keep beside the text, and enough for
`rounds`, and for the rules about the order of messages and blocks.
"""

from __future__ import annotations

from typing import Any, Final

from attrs import field

from toolloop.core.freezing import frozen
from toolloop.core.jsontext import JSON, decode, encode
from toolloop.history.reading import is_blank, is_server_result, kind_of, role_of
from toolloop.history.tokens import compacts, message_tokens

#: What a message with a summary begins with: so the next summary takes its place.
SUMMARY_START: Final = "[Summary of the conversation so far, in the place of its messages]"
#: What stands in the place of a masked result begins with.
MASK_START: Final = "[Left out to save room: "
_LONGEST_MASK: Final = 400  # more did not come from here

# Of these kinds only the type and these keys matter to the order of a history.
_KEPT: Final[dict[str, tuple[str, ...]]] = {
    "tool_use": ("id", "name", "caller", "toolset_name"),
    "tool_result": ("tool_use_id", "toolset_name"),
    "server_tool_use": ("id", "name"),
    "mcp_tool_use": ("id", "name"),
}
_EMPTY: Final = message_tokens({"role": "user", "content": []})


@frozen(eq=False)
class ResultOutline:
    """A `tool_result` in a message.

    Args:
        index: of the block in the content of its message.
        call: the id of its call.
        tokens: how many tokens it has, about.
        stays: it is masked already, or it loads tools.

    """

    index: int
    call: str
    tokens: int
    stays: bool


@frozen(eq=False)
class Outline:
    """A message, and what a compaction must know of it. Made by `outline`, once for each message.

    Args:
        text: the JSON text of the message.
        role: its role, or None for what has not the shape of a message.
        tokens: how many tokens it has, about (from its last compaction block on).
        skeleton: the message without its contents.
        results: the `tool_result` blocks in it.
        is_summary: it is a summary that `Summarize` made.
        compacts: it has a compaction block of the API, so that nothing before it counts.

    """

    text: str
    role: str | None
    tokens: int
    skeleton: JSON = field(repr=False)
    results: tuple[ResultOutline, ...] = ()
    is_summary: bool = False
    compacts: bool = False
    _message: JSON = field(default=None, repr=False)

    def message(self) -> JSON:
        """The message, decoded."""
        return decode(self.text) if self._message is None else self._message


def outline(text: str) -> Outline:
    """The outline of a message, from its JSON text."""
    return _outlined(text, decode(text), None)


def outline_of(message: JSON) -> Outline:
    """The outline of a message that is at hand, as plain JSON values."""
    return _outlined(encode(message), message, message)


def _outlined(text: str, message: JSON, kept: JSON) -> Outline:
    role = role_of(message)
    if role is None:
        return Outline(text, None, message_tokens(message), message, message=kept)
    content = message["content"]
    skeleton = {**message, "content": _words(content) if isinstance(content, str) else [*map(_skeleton, content)]}
    results = _results(content) if role == "user" and isinstance(content, list) else ()
    # What is counted once as a result is not counted again.
    rest = {**message, "content": _without(content, results)} if results else message
    return Outline(
        text,
        role,
        message_tokens(rest) + sum(result.tokens for result in results),
        skeleton,
        results,
        role == "user" and _first_words(content).startswith(SUMMARY_START),
        compacts(message),
        kept,
    )


def _words(text: Any) -> str:
    return "" if is_blank(text) else "-"


def _skeleton(block: Any) -> Any:
    kind = kind_of(block)
    if kind is None:
        return block
    if kind in _KEPT:
        return {"type": kind, **{key: block[key] for key in _KEPT[kind] if key in block}}
    if is_server_result(kind):
        return {"type": kind, "tool_use_id": block.get("tool_use_id")}
    if kind == "text":
        return {"type": kind, "text": _words(block.get("text"))}
    if kind == "compaction":
        return {"type": kind, "content": block.get("content") and "-", "signature": block.get("signature") and "-"}
    return {"type": kind}


def _results(content: list[Any]) -> tuple[ResultOutline, ...]:
    return tuple(
        ResultOutline(index, str(block.get("tool_use_id")), *_of_result(block.get("content")))
        for index, block in enumerate(content)
        if kind_of(block) == "tool_result"
    )


def _of_result(content: Any) -> tuple[int, bool]:
    """How many tokens a result has, and whether it stays."""
    loads = isinstance(content, list) and any(kind_of(inner) == "tool_reference" for inner in content)
    masked = isinstance(content, str) and content.startswith(MASK_START) and len(content) <= _LONGEST_MASK
    return result_tokens(content), loads or masked


def result_tokens(content: JSON) -> int:
    """How many tokens a result of this content has, about."""
    return message_tokens({"role": "user", "content": [{"type": "tool_result", "content": content}]}) - _EMPTY


def _without(content: list[Any], results: tuple[ResultOutline, ...]) -> list[Any]:
    gone = {result.index for result in results}
    return [block for index, block in enumerate(content) if index not in gone]


def _first_words(content: Any) -> str:
    if isinstance(content, list):
        content = content[0].get("text") if content and kind_of(content[0]) == "text" else ""
    return content if isinstance(content, str) else ""
