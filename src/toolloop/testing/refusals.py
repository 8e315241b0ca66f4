"""How the fake API says no."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolloop.core.freezing import frozen

if TYPE_CHECKING:
    from collections.abc import Callable

NEWEST_VERSION = "2026-10-21"
THINKING_CONTROLS = "thinking-binding-controls-2026-08-01"


def _yes(_thing: Any) -> bool:
    return True


def _no(_thing: Any) -> bool:
    return False


@frozen
class Refusal:
    """One broken rule, as the API words it.

    Args:
        message: the text of `error.message`.
        status: the HTTP status.
        type: `error.type`.
        error_code: `error.details.error_code`, where the API gives one.

    """

    message: str
    status: int = 400
    type: str = "invalid_request_error"
    error_code: str | None = None


@frozen
class Context:
    """What a rule may look at beside the body.

    Args:
        betas: the values of the `anthropic-beta` header.
        version: the value of the `anthropic-version` header; without one the newest.
        has_model: whether there is a model of this name.
        is_own: whether the server handed out this very block.
        is_paused: whether these blocks end in a reply that the server handed out as a pause.

    """

    betas: frozenset[str] = frozenset()
    version: str = NEWEST_VERSION
    has_model: Callable[[str], bool] = _yes
    is_own: Callable[[dict[str, Any]], bool] = _no
    is_paused: Callable[[list[dict[str, Any]]], bool] = _no

    def has_beta(self, prefix: str | tuple[str, ...]) -> bool:
        """Whether a beta of this name, or one of these, whatever its date, is switched on."""
        return any(beta.startswith(prefix) for beta in self.betas)
