"""What is to be done: imperative, derived from the state, performed by a driver."""

from __future__ import annotations

from attrs import frozen


@frozen
class SendRequest:
    """Send the history to the model."""


@frozen
class Judge:
    """Ask the policies about these calls, and first `stop_when` if `stop_when` is true."""

    calls: tuple[str, ...]
    stop_when: bool = False


@frozen
class RunCall:
    """Start a call."""

    call_id: str


@frozen
class EndTurn:
    """Nothing more can be done in this turn: say so."""


Effect = SendRequest | Judge | RunCall | EndTurn
