"""Waking up: what a driver changes in a loop that another one may have driven last."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from attrs import evolve, field, frozen

from toolloop.face.drift import changes, open_calls
from toolloop.face.loop_params import check_request
from toolloop.loop.runtimes import Runtime
from toolloop.machine.errors import BadTool, Drift
from toolloop.machine.jsontext import decode
from toolloop.machine.setup import Setup
from toolloop.machine.state import State

OnDrift = Literal["raise", "accept", "strict"]


@frozen
class WakeUp:
    """How a loop is to be taken over.

    Attributes:
        on_drift: `raise` refuses what may let something run that a person had gated, `strict` any change, `accept`
            none.
        given: what the caller gave to be different, by the fields of `Setup`: as it was, and as it is to be. What
            another driver changed meanwhile stands.

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
        given = {name: new for name, (was, new) in self.given.items() if getattr(old, name) == was}
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
