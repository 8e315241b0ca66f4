"""A tree of loops as it is, as its journal tells, and as it is known from outside: all three are held together."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from attrs import frozen

from tests.properties.tree_checks import CheckedTruth
from tests.properties.tree_truth import Path
from tests.properties.trees import NodePlan
from toolloop.core import events as ev
from toolloop.core.effects import Effect
from toolloop.core.errors import CallerError
from toolloop.core.jsontext import encode
from toolloop.core.limits import out_of_time, time_left
from toolloop.core.machine import begin, implied, outstanding, step
from toolloop.core.states import (
    Deciding,
    Executed,
    Failed,
    Finished,
    Judging,
    Paused,
    Requesting,
    Running,
    State,
    TooDeep,
)
from toolloop.core.tree import loop_at, loops
from toolloop.core.values import Call, Result, Status
from toolloop.stores.codec import dump, load
from toolloop.stores.events import decode_event, encode_event, read_journal


@frozen
class Flight:
    """A run of a call that is under way: which run of which call it is."""

    path: Path
    call_id: str
    iteration: int
    attempt: int

    def ends(self, **more: Any) -> ev.Ended:
        """Its end, by name."""
        return ev.Ended(
            self.call_id,
            Result(encode(f"{'/'.join((*self.path, self.call_id))} ran ({self.iteration}, {self.attempt})")),
            iteration=self.iteration,
            attempt=self.attempt,
            path=self.path,
            **more,
        )


class TreeWorld:
    """A tree of loops, and what is under way in it.

    Attributes:
        journal: all that happened.
        told: the state that the journal tells, event by event through JSON.
        truth: what is known from outside.
        refused: how many events were.
        flights: the runs that are under way; `lost` are those whose driver is gone, and which may end all the same.
        requests: in which loops a request is under way.

    """

    def __init__(self, rng: Random, plan: NodePlan) -> None:
        """Open the root."""
        self.rng = rng
        self.plan = plan
        self.clock = 1000.0
        self.flights: list[Flight] = []
        self.lost: list[Flight] = []
        self.requests: set[Path] = set()
        self.truth = CheckedTruth()
        self.refused = 0
        first = ev.Opened(setup=plan.setup(), messages=(plan.task(),), at=self.clock)
        self.journal: list[ev.Event] = [first]
        self.state = self.told = begin(first)
        self.truth.check(self.state)

    def chance(self, one_in: int) -> bool:
        return self.rng.randrange(one_in) == 0

    def take(self, event: ev.Event) -> None:
        """Let it happen: what the journal tells is what is so, in each loop."""
        before = self.state
        self.state = step(before, event)
        self.journal.append(event)
        self._note(before, event)
        self.truth.hear(before, event, self.state)
        self.told = step(self.told, _through_json(event))
        assert self.told == self.state
        self.check()

    def _note(self, before: State, event: ev.Event) -> None:
        """Keep account of what is under way."""
        match event:
            case ev.Started():
                call = find(self.state, event.path, event.call_id)
                loop = loop_at(self.state, event.path)
                assert loop is not None
                self.flights.append(Flight(event.path, event.call_id, loop.round.iteration, call.attempts))  # type: ignore[union-attr]
            case ev.Requested():
                self.requests.add(event.path)
            case ev.Woken(path=()):
                self.lost += self.flights
                self.flights = []
            case ev.FollowedUp():  # nobody waits any more for what ran in the last user turn
                self.lost += self.flights
                self.flights = []
        # A request whose loop has no use for its reply any more is given up.
        self.requests = {path for path in self.requests if isinstance(loop_at(self.state, path), Requesting)}
        if isinstance(self.state, Finished):
            self.requests = set()

    def check(self) -> None:
        """Whatever happened, this is so."""
        self.truth.check(self.state)
        effects = outstanding(self.state)
        assert self.requests == {path for path, loop in loops(self.state) if isinstance(loop, Requesting)}
        running = {
            (path, call.id)
            for path, loop in loops(self.state)
            if isinstance(loop, Judging | Deciding | Running)
            for call in loop.round.having(Status.RUNNING)
            if call.child is None
        }
        known = {(flight.path, flight.call_id) for flight in self.flights}
        assert running <= known, f"{running - known} runs, and nobody knows"
        for effect in effects:
            step(self.state, self.done(effect))  # what is outstanding can be done
        left = time_left(self.state)
        if left is not None:  # then that time is up
            later = step(self.state, ev.Ticked(seconds=left + 1e-9))
            assert _late(later) - _late(self.state), "time passes, and none is used up"
        if not effects and not self.requests and not running:
            assert isinstance(self.state, Deciding | Executed | Paused | Finished | Failed | TooDeep), "it is stuck"

    def sleep(self) -> None:
        """What is stored is what is: the journal, without what is implied in it, and the snapshot."""
        assert read_journal(self.stored()) == self.state
        snapshot = dump(self.state)
        self.state = load(json.loads(json.dumps(snapshot)))
        assert self.state == self.told
        assert dump(self.state) == snapshot

    def stored(self) -> list[str]:
        """The journal as it is stored, without what is implied in it."""
        following = [*self.journal[1:], None]
        kept = (
            event for event, then in zip(self.journal, following, strict=True) if not (then and implied(event, then))
        )
        return [*map(encode_event, kept)]

    def refuse(self, event: ev.Event) -> None:
        """This is refused, and changes nothing."""
        before = dump(self.state)
        with pytest.raises(CallerError):
            step(self.state, event)
        assert dump(self.state) == before
        self.refused += 1

    def done(self, effect: Effect) -> ev.Event:
        """What comes of an effect at once."""
        raise NotImplementedError


def find(state: State, path: Path, call_id: str) -> Call:
    """A call of an open round."""
    loop = loop_at(state, path)
    assert isinstance(loop, Judging | Deciding | Running)
    call = loop.round.find(call_id)
    assert call is not None
    return call


def _late(state: State) -> set[Path]:
    """The loops whose time is up."""
    return {path for path, loop in loops(state) if out_of_time(loop.ledger)}


def _through_json(event: ev.Event) -> ev.Event:
    return decode_event(encode_event(event))
