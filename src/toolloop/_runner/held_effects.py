"""Which effects wait for the caller of a runner: it stops earlier than a handle."""

from __future__ import annotations

from attrs import define

from toolloop.machine.record.effects import Effect, EndTurn, Judge, SendRequest
from toolloop.machine.record.loop import Judging, Loop, State
from toolloop.machine.values.stop_reasons import ReplyAction


@define
class HeldEffects:
    """The effects that wait for the caller of a runner.

    Attributes:
        asked: the loop at the time of the last request.
        seen: the number of replies that the caller has seen.
        stops_before: the effect at which the current step ends.

    """

    asked: Loop
    seen: int = 0
    stops_before: type[Effect] = Judge

    def holds(self, state: State, effect: Effect) -> bool:
        """Return whether an effect waits for the caller."""
        loop = state.root
        match effect:
            case SendRequest(path=()):
                self.asked = loop
                return self.stops_before is SendRequest
            case Judge(path=()):
                runs = isinstance(loop.phase, Judging) and loop.phase.action is ReplyAction.RUN
                return runs and loop.iterations > self.seen
            case EndTurn(path=()):
                return self.stops_before is EndTurn and loop.round is not None and loop.round.is_settled()
        return False
