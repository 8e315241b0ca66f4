"""Judge the addresses of requests: the prefix, and what proxies say about it and the host."""

from __future__ import annotations

import re
from collections.abc import Collection
from ipaddress import ip_address, ip_network

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

_PREFIX = re.compile(r"(/[A-Za-z0-9._~-]+)*")
_SCHEMES = ("http", "https")


def is_prefix(text: str) -> bool:
    """Return whether a text is the prefix of an address: empty, or such as `/approvals`."""
    return _PREFIX.fullmatch(text) is not None


def with_checked_prefix(app: ASGIApp) -> ASGIApp:
    """Return the application, which refuses a prefix that could lead to another site. The prefix is in each address."""

    async def checked(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not is_prefix(scope.get("root_path", "")):
            text = "The prefix of this address is not valid. It may have ASCII letters, digits and . _ ~ - between /.\n"
            await PlainTextResponse(text, 400)(scope, receive, send)
            return
        await app(scope, receive, send)

    return checked


def behind_proxies(app: ASGIApp, proxies: Collection[str], root_path: str = "") -> ASGIApp:
    """Return the application with the addresses as its visitors see them.

    Args:
        app: the application.
        proxies: the addresses or networks of proxies, whose `X-Forwarded-*` count: `For`, `Host`, `Prefix`, `Proto`.
        root_path: the prefix, if no proxy says another. Proxies may remove it from the paths, or not.

    Raises:
        ValueError: an address or the prefix is invalid.

    """
    networks = [ip_network(each, strict=False) for each in proxies]
    if not is_prefix(root_path):
        raise ValueError(f"expected a prefix such as /approvals, without a / at its end, got {root_path!r}")

    def is_proxy(address: str) -> bool:
        try:
            return any(ip_address(address) in each for each in networks)
        except ValueError:
            return False

    async def seen(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            prefix, client = root_path, scope.get("client")
            if client is not None and is_proxy(client[0]):
                headers = MutableHeaders(scope=scope)
                prefix = headers.get("x-forwarded-prefix", prefix).rstrip("/")
                if (scheme := _last(headers, "x-forwarded-proto")) in _SCHEMES:
                    scope["scheme"] = scheme
                if host := _last(headers, "x-forwarded-host"):
                    headers["host"] = host
                chain = [each.strip() for each in headers.get("x-forwarded-for", "").split(",") if each.strip()]
                if (first := next((each for each in reversed(chain) if not is_proxy(each)), None)) is not None:
                    scope["client"] = (first, 0)
            _add_prefix(scope, prefix)
        await app(scope, receive, send)

    return seen


def _last(headers: Headers, name: str) -> str:
    """Return what the nearest proxy has added to a header."""
    return headers.get(name, "").rpartition(",")[2].strip()


def _add_prefix(scope: Scope, prefix: str) -> None:
    """Set the prefix. By ASGI, the path of a request begins with it."""
    scope["root_path"] = prefix
    if prefix and not f"{scope['path']}/".startswith(f"{prefix}/"):
        scope["path"] = prefix + scope["path"]
        if scope.get("raw_path") is not None:
            scope["raw_path"] = prefix.encode("latin-1", "replace") + scope["raw_path"]
