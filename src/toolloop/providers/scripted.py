"""Providers that answer from a script, without HTTP, and the conversion of messages to stream events.

The functions that make replies are in `toolloop.testing`.
"""

from __future__ import annotations

import inspect
import itertools
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any

from toolloop._public import set_module
from toolloop.machine.values.jsontext import JSON, decode, encode
from toolloop.providers.protocol import Request

ScriptedAnswer = Mapping[str, JSON] | BaseException
Script = Iterable[ScriptedAnswer] | Callable[[dict[str, JSON]], ScriptedAnswer]
AsyncScript = Iterable[ScriptedAnswer] | Callable[[dict[str, JSON]], ScriptedAnswer | Awaitable[ScriptedAnswer]]

_USE_PREFIXES = {"tool_use": "toolu", "server_tool_use": "srvtoolu", "mcp_tool_use": "mcptoolu"}
_SEALS = {"thinking": "signature", "redacted_thinking": "data"}
_SMALL_USAGE: Mapping[str, JSON] = {"input_tokens": 10, "output_tokens": 5}
_PIECE = 16  # characters in a delta: few, so that even a short text has several deltas
_LATE = ("stop_reason", "stop_sequence", "stop_details", "container")  # known at the end of a stream


class Completion:
    """Complete short replies with ids, model and usage. Ids count from 1, so they are the same in each run.

    A call without an id gets the next id. A server result without an id belongs to the oldest unanswered server call.
    """

    def __init__(self) -> None:
        """Start the count."""
        self._messages = itertools.count(1)
        self._calls = itertools.count(1)
        self._open: list[str] = []

    def __call__(self, reply: Mapping[str, JSON], model: JSON) -> dict[str, JSON]:
        """Return the complete message for a short reply. Existing fields are kept.

        Raises:
            ValueError: a server result has no id, and all server calls are answered.

        """
        message: dict[str, JSON] = {
            "id": f"msg_fake_{next(self._messages):06}",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "stop_details": None,
            "usage": dict(_SMALL_USAGE),
            **decode(encode(dict(reply))),
        }
        message["content"] = [self._identified(block) for block in message["content"]]
        return message

    def _identified(self, block: dict[str, JSON]) -> dict[str, JSON]:
        prefix = _USE_PREFIXES.get(block.get("type", ""))
        if prefix and block.get("id") is None:
            block["id"] = f"{prefix}_fake_{next(self._calls):06}"
        if prefix and block["type"] != "tool_use":
            self._open.append(block["id"])
        elif "tool_use_id" in block:
            if block["tool_use_id"] is None:
                if not self._open:
                    raise ValueError(f"{block['type']} without a server call: add one before it, or set tool_use_id")
                block["tool_use_id"] = self._open[0]
            if block["tool_use_id"] in self._open:
                self._open.remove(block["tool_use_id"])
        return block


def fill_in_seals(blocks: Iterable[dict[str, JSON]], seal: str) -> None:
    """Set a text as the signature of thinking blocks without one, and as the data of redacted thinking without any."""
    for block in blocks:
        if (key := _SEALS.get(block.get("type", ""))) is not None:
            block.setdefault(key, seal)


class _Script:
    """The script, and the requests so far."""

    def __init__(self, script: Any) -> None:
        self._function = script if callable(script) else None
        self._answers = iter(()) if callable(script) else iter(script)
        self._complete = Completion()
        self._lock = threading.Lock()
        self.requests: list[dict[str, JSON]] = []
        self.bodies: list[bytes] = []

    def _next(self, request: Request | Mapping[str, JSON]) -> Any:
        body = request.body() if isinstance(request, Request) else encode(dict(request)).encode()
        with self._lock:
            self.bodies.append(body)
            self.requests.append(decode(body))
            if self._function is None:
                for answer in self._answers:
                    return answer
                raise AssertionError(f"the script has no reply for request number {len(self.bodies)}")
        return self._function(decode(body))  # outside the lock: requests may be concurrent

    def _finish(self, answer: Any, request: Request | Mapping[str, JSON]) -> dict[str, JSON]:
        if isinstance(answer, BaseException):
            raise answer
        with self._lock:
            message = self._complete(answer, request.get("model"))
        fill_in_seals(message["content"], "scripted")
        return message


@set_module("toolloop.testing")
class ScriptedProvider(_Script):
    """A `Provider` that answers from a script.

    Args:
        script: replies, and exceptions to raise, in order; or a function of a request's JSON that returns one. A
            request after the last reply raises `AssertionError`.

    Attributes:
        requests: a JSON copy of each request.
        bodies: the bytes of each request.

    """

    def __init__(self, script: Script) -> None:
        """Store the script."""
        super().__init__(script)

    def send(self, request: Request) -> dict[str, JSON]:
        """Return the next reply of the script, or raise its next exception."""
        return self._finish(self._next(request), request)

    def stream(self, request: Request) -> Iterator[dict[str, JSON]]:
        """Yield the events of the next reply. The script is asked when the first event is read."""
        yield from events_of(self.send(request))


@set_module("toolloop.testing")
class AsyncScriptedProvider(_Script):
    """`ScriptedProvider` for an `AsyncToolLoopHandle`. The function may be async."""

    def __init__(self, script: AsyncScript) -> None:
        """Store the script."""
        super().__init__(script)

    async def send(self, request: Request) -> dict[str, JSON]:
        """Return the next reply of the script, or raise its next exception."""
        answer = self._next(request)
        if inspect.isawaitable(answer):
            answer = await answer
        return self._finish(answer, request)

    async def stream(self, request: Request) -> AsyncIterator[dict[str, JSON]]:
        """Yield the events of the next reply. The script is asked when the first event is read."""
        for event in events_of(await self.send(request)):
            yield event


def events_of(message: Mapping[str, JSON], inputs: Mapping[str, str] = {}) -> Iterator[dict[str, JSON]]:
    """Yield the events of a whole message, as the API streams it. `accumulate` reverses this.

    Args:
        message: the complete message.
        inputs: by tool name, a text to stream as the input of its calls instead of their JSON.

    """
    late = {name: message[name] for name in _LATE if name in message}
    beside = {name: message[name] for name in ("usage", "context_management") if name in message}
    begun: dict[str, JSON] = {**message, "content": [], **dict.fromkeys(late)}
    begun.pop("context_management", None)
    if usage := message.get("usage"):
        begun["usage"] = {**usage, "output_tokens": 1}
    yield {"type": "message_start", "message": begun}
    for index, block in enumerate(message["content"]):
        start, deltas = _start_and_deltas(block, inputs)
        yield {"type": "content_block_start", "index": index, "content_block": start}
        if index == 0:
            yield {"type": "ping"}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": late, **beside}
    yield {"type": "message_stop"}


def _start_and_deltas(
    block: Mapping[str, JSON], inputs: Mapping[str, str]
) -> tuple[dict[str, JSON], list[dict[str, JSON]]]:
    match block:
        case {"type": "text", "text": str(text)}:
            cited = block.get("citations") or []
            start = {name: value for name, value in block.items() if name != "citations" or not cited}
            return {**start, "text": ""}, [
                *({"type": "text_delta", "text": piece} for piece in _pieces(text)),
                *({"type": "citations_delta", "citation": citation} for citation in cited),
            ]
        case {"type": "thinking", "thinking": str(text), "signature": signature}:
            return {**block, "thinking": "", "signature": ""}, [
                *({"type": "thinking_delta", "thinking": piece} for piece in _pieces(text)),
                {"type": "signature_delta", "signature": signature},
            ]
        case {"type": "tool_use" | "server_tool_use" | "mcp_tool_use", "input": dict(value)}:
            written = inputs.get(block["name"], encode(value) if value else "")
            return {**block, "input": {}}, [
                {"type": "input_json_delta", "partial_json": piece} for piece in ("", *_pieces(written))
            ]
        case {"type": "compaction"}:
            whole = {name: block[name] for name in ("content", "encrypted_content") if name in block}
            return {**block, **dict.fromkeys(whole)}, [{"type": "compaction_delta", **whole}]
    return dict(block), []  # server results, redacted thinking and unknown blocks are not streamed in pieces


def _pieces(text: str) -> list[str]:
    return [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]
