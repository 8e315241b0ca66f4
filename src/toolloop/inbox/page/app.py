"""The approval page as a Starlette application."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from toolloop._public import set_module
from toolloop.errors import (
    BadLink,
    CallerError,
    Conflict,
    LinkExpired,
    LinkUsed,
    LoopNotFound,
    NotAllowed,
    StoreError,
    UnknownCall,
)
from toolloop.inbox.asynchronous import AsyncInbox
from toolloop.inbox.page.forms import BadForm
from toolloop.inbox.page.rendering import rendered
from toolloop.inbox.page.security import ForbiddenError, FormTokens, with_headers
from toolloop.inbox.page.views import Views
from toolloop.stores.protocol import Store

if TYPE_CHECKING:
    from starlette.types import ASGIApp

_STATIC = Path(__file__).with_name("static")
_CONFLICT = 409
_PAGES: tuple[tuple[type[Exception], int, str], ...] = (  # Starlette uses the closest class of an error
    (ForbiddenError, 403, "Not allowed"),
    (NotAllowed, 403, "Not allowed"),
    (LoopNotFound, 404, "Not found"),
    (UnknownCall, 404, "Not found"),
    (CallerError, _CONFLICT, "No longer possible"),
    (Conflict, _CONFLICT, "No longer possible"),
    (BadLink, 410, "This link is not valid"),
    (LinkExpired, 410, "This link is not valid"),
    (LinkUsed, 410, "This link is not valid"),
    (BadForm, 422, "This form is incomplete"),
    (ValueError, 422, "This address is not valid"),
    (StoreError, 503, "Cannot read the store"),
)


@set_module("toolloop.inbox")
def inbox_app(
    store: Store,
    *,
    who: Callable[[Request], str | Awaitable[str | None] | None],
    secret: str | None = None,
    refresh: float = 1.0,
    clock: Callable[[], float] = time.time,
) -> ASGIApp:
    """Return the approval page of a store as an ASGI application. Serve it, or mount it in your application.

    Args:
        store: the store with the loops.
        who: returns the name of the person of a request, for example from a session or a header that a proxy sets. It
            may be async. None results in a 403 response. A signed link works for everyone who has it.
        secret: the key that signs links and forms; None means the key that the store keeps.
        refresh: the poll interval of the store for an open page, in seconds.
        clock: seconds since the epoch.

    Raises:
        TypeError: `store` is not a store, or `who` is not callable.

    """
    inbox = AsyncInbox(store, secret, clock=clock, via="page")
    if not callable(who):
        raise TypeError(f"who: expected a function that takes a request and returns the person's name, got {who!r}")
    views = Views(store, inbox, who, FormTokens(secret or store.secret()), refresh)
    app = Starlette(
        routes=[
            Route("/", views.home),
            Route("/loop", views.loop),
            Route("/events", views.events),
            Route("/decide", views.decide, methods=["POST"]),
            Route("/stop", views.stop, methods=["POST"]),
            Route("/say", views.say, methods=["POST"]),
            Route("/retry", views.retry, methods=["POST"]),
            Route("/link/{token}", views.link),
            Route("/link/{token}", views.redeem, methods=["POST"]),
            Mount("/static", StaticFiles(directory=_STATIC)),
        ],
        exception_handlers={
            HTTPException: _refused,
            **{kind: _page(status, title) for kind, status, title in _PAGES},
        },
    )
    return with_headers(app)


def _page(status: int, title: str) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def page(request: Request, error: Exception) -> Response:
        form = await request.form() if request.method == "POST" else {}
        back = form.get("loop") if status == _CONFLICT else None
        return rendered(request, "message.html", status=status, by=None, title=title, text=str(error), back=back)

    return page


async def _refused(request: Request, error: Any) -> Response:
    status, title, text = error.status_code, "Refused", error.detail
    if status == HTTPStatus.NOT_FOUND:
        title, text = "Not found", "This page does not exist."
    return rendered(request, "message.html", status=status, by=None, title=title, text=text, back=None)
