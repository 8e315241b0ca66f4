"""How the tools of an MCP server are taken."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypedDict

from toolloop.core.freezing import frozen
from toolloop.core.values import ToolEffect
from toolloop.tools.options import check_effect, check_timeout


class McpOptions(TypedDict, total=False):
    """How the tools of a server are taken: each option holds for all of them.

    Attributes:
        needs_approval: whether a call waits for the caller's word, or a predicate on the call; False if left out.
        effect: whether a call may run again, as for `tool`; `"once"` if left out.
        prefix: what each name begins with, so that two servers may have tools of one name.
        only: the tools to take, by the names that the server gives them; all of them if left out.
        timeout: seconds that a call may take; None leaves that to the loop.
        connect_timeout: seconds until the server must have listed its tools; 60 if left out, None for no limit.

    """

    needs_approval: bool | Callable[[Any], Any]
    effect: ToolEffect
    prefix: str
    only: Iterable[str] | None
    timeout: float | None
    connect_timeout: float | None


@frozen
class Taken:
    """The options, checked."""

    needs_approval: bool | Callable[[Any], Any] = False
    effect: ToolEffect = "once"
    prefix: str = ""
    only: Iterable[str] | None = None
    timeout: float | None = None
    connect_timeout: float | None = 60


def checked(options: McpOptions) -> Taken:
    """The options, or `BadTool`. An unknown one is a `TypeError`, as for any call."""
    taken = Taken(**options)
    check_timeout(taken.timeout, "the MCP tools")
    check_timeout(taken.connect_timeout, "connecting (connect_timeout)")
    check_effect(taken.effect, "the MCP tools")
    return taken
