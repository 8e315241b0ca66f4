"""Judge HTTP requests before anything in them counts: the host, the site, the person, and the size of the body.

Not here: pages, events and their errors; the approval page and AG-UI have their own.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Collection
from typing import Final
from urllib.parse import urlsplit

import anyio
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from toolloop.machine.values.names import Person

Who = Callable[[Request], "str | Person | Awaitable[str | Person | None] | None"]
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]*)?")
_SECONDS = 20.0  # for a whole body
CLOSE: Final = {"connection": "close"}  # the rest of the body is not read


def host_of(text: str) -> str:
    """Return the name in a `Host` header, without the port and in lower case; empty if it is not a name."""
    found = _HOST.fullmatch(text.lower())
    return "" if found is None else found[1].rstrip(".")


def for_hosts(
    app: ASGIApp,
    hosts: Collection[str],
    see: str = "--public-url",
    respond: Callable[[str, int], Response] = PlainTextResponse,
) -> ASGIApp:
    """Return the application, which answers only these host names. Another name gets 421.

    A page of another site can make its own name lead to this server. The browser then takes both for one site.

    Args:
        app: the application.
        hosts: the names.
        see: how its operator can add a name.
        respond: makes the answer from a text and a status.

    """
    known = {host_of(f"[{host}]" if host.count(":") > 1 and "[" not in host else host) for host in hosts} - {""}

    async def checked(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            given = Headers(scope=scope).getlist("host")
            if len(given) != 1 or host_of(given[0]) not in known:
                text = f"This server does not answer to this host name. Its operator can add it: see {see}.\n"
                await respond(text, 421)(scope, receive, send)
                return
        await app(scope, receive, send)

    return checked


def is_of_this_site(request: Request) -> bool:
    """Return whether a page of this site sends a request, or a program.

    Browsers say in `Sec-Fetch-Site` which site's page sends it. Over plain HTTP from another machine they do not; then
    the host of `Origin` or `Referer` counts, if the browser sends one: with `no-referrer`, `Origin` is `null`.
    """
    headers = request.headers
    if (site := headers.get("sec-fetch-site")) is not None:
        return site == "same-origin"
    origin = headers.get("origin")
    source = headers.get("referer") if origin in (None, "null") else origin
    return source is None or is_own_address(source, request)


def is_own_address(address: str, request: Request) -> bool:
    """Return whether an address has the host that a request names. `null`, for an origin that is hidden, has none."""
    try:
        return urlsplit(address).netloc.lower() == request.headers.get("host", "").lower()
    except ValueError:
        return False


async def ask_who(who: Who, request: Request) -> str | Person | None:
    """Return the person of a request, as the application names it; None without a name.

    Raises:
        TypeError: the application names something else.

    """
    found = who(request)
    found = await found if inspect.isawaitable(found) else found
    if not isinstance(found, str | Person | None):
        raise TypeError(f"who: expected a name, a Person or None, got {found!r}")
    name = found.name if isinstance(found, Person) else found
    return found if name else None


async def read_body(request: Request, what: str, most: int, dropped: int = 0) -> bytes:
    """Return the body of a request: nothing before the caller asks, not without end, and not for ever.

    Args:
        request: the request.
        what: what the body is, for errors.
        most: how many bytes it may have.
        dropped: up to how many bytes a larger one is read and dropped, so that the client gets the answer.

    Raises:
        HTTPException: it is larger (413), took longer than 20 seconds (408), or is incomplete (400).

    """
    with anyio.move_on_after(_SECONDS):
        body = bytearray()
        try:
            if (size := int(request.headers.get("content-length", "0"))) <= max(most, dropped):
                size = 0
                async for part in request.stream():
                    size += len(part)
                    body += part if size <= most else b""
                    if size > max(most, dropped):
                        break
        except ClientDisconnect as error:
            raise HTTPException(400, f"The {what} is incomplete.") from error
        if size > most:
            raise HTTPException(413, f"The {what} is larger than {most:,} bytes.", CLOSE)
        return bytes(body)
    raise HTTPException(408, f"The {what} did not arrive within {_SECONDS:g} seconds. Send it again.", CLOSE)
