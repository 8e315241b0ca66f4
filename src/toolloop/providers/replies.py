"""Read replies from HTTP responses, check them, and convert them to SDK objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from toolloop.errors import ProtocolError
from toolloop.machine.values.jsontext import JSON, decode
from toolloop.providers.protocol import Reply

if TYPE_CHECKING:
    import httpx2
    from anthropic.types.beta import BetaMessage

_SHOWN = 200  # characters of an unreadable reply


def parse_response(response: httpx2.Response) -> Reply:
    """Return the reply in a response with status 200, whose body is already read.

    Raises:
        ProtocolError: the body is not a message, for example a proxy's page or a truncated text.

    """
    request_id = request_id_of(response)
    try:
        text = response.content.decode()
        return built_reply(Reply(decode(text), text=text, request_id=request_id), request_id)
    except (TypeError, ValueError, RecursionError, ProtocolError) as error:
        kind = response.headers.get("content-type", "no content type")
        raise ProtocolError(
            f"the reply{_named(request_id)} is not a message of the API: status {response.status_code}, {kind}, "
            f"{len(response.content)} bytes, starting with {response.text[:_SHOWN]!r}. Check the client's base_url "
            "and any proxy, then send the same request again",
            retryable=True,
        ) from error


def built_reply(message: Mapping[str, JSON], request_id: str | None) -> Reply:
    """Return a message as a reply. It was assembled from a stream, or made by the client's middleware.

    Raises:
        ProtocolError: the value is not a message.

    """
    if message.get("type") != "message" or not isinstance(message.get("content"), list):
        raise ProtocolError(
            f"the reply{_named(request_id)} is an object of type {message.get('type')!r}, not a message. "
            "Send the same request again",
            retryable=True,
        )
    return message if isinstance(message, Reply) else Reply(message, request_id=request_id)


def request_id_of(response: httpx2.Response) -> str | None:
    """Return the API's request id, which Anthropic's support needs."""
    request_id: str | None = response.headers.get("request-id")
    return request_id


def _named(request_id: str | None) -> str:
    return f" to request {request_id}" if request_id else ""


def as_sdk(reply: Mapping[str, JSON]) -> BetaMessage:
    """Return a reply, such as `Completed.response`, as the SDK's message object.

    Blocks of unknown types are kept; dispatch on `.type`. Source: anthropic-sdk 2.11; `construct` does not validate.
    """
    from anthropic.types.beta import BetaMessage  # noqa: PLC0415 - `import toolloop` must not load the SDK

    return BetaMessage.construct(**reply)
