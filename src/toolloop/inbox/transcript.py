"""A conversation for people: its blocks in order, as text without hidden characters."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from attrs import evolve, frozen

from toolloop.machine.values.calls import text_of_content
from toolloop.machine.values.jsontext import JSON, decode

_LOOK_BACK = 1000  # messages, so that the cost does not grow with the conversation
_OF_USERS = '{"role":"user"'  # messages that this library writes begin like this; the others are decoded to be sure


@frozen
class Part:
    """One block of a conversation.

    Attributes:
        role: `user`, `assistant` or `system`.
        kind: `text`, `thinking`, `call`, `result` or `other`.
        text: the text; empty for a call.
        name: the tool name of a call or result; for other blocks, the type.
        id: the id of the call.
        input: the input of a call.
        is_error: whether a result is an error.
        message: the id of its message, if known.

    """

    role: str
    kind: str
    text: str = ""
    name: str = ""
    id: str = ""
    input: Mapping[str, JSON] | None = None
    is_error: bool = False
    message: str = ""


def parts_of(messages: Iterable[Mapping[str, Any]]) -> Iterator[Part]:
    """Yield the blocks of a conversation. Blocks without readable text are shown as JSON."""
    names: dict[str, str] = {}
    for message in messages:
        role, content = message["role"], message["content"]
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            yield evolve(_part(role, block, names), message=message.get("id", ""))


def find_last_text(messages: Sequence[str]) -> str:
    """Return the last text of the model in a conversation. `messages`: as JSON texts."""
    others = (decode(text) for text in reversed(messages[-_LOOK_BACK:]) if not text.startswith(_OF_USERS))
    return next(filter(None, (last_text_of(each) for each in others if each["role"] == "assistant")), "")


def last_text_of(message: Mapping[str, Any]) -> str:
    """Return the last text of a message; empty if it has none."""
    return next((part.text for part in reversed([*parts_of([message])]) if part.kind == "text"), "")


def _part(role: str, block: Mapping[str, Any], names: dict[str, str]) -> Part:
    match block:
        case {"type": "text", "text": str(text)}:
            return Part(role, "text", visible(text))
        case {"type": "thinking", "thinking": str(text)}:
            return Part(role, "thinking", visible(text))
        case {"type": "tool_use" | "server_tool_use" | "mcp_tool_use", "id": id_, "name": name, "input": dict(given)}:
            names[id_] = name
            return Part(role, "call", name=name, id=id_, input=given)
        case {"type": "tool_result", "tool_use_id": id_}:
            text = visible(text_of_content(block.get("content", "")))
            return Part(role, "result", text, names.get(id_, ""), id_, is_error=bool(block.get("is_error")))
    return Part(role, "other", readable(block), block["type"])


def readable(value: JSON) -> str:
    """Return a value as text."""
    return visible(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2))


def visible(text: str) -> str:
    """Return a text with escapes for characters that could hide or move parts of it, except line ends and tabs."""
    return "".join(each if each.isprintable() or each in "\n\t" else ascii(each)[1:-1] for each in text)
