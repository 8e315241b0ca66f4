"""A conversation as messages of AG-UI, and the order in which a client gets them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ag_ui.core import Message
from attrs import frozen

from toolloop._journal.records import said_id
from toolloop.agui.terms import Event, Terms
from toolloop.inbox import ResultView, ShownLoop
from toolloop.machine.values.calls import text_of_content
from toolloop.machine.values.jsontext import JSON

_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_PDF = "application/pdf"


def result_id(call_id: str) -> str:
    """Return the id of the message with the result of a call."""
    return f"{call_id}:r"


def thought_id(message_id: str) -> str:
    """Return the id of the message with the reasoning of a reply."""
    return f"{message_id}:t"


@frozen
class Conversation:
    """Makes the messages of AG-UI for one loop.

    Attributes:
        terms: what clients get.
        outcomes: how calls ended that did not run, by id.
        settled: the results of the open round, by the id of the call.

    """

    terms: Terms
    outcomes: Mapping[str, str]
    settled: Mapping[str, ResultView]

    def messages(self, shown: ShownLoop) -> list[Event]:
        """Return the messages, with the ids of the loop: the history, the open round, and what is kept."""
        found, tools = list[Event](), dict[str, str]()
        for message in shown["messages"]:
            blocks = _blocks(message["content"])
            if message["role"] == "assistant":
                tools |= {block["id"]: block["name"] for block in blocks if block["type"] == "tool_use"}
                found += self._reply(message["id"], blocks)
            elif any(block["type"] == "tool_result" for block in blocks):  # texts beside results are notes to the model
                found += self._results(blocks, tools)
            elif message["role"] == "user":
                found.append(_said(message["id"], blocks))
        kept = [(each["id"], message["content"]) for each in shown["kept"] for message in each["messages"]]
        return found + [_said(name, _blocks(content)) for name, content in kept]

    def _reply(self, name: str, blocks: Sequence[Any]) -> Iterator[Event]:
        thought, text = ("".join(block.get(kind, "") for block in blocks) for kind in ("thinking", "text"))
        calls = [block for block in blocks if block["type"] == "tool_use" and self.terms.has_call(block["name"])]
        if thought and "reasoning" in self.terms.parts:
            yield {"id": thought_id(name), "role": "reasoning", "content": thought}
        reply: Event = {"content": text} if text and "text" in self.terms.parts else {}
        if calls:
            reply["toolCalls"] = [_call(block) for block in calls]
        if reply:
            yield {"id": name, "role": "assistant", **reply}
        for block in calls:
            if (one := self.settled.get(block["id"])) is not None:
                yield self._result(block["id"], block["name"], one["text"], one["outcome"], is_error=one["is_error"])

    def _results(self, blocks: Sequence[Any], tools: Mapping[str, str]) -> Iterator[Event]:
        for block in blocks:
            if block["type"] == "tool_result" and self.terms.has_call(tools.get(block["tool_use_id"], "")):
                call_id, text = block["tool_use_id"], text_of_content(block.get("content", ""))
                outcome, is_error = self.outcomes.get(call_id, ""), bool(block.get("is_error"))
                yield self._result(call_id, tools[call_id], text, outcome, is_error=is_error)

    def _result(self, call_id: str, tool: str, text: str, outcome: str, *, is_error: bool) -> Event:
        shown = self.terms.result(tool, text, outcome, is_error=is_error)
        error = {"error": shown} if is_error else {}
        return {"id": result_id(call_id), "role": "tool", "toolCallId": call_id, "content": shown, **error}


def _blocks(content: JSON) -> Sequence[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _call(block: Mapping[str, Any]) -> Event:
    arguments = json.dumps(block["input"], ensure_ascii=False)
    return {"id": block["id"], "type": "function", "function": {"name": block["name"], "arguments": arguments}}


def _said(name: str, blocks: Sequence[Any]) -> Event:
    if all(block["type"] == "text" for block in blocks):
        return {"id": name, "role": "user", "content": text_of_content(blocks)}
    return {"id": name, "role": "user", "content": [part for part in map(_part, blocks) if part is not None]}


def _part(block: Mapping[str, Any]) -> Event | None:
    match block:
        case {"type": "text", "text": text}:
            return {"type": "text", "text": text}
        case {"type": "image" | "document" as kind, "source": {"type": "base64", "data": value, "media_type": mime}}:
            return {"type": kind, "source": {"type": "data", "value": value, "mimeType": mime}}
    return None


def blocks_of(content: Any) -> tuple[JSON, bool]:
    """Return a content as one of the API, and whether it is whole: some parts are not taken, such as addresses."""
    if isinstance(content, str):
        return content, True
    found = [_block_of(part.model_dump(by_alias=True)) for part in content]
    return [block for block in found if block is not None], None not in found


def _block_of(part: Mapping[str, Any]) -> JSON | None:
    match part:
        case {"type": "text", "text": text}:
            return {"type": "text", "text": text} if text.strip() else None
        case {"type": "image" | "document" as kind, "source": {"type": "data", "value": data, "mimeType": mime}}:
            if mime in (_IMAGES if kind == "image" else (_PDF,)):
                return {"type": kind, "source": {"type": "base64", "media_type": mime, "data": data}}
    return None


def key_of(person: str, message_id: str) -> str:
    """Return the key with which a message is said, so that clients of two persons may use the same id."""
    return json.dumps([person, message_id])


def with_ids_of(client: Iterable[Message], messages: Iterable[Event], person: str) -> list[Event]:
    """Return messages with the ids that a client gave to those that it has: what it said, and results of its tools."""
    own = {said_id(key_of(person, each.id)): each.id for each in client if each.role == "user" and each.id}
    own |= {result_id(each.tool_call_id): each.id for each in client if each.role == "tool" and each.id}
    return [{**each, "id": own.get(each["id"], each["id"])} for each in messages]


def is_known(message: Message, known: frozenset[str], person: str) -> bool:
    """Return whether a message of the client of a person is one of the loop's. `known`: the ids of those."""
    own = {message.id} if message.role != "tool" else {result_id(message.tool_call_id)}
    if message.role == "user" and message.id:
        own.add(said_id(key_of(person, message.id)))
    return not known.isdisjoint(own)


def snapshots(has: Sequence[str], messages: Sequence[Event]) -> list[Sequence[Event]]:
    """Return the snapshots after which a client has these messages in this order: none if it has them already.

    A client replaces a message that it has where that stands, and appends all others. So what it has in another order
    is taken away first.

    Args:
        has: the ids of the messages that it has, in order.
        messages: the conversation.

    """
    names = [each["id"] for each in messages]
    if names == [*has]:
        return []
    pairs = enumerate(zip(has, names, strict=False))
    same = next((at for at, (one, other) in pairs if one != other), min(len(has), len(names)))
    return [messages[:same], messages] if not {*has[same:]}.isdisjoint(names[same:]) else [messages]
