"""The protocol of providers: a request, its options, a reply, and the objects that answer requests.

A request is a mapping of JSON values. It also has pre-serialized bytes, so a provider that posts bodies encodes each
message only once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

from attrs import define

from toolloop.machine.values.jsontext import JSON, decode
from toolloop.providers.message_threads import ThreadedRequest

#: The parameters of `messages.create` and `beta.messages.create` that are not part of the body, in anthropic-sdk 2.11
#: and 2.12. A test compares them.
OPTION_NAMES = frozenset(
    {"betas", "extra_body", "extra_headers", "extra_query", "timeout", "user_profile_id", "workspace_id"}
)

#: The options that are never stored: headers and queries may contain keys, and a timeout may be an object of the HTTP
#: library. You pass them again in the `params` of `restore`.
SECRET_OPTIONS = frozenset({"extra_headers", "extra_query", "timeout"})

_NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})


def given(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters whose value is not `anthropic.NOT_GIVEN` or `anthropic.omit`.

    Only the top level is checked: in `extra_headers`, `omit` removes a header and must be kept.
    """
    return {name: value for name, value in params.items() if not _is_not_given(value)}


def _is_not_given(value: object) -> bool:
    kind = type(value)  # compared by name, so that the SDK is not imported
    return kind.__name__ in {"NotGiven", "Omit"} and kind.__module__.split(".", 1)[0] == "anthropic"


@define(eq=False, repr=False)
class Request(Mapping[str, JSON]):
    """One model request: `request["messages"]`, `request["model"]` and so on are decoded on demand.

    Args:
        params: the JSON text of an object: all body parameters except `messages`.
        messages: the JSON text of each message, in order.
        options: the parameters that are not part of the body; see `OPTION_NAMES`.
        encoded: the messages as UTF-8 bytes; encoded for this request if left out.
        thread: the message thread of the request: the server holds the earlier messages. Only a provider whose
            `takes_threads` is true gets such a request. None means that the request has all messages.

    """

    params: str
    messages: Sequence[str]
    options: Mapping[str, Any] = _NO_OPTIONS
    _encoded: Sequence[bytes] | None = None
    thread: ThreadedRequest | None = None

    def body(self) -> bytes:
        """Return the bytes of the JSON body, joined from the encoded messages."""
        # Bytes are joined, because one wide character in a str widens all others. They are joined once, because each
        # join copies the whole conversation; so the ends are added to the first and the last piece.
        pieces = [text.encode() for text in self.messages] if self._encoded is None else list(self._encoded)
        head = self.params[:-1] + ("," if len(self.params) > len("{}") else "") + '"messages":['
        if not pieces:
            return (head + "]}").encode()
        pieces[0] = head.encode() + pieces[0]
        pieces[-1] += b"]}"
        return b",".join(pieces)

    def replaced(self, params: str, options: Mapping[str, Any]) -> Request:
        """Return a request with the same messages and other parameters."""
        return Request(params, self.messages, options, self._encoded, self.thread)

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
    """A reply with its text and its request id. A provider may also return the API's message as a plain dict.

    Attributes:
        text: the JSON text as received, or None.
        request_id: the API's id of the request, or None.

    """

    __slots__ = ("request_id", "text")

    def __init__(self, body: Mapping[str, JSON], *, text: str | None = None, request_id: str | None = None) -> None:
        """Store the reply, its text and its request id."""
        super().__init__(body)
        self.text: str | None = text
        self.request_id: str | None = request_id


@runtime_checkable
class Provider(Protocol):
    """Answer the model requests of a `ToolLoopHandle`."""

    def send(self, request: Request) -> Mapping[str, JSON]:
        """Return the reply to a request: the JSON of the API's message.

        Raises:
            ModelError: the request failed; `retryable` tells whether the same request may succeed.
            ProtocolError: the reply is not a message.

        """
        ...


@runtime_checkable
class StreamingProvider(Provider, Protocol):
    """A provider that streams replies. For a provider without `stream`, the loop calls `send`."""

    def stream(self, request: Request) -> Iterator[Mapping[str, JSON]]:
        """Return the raw events of the API's stream, `message_start` to `message_stop`, as JSON.

        If the server does not stream, the only item is the message, `{"type": "message", …}`. The iterator may have
        `close()`, which closes the connection early, and `request_id`, which is set once the reply has begun.

        Raises:
            ModelError, ProtocolError: like `send`, when an item is read.

        """
        ...


@runtime_checkable
class AsyncProvider(Protocol):
    """Answer the model requests of an `AsyncToolLoopHandle`."""

    async def send(self, request: Request) -> Mapping[str, JSON]:
        """Return the reply to a request. See `Provider.send`."""
        ...


@runtime_checkable
class AsyncStreamingProvider(AsyncProvider, Protocol):
    """An async provider that streams replies. See `StreamingProvider`."""

    def stream(self, request: Request) -> AsyncIterator[Mapping[str, JSON]]:
        """Return the raw events of the reply, without `await`. `aclose()` closes the connection."""
        ...
