"""Constructors for the answers of a model, or of a network."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Block = dict[str, Any]

# messages-api.md, section 5.
_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_EXPIRES = "2099-12-31T23:59:59Z"
_REPLY_USAGE = {"input_tokens": 10, "output_tokens": 5}
_SUMMARY_USAGE = {"input_tokens": 100, "output_tokens": 20}


def reply(  # noqa: PLR0913 - the parts of a message
    text: str | None = None,
    *,
    calls: Iterable[Block | tuple[str, dict[str, Any]]] = (),
    thinking: str | None = None,
    content: Iterable[Block] = (),
    stop_reason: str | None = None,
    usage: Mapping[str, Any] | None = None,
    container: str | Mapping[str, Any] | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """Make a reply of the model with thinking, text, other blocks and calls, in this order.

    Args:
        text: the text of a text block.
        calls: blocks made by `call`, or pairs of name and input.
        thinking: the text of a thinking block; the server signs it.
        content: further blocks, such as `server_call`.
        stop_reason: by default `"tool_use"` if there are calls, else `"end_turn"`.
        usage: token counts; small numbers by default.
        container: the container in which code ran, or its id.
        fields: any other keys of the message.

    """
    blocks: list[Block] = []
    if thinking is not None:
        blocks.append({"type": "thinking", "thinking": thinking})
    if text is not None:
        blocks.append({"type": "text", "text": text})
    blocks.extend(content)
    blocks.extend(call(*item) if isinstance(item, tuple) else item for item in calls)
    has_calls = any(block["type"] == "tool_use" for block in blocks)
    if container is not None:
        fields["container"] = {"id": container, "expires_at": _EXPIRES} if isinstance(container, str) else container
    whole = {"content": blocks, "stop_reason": stop_reason or ("tool_use" if has_calls else "end_turn"), **fields}
    return whole if usage is None else {**whole, "usage": dict(usage)}


def call(name: str, input: dict[str, Any] | None = None, *, id: str | None = None, **fields: Any) -> Block:  # noqa: A002 - the API's own words
    """Make a `tool_use` block. Without an id, the server or provider assigns one: `toolu_fake_000001` and so on."""
    return {"type": "tool_use", "id": id, "name": name, "input": input or {}, **fields}


def server_call(name: str, input: dict[str, Any] | None = None, *, id: str | None = None) -> Block:  # noqa: A002 - likewise
    """Make a `server_tool_use` block: a call that the API runs itself, such as a web search."""
    return {"type": "server_tool_use", "id": id, "name": name, "input": input or {}}


def server_result(name: str, content: Any = (), *, id: str | None = None) -> Block:  # noqa: A002 - likewise
    """Make the result block of a server tool. Without an id, it answers the oldest open server call."""
    found = list(content) if isinstance(content, tuple) else content
    return {"type": f"{name}_tool_result", "tool_use_id": id, "content": found}


def compacted(
    summary: str | None,
    then: Mapping[str, Any] | None = None,
    *,
    usage: Mapping[str, Any] | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """Make a reply in which the server compacted the conversation: a block alone, or at the start of a reply.

    A block alone answers `pause_after_compaction` and a request with the `compaction` parameter; in the second case the
    server signs it. The usage of the summary is a separate iteration, and not part of the totals.

    Args:
        summary: the text; None for a compaction that failed.
        then: a `reply`. The block comes first in its content, and its usage becomes the second iteration.
        usage: the usage of the summary; small numbers by default.
        fields: any other keys of the block, such as `encrypted_content`.

    """
    block = {"type": "compaction", "content": summary, **fields}
    used = {"type": "compaction", **(_SUMMARY_USAGE if usage is None else usage)}
    if then is None:
        return {
            "content": [block],
            "stop_reason": "compaction",
            "usage": {"input_tokens": 0, "output_tokens": 0, "iterations": [used]},
        }
    total = then.get("usage", _REPLY_USAGE)
    iterations = [used, {"type": "message", **total}]
    return {**then, "content": [block, *then["content"]], "usage": {**total, "iterations": iterations}}


@frozen
class Fault:
    """An error answer; see `fault`."""

    status: int
    type: str
    message: str
    retry_after: float | None = None


def fault(
    status: int,
    type: str | None = None,  # noqa: A002 - the API's own word
    message: str | None = None,
    retry_after: float | None = None,
) -> Fault:
    """Make an error answer.

    Args:
        status: the HTTP status.
        type: `error.type`; by default the usual one for the status.
        message: `error.message`.
        retry_after: the value of the `retry-after` header, in seconds.

    """
    kind = type or _ERROR_TYPES.get(status, "api_error")
    return Fault(status, kind, message or f"scripted fault: {kind}", retry_after)


@frozen
class Dropped:
    """A connection that the server closes without an answer."""


dropped = Dropped


@frozen
class Verbatim:
    """An answer that the server sends unchanged, such as a recorded one: JSON, or the text of an event stream."""

    status: int
    headers: Mapping[str, str]
    body: Mapping[str, Any] | str | bytes


verbatim = Verbatim


def html() -> Verbatim:
    """Make a web page with status 200, like the answer of a captive portal or a wrong address."""
    return Verbatim(200, {"content-type": "text/html"}, "<!doctype html><title>Welcome</title><p>Please log in.")


@frozen(eq=False)
class Delayed:
    """An answer that waits; see `delayed`.

    Attributes:
        arrived: set when the request has arrived and waits.

    """

    answer: Any
    seconds: float | None
    released: threading.Event
    arrived: threading.Event = field(factory=threading.Event)

    def release(self) -> None:
        """Send the answer."""
        self.released.set()


def delayed(until: float | threading.Event, answer: Any) -> Delayed:
    """Make an answer that waits for some seconds, an event, or `release()`. Closing the server ends the wait.

    Args:
        until: seconds, or the event that releases it.
        answer: the answer to send then.

    """
    if isinstance(until, threading.Event):
        return Delayed(answer, None, until)
    return Delayed(answer, until, threading.Event())
