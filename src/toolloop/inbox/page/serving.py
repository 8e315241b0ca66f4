"""Serve the page by itself: on this machine with a link that has a token, elsewhere only with a login of the caller."""

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

_DRAIN = 1  # seconds for open requests when the server ends; pages that update themselves have one open


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class TokenLogin:
    """Knows the person at this machine by the token of a link, and then by a cookie."""

    def __init__(self, name: str, port: int) -> None:
        """Make a token for a person. The cookie is named after the port, because ports share cookies."""
        self.token = secrets.token_urlsafe(24)
        self._name = name
        self._cookie = f"toolloop-{port}"

    def who(self, request: Request) -> str | None:
        """Name the person of a request."""
        return self._name if self._fits(request.cookies.get(self._cookie)) else None

    def around(self, app: ASGIApp) -> ASGIApp:
        """Return the application with the login: a link with the token sets the cookie, and goes on without it."""

        async def login(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http" and scope["method"] == "GET":
                request = Request(scope)
                if self._fits(request.query_params.get("token")):
                    response = RedirectResponse("/", 303)
                    # Not strict: a link in a terminal in a browser is one of another site.
                    response.set_cookie(self._cookie, self.token, httponly=True, samesite="lax")
                    await response(scope, receive, send)
                    return
            await app(scope, receive, send)

        return with_headers(login)

    def _fits(self, token: str | None) -> bool:
        return token is not None and hmac.compare_digest(token.encode(), self.token.encode())


def serve(  # noqa: PLR0913 - the options of the command
    store: Store, *, host: str, port: int, who: Who | None, name: str, announce: Callable[[str], None]
) -> None:
    """Serve the page of a store until it is interrupted.

    Args:
        store: where the loops are.
        host: the address to listen at.
        port: 0 takes a free one.
        who: names the person of a request; see `inbox_app`. None: the person who has the link with its token.
        name: of the person who has that link.
        announce: is told the address once the server listens.

    Raises:
        ValueError: other machines reach the address, and nobody says who a person is.
        OSError: it cannot listen there.

    """
    if who is None and not is_loopback(host):
        raise ValueError(
            f"{host} can be reached from other machines, and everybody there could decide: give --who module:function, "
            "which names the person of a request, or serve on 127.0.0.1"
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
