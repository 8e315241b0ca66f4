"""Short words for request bodies: what the corpus and the tests of histories are written in."""

from __future__ import annotations

import base64
import struct
from typing import Any, Literal

from attrs import frozen

OPUS = "claude-opus-5-5"
SONNET_4_5 = "claude-sonnet-4-5"

Level = Literal["error", "warning"]

TOOL = {"name": "look", "description": "Look.", "input_schema": {"type": "object", "properties": {}}}
WEB_SEARCH = {"type": "web_search_20250305", "name": "web_search"}
CODE = {"type": "code_execution_20250825", "name": "code_execution"}
TOOLS = [TOOL, WEB_SEARCH, CODE]
MANUAL = {"type": "enabled", "budget_tokens": 1024}
EPHEMERAL = {"type": "ephemeral"}
PNG: dict[str, Any] = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
DOCUMENT = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "page"}}
SEARCH_RESULT = {
    "type": "search_result",
    "source": "https://example.com",
    "title": "t",
    "content": [{"type": "text", "text": "found"}],
}
BY_CODE = {"caller": {"type": "code_execution_20250825", "tool_id": "srvtoolu_c"}}


@frozen
class BadRequest:
    """One refused request.

    Args:
        name: unique, kebab-case.
        rule: the id of the rule in `toolloop.history`, or in words where the checker has none.
        body: the whole body of the request.
        checked: what `check` says of it; None: nothing, since a local checker cannot or need not know.
        status: the HTTP status.
        error: the API's `error.type`.
        beta: the header by which it may say what it says.

    """

    name: str
    rule: str
    body: dict[str, Any]
    checked: Level | None = "error"
    status: int = 400
    error: str = "invalid_request_error"
    beta: str | None = None


def list_refused(rules: dict[str, dict[str, dict[str, Any]]], **more: Any) -> list[BadRequest]:
    """Requests by the rule that they break, and by name."""
    return [BadRequest(name, rule, body, **more) for rule, bodies in rules.items() for name, body in bodies.items()]


def body(*messages: Any, **more: Any) -> dict[str, Any]:
    return {"model": OPUS, "max_tokens": 4096, "messages": list(messages), "tools": TOOLS} | more


def make_bare(*messages: Any, **more: Any) -> dict[str, Any]:
    """A body without tools."""
    return {key: value for key, value in body(*messages, **more).items() if key != "tools" or "tools" in more}


def drop_keys(request: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in request.items() if key not in keys}


def user(*content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(content)} | more


def assistant(*content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(content)} | more


def system(*content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "system", "content": list(content)} | more


def text(words: Any = "words", **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words} | more


def call(call_id: Any = "toolu_1", **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "look", "input": {}} | more


def result(call_id: Any = "toolu_1", content: Any = "seen", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content} | more


def image(data: bytes | str, media_type: str = "image/png", **more: Any) -> dict[str, Any]:
    """An image of these bytes, or of this base64."""
    encoded = base64.b64encode(data).decode() if isinstance(data, bytes) else data
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": encoded}} | more


def png(width: int, height: int) -> dict[str, Any]:
    """The beginning of a PNG of this size, which is all that is ever read."""
    header = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + struct.pack(">II", width, height)
    return image(header + b"\x08\x02\x00\x00\x00\x00\x00\x00\x00")


def compaction(content: Any = "So far: nothing.", **more: Any) -> dict[str, Any]:
    """Without a signature: as a compaction leaves it that the server makes by itself."""
    return {"type": "compaction", "content": content} | more


def tool_change(kind: str, name: str) -> dict[str, Any]:
    """A `tool_addition` or a `tool_removal` of a tool of the request."""
    return {"type": kind, "tool": {"type": "tool_reference", "name": name}}


def reference(name: str) -> dict[str, Any]:
    return {"type": "tool_reference", "tool_name": name}


def search(call_id: str = "srvtoolu_1", **more: Any) -> dict[str, Any]:
    return {"type": "server_tool_use", "id": call_id, "name": "web_search", "input": {"query": "q"}} | more


def make_found(call_id: str = "srvtoolu_1", **more: Any) -> dict[str, Any]:
    return {"type": "web_search_tool_result", "tool_use_id": call_id, "content": []} | more


def thinking(words: str = "hm", signature: str = "c2ln", **more: Any) -> dict[str, Any]:
    return {"type": "thinking", "thinking": words, "signature": signature} | more


HI = {"role": "user", "content": "Hi"}
HELLO = {"role": "assistant", "content": "Hello"}
NEXT = {"role": "user", "content": "Go on"}
#: The server call by which code runs that makes client calls.
RUN_CODE = search("srvtoolu_c", name="code_execution", input={"code": "look()"})


def of_toolset(**more: Any) -> dict[str, Any]:
    """A body whose one call is of a member of a toolset, with a result made of these parts."""
    return body(HI, assistant(call(toolset_name="browser")), user(result(**more)))


def make_by_code(**more: Any) -> dict[str, Any]:
    """A body whose one call was made by code, with a result made of these parts."""
    return body(HI, assistant(RUN_CODE, call(**BY_CODE)), user(result(**more)), container="container_1")


def make_answered(**more: Any) -> dict[str, Any]:
    """A body whose one call has a result made of these parts."""
    return body(HI, assistant(call()), user(result(**more)))
