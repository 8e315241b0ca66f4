"""Calling a tool of an MCP server: in the session's own event loop, or from another thread."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import CancelledError, Future, wait
from functools import partial
from typing import TYPE_CHECKING, Any

from anyio import BrokenResourceError, ClosedResourceError
from attrs import define, evolve, field
from mcp.types import CONNECTION_CLOSED
from pydantic import ValidationError

from toolloop.core.freezing import frozen
from toolloop.core.jsontext import JSON
from toolloop.tools.failures import ToolError
from toolloop.tools.mcp.answers import answer
from toolloop.tools.mcp.contents import value_of

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal
    from mcp import Client, ClientSession

    from toolloop.tools.context import ToolContext
    from toolloop.tools.function import Tool

# The parameter of a call that takes the `ToolContext`.
CONTEXTS = ("context",)
# How many seconds pass before a call that waits in a thread sees that nobody wants its result any more.
_GLANCE = 0.25
_CLOSED = "The connection to the MCP server is closed. This call did not run."
_UNREADABLE = (
    "The tool ran, but its result cannot be read: it is none that MCP knows, or holds content that is none. "
    "It may have had effects."
)


@define(eq=False)
class Connection:
    """A session, and whether it is known to be closed.

    Attributes:
        session: the session.
        closed: whether a call that begins now would not reach the server.

    """

    session: ClientSession | Client
    closed: bool = field(default=False, init=False)


@frozen
class McpCall:
    """A tool of a session, called in the event loop of the session.

    Attributes:
        connection: the connection.
        name: the name that the server gave the tool.

    """

    connection: Connection
    name: str

    async def __call__(self, arguments: Mapping[str, JSON], context: ToolContext | None = None) -> Any:
        """Call the tool; its progress is reported through the context.

        Raises:
            ToolError: the server says that the tool failed, its result cannot be read, or the connection is gone.
            Exception: whatever else the session raises.

        """

        async def report(progress: float, total: float | None, message: str | None) -> None:
            if context is not None:
                context.report(message, progress=progress, total=total)

        if self.connection.closed:
            raise ToolError(_CLOSED)
        try:
            session = self.connection.session
            result = await session.call_tool(self.name, dict(arguments), progress_callback=report)
        except (ClosedResourceError, BrokenResourceError) as error:
            raise ToolError(_CLOSED) from error
        except ValidationError as error:
            # Only of a session of the caller's own, where `mcp` judges the result.
            raise ToolError(_UNREADABLE) from error
        except Exception as error:
            if getattr(getattr(error, "error", None), "code", None) == CONNECTION_CLOSED:
                self.connection.closed = True
                raise ToolError(
                    f"The MCP server did not say how the call ended ({error}). It may have had effects."
                ) from error
            raise
        return value_of(answer(result))


@define(eq=False)
class PortalCalls:
    """Calls from any thread into the event loop of a portal.

    Args:
        portal: the portal, which is running.

    """

    _portal: BlockingPortal
    _open: set[Future[Any]] = field(factory=set, init=False)
    _closed: bool = field(default=False, init=False)

    def sync(self, tool: Tool[..., Any]) -> Tool[..., Any]:
        """The same tool for any thread."""
        return evolve(tool, function=partial(self._run, tool.function), is_async=False)

    def close(self) -> None:
        """End what is still running: the threads that wait for it get an error."""
        self._closed = True
        for future in tuple(self._open):
            future.cancel()

    def _run(self, function: Any, arguments: Mapping[str, JSON], context: ToolContext | None = None) -> Any:
        try:
            future = self._portal.start_task_soon(function, arguments, context)
        except RuntimeError as error:  # the portal has stopped
            raise ToolError(_CLOSED) from error
        self._open.add(future)
        try:
            while not (self._closed or future.done() or (context is not None and context.cancelled)):
                wait([future], timeout=_GLANCE)
            future.cancel()  # does nothing to one that is done
            return future.result()
        except CancelledError as error:
            raise ToolError(
                "This call to the MCP server was cancelled while it ran. It may have had effects."
            ) from error
        finally:
            # Ctrl-C in the caller's own thread comes by here.
            future.cancel()
            self._open.discard(future)
