"""A conversation for people: its blocks in order, as text without hidden characters."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from attrs import evolve, frozen

from toolloop._public import set_module
from toolloop.machine.values.calls import text_of_content
from toolloop.machine.values.jsontext import JSON, decode

_LOOK_BACK = 1000  # messages, so that the cost does not grow with the conversation
_OF_USERS = '{"role":"user"'  # messages that this library writes begin like this; the others are decoded to be sure


@set_module("toolloop.inbox")
@frozen
class MessagePart:
    """One block of a conversation, for people.

    Attributes:
        role: `user`, `assistant` or `system`.
        kind: `text`, `thinking`, `call`, `result` or `other`.
        text: the text, with escapes for hidden characters; empty for a call.
        name: the tool name of a call or result, as the model wrote it; for other blocks, the type.
        id: the id of the call.
        input: the input of a call, as the model wrote it.
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


@set_module("toolloop.inbox")
def read_parts(messages: Iterable[Mapping[str, Any]]) -> Iterator[MessagePart]:
    """Yield the blocks of a conversation, for people. Blocks without readable text become JSON.

    `messages`: in the shape of the API, such as those of `Inbox.show`, whose secret values are hidden.
    """
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
    return next((part.text for part in reversed([*read_parts([message])]) if part.kind == "text"), "")


def _part(role: str, block: Mapping[str, Any], names: dict[str, str]) -> MessagePart:
    match block:
        case {"type": "text", "text": str(text)}:
            return MessagePart(role, "text", escape_hidden(text))
        case {"type": "thinking", "thinking": str(text)}:
            return MessagePart(role, "thinking", escape_hidden(text))
        case {"type": "tool_use" | "server_tool_use" | "mcp_tool_use", "id": id_, "name": name, "input": dict(given)}:
            names[id_] = name
            return MessagePart(role, "call", name=name, id=id_, input=given)
        case {"type": "tool_result", "tool_use_id": id_}:
            text = escape_hidden(text_of_content(block.get("content", "")))
            return MessagePart(role, "result", text, names.get(id_, ""), id_, is_error=bool(block.get("is_error")))
    return MessagePart(role, "other", readable(block), block["type"])


def readable(value: JSON) -> str:
    """Return a value as text."""
    return escape_hidden(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2))


@set_module("toolloop.inbox")
def escape_hidden(text: str) -> str:
    """Return a text with escapes for characters that could hide or move parts of it, except line ends and tabs.

    Use it for what a person reads before a decision. The model can write a name or an input that looks like another.
    """
    return "".join(each if each.isprintable() or each in "\n\t" else ascii(each)[1:-1] for each in text)
