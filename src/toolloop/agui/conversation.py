"""What clients may bring to a conversation, and what they get of it: messages of AG-UI, and the order of these."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

from ag_ui.core import Message, Tool
from attrs import frozen

from toolloop.inbox import ShownLoop, derive_message_id
from toolloop.types import JSON

SHOWS: Final = ("text", "reasoning", "calls", "results", "nested", "usage")
_WORDS = {"denied": "denied", "expired": "denied", "not_run": "denied"}  # of calls that did not run, by outcome
_MIMES = {"image": ("image/jpeg", "image/png", "image/gif", "image/webp"), "document": ("application/pdf",)}
_MOVED = {"id": "toolloop.moved", "role": "reasoning", "content": ""}
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")  # of a tool
Event = dict[str, Any]  # an event or a message of AG-UI, as JSON


@frozen
class Terms:
    """What clients may bring, and what they get.

    Attributes:
        parts: those of `SHOWS` that they get.
        taken: the names of the tools of the server, also of those that only the parameters define.
        patterns: the names of tools that a front end may bring, with `*` and `?` as in a shell.
        registered: the names of the tools that the server runs. Of others it is unknown which parameters are secret.
        secret: the tools with secret parameters. Their inputs are not streamed.
        brought: the tools that front ends brought to this conversation, as its loop has recorded it.

    """

    parts: frozenset[str]
    taken: frozenset[str]
    patterns: tuple[str, ...]
    registered: frozenset[str]
    secret: frozenset[str]
    brought: frozenset[str] = frozenset()

    def has_call(self, tool: str) -> bool:
        """Return whether the calls of a tool are shown."""
        return "calls" in self.parts or tool in self.brought

    def has_input(self, tool: str) -> bool:
        """Return whether the inputs of a tool are shown as they come. It may have secrets if it is not known."""
        is_known = tool in self.registered or tool in self.brought
        return is_known and tool not in self.secret and self.has_call(tool)

    def result(self, tool: str, text: str, outcome: str, *, is_error: bool) -> str:
        """Return what a client gets of a result: the text, or a word for how the call ended."""
        is_shown = "results" in self.parts or tool in self.brought
        return text if is_shown else _WORDS.get(outcome, "failed" if is_error else "done")

    def definitions(self, tools: Iterable[Tool]) -> tuple[dict[str, Event], list[str]]:
        """Return the definitions of the tools that a client brings, by name, and the names of those not taken."""
        found, refused = dict[str, Event](), list[str]()
        for each in tools:
            schema = each.parameters or {"type": "object", "properties": {}}
            is_free = each.name not in found and each.name not in self.taken
            is_named = any(fnmatchcase(each.name, pattern) for pattern in self.patterns)
            if is_free and is_named and _is_taken_by_the_api(each.name, schema):
                definition = {"name": each.name, "description": each.description, "input_schema": schema}
                found[each.name] = definition
            else:
                refused.append(each.name)
        return found, refused


def _is_taken_by_the_api(name: str, schema: Any) -> bool:
    """Return whether `say` takes a tool. One that it refuses would take all others with it."""
    is_of_object = isinstance(schema, dict) and schema.get("type") == "object"
    return bool(_NAME.fullmatch(name)) and is_of_object and isinstance(schema.get("properties", {}), dict)


def result_id(call_id: str) -> str:
    """Return the id of the message with the result of a call."""
    return f"{call_id}:r"


def thought_id(message_id: str) -> str:
    """Return the id of the message with the reasoning of a reply."""
    return f"{message_id}:t"


def messages_of(shown: ShownLoop, terms: Terms, outcomes: Mapping[str, str]) -> Iterator[Event]:
    """Yield the messages, with the ids of the loop: the history, with the open round, and what is kept.

    Args:
        shown: the loop.
        terms: what the client gets.
        outcomes: how calls ended that did not run, by id.

    """
    said = [(each["id"], each["role"], _blocks(each["content"])) for each in shown["messages"]]
    results: dict[str, Any] = {call: (one["text"], one["is_error"]) for call, one in shown["results"].items()}
    for block in (block for *_, blocks in said for block in blocks if block["type"] == "tool_result"):
        results[block["tool_use_id"]] = _text_of(block.get("content", "")), bool(block.get("is_error"))
    for name, role, blocks in said:
        if role == "assistant":
            calls = [block for block in blocks if block["type"] == "tool_use" and terms.has_call(block["name"])]
            yield from _reply(name, blocks, calls, terms.parts)
            for call, tool in [(each["id"], each["name"]) for each in calls if each["id"] in results]:
                text, is_error = results[call]
                content = terms.result(tool, text, outcomes.get(call, ""), is_error=is_error)
                error = {"error": content} if is_error else {}
                yield {"id": result_id(call), "role": "tool", "toolCallId": call, "content": content, **error}
        elif role == "user" and not any(block["type"] == "tool_result" for block in blocks):
            yield _said(name, blocks)  # texts beside results are notes to the model
    for each in shown["kept"]:
        yield from (_said(each["id"], _blocks(message["content"])) for message in each["messages"])


def _reply(name: str, blocks: Sequence[Any], calls: Sequence[Any], parts: frozenset[str]) -> Iterator[Event]:
    thought, text = ("".join(block.get(kind, "") for block in blocks) for kind in ("thinking", "text"))
    if thought and "reasoning" in parts:
        yield {"id": thought_id(name), "role": "reasoning", "content": thought}
    reply: Event = {"content": text} if text and "text" in parts else {}
    if calls:
        reply["toolCalls"] = [_call(block) for block in calls]
    if reply:
        yield {"id": name, "role": "assistant", **reply}


def _call(block: Mapping[str, Any]) -> Event:
    arguments = json.dumps(block["input"], ensure_ascii=False)
    return {"id": block["id"], "type": "function", "function": {"name": block["name"], "arguments": arguments}}


def _said(name: str, blocks: Sequence[Any]) -> Event:
    if all(block["type"] == "text" for block in blocks):
        return {"id": name, "role": "user", "content": _text_of(blocks)}
    return {"id": name, "role": "user", "content": [*filter(None, map(_part, blocks))]}


def _text_of(content: JSON) -> str:
    return "\n".join(block["text"] if block["type"] == "text" else f"[{block['type']}]" for block in _blocks(content))


def _blocks(content: JSON) -> Sequence[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


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
        case {"type": str(kind), "source": {"type": "data", "value": data, "mimeType": mime}}:
            if mime in _MIMES.get(kind, ()):
                return {"type": kind, "source": {"type": "base64", "media_type": mime, "data": data}}
    return None


# --- ids -------------------------------------------------------------------------------------------------------------


def key_of(person: str, message_id: str) -> str:
    """Return the key with which a message is said, so that clients of two persons may use the same id."""
    return json.dumps([person, message_id])


def loop_id_of(message: Message, person: str) -> str:
    """Return the id under which the loop has a message that a client of a person made, or that the loop sent.

    A message of the user without an id has one of its own, which no client knows.
    """
    match message.role:
        case "user" if message.id:
            return derive_message_id(key_of(person, message.id))
        case "tool":
            return result_id(message.tool_call_id)
    return message.id


def is_known(message: Message, known: frozenset[str], person: str) -> bool:
    """Return whether a message of the client of a person is one of the loop's. `known`: the ids of those."""
    return not known.isdisjoint({message.id, loop_id_of(message, person)} - {""})


def with_ids_of(client: Iterable[Message], messages: Iterable[Event], person: str) -> list[Event]:
    """Return messages with the ids that a client gave to those that it has: what it said, and results of its tools."""
    own = {loop_id_of(each, person): each.id for each in client if each.id}
    return [{**each, "id": own.get(each["id"], each["id"])} for each in messages]


def snapshots(has: Sequence[str], messages: Sequence[Event]) -> list[Sequence[Event]]:
    """Return the snapshots after which a client has these messages in this order: none if it has them already.

    A client replaces a message that it has where that stands, and appends all others. So what it has in another order
    is taken away first; reasoning only by a snapshot that has some, which the last snapshot takes away again.

    Args:
        has: the ids of the messages that it has, in order.
        messages: the conversation.

    """
    names = [each["id"] for each in messages]
    if names == [*has]:
        return []
    pairs = enumerate(zip(has, names, strict=False))
    same = next((at for at, (one, other) in pairs if one != other), min(len(has), len(names)))
    moved = [each["role"] for each in messages[same:] if each["id"] in has]
    return [[*messages[:same], *([_MOVED] if "reasoning" in moved else [])], messages] if moved else [messages]
