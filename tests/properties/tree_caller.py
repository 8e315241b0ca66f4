"""The caller of a tree of loops, and what may come between: crashes, sleep, time, late ends, and nonsense."""

from __future__ import annotations

from random import Random
from typing import Any

from attrs import evolve

from tests.core import making as m
from tests.properties.tree_driver import DrivenTree
from tests.properties.tree_truth import Path, everywhere
from tests.properties.trees import NodePlan, edited
from toolloop.core import events as ev
from toolloop.core.effects import EndTurn, RunCall, SendRequest
from toolloop.core.jsontext import encode
from toolloop.core.limits import time_left
from toolloop.core.machine import next_deadline, outstanding
from toolloop.core.setup import Limits
from toolloop.core.states import (
    Deciding,
    Executed,
    Failed,
    Finished,
    Judging,
    Paused,
    Ready,
    Requesting,
    Running,
    State,
    TooDeep,
)
from toolloop.core.terminations import LIMITS
from toolloop.core.tree import is_at_work, is_over, loop_at, loops, waiting
from toolloop.core.values import Call, Ruling, Status, Terms, Why

_KINDS: dict[Why, tuple[Any, ...]] = {
    Why.APPROVAL: ("approve", "approve", "approve", "deny", "answer"),
    Why.EXTERNAL: ("answer", "answer", "deny"),
    Why.UNCERTAIN: ("rerun", "rerun", "answer", "deny"),
}


class Tree(DrivenTree):
    """A tree of loops with all that may happen to it. `crashes`: how often its process died."""

    def __init__(self, rng: Random, plan: NodePlan) -> None:
        """Open the root."""
        super().__init__(rng, plan)
        self.follow_ups = rng.randrange(3)
        self.crashes = 0

    # --- the caller ---------------------------------------------------------------------------------------------

    def decide(self) -> None:
        """Some of the calls that wait, in any order, one by one or together."""
        found = waiting(self.state)
        self.rng.shuffle(found)
        some = found if self.is_calm else found[: self.rng.randrange(1, len(found) + 1)]
        rulings = [("/".join((*path, call.id)), self._ruling(call)) for path, call in some]
        if self.chance(6):
            bad = self.rng.choice(
                [("/".join((*some[0][0], "c99")), Ruling("deny")), ("c1/c1/c1/c1/c1", Ruling("deny"))]
            )
            self.refuse(ev.Decided((*rulings, bad), at=self.clock))
        self.take(ev.Decided(tuple(rulings), at=self.clock))
        if self.chance(4):
            self.take(ev.Decided(tuple(rulings), at=self.clock))  # the same twice is one decision

    def _ruling(self, call: Call) -> Ruling:
        kinds = _KINDS[call.why or Why.APPROVAL]
        kind: Any = kinds[int(call.id[1:]) % len(kinds)] if self.is_calm else self.rng.choice(kinds)
        match kind:
            case "approve" if self.is_calm:
                return Ruling(kind)
            case "answer":
                return Ruling(kind, encode("the caller knows"))
            case "approve":
                content = edited() if call.name in ("gated", "gated_pure") and self.chance(3) else None
                terms = Terms(match="{}", uses=self.rng.choice((None, 1, 2))) if self.chance(3) else None
                return Ruling(kind, content, by="ana", remember=terms)
        return Ruling(kind, reason="a person")

    def go_on(self) -> None:
        """The caller goes on where the loop waits for a word."""
        match self.state:
            case Deciding() if waiting(self.state) and self.state.ledger.setup.execution == "barrier":
                self.refuse(ev.Continued(at=self.clock))
                self.decide()
            case Deciding() if waiting(self.state) and (self.is_calm or self.chance(2)):
                self.decide()
            case Deciding() | Executed() | Paused():
                if self.chance(8) and not self.is_calm:
                    self.take(ev.Injected((m.user("and this"),), at=self.clock))
                else:
                    self.take(ev.Continued(at=self.clock))
            case Failed():
                self.take(ev.Retried(at=self.clock))
            case Finished() if isinstance(self.state.termination, LIMITS):
                self.extend()
            case Finished() if not self.is_calm and self.follow_ups:
                self.follow_ups -= 1
                self.take(ev.FollowedUp((m.user("and now?"),), at=self.clock))

    def extend(self) -> None:
        """Other limits, further away; or none."""
        limits, ledger = self.state.ledger.setup.limits, self.state.ledger
        further = Limits(max_iterations=None, max_pauses=None, max_depth=limits.max_depth)
        if not self.is_calm and self.chance(2):
            timeout = None if limits.timeout is None else ledger.active + 2.0
            further = evolve(further, timeout=timeout)
        self.take(ev.Extended(further, at=self.clock))

    def meddle(self) -> None:
        """What a caller, or time, or a driver that is no more, may do at any moment."""
        match self.rng.randrange(12):
            case 0 | 1 if waiting(self.state):
                self.decide()
            case 2 if isinstance(self.state, Ready | Requesting | Judging | Running) and self.chance(2):
                self.take(ev.Injected((m.user("meanwhile"),), at=self.clock))
            case 3 if isinstance(self.state, Finished):
                self.extend()
            case 4 if self.lost:
                flight = self.rng.choice(self.lost)
                self.lost.remove(flight)
                self.take(self._spends(flight) if self.chance(3) else flight.ends(at=self.clock))
            case 5:
                self._let_time_pass()
            case 6:
                self._revoke()
            case 7 | 8:
                self.crash()
            case 10 if self.chance(4):
                self._lose_a_loop()
            case 9 if self.chance(6) and not isinstance(self.state, Finished | TooDeep):
                self.take(ev.Stopped("enough", at=self.clock))
            case _:
                self._nonsense()

    def _let_time_pass(self) -> None:
        deadline, left = next_deadline(self.state), time_left(self.state)
        if deadline is not None and self.chance(2):
            self.clock = max(self.clock, deadline + self.rng.choice((-1.0, 0.0, 5.0)))
        seconds = self.rng.choice((0.0, 1.0, left or 0.0)) if is_at_work(self.state) else 0.0
        self.take(ev.Ticked(at=self.clock, seconds=seconds))

    def _revoke(self) -> None:
        for path, loop in everywhere(self.state):
            for grant in loop.ledger.grants[:1]:
                self.take(ev.GrantRevoked(grant.id, path=path, at=self.clock))
                return

    def _lose_a_loop(self) -> None:
        """The tool whose call a loop is in is gone: nobody drives that any more, and its call is uncertain."""
        for path, loop in [*loops(self.state)][1:]:
            above = [*self._above(path)]
            if not is_over(loop) and all(isinstance(each, Running) for each in above):
                self.flights, self.lost = (
                    [flight for flight in flights if flight.path[: len(path)] != path]
                    for flights in (self.flights, self.lost)
                )
                self.take(ev.Cancelled(path[-1], path=path[:-1], at=self.clock))
                return

    def crash(self) -> None:
        """The process is gone, with all that it did just now; another wakes up."""
        self.crashes += 1
        self.sleep()
        self.requests = set()
        paths = [path for path, loop in everywhere(self.state) if path and not isinstance(loop, TooDeep)]
        setup = evolve(self.state.ledger.setup) if self.chance(2) else None
        self.take(ev.Woken(setup, driver="another", at=self.clock))
        for path in paths if self.chance(3) else ():
            loop = loop_at(self.state, path)
            if loop is not None:
                self.take(ev.Woken(evolve(loop.ledger.setup), path=path, at=self.clock))

    def _nonsense(self) -> None:
        """Something that cannot be, somewhere in the tree."""
        path, loop = self.rng.choice([*everywhere(self.state)])
        effects = outstanding(self.state)
        events: list[ev.Event] = [ev.Ended("c99", m.DONE, path=path), ev.Started("c99", path=path)]
        if path:
            events += [ev.Continued(path=path), ev.Decided((), path=path), ev.Stopped(path=path)]
        if not isinstance(loop, Ready) or SendRequest(path) not in effects:
            events.append(ev.Requested(path=path))
        if not isinstance(loop, Requesting):
            events += [evolve(m.replied("end_turn", m.text("hm")), path=path), ev.RequestCancelled(path=path)]
        if isinstance(loop, Ready | Running) and EndTurn(path) not in effects:
            events.append(ev.TurnEnded(path=path))
        if isinstance(loop, Running):
            for call in loop.round.calls:
                if call.status is not Status.CLEARED or self._is_used_up(path):
                    events.append(ev.Started(call.id, path=path))
                if call.status is not Status.RUNNING or (call.child is not None and not is_over(call.child)):
                    events.append(ev.Ended(call.id, m.DONE, path=path))
                wrong = evolve(loop.ledger.setup, within=(*loop.ledger.setup.within, (99, call.id, 1)))
                events.append(ev.Opened(wrong, (m.user(),), path=(*path, call.id)))
        starts = [self.done(effect) for effect in effects if isinstance(effect, SendRequest | RunCall)]
        events += [evolve(event, seconds=1e6) for event in starts if self._has_time(event)]  # its time is over
        self.refuse(evolve(self.rng.choice(events), at=self.clock))

    def _is_used_up(self, path: Path) -> bool:
        """Whether a loop above one lets no more tools start."""
        budgets = [(loop.ledger.setup.limits.budget.tool_calls, loop.ledger.ran) for loop in self._above(path)]
        return any(most is not None and len(ran) >= most for most, ran in budgets)

    def _has_time(self, event: ev.Event) -> bool:
        """Whether the time for a start has an end: that of a loop above, or for a request that of its own."""
        loops_ = self._above(event.path[:-1] if isinstance(event, ev.Opened) else event.path)
        own = [loop_at(self.state, event.path)] if isinstance(event, ev.Requested) else []
        return any(loop.ledger.setup.limits.timeout is not None for loop in (*loops_, *own) if loop is not None)

    def _above(self, path: Path) -> list[State]:
        above = (loop_at(self.state, path[:length]) for length in range(len(path)))
        return [loop for loop in above if loop is not None]

    # --- the whole life -----------------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether a driver has something to do or to wait for."""
        return bool(outstanding(self.state) or self.requests or self._awaited())

    def _awaited(self) -> bool:
        return any(self._runs(flight) for flight in self.flights)

    def live(self, steps: int) -> Tree:
        """Let so many things happen."""
        for _ in range(steps):
            if self.chance(7):
                self.meddle()
            elif self.is_busy:
                self.drive()
            elif isinstance(self.state, Finished | TooDeep) and not self.follow_ups:
                break
            else:
                self.go_on()
        return self

    def finish(self) -> Tree:
        """From here on all goes well: the loop comes to its end."""
        self.is_calm = True
        for _ in range(2000):
            if self.is_busy:
                self.drive()
            elif isinstance(self.state, TooDeep) or (
                isinstance(self.state, Finished) and not isinstance(self.state.termination, LIMITS)
            ):
                return self
            else:
                self.go_on()
        raise AssertionError(f"it never comes to its end: {self.state}")
