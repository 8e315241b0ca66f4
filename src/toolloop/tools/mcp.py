"""Use the tools of MCP servers in a loop: `pip install 'toolloop[mcp]'`.

`open_mcp` (for `ToolLoopHandle`) and `aopen_mcp` (for `AsyncToolLoopHandle`) connect to a server and return its tools;
`mcp_tools` returns the tools of an open client. If the server may change its tools, a loop reads them again before each
user turn: see `ServerTools`.

A server's annotations of its tools, such as `readOnlyHint`, are only hints (source: MCP specification). Policies and
persons see them as `ToolCall.annotations`. They change nothing by themselves: you choose the tools that need approval.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import AsyncGenerator, Generator, Iterable, Mapping
from concurrent.futures import CancelledError, wait
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from anyio import BrokenResourceError, CancelScope, ClosedResourceError, fail_after, move_on_after
from anyio.from_thread import BlockingPortal, start_blocking_portal
from anyio.lowlevel import checkpoint
from attrs import define, evolve, field, fields, frozen

from toolloop.errors import BadTool
from toolloop.machine.values.jsontext import JSON
from toolloop.machine.values.setup import ToolAnnotations, ToolEffect
from toolloop.tools.calls import NeedsApproval
from toolloop.tools.function import Tool
from toolloop.tools.json_schema import JsonSchema
from toolloop.tools.options import check_effect, check_timeout
from toolloop.tools.sdk_tools import ServerTools
from toolloop.tools.signature import check_name
from toolloop.tools.tool_errors import ToolError

try:
    import jsonschema as _  # type: ignore[import-untyped] # noqa: F401 - the other half of the extra; it has no types
    from mcp import Client, MCPError, types
    from mcp.client.caching import CacheMode

    from toolloop.tools.responses.mcp_results import read_result
except ImportError as _missing:
    raise ImportError(
        f"toolloop.tools.mcp needs the extra 'mcp' ({_missing}): pip install 'toolloop[mcp]'", name=_missing.name
    ) from _missing

if TYPE_CHECKING:
    from toolloop.tools.context import ToolContext

__all__ = ["McpOptions", "aopen_mcp", "mcp_tools", "open_mcp"]


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
# Seconds between two checks whether a call that waits in a thread was cancelled.
_POLL_SECONDS = 0.25
_HINTS = {each.name for each in fields(ToolAnnotations)}
# The longest wait for a changed list of tools, because a user turn waits for it.
_LIST_SECONDS = 10
_DID_NOT_RUN = "The connection to the MCP server is closed, so this call did not run."
_CANCELLED = "This call to the MCP server was cancelled while it ran. It may have had effects."


class McpOptions(TypedDict, total=False):
    """Options for all tools of a server.

    Attributes:
        needs_approval: whether a call waits for a decision, or a predicate on the call; False if left out.
        effect: whether a call may run again, as for `tool`; `"once"` if left out.
        prefix: added before each name, so that two servers may have tools of the same name.
        only: the server's names of the tools to use; all tools if left out.
        timeout: seconds that a call may take; None means the loop's limit.

    """

    needs_approval: NeedsApproval
    effect: ToolEffect
    prefix: str
    only: Iterable[str] | None
    timeout: float | None


async def mcp_tools(client: Client, **options: Unpack[McpOptions]) -> ServerTools:
    """Return the tools of an MCP client, for `AsyncToolLoopHandle`. They work while the client is open.

    Characters that the API does not accept in a name become underscores. Input is validated against the server's
    schema before a call waits for approval.

    Args:
        client: an entered `mcp.Client`.
        options: see `McpOptions`.

    Raises:
        BadTool: the API does not accept a tool, or an option is invalid; the message names it and the remedy.

    """
    check_timeout(options.get("timeout"), "the MCP tools")
    check_effect(options.get("effect", "once"), "the MCP tools")
    found = await _list_tools(client, "use")
    if (only := options.get("only")) is not None:
        only = options["only"] = frozenset(only)
        if unknown := sorted(only.difference(each.name for each in found)):
            names = ", ".join(each.name for each in found) or "none"
            raise BadTool(f"the MCP server has no tool {unknown[0]!r}; it has: {names}", tool=unknown[0])
    served = client.server_capabilities.tools
    source = _Source(client, options, found, _as_tools(client, found, options))
    return ServerTools(source.tools, source.fetch, may_change=served is not None and bool(served.list_changed))


async def _list_tools(client: Client, cache_mode: CacheMode) -> list[types.Tool]:
    page = await client.list_tools(cache_mode=cache_mode)
    found = list(page.tools)
    while page.next_cursor:
        page = await client.list_tools(cursor=page.next_cursor, cache_mode=cache_mode)
        found += page.tools
    return found


@define
class _Source:
    """The tools that a server had when it was last asked."""

    client: Client
    options: McpOptions
    listed: list[types.Tool]
    tools: list[Tool[..., Any]]

    async def fetch(self) -> list[Tool[..., Any]]:
        """Return the tools that it has now. It may not notify a client that does not listen, so it is asked."""
        with fail_after(_LIST_SECONDS):
            listed = await _list_tools(self.client, "refresh")
        if listed != self.listed:  # to check a schema is slow
            self.tools, self.listed = _as_tools(self.client, listed, self.options), listed
        return self.tools


def _as_tools(client: Client, found: Iterable[types.Tool], options: McpOptions) -> list[Tool[..., Any]]:
    only = options.get("only")
    return [_as_tool(client, each, **options) for each in found if only is None or each.name in only]


@asynccontextmanager
async def aopen_mcp(
    server: Any, *, connect_timeout: float | None = 60, **options: Unpack[McpOptions]
) -> AsyncGenerator[ServerTools]:
    """Connect to an MCP server and yield its tools, for `AsyncToolLoopHandle`. Leaving closes the connection.

    Args:
        server: an `mcp.Client` that is not entered yet, or anything that `mcp.Client` accepts: an
            `mcp.StdioServerParameters` (the program to start), a URL, a transport, an in-process server.
        connect_timeout: seconds until the server must have listed its tools; None for no limit.
        options: see `McpOptions`.

    Raises:
        BadTool: as for `mcp_tools`.
        TimeoutError: the server did not list its tools in time.
        Exception: any other error of `mcp`, which may come in an exception group.

    """
    stack = AsyncExitStack()
    # The scope includes the caller's block, because scopes must nest, and the client opens its own.
    with move_on_after(connect_timeout) as scope:
        try:
            client = await stack.enter_async_context(server if isinstance(server, Client) else Client(server))
            tools = await mcp_tools(client, **options)
            await checkpoint()  # the last point at which the timeout can strike
            scope.deadline = math.inf
            yield tools
        finally:
            # Not `async with`: the client's task groups would wrap an exception of the caller's block in groups.
            await stack.aclose()
    if scope.cancelled_caught:
        raise TimeoutError(
            f"the MCP server did not list its tools within {connect_timeout:g} seconds. Check its standard error, or "
            "pass a longer connect_timeout=, or None for no limit"
        )


@contextmanager
def open_mcp(
    server: Any, *, connect_timeout: float | None = 60, **options: Unpack[McpOptions]
) -> Generator[ServerTools]:
    """Connect to an MCP server and yield its tools, for `ToolLoopHandle`. Leaving closes the connection.

    The connection runs in an event loop in its own thread. Any thread may call the tools. A cancelled call is also
    cancelled at the server.

    Args:
        server: as for `aopen_mcp`.
        connect_timeout: likewise.
        options: see `McpOptions`.

    Raises:
        BadTool: as for `mcp_tools`.
        TimeoutError: as for `aopen_mcp`.

    """
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(aopen_mcp(server, connect_timeout=connect_timeout, **options)) as tools,
    ):
        calls = _Calls(portal)
        try:
            fetch = partial(portal.call, tools.fetch)
            yield ServerTools(calls.wrap(tools), lambda: calls.wrap(fetch()), may_change=tools.may_change)
        finally:
            calls.close()


class _Calls:
    """Run calls from any thread in the event loop of a portal.

    A call is known by a key from before it starts until its end, and can be cancelled at any moment by it: a Ctrl-C may
    come before the portal has returned a future.
    """

    def __init__(self, portal: BlockingPortal) -> None:
        self._portal = portal
        self._lock = threading.Lock()
        self._open = dict[object, CancelScope | None]()  # without a scope until the call begins in the event loop
        self._is_closed = False

    def wrap(self, tools: Iterable[Tool[..., Any]]) -> list[Tool[..., Any]]:
        """Return the tools as ones that any thread may call."""
        return [evolve(each, function=_BlockingCall(self, each.function), is_async=False) for each in tools]

    def run(self, call: Any, arguments: Mapping[str, JSON], context: ToolContext | None = None) -> Any:
        """Run a call in the event loop, and cancel it there if the context is cancelled."""
        key = object()
        try:
            with self._lock:
                if self._is_closed:
                    raise ToolError(_DID_NOT_RUN)
                self._open[key] = None
            future = self._portal.start_task_soon(self._perform, key, call, arguments, context)
            while not (future.done() or (context is not None and context.cancelled)):
                wait([future], timeout=_POLL_SECONDS)
            if not future.done():
                raise ToolError(_CANCELLED)
            return future.result()
        except CancelledError as error:
            raise ToolError(_CANCELLED) from error
        finally:
            self._cancel(key)

    async def _perform(self, key: object, call: Any, arguments: Mapping[str, JSON], context: ToolContext | None) -> Any:
        with CancelScope() as scope:
            with self._lock:
                if key not in self._open:
                    raise ToolError(_DID_NOT_RUN)
                self._open[key] = scope
            try:
                return await call(arguments, context)
            finally:
                with self._lock:
                    self._open.pop(key, None)
        raise ToolError(_CANCELLED)

    def _cancel(self, key: object) -> None:
        with self._lock:
            scope = self._open.pop(key, None)
        if scope is not None:
            self._portal.start_task_soon(scope.cancel)

    def close(self) -> None:
        """Cancel the open calls, and start no other."""
        with self._lock:
            self._is_closed = True
            keys = tuple(self._open)
        for key in keys:
            self._cancel(key)


@frozen
class _BlockingCall:
    """A tool that any thread may call. It is equal to another one of the same tool of the server."""

    calls: _Calls
    call: Any

    def __call__(self, arguments: Mapping[str, JSON], context: ToolContext | None = None) -> Any:
        return self.calls.run(self.call, arguments, context)


def _as_tool(  # noqa: PLR0913 - one for each option
    client: Client,
    found: types.Tool,
    *,
    needs_approval: NeedsApproval = False,
    effect: ToolEffect = "once",
    prefix: str = "",
    only: Iterable[str] | None = None,  # noqa: ARG001 - applied before
    timeout: float | None = None,
) -> Tool[..., Any]:
    name = prefix + _NOT_IN_NAMES.sub("_", found.name)
    title = found.title or (found.annotations.title if found.annotations else None)
    description = found.description or title or ""
    try:
        check_name(name)
        intake = _McpIntake(JsonSchema.of(name, description, {"type": "object", **found.input_schema}))
    except BadTool as error:
        raise BadTool(
            f"the MCP tool {found.name!r} cannot be used: {error}. Exclude it with only=, or change the prefix",
            tool=found.name,
        ) from error
    return Tool(
        name,
        description,
        _McpCall(client, found.name),
        needs_approval,
        effect,
        is_async=True,
        intake=intake,
        contexts=("context",),
        timeout=timeout,
        annotations=_read_annotations(found.annotations),
    )


def _read_annotations(given: types.ToolAnnotations | None) -> ToolAnnotations:
    """Return the hints of the server; what it does not say has the default of the protocol."""
    said = {} if given is None else given.model_dump(include=_HINTS, exclude_none=True)
    return ToolAnnotations(**said)


@frozen
class _McpIntake:
    """The intake of an MCP tool. The arguments are one mapping with the server's names."""

    _schema: JsonSchema

    def definition(self) -> JSON:
        """Return the definition for `tools`."""
        return self._schema.definition()

    def fit(self, given: Mapping[str, JSON]) -> dict[str, Any]:
        """Return the arguments, or raise `InvalidInput`."""
        return {"arguments": self._schema.fit(given)}


@frozen
class _McpCall:
    """A tool of a client, called in the event loop of the client."""

    client: Client = field(eq=id)
    name: str

    async def __call__(self, arguments: Mapping[str, JSON], context: ToolContext | None = None) -> Any:
        """Call the tool, and report its progress through the context.

        Raises:
            ToolError: the server reports that the tool failed, or the connection is closed.
            Exception: any other error of the client, such as an unreadable result.

        """

        async def report(progress: float, total: float | None, message: str | None) -> None:
            if context is not None:
                context.report(message, progress=progress, total=total)

        try:
            _ = self.client.session  # raises if the client was closed
        except RuntimeError as error:
            raise ToolError(_DID_NOT_RUN) from error
        try:
            result = await self.client.call_tool(self.name, dict(arguments), progress_callback=report)
        except (ClosedResourceError, BrokenResourceError) as error:
            raise ToolError(_DID_NOT_RUN) from error
        except MCPError as error:
            if error.code != types.CONNECTION_CLOSED:
                raise
            raise ToolError(
                f"The connection to the MCP server closed during the call ({error}). It may have had effects."
            ) from error
        return read_result(result)
