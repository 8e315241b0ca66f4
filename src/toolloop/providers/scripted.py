"""Providers that answer from a script, in the same process: for tests that need no wire.

The constructors of replies are in `toolloop.testing`.
"""

from __future__ import annotations

import inspect
import itertools
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any

from toolloop.core.jsontext import JSON, decode, encode
from toolloop.providers.protocol import Request
from toolloop.providers.scripted_streams import events_of

Answer = Mapping[str, JSON] | BaseException
Script = Iterable[Answer] | Callable[[dict[str, JSON]], Answer]
AsyncScript = Iterable[Answer] | Callable[[dict[str, JSON]], "Answer | Awaitable[Answer]"]

_USE_PREFIXES = {"tool_use": "toolu", "server_tool_use": "srvtoolu", "mcp_tool_use": "mcptoolu"}
_SMALL_USAGE: Mapping[str, JSON] = {"input_tokens": 10, "output_tokens": 5}


class Completion:
    """Makes whole messages of short replies: ids, model, usage. Its ids count from 1, so they are the same in each run.

    A call without an id gets the next one; a server result without one belongs to the oldest server call that has none.
    """

    def __init__(self) -> None:
        """Start counting."""
        self._messages = itertools.count(1)
        self._calls = itertools.count(1)
        self._open: list[str] = []

    def __call__(self, reply: Mapping[str, JSON], model: JSON) -> dict[str, JSON]:
        """The API's message for a short reply. Whatever the reply says itself stays.

        Raises:
            ValueError: a server result without an id, and no server call that waits for one.

        """
        message = {
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
                    raise ValueError(f"this {block['type']} answers no server call: give one before it, or its id")
                block["tool_use_id"] = self._open[0]
            if block["tool_use_id"] in self._open:
                self._open.remove(block["tool_use_id"])
        return block


class _Record:
    """The script, and what was asked so far."""

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
                raise AssertionError(f"the script has run out: request number {len(self.bodies)} has no answer")
        return self._function(decode(body))  # requests may go out side by side, and then it is asked so

    def _finish(self, answer: Any, request: Request | Mapping[str, JSON]) -> dict[str, JSON]:
        if isinstance(answer, BaseException):
            raise answer
        with self._lock:
            message = self._complete(answer, request.get("model"))
        for block in message["content"]:
            # Nobody checks it here, but a reply without one is none that the API gives.
            if block.get("type") == "thinking":
                block.setdefault("signature", "scripted")
            elif block.get("type") == "redacted_thinking":
                block.setdefault("data", "scripted")
        return message


class ScriptedProvider(_Record):
    """A `Provider` that answers from a script.

    Args:
        script: replies and exceptions to raise, in order; or a function that makes one of a request's JSON. When it
            has run out, `AssertionError` is raised.

    Attributes:
        requests: a JSON copy of every request, taken when it was sent.
        bodies: the bytes of every request.

    """

    def __init__(self, script: Script) -> None:
        """Take the script."""
        super().__init__(script)

    def send(self, request: Request) -> dict[str, JSON]:
        """Answer with the next reply of the script, or raise its next exception."""
        return self._finish(self._next(request), request)

    def stream(self, request: Request) -> Iterator[dict[str, JSON]]:
        """The same as the raw events of a stream. The script is asked when the first event is."""
        yield from events_of(self.send(request))


class AsyncScriptedProvider(_Record):
    """`ScriptedProvider` for an `AsyncToolLoopHandle`. A function may be async."""

    def __init__(self, script: AsyncScript) -> None:
        """Take the script."""
        super().__init__(script)

    async def send(self, request: Request) -> dict[str, JSON]:
        """Answer with the next reply of the script, or raise its next exception."""
        answer = self._next(request)
        if inspect.isawaitable(answer):
            answer = await answer
        return self._finish(answer, request)

    async def stream(self, request: Request) -> AsyncIterator[dict[str, JSON]]:
        """The same as the raw events of a stream. The script is asked when the first event is."""
        for event in events_of(await self.send(request)):
            yield event
