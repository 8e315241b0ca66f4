"""A driver of a tree of loops that does what is outstanding in any order, and lets what it began take its time."""

from __future__ import annotations

from attrs import evolve

from tests.properties.tree_truth import Path
from tests.properties.tree_world import Flight, TreeWorld, find
from tests.properties.trees import GATED
from toolloop.core import events as ev
from toolloop.core.effects import CancelRequest, Conclude, Effect, EndTurn, Judge, RunCall, SendRequest
from toolloop.core.limits import time_left
from toolloop.core.machine import is_due, outstanding
from toolloop.core.states import Failure, Requesting, Running
from toolloop.core.tree import answer_of, is_at_work, loop_at
from toolloop.core.usage import IterationUsage, Usage
from toolloop.core.values import Call, Outcome, Reject, Ruling, Status, Verdict, Wait, Why


class DrivenTree(TreeWorld):
    """A tree of loops with its driver. `is_calm`: nothing goes wrong any more, and the caller wants the end."""

    is_calm = False

    def done(self, effect: Effect) -> ev.Event:
        """What comes of an effect at once: where a call starts, the loop inside of it begins."""
        path = effect.path
        match effect:
            case SendRequest():
                return ev.Requested(path=path)
            case CancelRequest():
                return ev.RequestCancelled(path=path)
            case Judge(calls=calls):
                verdicts = tuple((call_id, self._verdict(find(self.state, path, call_id))) for call_id in calls)
                return ev.Judged(tuple((name, said) for name, said in verdicts if said is not None), path=path)
            case RunCall(call_id=call_id):
                return self.start(path, call_id)
            case Conclude(call_id=call_id):
                call = find(self.state, path, call_id)
                loop = loop_at(self.state, path)
                assert call.child is not None
                assert loop is not None
                return ev.Ended(call_id, answer_of(call.child, loop.ledger.setup.texts), path=path)
            case EndTurn():
                return ev.TurnEnded(path=path)

    def start(self, path: Path, call_id: str) -> ev.Event:
        """The start of a call, which may be the beginning of a loop inside of it."""
        loop = loop_at(self.state, path)
        assert isinstance(loop, Running)
        planned = self.plan.at(path)
        child = next(call.child for reply in planned.replies for call in reply.calls if call.id == call_id)
        if child is None:
            return ev.Started(call_id, path=path)
        setup = child.setup(
            loop.ledger.setup, (loop.round.iteration, call_id, find(self.state, path, call_id).attempts + 1)
        )
        return ev.Opened(setup, (child.task(),), path=(*path, call_id))

    def _verdict(self, call: Call) -> Verdict | None:
        if call.name == "barred":
            return Ruling("deny", reason="the policy")
        if call.name == "unknown":
            return Reject(Outcome.UNKNOWN_TOOL, "there is no such tool")
        if call.name == "external":
            return Wait(Why.EXTERNAL)
        return Wait(Why.APPROVAL, expires_in=None) if call.name in GATED else None

    def _timed(self, event: ev.Event) -> ev.Event:
        """The event with its time; if time changes something by then, that alone."""
        self.clock += self.rng.choice((0.0, 0.0, 0.1, 1.0))
        lap = self.rng.choice((0.0, 0.0, 0.25, 0.5)) if is_at_work(self.state) else 0.0
        left = time_left(self.state)
        touchy = isinstance(event, ev.Requested | ev.Started | ev.Opened | ev.TurnEnded)
        if touchy and (is_due(self.state, self.clock) or (left is not None and left <= lap)):
            return ev.Ticked(at=self.clock, seconds=lap)
        return evolve(event, at=self.clock, seconds=lap)

    def drive(self) -> None:
        """One step of a driver: something that is outstanding, or the end of something that is under way."""
        effects = outstanding(self.state)
        under_way: list[Path | Flight] = [*sorted(self.requests), *self.flights]
        if under_way and (not effects or self.chance(2)):
            what = self.rng.choice(under_way)
            self.take(self._timed(self._land(what) if isinstance(what, Flight) else self._answer(what)))
            return
        effect = self.rng.choice(effects)
        event = self.done(effect)
        match effect, event:
            case Judge(stop_when=True), ev.Judged() if not self.is_calm and self.chance(8):
                event = evolve(event, verdicts=(), stop=True, reason="enough")
            case Conclude(), ev.Ended() if self.chance(2):
                loop = loop_at(self.state, effect.path)
                assert isinstance(loop, Running)
                attempt = find(self.state, effect.path, effect.call_id).attempts
                event = evolve(event, iteration=loop.round.iteration, attempt=attempt)
        self.take(self._timed(event))

    def _answer(self, path: Path) -> ev.Event:
        loop = loop_at(self.state, path)
        assert isinstance(loop, Requesting)
        if not self.is_calm and self.chance(10):
            self.requests.discard(path)
            passes = not self.chance(3)
            if self.chance(3):
                return ev.RequestCancelled(path=path)
            return ev.RequestFailed(Failure("model", "overloaded", 529, retryable=passes), path=path)
        self.requests.discard(path)
        plan = self.plan.at(path)
        return ev.Replied(plan.reply(loop.ledger.iterations).said(plan.name), path=path)

    def _land(self, flight: Flight) -> ev.Event:
        if not self.is_calm and self.chance(6):
            return self._spends(flight)
        self.flights.remove(flight)
        if self._runs(flight) and not self.is_calm and self.chance(10):
            return ev.Cancelled(flight.call_id, path=flight.path)
        if self._runs(flight) and self.chance(3):
            return evolve(flight.ends(), iteration=0, attempt=0)
        return flight.ends()

    def _spends(self, flight: Flight) -> ev.Spent:
        """Its tool drives a loop of its own."""
        usage = Usage(input_tokens=self.rng.randrange(9), output_tokens=self.rng.randrange(9))
        inner = self.rng.choice(((), ("its_own",)))
        return ev.Spent(flight.call_id, IterationUsage(1, "m", usage=usage, path=inner), path=flight.path)

    def _runs(self, flight: Flight) -> bool:
        """Whether that run is what its loop waits for, and so do all above."""
        above = [loop_at(self.state, flight.path[:length]) for length in range(len(flight.path) + 1)]
        if not all(isinstance(loop, Running) for loop in above):
            return False
        call = find(self.state, flight.path, flight.call_id)
        return call.status is Status.RUNNING and call.attempts == flight.attempt
