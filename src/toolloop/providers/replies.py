"""An HTTP response as a reply, or as a `ProtocolError` that says what came instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolloop.core.errors import ProtocolError
from toolloop.core.jsontext import JSON, decode
from toolloop.providers.protocol import Reply

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpx2

_SHOWN = 200  # characters of a reply that makes no sense


def read_reply(response: httpx2.Response) -> Reply:
    """The reply in a response of status 200 that has been read.

    Raises:
        ProtocolError: it is something else: the page of a proxy, a cut text, another object.

    """
    request_id = request_id_of(response)
    try:
        text = response.content.decode()
        body = decode(text)
    except (ValueError, RecursionError) as error:
        raise _not_a_message(response, request_id) from error
    if not is_message(body):
        raise _not_a_message(response, request_id)
    return Reply(body, text=text, request_id=request_id)


def built_reply(message: Mapping[str, JSON], request_id: str | None) -> Reply:
    """A message as a reply: put together from a stream, or answered by the client's middleware, and so without a text.

    Raises:
        ProtocolError: it is not a message.

    """
    if not is_message(message):
        raise ProtocolError(
            f"the reply{_named(request_id)} is an object of type {message.get('type')!r} and not a message. "
            "Send the same request again",
            retryable=True,
        )
    return message if isinstance(message, Reply) else Reply(message, request_id=request_id)


def is_message(body: JSON) -> bool:
    """Whether a JSON value has the shape of the API's message."""
    return isinstance(body, dict) and body.get("type") == "message" and isinstance(body.get("content"), list)


def request_id_of(response: httpx2.Response) -> str | None:
    """The API's id of the request, by which its makers find it."""
    request_id: str | None = response.headers.get("request-id")
    return request_id


def _not_a_message(response: httpx2.Response, request_id: str | None) -> ProtocolError:
    kind = response.headers.get("content-type", "no content type")
    return ProtocolError(
        f"the answer{_named(request_id)} is no message of the API: status {response.status_code}, {kind}, "
        f"{len(response.content)} bytes that begin {response.text[:_SHOWN]!r}. Is the client's base_url that of the "
        "API, and is there a proxy in between? Send the same request again",
        retryable=True,
    )


def _named(request_id: str | None) -> str:
    return f" to request {request_id}" if request_id else ""
