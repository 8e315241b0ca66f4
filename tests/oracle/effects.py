"""What is to be done: imperative, derived from the state, performed by a driver. `path`: in which loop of the tree."""

from __future__ import annotations

from attrs import frozen


@frozen
class SendRequest:
    """Send the history to the model."""

    path: tuple[str, ...] = ()


@frozen
class CancelRequest:
    """Give the request up that is under way: the loop has no time left."""

    path: tuple[str, ...] = ()


@frozen
class Judge:
    """Ask the policies about these calls, and first `stop_when` if `stop_when` is true."""

    calls: tuple[str, ...]
    stop_when: bool = False
    path: tuple[str, ...] = ()


@frozen
class RunCall:
    """Start a call."""

    call_id: str
    path: tuple[str, ...] = ()


@frozen
class Conclude:
    """Say what the loop inside a call came to: it is over."""

    call_id: str
    path: tuple[str, ...] = ()


@frozen
class EndTurn:
    """Nothing more can be done in this turn: say so."""

    path: tuple[str, ...] = ()


Effect = SendRequest | CancelRequest | Judge | RunCall | Conclude | EndTurn
