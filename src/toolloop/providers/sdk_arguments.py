"""Convert requests to arguments of the SDK: for the client's `post` with a ready body, or for `messages.create`.

`create` walks and rebuilds all messages of a request, but a ready body is joined from messages that were encoded once.
`post` skips the SDK's deprecation warnings and its guard against long requests without streaming. `must_stream`
replaces the guard.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from toolloop.machine.values.jsontext import JSON, decode, encode, to_plain
from toolloop.providers.protocol import Request, given

_PATH = "/v1/messages"  # also for beta features: since anthropic-sdk 2.11, only a header differs

# The SDK assumes that 128,000 tokens take an hour, and allows ten minutes without streaming (anthropic-sdk 2.12,
# `_calculate_nonstreaming_timeout`). Some models have a lower limit (`MODEL_NONSTREAMING_TOKENS`). Tests compare both.
MOST_UNSTREAMED = 128_000 * 10 // 60
MOST_UNSTREAMED_BY_MODEL: dict[str, int] = dict.fromkeys(
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


def must_stream(client: Any, request: Request) -> bool:
    """Return whether a reply must be streamed because a request without streaming could time out.

    If the caller set a timeout, on the request or the client, the request is not streamed.
    """
    import anthropic  # noqa: PLC0415 - `import toolloop` must not load the SDK

    options, timeout = options_of(request), client.timeout
    if "timeout" in options or timeout != anthropic.DEFAULT_TIMEOUT:
        return False
    if "extra_body" in options:
        return _is_long({**decode(request.params), **_extra_body(options)})
    return _is_long_text(request.params)


@lru_cache(maxsize=16)
def _is_long_text(params: str) -> bool:
    return _is_long(decode(params))


def _is_long(params: Mapping[str, JSON]) -> bool:
    most = MOST_UNSTREAMED_BY_MODEL.get(str(params.get("model")), MOST_UNSTREAMED)
    wanted = params.get("max_tokens")
    return isinstance(wanted, int) and wanted > most


def post_arguments(client: Any, request: Request, *, stream: bool) -> dict[str, Any]:
    """Return the arguments of the client's `post`, except those that control how the response is read."""
    options = options_of(request)
    changes: dict[str, JSON] = {"stream": True} if stream else {}
    # Without a timeout, the SDK sends the header `x-stainless-timeout: NOT_GIVEN`.
    sent: dict[str, Any] = {"timeout": options.get("timeout", client.timeout)}
    if options:
        changes = _extra_body(options) | changes
        if headers := _headers(options):
            sent["headers"] = headers
        if "extra_query" in options:
            sent["params"] = options["extra_query"]
    return {"path": _PATH, "content": _body(request, changes), "options": sent}


def create_arguments(create: Any, request: Request) -> dict[str, Any]:
    """Return the arguments of `messages.create`. Body parameters that it lacks go into `extra_body`."""
    options = options_of(request)
    known = inspect.signature(create).parameters
    arguments = dict(request)
    unknown = {name: arguments.pop(name) for name in list(arguments) if name not in known}
    extra = unknown | _extra_body(options)
    return arguments | options | ({"extra_body": extra} if extra else {})


def options_of(request: Request) -> dict[str, Any]:
    """Return the options of a request that have a value. None is a value for a timeout: it means no limit."""
    if not request.options:
        return {}
    return {name: value for name, value in given(request.options).items() if value is not None or name == "timeout"}


def _headers(options: Mapping[str, Any]) -> dict[str, Any]:
    headers: dict[str, Any] = {}
    if "betas" in options:
        headers["anthropic-beta"] = ",".join(str(beta) for beta in options["betas"])
    if "user_profile_id" in options:
        headers["anthropic-user-profile-id"] = options["user_profile_id"]
    if "workspace_id" in options:
        headers["anthropic-workspace-id"] = options["workspace_id"]
    return headers | dict(options.get("extra_headers", {}))


def _extra_body(options: Mapping[str, Any]) -> dict[str, JSON]:
    extra: dict[str, JSON] = to_plain(given(options.get("extra_body", {})), "extra_body")
    if "stream" in extra:
        raise TypeError(
            "extra_body has the key 'stream', but the provider decides whether a reply is streamed. Remove it"
        )
    return extra


def _body(request: Request, changes: Mapping[str, JSON]) -> bytes:
    if not changes:
        return request.body()
    params = {**decode(request.params), **changes}
    if "messages" in params:  # `extra_body` wins, as in the SDK
        return encode(params).encode()
    return request.replaced(encode(params), request.options).body()
