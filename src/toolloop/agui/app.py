"""The application that serves AG-UI."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final, Literal

import anyio
from attrs import evolve
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from toolloop import AsyncInbox, AsyncToolLoopHandle, AsyncWorker, LoopConfig, ToolRegistry
from toolloop._web import Who, for_hosts
from toolloop.agui.conversation import SHOWS, Event, Terms
from toolloop.agui.doors import Door, check_id, read_input
from toolloop.agui.threads import Driver, Threads
from toolloop.agui.visit import Visit, end_of
from toolloop.errors import CallerError, LoopNotFound, NotAllowed, StoreError, ToolLoopError
from toolloop.inbox import LiveEvents, May, Sees
from toolloop.providers import AsyncProvider
from toolloop.stores import Store
from toolloop.tools import Context
from toolloop.types import AsyncSdkClient, Tools

LOCAL: Final = ("localhost", "127.0.0.1", "[::1]")
_LIVE = 0.25  # seconds between two texts of a reply, for clients of other processes
_STATUSES = {LoopNotFound: 404, NotAllowed: 403, CallerError: 409, StoreError: 503}
_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
)


def agui_app(  # noqa: PLR0913 - what an application decides
    store: Store,
    provider: AsyncProvider | AsyncSdkClient,
    tools: Tools,
    *,
    params: Mapping[str, Any],
    who: Who | None = None,
    may: May | None = None,
    sees: Sees | None = None,
    config: LoopConfig | None = None,
    context: Context | None = None,
    name: str = "agui",
    origins: Collection[str] = (),
    hosts: Collection[str] = LOCAL,
    on_disconnect: Literal["continue", "stop"] = "continue",
    show: Collection[str] = ("text", "reasoning", "calls"),
    front_end_tools: Collection[str] = (),
    drive: bool = True,
    concurrency: int = 8,
    anybody: str | None = None,
) -> Starlette:
    """Return an ASGI application that serves loops to front ends that speak AG-UI. A thread is a loop.

    `POST /` is a run: it follows the loop to its next pause. `POST /{thread}/stop` stops the loop.

    Args:
        store: the store with the loops.
        provider: an `anthropic.AsyncAnthropic` client, or an async provider.
        tools: the tools of the server.
        params: the request parameters of new threads. Clients cannot change them.
        who: returns the person of a request, a name or a `Person`, as for `inbox_app`. It may be async.
        may: says what a person may do, as for `Inbox.as_`. It may be async.
        sees: says which loops a person sees, likewise. Then a thread is a loop that exists, with `threadId` as its id
            and `{"agui": name}` in its metadata. None: each person has threads of their own, and begins new ones.
        config: the configuration of the loops.
        context: what the tools get.
        name: the name of this agent. It keeps apart the threads of several agents in one store.
        origins: the origins of other sites whose pages may use this, such as `https://app.example.org`.
        hosts: the host names that are answered.
        on_disconnect: whether a loop continues when the client leaves, or stops.
        show: what clients get: `text`, `reasoning`, `calls`, `results`, `nested` and `usage`. Without `results`, they
            get "done", "denied" or "failed" instead of the text of a result. `nested`: also loops inside calls, as
            subagents, while they are followed; a thread does not keep their messages.
        front_end_tools: the names of the tools that a front end may bring, with `*` and `?` as in a shell.
        drive: whether this application drives the loops. False: workers elsewhere do.
        concurrency: how many loops are driven at once.
        anybody: the name under which each visitor acts, to try it out without `who`.

    Raises:
        TypeError, ValueError: an argument is not valid.

    """  # prose: ok
    _check(who, anybody, show, origins=origins, hosts=hosts, front_end_tools=front_end_tools)
    AsyncInbox(store).as_(anybody or "a person", may=may, sees=sees)  # checks them
    registry, live = tools if isinstance(tools, ToolRegistry) else ToolRegistry(tools), LiveEvents()
    config = LoopConfig() if config is None else config
    watched = evolve(config, observers=(*config.observers, live))
    drives = partial(AsyncWorker, store, provider, registry, context=context, config=watched, live=_LIVE)
    driver = Driver(drives(metadata={"agui": name}, concurrency=concurrency) if drive else None)
    own = frozenset(each.get("name", "") for each in (*registry.definitions(), *params.get("tools", ())))
    secret = frozenset(each.name for each in registry if each.secret)
    terms = Terms(frozenset(show), own, tuple(front_end_tools), frozenset(registry.names), secret)
    opens = partial(AsyncToolLoopHandle.open, store, provider=provider, tools=registry, config=config)
    begin = partial(opens, params={**params, "messages": []})
    threads = Threads(store, begin, name, may, sees, terms, live, driver, store.secret())
    door = Door(who or (lambda _: anybody), frozenset(each.lower().rstrip("/") for each in origins))
    return _served(threads, door, hosts, stops_with_client=on_disconnect == "stop")


def _check(who: Who | None, anybody: str | None, show: Collection[str], **texts: Collection[str]) -> None:
    """Refuse arguments that are not valid."""
    if (who is None) == (anybody is None):
        raise TypeError("agui_app: give who=, which returns the person of a request; or `anybody=`, to try it out")
    if not callable(who or len):
        raise TypeError(f"who: expected a function that takes a request and returns the person's name, got {who!r}")
    if strange := {*show} - {*SHOWS}:
        raise ValueError(f"show: expected some of {', '.join(SHOWS)}, got {', '.join(sorted(strange))}")
    if wrong := [what for what, given in texts.items() if isinstance(given, str)]:
        raise TypeError(f"{wrong[0]}: expected a collection of texts, got {texts[wrong[0]]!r}")


def _served(threads: Threads, door: Door, hosts: Collection[str], *, stops_with_client: bool) -> Starlette:
    """Return the application. The worker starts with it, or with the first request where it is mounted in another."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        threads.driver.start()
        yield
        await threads.driver.stop()

    async def run(request: Request) -> Response:
        visit = partial(Visit, threads, await door.enter(request), await read_input(request))
        threads.driver.start()
        return _Stream(visit, stops_with_client=stops_with_client)

    async def command(act: Callable[[AsyncInbox, str], Awaitable[None]], request: Request) -> Response:
        person, thread = await door.enter(request), request.path_params["thread"]
        check_id("thread", thread)
        await act(threads.inbox_of(person), threads.loop_of(person, thread))
        return JSONResponse({})

    stop = partial(command, partial(AsyncInbox.stop, reason="stopped by the user"))
    retry = partial(command, AsyncInbox.retry)
    post = partial(Route, methods=["POST"])
    known = Middleware(for_hosts, hosts=hosts, see="hosts= of agui_app", respond=_refuse)
    allowed: Any = partial(Middleware, CORSMiddleware, allow_methods=["POST"], allow_headers=["*"])
    return Starlette(
        routes=[post("/", run), post("/{thread:path}/stop", stop), post("/{thread:path}/retry", retry)],
        exception_handlers={HTTPException: _refused, **dict.fromkeys(_STATUSES, _failed)},
        middleware=[known, allowed(allow_origins=[*door.origins], allow_credentials=True)],
        lifespan=lifespan,
    )


def _refuse(text: str, status: int) -> Response:
    return JSONResponse({"error": text.strip()}, status)


async def _refused(_: Request, error: Any) -> Response:
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


async def _failed(_: Request, error: Exception) -> Response:
    status = next(status for kind, status in _STATUSES.items() if isinstance(error, kind))
    return JSONResponse({"error": end_of(error)["message"]}, status)


class _Stream(Response):
    """The events of one run. It is closed without an end if the client is too slow."""

    def __init__(self, visit: Callable[..., Visit], *, stops_with_client: bool) -> None:
        self._visit, self._stops_with_client, self._is_gone = visit, stops_with_client, False

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        async def write(event: Event | None) -> None:
            text = ": alive" if event is None else f"data: {json.dumps(event)}"
            await send({"type": "http.response.body", "body": f"{text}\n\n".encode(), "more_body": True})

        def leave() -> None:
            group.cancel_scope.cancel()

        group = anyio.create_task_group()
        visit = self._visit(write, leave, group.start_soon)
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        async with group:
            group.start_soon(self._until_gone, receive, group.cancel_scope)
            try:
                await visit.run()
            except Exception as error:  # noqa: BLE001 - also a fault of ours: the client can go on
                await write(end_of(error, visit.loop_id))
            await send({"type": "http.response.body", "body": b""})
            leave()
        if self._is_gone and self._stops_with_client:
            with suppress(ToolLoopError):  # it does not exist, or the person may not stop it
                await visit.inbox.stop(visit.loop_id, "the client left")

    async def _until_gone(self, receive: Receive, scope: anyio.CancelScope) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._is_gone = True
        scope.cancel()
