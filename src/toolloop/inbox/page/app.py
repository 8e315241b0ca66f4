"""The approval page as a Starlette application."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from toolloop._public import set_module
from toolloop._web import Who, for_hosts
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
from toolloop.inbox.page.addresses import with_checked_prefix
from toolloop.inbox.page.bodies import form_of
from toolloop.inbox.page.changes import Changes
from toolloop.inbox.page.dead_links import dead_link_page
from toolloop.inbox.page.deciding import Deciding
from toolloop.inbox.page.forms import BadForm
from toolloop.inbox.page.health import with_health
from toolloop.inbox.page.people import People, UnknownPersonError
from toolloop.inbox.page.rendering import rendered
from toolloop.inbox.page.security import ForbiddenError, FormTokens, TooSoonError, with_headers
from toolloop.inbox.page.statistics import statistics_page
from toolloop.inbox.page.views import Views
from toolloop.inbox.rights.rights import May, Rights, Sees
from toolloop.rules import Rules
from toolloop.stores.optional import clock_of
from toolloop.stores.protocol import Store

if TYPE_CHECKING:
    from starlette.types import ASGIApp

_STATIC = Path(__file__).with_name("static")
_CONFLICT = 409
_PAGES: tuple[tuple[type[Exception], int, str], ...] = (  # Starlette uses the closest class of an error
    (UnknownPersonError, 503, "Cannot sign you in"),
    (ForbiddenError, 403, "Not allowed"),
    (NotAllowed, 403, "Not allowed"),
    (TooSoonError, _CONFLICT, "Too soon"),
    (LoopNotFound, 404, "Not found"),
    (UnknownCall, 404, "Not found"),
    (CallerError, _CONFLICT, "No longer possible"),
    (Conflict, _CONFLICT, "No longer possible"),
    (BadForm, 422, "This form is incomplete"),
    (ValueError, 422, "This address is not valid"),
    (StoreError, 503, "Cannot read the store"),
)


@set_module("toolloop.inbox")
def inbox_app(  # noqa: PLR0913 - what an application decides
    store: Store,
    *,
    who: Who,
    may: May | None = None,
    sees: Sees | None = None,
    hosts: Collection[str] | None = None,
    rules: Rules | None = None,
    secret: str | None = None,
    refresh: float = 1.0,
    clock: Callable[[], float] = time.time,
) -> ASGIApp:
    """Return the approval page of a store as an ASGI application. Serve it, or mount it in your application.

    Args:
        store: the store with the loops.
        who: returns the person of a request, a name or a `Person`, for example from a session or a header that a proxy
            sets. It may be async. None results in a 403 response, an exception in a 503 response. A signed link works
            for everyone who has it, or for its person.
        may: says what a person may do, as for `Inbox.as_`; it may be async. What is not allowed is not offered, and
            results in a 403 response. It is also asked about the person of a link.
        sees: says which loops a person sees, likewise. Other loops result in a 404 response, as loops that do not
            exist; an exception results in a 503 response. With either function, a link without a person works only for
            people who are logged in.
        hosts: the host names that are answered, such as `approve.example.org`; others get a 421 response. None: any.
            Give them if `who` names people by something else than a cookie or a header, such as by their address:
            otherwise a page of another site can decide, by a name that leads to this server (DNS rebinding).
        rules: the approval rules of the workers. The page says which of them match an edit before it is sent.
        secret: the key that signs links and forms; None means the key that the store keeps.
        refresh: the poll interval of the store for an open page, in seconds.
        clock: seconds since the epoch, if the store has no clock.

    Raises:
        TypeError: `store` is not a store, a function is not callable, or `hosts` is a string.

    """
    inbox = AsyncInbox(store, secret, clock=clock, via="page")
    if not callable(who):
        raise TypeError(f"who: expected a function that takes a request and returns the person's name, got {who!r}")
    Rights.of("a person", may, sees, may_wait=True)  # checks both
    if isinstance(hosts, str):
        raise TypeError(f"hosts: expected a collection of host names, got {hosts!r}")
    key, clock = secret or store.secret(), clock_of(store, clock)
    people = People(inbox, store, who, may, sees)
    views = Views(key, people, FormTokens(key, clock), Changes(clock, refresh), clock, rules)
    app = Starlette(
        routes=routes_of(views),
        exception_handlers={
            HTTPException: _refused,
            **{kind: _page(status, title) for kind, status, title in _PAGES},
            **dict.fromkeys((BadLink, LinkExpired, LinkUsed), dead_link_page(views)),
        },
    )
    guarded = with_checked_prefix(app)
    return with_headers(with_health(guarded if hosts is None else for_hosts(guarded, hosts), store))


def routes_of(views: Views) -> list[BaseRoute]:
    """Return the addresses of the page."""
    forms = Deciding(views)
    return [
        Route("/", views.home),
        Route("/changes", views.changes_since),
        Route("/loops", views.loops),
        Route("/loop", views.loop),
        Route("/statistics", partial(statistics_page, views)),
        Route("/group", views.group),
        Route("/group", forms.decide_group, methods=["POST"]),
        Route("/decide", forms.decide, methods=["POST"]),
        Route("/stop", forms.stop, methods=["POST"]),
        Route("/say", forms.say, methods=["POST"]),
        Route("/withdraw", forms.withdraw, methods=["POST"]),
        Route("/retry", forms.retry, methods=["POST"]),
        Route("/revoke", forms.revoke, methods=["POST"]),
        Route("/link/{token}", views.link),
        Route("/link/{token}", forms.redeem, methods=["POST"]),
        Mount("/static", StaticFiles(directory=_STATIC)),
    ]


def _page(status: int, title: str) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def page(request: Request, error: Exception) -> Response:
        back = form_of(request).get("loop") if status == _CONFLICT else None
        return rendered(request, "message.html", status=status, title=title, message=str(error), back=back)

    return page


async def _refused(request: Request, error: Any) -> Response:
    status, title, text = error.status_code, "Refused", error.detail
    if status == HTTPStatus.NOT_FOUND:
        title, text = "Not found", "This page does not exist."
    page = rendered(request, "message.html", status=status, title=title, message=text, back=None)
    page.headers.update(error.headers or {})
    return page
