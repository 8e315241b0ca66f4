"""Effects: the actions that a driver must perform next, derived from the state. `path`: of the loop in the tree."""

from __future__ import annotations

from attrs import frozen


@frozen
class SendRequest:
    """Send the history to the model."""

    path: tuple[str, ...] = ()


@frozen
class CancelRequest:
    """Cancel the request in progress, because the loop has no time left."""

    path: tuple[str, ...] = ()


@frozen
class Judge:
    """Ask the policies about these calls, and first `stop_when` if `stop_when` is true.

    `output`: read the answer as the typed result.
    """

    calls: tuple[str, ...]
    stop_when: bool = False
    path: tuple[str, ...] = ()
    output: bool = False


@frozen
class RunCall:
    """Start a call."""

    call_id: str
    path: tuple[str, ...] = ()


@frozen
class Conclude:
    """Settle the call with the answer of the loop inside it, which is over."""

    call_id: str
    path: tuple[str, ...] = ()


@frozen
class EndTurn:
    """End the turn, because nothing more can be done in it."""

    path: tuple[str, ...] = ()


Effect = SendRequest | CancelRequest | Judge | RunCall | Conclude | EndTurn
