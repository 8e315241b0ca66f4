"""Waking up: what a driver changes in a loop that another one may have driven last."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from attrs import asdict, evolve, field, frozen

from toolloop.face.drift import changes, open_calls
from toolloop.face.loop_params import check_request
from toolloop.loop.runtimes import Runtime
from toolloop.machine.errors import BadTool, Drift
from toolloop.machine.jsontext import decode, encode
from toolloop.machine.setup import Limits, Setup
from toolloop.machine.state import State

OnDrift = Literal["raise", "accept", "strict"]


@frozen
class WakeUp:
    """How a loop is to be taken over.

    Attributes:
        on_drift: `raise` refuses what may let something run that a person had gated, `strict` any change, `accept`
            none.
        given: what the caller gave to be different, by the fields of `Setup`: as it was, and as it is to be. Of
            parameters and limits, each one that was changed meanwhile stands.

    """

    on_drift: OnDrift = "raise"
    given: Mapping[str, tuple[Any, Any]] = field(factory=dict)

    def setup(self, state: State, runtime: Runtime) -> Setup | None:
        """Return the setup that the outermost loop is to have from here on; None if it has that already.

        Args:
            state: of the tree.
            runtime: of the outermost loop.

        Raises:
            Drift: what changed, in this loop or in those inside its calls.

        """
        old = state.root.setup
        given = {name: _merged(name, was, new, getattr(old, name)) for name, (was, new) in self.given.items()}
        new = runtime.setup(evolve(old, **given))
        if new == old:
            return None
        found = [] if self.on_drift == "accept" else changes(old, new, open_calls(state))
        if refused := tuple(change.text for change in found if change.is_unsafe or self.on_drift == "strict"):
            raise Drift(
                f"the loop was stored with other parts than it is driven with: {'; '.join(refused)}. "
                'Bring them back, or open it with on_drift="accept" to go on with what there is now',
                changes=refused,
            )
        try:
            check_request(decode(new.params), runtime.tools.definitions(), asked="next_turn()")
        except (BadTool, ValueError) as error:
            problem = f"the parameters of the loop do not fit its tools any more, so open it with others: {error}"
            raise Drift(problem, changes=()) from error
        return new


def _merged(name: str, was: Any, new: Any, now: Any) -> Any:
    """Return a field of `Setup` as it is to be: each parameter and limit that changed since it was read stands."""
    if now == was:
        return new
    match name:
        case "params":
            return encode(_each_merged(*map(decode, (was, new, now))))
        case "limits":
            return Limits(**_each_merged(*(asdict(limits, recurse=False) for limits in (was, new, now))))
    return now


def _each_merged(was: dict[str, Any], new: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    sides = {name: new if now.get(name) == was.get(name) else now for name in [*new, *now]}
    return {name: side[name] for name, side in sides.items() if name in side}
