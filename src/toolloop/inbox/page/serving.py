"""Serve the page: on this machine through a link with a token, elsewhere only with a login function."""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
from collections.abc import Callable, Collection
from urllib.parse import parse_qs, urlsplit

import uvicorn
from attrs import frozen
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from toolloop._web import Who, for_hosts
from toolloop.inbox.page.addresses import behind_proxies
from toolloop.inbox.page.app import inbox_app
from toolloop.inbox.page.health import with_health
from toolloop.inbox.page.rendering import rendered
from toolloop.inbox.page.security import with_headers
from toolloop.inbox.rights.rights import May, Sees
from toolloop.rules import Rules
from toolloop.stores.protocol import Store

_DRAIN = 1  # seconds for open requests when the server stops
_LOCAL = ("localhost", "127.0.0.1", "[::1]")
_COOKIE = "toolloop"
_OPEN = ("/static/", "/link/")  # need no session


def is_loopback(host: str) -> bool:
    """Return whether an address can be reached only from this machine."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class TokenLogin:
    """Identify the person at this machine by the token of a link, and then by a cookie.

    Browsers send a cookie to every port of a host. So the page has a random path, which is also that of the cookie:
    other servers of this machine get no cookie, for they do not know the path.
    """

    def __init__(self, name: str, *, is_secure: bool = False) -> None:
        """Make a token for a person.

        Args:
            name: the name of the person.
            is_secure: whether visitors use HTTPS.

        """
        self.token: str = secrets.token_urlsafe(24)
        self._session = secrets.token_urlsafe(24)
        self._path = f"/{secrets.token_urlsafe(12)}"
        self._name = name
        self._is_secure = is_secure

    def who(self, request: Request) -> str | None:
        """Return the name of the person of a request, or None."""
        return self._name if _is_equal(request.cookies.get(_COOKIE), self._session) else None

    def around(self, app: ASGIApp) -> ASGIApp:
        """Return the application with the login. A request without a session gets the page to sign in."""

        async def login(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            root = scope.get("root_path", "")
            path, request = scope["path"].removeprefix(root), Request(scope)
            token = request.query_params.get("token") if scope["method"] in ("GET", "HEAD") else None
            answer: ASGIApp = app
            if token is not None:
                answer = self._enter(request, token)
            elif path.startswith(f"{self._path}/") and self.who(request) is not None:
                scope["root_path"] = root + self._path
            elif path == self._path:
                answer = RedirectResponse(f"{root}{path}/", 303)
            elif not path.startswith(_OPEN):
                answer = _sign_in(request, has_token=False)
            await answer(scope, receive, send)

        return with_headers(login)

    def _enter(self, request: Request, token: str) -> Response:
        """Set the cookie. The page then leads on by itself, because a link in a web terminal comes from another site.

        A browser does not send a strict cookie after a redirect of such a link, but it does to the next page.
        """
        request.scope["query_string"] = b""  # servers write it into the access log
        if not _is_equal(_token_in(token), self.token):
            return _sign_in(request, has_token=True)
        path = request.scope.get("root_path", "") + self._path
        page = rendered(request, "entered.html", by=None, there=f"{path}/")
        page.set_cookie(_COOKIE, self._session, path=path, httponly=True, samesite="strict", secure=self._is_secure)
        return page


def _token_in(text: str) -> str:
    """Return the token in what a person typed: a token, or the whole link."""
    try:
        return parse_qs(urlsplit(text.strip()).query).get("token", [text.strip()])[0]
    except ValueError:
        return text


def _is_equal(given: str | None, known: str) -> bool:
    return given is not None and hmac.compare_digest(given.encode(), known.encode())


def _sign_in(request: Request, *, has_token: bool) -> Response:
    # The page shows nothing of the random path: its files are those outside of it.
    return rendered(request, "signin.html", status=403, by=None, has_token=has_token)


@frozen
class Address:
    """Where a server is, and how visitors get to it.

    Attributes:
        host: the address to listen on.
        port: the port; 0 selects a free port.
        public_url: the URL that visitors use, if a proxy is in front of the server.
        root_path: the prefix of the page, such as `/approvals`; None: the path of `public_url`.
        proxies: the addresses or networks of proxies whose `X-Forwarded-*` count.

    """

    host: str = "127.0.0.1"
    port: int = 8765
    public_url: str | None = None
    root_path: str | None = None
    proxies: Collection[str] = ()

    @property
    def prefix(self) -> str:
        """The prefix of the page."""
        return urlsplit(self.public_url or "").path.rstrip("/") if self.root_path is None else self.root_path

    @property
    def hosts(self) -> list[str]:
        """The host names that are answered."""
        return [self.host, *_LOCAL, urlsplit(self.public_url or "").hostname or ""]

    def url(self, port: int) -> str:
        """Return the URL of the page of a server that listens on a port."""
        if self.public_url is not None:
            parts = urlsplit(self.public_url)
            return f"{parts.scheme}://{parts.netloc}{self.prefix}/"
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{port}{self.prefix}/"


def serve_page(  # noqa: PLR0913 - what an operator decides
    store: Store,
    at: Address,
    *,
    who: Who | None,
    may: May | None = None,
    sees: Sees | None = None,
    rules: Rules | None = None,
    name: str,
    announce: Callable[[str], None],
) -> None:
    """Serve the page of a store until it is interrupted.

    Args:
        store: the store with the loops.
        at: where to listen, and how visitors get there.
        who: returns the name of the person of a request; see `inbox_app`. None: only the link with the token works.
        may: says what a person may do; see `inbox_app`.
        sees: says which loops a person sees; see `inbox_app`.
        rules: the approval rules of the workers; see `inbox_app`.
        name: the name of the person who uses that link.
        announce: called with the URL once the server listens.

    Raises:
        ValueError: other machines can reach the address, but `who` is None; or a part of the address is invalid.
        OSError: the server cannot listen on the address.

    """
    if who is None and not is_loopback(at.host):
        raise ValueError(
            f"{at.host} can be reached from other machines, where everyone could decide. Pass --who module:function, "
            "which returns the person's name, or serve on 127.0.0.1"
        )
    public = urlsplit(at.public_url or "http://localhost")
    if public.scheme not in ("http", "https") or not public.hostname:
        raise ValueError(f"--public-url: expected a URL such as https://example.org, got {at.public_url!r}")
    query = ""
    if who is None:
        login = TokenLogin(name, is_secure=public.scheme == "https")
        app, query = (
            login.around(inbox_app(store, who=login.who, may=may, sees=sees, rules=rules)),
            f"?token={login.token}",
        )
    else:
        app = inbox_app(store, who=who, may=may, sees=sees, rules=rules)
    app = with_headers(with_health(behind_proxies(for_hosts(app, at.hosts), at.proxies, at.prefix), store))
    family = socket.AF_INET6 if ":" in at.host else socket.AF_INET
    with socket.create_server((at.host, at.port), family=family) as listening:
        settings = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,  # addresses of links and of sign-ins are secrets
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=_DRAIN,
        )
        announce(at.url(listening.getsockname()[1]) + query)
        uvicorn.Server(settings).run(sockets=[listening])
