"""Serve the page: on this machine through a link with a token, elsewhere only with a login function."""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
from collections.abc import Callable

import uvicorn
from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from toolloop.inbox.page.app import inbox_app
from toolloop.inbox.page.security import with_headers
from toolloop.inbox.page.views import Who
from toolloop.stores.protocol import Store

_DRAIN = 1  # seconds for open requests when the server stops; each page has one open for its updates


def is_loopback(host: str) -> bool:
    """Return whether an address can be reached only from this machine."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class TokenLogin:
    """Identify the person at this machine by the token of a link, and then by a cookie."""

    def __init__(self, name: str, port: int) -> None:
        """Make a token for a person. The cookie's name has the port, because ports share cookies."""
        self.token: str = secrets.token_urlsafe(24)
        self._name = name
        self._cookie = f"toolloop-{port}"

    def who(self, request: Request) -> str | None:
        """Return the name of the person of a request, or None."""
        return self._name if self._fits(request.cookies.get(self._cookie)) else None

    def around(self, app: ASGIApp) -> ASGIApp:
        """Return the application with the login: a link with the token sets the cookie, and redirects without it."""

        async def login(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http" and scope["method"] == "GET":
                request = Request(scope)
                if self._fits(request.query_params.get("token")):
                    response = RedirectResponse("/", 303)
                    # Not strict: a link in a web-based terminal comes from another site.
                    response.set_cookie(self._cookie, self.token, httponly=True, samesite="lax")
                    await response(scope, receive, send)
                    return
            await app(scope, receive, send)

        return with_headers(login)

    def _fits(self, token: str | None) -> bool:
        return token is not None and hmac.compare_digest(token.encode(), self.token.encode())


def serve_page(  # noqa: PLR0913 - the options of the command
    store: Store, *, host: str, port: int, who: Who | None, name: str, announce: Callable[[str], None]
) -> None:
    """Serve the page of a store until it is interrupted.

    Args:
        store: the store with the loops.
        host: the address to listen on.
        port: the port; 0 selects a free port.
        who: returns the name of the person of a request; see `inbox_app`. None: only the link with the token works.
        name: the name of the person who uses that link.
        announce: called with the URL once the server listens.

    Raises:
        ValueError: other machines can reach the address, but `who` is None.
        OSError: the server cannot listen on the address.

    """
    if who is None and not is_loopback(host):
        raise ValueError(
            f"{host} can be reached from other machines, where everyone could decide. Pass --who module:function, "
            "which returns the person's name, or serve on 127.0.0.1"
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family) as listening:
        port = listening.getsockname()[1]
        address = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
        if who is None:
            login = TokenLogin(name, port)
            app, address = login.around(inbox_app(store, who=login.who)), f"{address}?token={login.token}"
        else:
            app = inbox_app(store, who=who)
        settings = uvicorn.Config(app, log_level="warning", server_header=False, timeout_graceful_shutdown=_DRAIN)
        announce(address)
        uvicorn.Server(settings).run(sockets=[listening])
