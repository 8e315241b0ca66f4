"""`/healthz`: whether the page can read its store, for load balancers and containers."""

from __future__ import annotations

import logging
from functools import partial

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from toolloop._drivers.event_loops import run_in_thread
from toolloop.stores.protocol import Store

LOG = logging.getLogger("toolloop.inbox")


def with_health(app: ASGIApp, store: Store) -> ASGIApp:
    """Return the application with `/healthz`: 200 if the store can be read, else 503.

    It answers under any host name and without a person, because a probe has neither. It says nothing else.
    """

    async def answered(scope: Scope, receive: Receive, send: Send) -> None:
        answer: ASGIApp = app
        if scope["type"] == "http" and scope["path"].removeprefix(scope.get("root_path", "")) == "/healthz":
            answer = await _health_of(store)
        await answer(scope, receive, send)

    return answered


async def _health_of(store: Store) -> PlainTextResponse:
    try:
        await run_in_thread(partial(store.list, limit=1))
    except Exception as error:  # noqa: BLE001 - a store may raise anything
        LOG.warning("/healthz: the store cannot be read: %s", error)
        return PlainTextResponse("the store cannot be read\n", 503)
    return PlainTextResponse("ok\n")
