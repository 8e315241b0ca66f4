"""Files and calls of each kind, and helpers that answer a call with a response."""

from __future__ import annotations

import json
import struct
from typing import Any

from tests.messages.bodies import HI, OPUS, RUN_CODE, TOOLS, assistant, call
from toolloop.history import check
from toolloop.responses import AnthropicMessagesToolResponseAdapter, ToolResponseAdapter

CALL: dict[str, Any] = call("toolu_1")
BY_CODE = call("toolu_1", caller={"type": "code_execution_20250825", "tool_id": "srvtoolu_c"})
OF_TOOLSET = call("toolu_1", toolset_name="computer")
ADAPTER = AnthropicMessagesToolResponseAdapter()


def png(width: int = 2, height: int = 3, *, size: int = 0) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + header + bytes(4) + bytes(size)


def gif(width: int = 2, height: int = 3) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + bytes(3) + b";"


def jpeg(width: int = 2, height: int = 3) -> bytes:
    frame = struct.pack(">BHHB", 8, height, width, 1) + b"\x01\x11\x00"
    return b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00\xff\xc0\x00\x0b" + frame + b"\xff\xd9"


def webp(width: int = 2, height: int = 3) -> bytes:
    size = ((height - 1) << 14 | (width - 1)).to_bytes(4, "little")
    return b"RIFF" + struct.pack("<I", 18) + b"WEBPVP8L" + struct.pack("<I", 5) + b"\x2f" + size + b"\0"


IMAGES = {"image/png": png(), "image/gif": gif(), "image/jpeg": jpeg(), "image/webp": webp()}
PDF = b"%PDF-1.7\n\xe2\xe3\xcf\xd3\n%%EOF"
#: Bytes that are not text: half a character of UTF-8, and a zero.
BINARY = b"PK\x03\x04\x00\xff"


def problems(message: dict[str, Any], asked: Any = CALL) -> list[Any]:
    """Return the errors that `check` finds in a conversation where this message answers this call."""
    before = [RUN_CODE] if "caller" in asked else []
    found = check([HI, assistant(*before, asked), message], model=OPUS, tools=TOOLS)
    return [problem for problem in found if problem.level == "error"]


def answer(response: Any, *, asked: Any = CALL, adapter: ToolResponseAdapter = ADAPTER) -> dict[str, Any]:
    """Return the `tool_result` for a response, after checking that it is valid JSON and that `check` accepts it."""
    return answer_and_after(response, asked=asked, adapter=adapter)[0]


def answer_and_after(
    response: Any, *, asked: Any = CALL, adapter: ToolResponseAdapter = ADAPTER
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the `tool_result` for a response, and the blocks after it, checked in the same way."""
    (message,) = adapter.create_messages(asked, response)
    block, *after = message["content"]
    assert (message["role"], block["type"], block["tool_use_id"]) == ("user", "tool_result", asked["id"])
    assert json.loads(json.dumps(message, ensure_ascii=False, allow_nan=False).encode()) == message
    assert problems(message, asked) == []
    return dict(block), list(after)


def text(words: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": words}]


def send(response: Any, **more: Any) -> Any:
    """Return the content of a result that is not an error."""
    block = answer(response, **more)
    assert "is_error" not in block, block
    return block["content"]


def read_said(response: Any, **more: Any) -> str:
    """Return the only text of a result that is not an error."""
    (block,) = send(response, **more)
    assert block.keys() == {"type", "text"}
    return str(block["text"])


def error(response: Any, **more: Any) -> str:
    """Return the text of an error result."""
    block = answer(response, **more)
    assert block["is_error"] is True, block
    return "\n".join(each["text"] for each in block["content"])
