"""A request as the arguments of the SDK: of the client's own `post`, with a ready body, or of `messages.create`.

`create` walks and rebuilds every old message each time; a ready body is a joining of pieces that were encoded once. On
that path these are not done: the SDK's deprecation warnings, its span name, its own guard for long unstreamed requests
(`Bound` stands in for that).
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from toolloop.core.jsontext import JSON, decode, encode, plain
from toolloop.providers.options import given
from toolloop.providers.protocol import Request

if TYPE_CHECKING:
    from collections.abc import Mapping

_PATH = "/v1/messages"  # for beta features too: since anthropic-sdk 2.11 only the header tells them apart

# The SDK takes it that 128,000 tokens need an hour and that an unstreamed request has ten minutes
# (anthropic-sdk 2.12, `_calculate_nonstreaming_timeout`); some models have a bound of their own
# (`MODEL_NONSTREAMING_TOKENS`). Tests compare both.
MOST_UNSTREAMED = 128_000 * 10 // 60
MOST_UNSTREAMED_BY_MODEL = dict.fromkeys(
    (
        "claude-opus-4-20250514",
        "claude-opus-4-0",
        "claude-4-opus-20250514",
        "anthropic.claude-opus-4-20250514-v1:0",
        "claude-opus-4@20250514",
        "anthropic.claude-opus-4-1-20250805-v1:0",
        "claude-opus-4-1@20250805",
    ),
    8_192,
)


class Bound:
    """Which requests must be streamed. A loop sends the same parameters again and again: they are looked into once."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._last: tuple[str, bool] = ("", False)

    def streams(self, client: Any, request: Request) -> bool:
        """Whether the reply must be streamed: it may take longer than an unstreamed request has.

        Who set a timeout, for the request or on the client, has decided that already.
        """
        import anthropic  # noqa: PLC0415 - `import toolloop` must not pay for the SDK

        options, timeout = beside(request), client.timeout
        if "timeout" in options or (timeout is not anthropic.DEFAULT_TIMEOUT and timeout != anthropic.DEFAULT_TIMEOUT):
            return False
        if "extra_body" in options:
            return _is_long({**decode(request.params), **_extra_body(options)})
        params, is_long = self._last
        if params is not request.params:
            is_long = _is_long(decode(request.params))
            self._last = request.params, is_long
        return is_long


def _is_long(params: Mapping[str, JSON]) -> bool:
    most = min(MOST_UNSTREAMED, MOST_UNSTREAMED_BY_MODEL.get(str(params.get("model")), MOST_UNSTREAMED))
    wanted = params.get("max_tokens")
    return isinstance(wanted, int) and wanted > most


def takes_ready_body(client: Any, first_party: Any) -> bool:
    """Whether a client can post a ready body.

    Subclasses and other clients (Bedrock, Vertex, …) edit the JSON of a request, and so does middleware.
    """
    exactly: bool = type(client) is first_party and not client.middleware
    return exactly


def post_arguments(client: Any, request: Request, *, stream: bool) -> dict[str, Any]:
    """The arguments of the client's `post`, but for what it makes of the answer."""
    options = beside(request)
    changes: dict[str, JSON] = {"stream": True} if stream else {}
    # Without a timeout the SDK sends the header `x-stainless-timeout: NOT_GIVEN`.
    sent: dict[str, Any] = {"timeout": options.get("timeout", client.timeout)}
    if options:
        changes = _extra_body(options) | changes
        if headers := _headers(options):
            sent["headers"] = headers
        if "extra_query" in options:
            sent["params"] = options["extra_query"]
    return {"path": _PATH, "content": _body(request, changes), "options": sent}


def messages_of(client: Any, request: Request) -> Any:
    """What has the `create` for a request: betas need another one."""
    return client.beta.messages if "betas" in beside(request) else client.messages


def create_arguments(create: Any, request: Request) -> dict[str, Any]:
    """The arguments of `messages.create`; body parameters that it does not know go into `extra_body`."""
    options = beside(request)
    known = inspect.signature(create).parameters
    arguments = dict(request)
    unknown = {name: arguments.pop(name) for name in list(arguments) if name not in known}
    extra = unknown | _extra_body(options)
    return arguments | options | ({"extra_body": extra} if extra else {})


def beside(request: Request) -> dict[str, Any]:
    """The options that were given. None says nothing, but as a timeout: there it means to wait for ever."""
    if not request.options:
        return {}
    return {name: value for name, value in given(request.options).items() if value is not None or name == "timeout"}


def _headers(options: Mapping[str, Any]) -> dict[str, Any]:
    headers: dict[str, Any] = {}  # the client's own say that it is JSON
    if "betas" in options:
        headers["anthropic-beta"] = ",".join(str(beta) for beta in options["betas"])
    if "user_profile_id" in options:
        headers["anthropic-user-profile-id"] = options["user_profile_id"]
    if "workspace_id" in options:
        headers["anthropic-workspace-id"] = options["workspace_id"]
    return headers | dict(options.get("extra_headers", {}))


def _extra_body(options: Mapping[str, Any]) -> dict[str, JSON]:
    extra: dict[str, JSON] = plain(given(options.get("extra_body", {})), "extra_body")
    if "stream" in extra:
        raise TypeError("extra_body has the key 'stream': how a reply comes is the provider's own affair; leave it out")
    return extra


def _body(request: Request, changes: Mapping[str, JSON]) -> bytes:
    if not changes:
        return request.body()
    params = {**decode(request.params), **changes}
    if "messages" in params:  # `extra_body` wins, as in the SDK
        return encode(params).encode()
    return request.replaced(encode(params), request.options).body()
