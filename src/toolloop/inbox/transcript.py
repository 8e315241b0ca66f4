"""A conversation for a person to read: its blocks in order, as text in which nothing is hidden."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from attrs import frozen

from toolloop.machine.jsontext import JSON
from toolloop.machine.values import text_of_content


@frozen
class Part:
    """One block of a conversation.

    Attributes:
        role: `user`, `assistant` or `system`.
        kind: `text`, `thinking`, `call`, `result` or `other`.
        text: what it says; of a call the empty text.
        name: of the tool of a call or result; of another block, its type.
        id: of the call.
        input: of a call.
        is_error: whether a result is an error.

    """

    role: str
    kind: str
    text: str = ""
    name: str = ""
    id: str = ""
    input: Mapping[str, JSON] | None = None
    is_error: bool = False


def parts_of(messages: Iterable[Mapping[str, Any]]) -> Iterator[Part]:
    """Yield the blocks of a conversation. Blocks that people do not read are shown as JSON."""
    names: dict[str, str] = {}
    for message in messages:
        role, content = message["role"], message["content"]
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            yield _part(role, block, names)


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


def fields_of(given: Mapping[str, JSON]) -> list[tuple[str, str]]:
    """Return the fields of an input as texts: strings as they are, other values as JSON."""
    return [(visible(name), readable(value)) for name, value in given.items()]


def readable(value: JSON) -> str:
    """Return a value as text."""
    return visible(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2))


def visible(text: str) -> str:
    """Return a text with escapes for characters that could hide or move a part of it, line ends and tabs aside."""
    return "".join(each if each.isprintable() or each in "\n\t" else ascii(each)[1:-1] for each in text)
