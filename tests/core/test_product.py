"""The product of all states and all events, generated from the table."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import islice

import pytest
from attrs import evolve

from tests.core.worlds import EVENTS, World
from toolloop.core import events as ev
from toolloop.core.errors import CallerError, IllegalCommand
from toolloop.core.machine import TRANSITIONS, allowed, step
from toolloop.core.nesting import BELOW
from toolloop.core.states import Executed, Finished, Paused, Proposed, Ready, Requesting, State, TooDeep
from toolloop.core.tree import loop_at

SEEDS = 500
SHOWN = 600  # of loops that show their replies
STEPS = 60
RESTS = (Executed, Paused)  # where only outermost loops are
LOST = (ev.RequestCancelled, ev.Woken)
STATES = tuple(TRANSITIONS)
PRODUCT = [(state, event) for state in STATES for event in EVENTS]
LISTED = [(state, event) for state, event in PRODUCT if event in TRANSITIONS[state]]
UNLISTED = [(state, event) for state, event in PRODUCT if event not in TRANSITIONS[state]]
Step = tuple[type[State], type[ev.Event], type[State]]
TARGETS: list[Step] = [(state, event, target) for state, event in LISTED for target in TRANSITIONS[state][event].to]


@cache
def worlds() -> tuple[World, ...]:
    """Loops that lived a while; the same ones in every run."""
    shown = (World(random.Random(seed), shown=True) for seed in range(SHOWN))
    return tuple(world.live(STEPS) for world in (*(World(random.Random(seed)) for seed in range(SEEDS)), *shown))


@cache
def trees() -> tuple[World, ...]:
    """The same, with loops inside of their calls; they take longer to grow."""
    return tuple(World(random.Random(seed), nested=True).live(150) for seed in range(650))


@cache
def taken() -> Counter[Step]:
    """How often each transition was taken in those lives, by outermost loops."""
    return Counter(way for world in worlds() for path, way in ways(world) if not path)


@cache
def taken_inside() -> Counter[Step]:
    """How often each was taken by loops inside of calls."""
    return Counter(way for world in trees() for path, way in ways(world) if path)


def ways(world: World) -> Iterator[tuple[tuple[str, ...], Step]]:
    """The transitions of a life, each with the path of the loop that took it."""
    for before, event, after in zip(world.states, world.journal[1:], world.states[1:], strict=False):
        was, now = loop_at(before, event.path), loop_at(after, event.path)
        if was is not None and now is not None:
            yield event.path, (type(was), type(event), type(now))


@cache
def reached() -> dict[type[State], list[State]]:
    """Some states of each class, one of a life, so that they differ."""
    found: dict[type[State], list[State]] = defaultdict(list)
    for world in worlds():
        for kind, state in {type(state): state for state in world.states}.items():
            found[kind].append(state)
    return found


def some(kind: type[State], event: type[ev.Event], how_many: int = 60) -> list[tuple[State, ev.Event]]:
    """Reachable states of a class, each with an event of a class made for it."""
    pairs = []
    for seed, state in enumerate(islice(reached()[kind], how_many)):
        world = World(random.Random(seed))
        world.state = state
        pairs.append((state, world.make(event)))
    return pairs


def name(value: object) -> str:
    return value.__name__ if isinstance(value, type) else str(value)


def test_every_event_and_every_state_is_in_the_product() -> None:
    """The table has a row for every state, knows every event but the first, and no target that is no state."""
    assert set(STATES) == set(State.__args__)
    assert {event for row in TRANSITIONS.values() for event in row} == set(EVENTS)
    assert {target for _, _, target in TARGETS} <= set(STATES)


def test_only_the_row_of_a_failure_that_nothing_can_mend_is_empty() -> None:
    """`TooDeep` knows no event; every other state knows some."""
    assert [state for state, row in TRANSITIONS.items() if not row] == [TooDeep]


@pytest.mark.parametrize(("state", "event"), LISTED, ids=name)
def test_a_listed_pair_lands_in_a_declared_target_or_says_why_not(state: type[State], event: type[ev.Event]) -> None:
    """What a rule gives is a state it declared; what it refuses, it refuses as the caller's error."""
    for before, happened in some(state, event):
        untouched = evolve(before)
        try:
            landed = step(before, happened)
        except CallerError:
            assert before == untouched
        else:
            assert type(landed) in TRANSITIONS[state][event].to


@pytest.mark.parametrize(("state", "event"), UNLISTED, ids=name)
def test_an_unlisted_pair_is_refused_and_leaves_the_very_same_state(state: type[State], event: type[ev.Event]) -> None:
    """What the table does not list raises `IllegalCommand`, which names the state and what is allowed there."""
    for before, happened in some(state, event, how_many=5):
        untouched, ledger = evolve(before), before.ledger
        with pytest.raises(IllegalCommand) as refused:
            step(before, happened)
        assert before == untouched
        assert before.ledger is ledger
        assert refused.value.state == state.__name__
        assert refused.value.allowed == allowed(before)


@pytest.mark.parametrize(("state", "event"), LISTED, ids=name)
def test_every_listed_pair_was_taken(state: type[State], event: type[ev.Event]) -> None:
    """No pair is in the table that never happens."""
    assert sum(count for pair, count in taken().items() if pair[:2] == (state, event)) > 0


@pytest.mark.parametrize(("state", "event", "target"), TARGETS, ids=name)
def test_every_declared_target_was_reached(state: type[State], event: type[ev.Event], target: type[State]) -> None:
    """No rule declares a target that it never reaches."""
    assert taken()[state, event, target] > 0


def test_nothing_else_was_reached() -> None:
    """Over all those lives, no transition happened that the table does not declare."""
    assert set(taken()) <= set(TARGETS)


@pytest.mark.long
def test_a_loop_inside_a_call_goes_the_same_ways_and_waits_for_no_command() -> None:
    """Where an outermost loop would wait for one, it goes on; and nobody tells it to stop after its request."""
    inside = {
        (before, event, Ready if after in RESTS else after)
        for before, event, after in TARGETS
        if before not in RESTS and event in BELOW and Proposed not in (before, after)
    }
    assert set(taken_inside()) == inside - {
        (Requesting, event, Finished) for event in (*LOST, ev.RequestFailed, ev.Compacted)
    }


if __name__ == "__main__":
    for way, times in sorted(taken().items(), key=lambda item: item[1]):
        print(f"{times:6}", *(part.__name__ for part in way))  # noqa: T201 - a report, run by hand
