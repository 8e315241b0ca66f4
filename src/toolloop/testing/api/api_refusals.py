"""Refusals of the fake API, and the facts besides the body that they depend on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Callable

NEWEST_VERSION = "2026-10-21"
THINKING_CONTROLS = "thinking-binding-controls-2026-08-01"


def _no(_thing: Any) -> bool:
    return False


@frozen
class Refusal:
    """One broken rule, as the API reports it.

    Args:
        message: the text of `error.message`.
        status: the HTTP status.
        type: `error.type`.
        error_code: `error.details.error_code`, for the rules that have one.

    """

    message: str
    status: int = 400
    type: str = "invalid_request_error"
    error_code: str | None = None


@frozen
class RequestContext:
    """The headers of a request, and the server's memory of its own replies.

    Args:
        betas: the values of the `anthropic-beta` header.
        version: the value of the `anthropic-version` header; the newest version by default.
        is_own: returns whether the server sent exactly this block in a reply.
        is_paused: returns whether these blocks end in a reply that the server paused.

    """

    betas: frozenset[str] = frozenset()
    version: str = NEWEST_VERSION
    is_own: Callable[[dict[str, Any]], bool] = _no
    is_paused: Callable[[list[dict[str, Any]]], bool] = _no

    def has_beta(self, prefixes: str | tuple[str, ...]) -> bool:
        """Return whether the request enables a beta whose name starts with one of these prefixes."""
        return any(beta.startswith(prefixes) for beta in self.betas)
