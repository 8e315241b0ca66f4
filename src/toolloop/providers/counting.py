"""The request that asks the API how many tokens another one has, and its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from toolloop.core.errors import ModelError, ProtocolError
from toolloop.core.jsontext import JSON, decode, encode
from toolloop.providers.calls import beside, create_arguments, post_arguments
from toolloop.providers.replies import request_id_of

if TYPE_CHECKING:
    import httpx2

    from toolloop.providers.protocol import Request

#: The body parameters that matter to the count; the API refuses all others (source: the SDK's
#: `beta.messages.count_tokens`; a test compares).
COUNTED: Final = frozenset(
    {
        *("billing_policy", "cache_control", "compaction", "context_management", "mcp_servers", "messages", "model"),
        *("output_config", "speed", "system", "thinking", "tool_choice", "tools"),
    }
)

_PATH: Final = "/v1/messages/count_tokens"
_BETA: Final = "token-counting-2024-11-01"  # what the SDK sends along where there are other betas
_SHOWN: Final = 200  # characters of an answer that makes no sense


def counting(request: Request) -> Request:
    """The same request, to be counted: without what only a reply asks for, such as `max_tokens`."""
    options = beside(request)
    if "extra_body" in options:
        options["extra_body"] = {name: value for name, value in options["extra_body"].items() if name in COUNTED}
    params = {name: value for name, value in decode(request.params).items() if name in COUNTED}
    return request.replaced(encode(params), options)


def count_post_arguments(client: Any, request: Request) -> dict[str, Any]:
    """The arguments of the client's `post`, but for what it makes of the answer."""
    counted = counting(request)
    if "betas" in counted.options:
        counted = counted.replaced(counted.params, {**counted.options, "betas": [*counted.options["betas"], _BETA]})
    return post_arguments(client, counted, stream=False) | {"path": _PATH}


def count_arguments(messages: Any, request: Request) -> dict[str, Any]:
    """The arguments of `count_tokens` of the client's `messages`.

    Raises:
        ModelError: it has none; some platforms count no tokens.

    """
    count = getattr(messages, "count_tokens", None)
    if count is None:
        raise ModelError("this client cannot count tokens: its platform does not, or not with betas", retryable=False)
    return create_arguments(count, counting(request))


def read_count(response: httpx2.Response) -> int:
    """The count in a response of status 200 that has been read.

    Raises:
        ProtocolError: it is something else.

    """
    try:
        body = decode(response.content.decode())
    except (ValueError, RecursionError):
        body = None
    return count_in(body, request_id_of(response), response.text)


def count_in(body: JSON, request_id: str | None = None, text: str | None = None) -> int:
    """The count in the JSON of an answer.

    Raises:
        ProtocolError: there is none.

    """
    tokens = body.get("input_tokens") if isinstance(body, dict) else None
    if isinstance(tokens, int) and not isinstance(tokens, bool):
        return tokens
    named = f" to request {request_id}" if request_id else ""
    shown = repr(body) if text is None else text
    raise ProtocolError(
        f"the answer{named} is no count of tokens: it begins {shown[:_SHOWN]!r}. Send the same request again",
        retryable=True,
    )
