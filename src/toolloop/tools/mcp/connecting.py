"""Connecting to an MCP server, and making tools of what it lists."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Unpack

from anyio import move_on_after
from anyio.from_thread import start_blocking_portal
from anyio.lowlevel import checkpoint

from toolloop.tools.function import Tool

try:
    import jsonschema as _  # type: ignore[import-untyped] # noqa: F401 - the other half of the extra; it has no types
    from mcp import ClientSession, StdioServerParameters, stdio_client
except ImportError as missing:
    raise ImportError(
        f"toolloop.tools.mcp needs the extra 'mcp' ({missing}): pip install 'toolloop[mcp]'", name=missing.name
    ) from missing

from toolloop.tools.mcp.answers import Unjudged
from toolloop.tools.mcp.calls import Connection, PortalCalls
from toolloop.tools.mcp.definitions import defined
from toolloop.tools.mcp.listing import listed
from toolloop.tools.mcp.options import McpOptions, checked

if TYPE_CHECKING:
    from mcp import Client


async def mcp_tools(session: ClientSession | Client, **options: Unpack[McpOptions]) -> list[Tool[..., Any]]:
    """The tools of a session, for `AsyncToolLoopHandle`. They work as long as the session is open.

    A character that the API does not take in a name becomes an underscore. Input is judged by the server's schema
    before anybody is asked about a call; by the server alone, if the schema is none that can be used here. Patterns are
    always left to the server, for they could take for ever.

    Args:
        session: an initialized `mcp.ClientSession`, or an entered `mcp.Client`.
        options: see `McpOptions`.

    Raises:
        BadTool: a tool cannot be one of the API's, or an option is wrong; the message says which and what to do.
        TimeoutError: the server did not list its tools in time.

    """
    taken = checked(options)
    with move_on_after(taken.connect_timeout):
        return defined(Connection(session), await listed(session), taken)
    raise _late(taken.connect_timeout)


@asynccontextmanager
async def aopen_mcp(
    server: StdioServerParameters | AbstractAsyncContextManager[Any], **options: Unpack[McpOptions]
) -> AsyncIterator[list[Tool[..., Any]]]:
    """Connect to an MCP server and give its tools, for `AsyncToolLoopHandle`; leaving it closes the connection.

    Args:
        server: the program to start and talk to over stdio; or an async context manager that gives the streams of a
            transport (`streamable_http_client(url)`), a `ClientSession` that is initialized, or a `Client`.
        options: see `McpOptions`.

    Raises:
        BadTool: as for `mcp_tools`.
        TimeoutError: likewise. What else goes wrong while connecting is raised as it is.

    """
    taken = checked(options)
    stack = AsyncExitStack()
    # Around the caller's block too, for scopes cannot cross those that the session opens; but without a limit there.
    with move_on_after(taken.connect_timeout) as scope:
        try:
            session = await stack.enter_async_context(
                stdio_client(server) if isinstance(server, StdioServerParameters) else server
            )
            if isinstance(session, tuple):
                session = await stack.enter_async_context(ClientSession(Unjudged(session[0]), session[1]))
                await session.initialize()
            connection = Connection(session)
            tools = defined(connection, await listed(session), taken)
            await checkpoint()  # the last moment to be too late
            scope.deadline = math.inf
            try:
                yield tools
            finally:
                connection.closed = True
        finally:
            # Not `async with`: the task groups inside would wrap an exception of the caller's block into groups.
            await stack.aclose()
    if scope.cancelled_caught:
        raise _late(taken.connect_timeout)


@contextmanager
def open_mcp(
    server: StdioServerParameters | AbstractAsyncContextManager[Any], **options: Unpack[McpOptions]
) -> Iterator[list[Tool[..., Any]]]:
    """Connect to an MCP server and give its tools, for `ToolLoopHandle`; leaving it closes the connection.

    The connection lives in an event loop in a thread of its own, and the tools may be called from any thread. A call
    that nobody waits for any more is cancelled at the server.

    Args:
        server: as for `aopen_mcp`.
        options: see `McpOptions`.

    Raises:
        BadTool: as for `mcp_tools`.
        TimeoutError: likewise. What else goes wrong while connecting is raised as it is.

    """
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(aopen_mcp(server, **options)) as tools:
        calls = PortalCalls(portal)
        try:
            yield [calls.sync(each) for each in tools]
        finally:
            calls.close()


def _late(seconds: float | None) -> TimeoutError:
    return TimeoutError(
        f"the MCP server did not list its tools within {seconds:g} seconds. See what it writes to its standard error, "
        "or give a longer connect_timeout=, or None to wait for ever"
    )
