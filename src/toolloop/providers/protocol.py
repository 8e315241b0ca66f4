"""What a handle sends, and what it wants back.

A request is a mapping of JSON values. Beside that view it offers its ready bytes, so that a provider that posts bodies
pays for no message twice.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

from toolloop.core.jsontext import JSON, decode

_NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})


class Request(Mapping[str, JSON]):
    """One model request: `request["messages"]`, `request["model"]`, …, decoded when asked for.

    Args:
        params: the JSON text of an object: every body parameter but `messages`.
        messages: the JSON text of each message, in order.
        options: what goes beside the body: `betas`, `extra_headers`, `extra_query`, `extra_body`, `timeout`,
            `user_profile_id`, `workspace_id`, where the caller gave them.
        encoded: the messages as UTF-8 bytes, if somebody keeps them; else they are encoded for this request.

    """

    __slots__ = ("_encoded", "messages", "options", "params")

    def __init__(
        self,
        params: str,
        messages: Sequence[str],
        options: Mapping[str, Any] = _NO_OPTIONS,
        encoded: Sequence[bytes] | None = None,
    ) -> None:
        """Keep the ready texts."""
        self.params = params
        self.messages = messages
        self.options = options
        self._encoded = encoded

    def body(self) -> bytes:
        """The request as the bytes of its JSON body: a joining of ready pieces."""
        # Joined as bytes: in a joined string one wide character would widen all the others. And joined once: each
        # joining copies the whole conversation, so its ends go into the first piece and the last.
        pieces = [text.encode() for text in self.messages] if self._encoded is None else list(self._encoded)
        head = self.params[:-1] + ("," if len(self.params) > len("{}") else "") + '"messages":['
        if not pieces:
            return (head + "]}").encode()
        pieces[0] = head.encode() + pieces[0]
        pieces[-1] += b"]}"
        return b",".join(pieces)

    def replaced(self, params: str, options: Mapping[str, Any]) -> Request:
        """A request of the same messages, with other parameters."""
        return Request(params, self.messages, options, self._encoded)

    def __getitem__(self, key: str) -> JSON:
        if key == "messages":
            return [decode(text) for text in self.messages]
        return decode(self.params)[key]

    def __iter__(self) -> Iterator[str]:
        yield from decode(self.params)
        yield "messages"

    def __len__(self) -> int:
        return len(decode(self.params)) + 1

    def __repr__(self) -> str:
        return f"<Request: {len(self.messages)} messages>"


class Reply(dict[str, JSON]):
    """A reply with what came beside it; a plain dict of the API's message will do as well.

    Attributes:
        text: the JSON text as received, or None.
        request_id: the API's id of the request, or None.

    """

    __slots__ = ("request_id", "text")

    def __init__(self, body: Mapping[str, JSON], *, text: str | None = None, request_id: str | None = None) -> None:
        """Keep the reply and what came beside it."""
        super().__init__(body)
        self.text = text
        self.request_id = request_id


@runtime_checkable
class Provider(Protocol):
    """What answers the model requests of a `ToolLoopHandle`."""

    def send(self, request: Request) -> Mapping[str, JSON]:
        """Answer a request with the JSON of the API's message.

        Raises:
            ModelError: the request failed; says whether the same request may succeed.
            ProtocolError: the reply made no sense.

        """
        ...


@runtime_checkable
class StreamingProvider(Provider, Protocol):
    """A provider whose replies can be read while they come. One that has no `stream` is asked by `send`."""

    def stream(self, request: Request) -> Iterator[Mapping[str, JSON]]:
        """Answer a request with the raw events of the API's stream, `message_start` to `message_stop`, as JSON.

        A server that does not stream is answered for by its message, `{"type": "message", …}`, as the only item.
        Optional on the iterator: `close()`, to hang up half-way; and `request_id`, once the answer has begun.

        Raises:
            ModelError, ProtocolError: as `send`, when an item is asked for.

        """
        ...


@runtime_checkable
class AsyncProvider(Protocol):
    """What answers the model requests of an `AsyncToolLoopHandle`."""

    async def send(self, request: Request) -> Mapping[str, JSON]:
        """Like `Provider.send`."""
        ...


@runtime_checkable
class AsyncStreamingProvider(AsyncProvider, Protocol):
    """Like `StreamingProvider`."""

    def stream(self, request: Request) -> AsyncIterator[Mapping[str, JSON]]:
        """Like `StreamingProvider.stream`; not awaited itself. Hanging up is `aclose()`."""
        ...
