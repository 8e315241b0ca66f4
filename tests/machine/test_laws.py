"""The law: the table is what happens, a refused event changes nothing, and a journal tells the state."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cache
from typing import get_args

import pytest
from attrs import evolve
from hypothesis import given, strategies as st

from tests.kit.effort import IS_DEEP, examples
from tests.kit.machine import making as m
from tests.kit.machine.nested import at, begin_with_calls, waits
from tests.kit.machine.worlds import BELOW, EVENTS, World, lives
from toolloop.errors import CallerError, IllegalCommand
from toolloop.machine.machine import TRANSITIONS, allowed
from toolloop.machine.queries import implied
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import (
    Failed,
    Finished,
    Judging,
    Phase,
    Ready,
    Requesting,
    Running,
    State,
    TooDeep,
    Waiting,
)
from toolloop.machine.tree import fold, fork, step
from toolloop.machine.values.calls import GrantSpec
from toolloop.machine.values.chain import Chain
from toolloop.machine.values.setup import Limits

PHASES = tuple(TRANSITIONS)
Way = tuple[type[Phase], type[ev.Event], type[Phase]]
TARGETS: set[Way] = {
    (phase, event, target) for phase, row in TRANSITIONS.items() for event, rule in row.items() for target in rule.to
}


# The lives of `make test` are some that together go every way that those of `make deep` go.
LIVES: Sequence[int] = range(110) if IS_DEEP else (6, 9, 14, 18, 20, 32, 46, 50, 70, 82, 83, 104)
NESTED_LIVES: Sequence[int] = range(60) if IS_DEEP else (22, 30, 46)


@cache
def worlds(*, nested: bool) -> tuple[World, ...]:
    """Loops that lived a while, or trees; the same ones in every run."""
    seeds = NESTED_LIVES if nested else LIVES
    return tuple(World(random.Random(seed), nested=nested).live(150) for seed in seeds)


def ways(world: World, *, below: bool) -> list[Way]:
    """The transitions of a life: of the outermost loop, or of those inside calls."""
    steps = zip(world.states, world.journal[1:], world.states[1:], strict=False)
    found = [(event, before.at(event.path), after.at(event.path)) for before, event, after in steps]
    return [
        (type(was.phase), type(event), type(now.phase))
        for event, was, now in found
        if bool(event.path) == below
        if was and now
    ]


@cache
def reach_phases() -> dict[type[Phase], list[State]]:
    """Some states of each phase, one of a life, so that they differ."""
    found: dict[type[Phase], list[State]] = defaultdict(list)
    for world in worlds(nested=False):
        for phase, state in {type(state.root.phase): state for state in world.states}.items():
            found[phase].append(state)
    return found


def name(value: object) -> str:
    return value.__name__ if isinstance(value, type) else str(value)


# --- the table -------------------------------------------------------------------------------------------------------


def test_the_table_has_a_row_for_each_phase_and_knows_each_event() -> None:
    """But those that begin a journal; and only a loop that is too deep knows none."""
    assert set(PHASES) == set(get_args(Phase))
    assert {event for row in TRANSITIONS.values() for event in row} == set(EVENTS)
    assert {target for _, _, target in TARGETS} <= set(PHASES)
    assert [phase for phase, row in TRANSITIONS.items() if not row] == [TooDeep]


def make_rare() -> list[tuple[State, ev.Event]]:
    """What hardly ever happens by chance: loops inside calls run or failed, and other calls of the round wait."""
    calls = [m.call(name, "pure") for name in "pcd"]
    asked = m.state_after(m.make_replied("tool_use", *calls), m.asks("c", "d"), ev.Continued(), execution="ready")
    inside = step(asked, m.child(asked, "p"))
    failed = m.go(inside, *at("p", ev.Requested(), ev.RequestFailed(m.FAILURE)))
    grant = evolve(m.APPROVE, remember=GrantSpec(match="{}"))
    decided = m.go(failed, m.make_decided(c=grant, d=m.DENY), ev.TurnEnded())
    edited = m.go(failed, ev.TurnEnded(), m.make_decided(c=m.approve({"a": 2})), ev.Continued())
    full = m.state_after(m.make_replied("tool_use", *calls[:2]), m.make_judged(), max_parallel_tools=1)
    full = m.go(step(full, m.child(full, "p")), *at("p", ev.Requested(), ev.RequestFailed(m.FAILURE)), ev.TurnEnded())
    answered = m.go(begin_with_calls("p"), *waits("p"), ev.TurnEnded(), ev.Decided((("p/a", m.APPROVE),)))
    waits_for_both = m.state_after(m.make_replied("tool_use", *calls[1:]), m.asks("c", "d"), execution="ready")
    judging = m.go(waits_for_both, m.make_decided(d=m.approve({"a": 2})), ev.Continued())
    decides = m.make_decided(c=m.APPROVE)
    runs = m.go(m.go(waits_for_both, m.make_decided(c=grant), ev.Continued()), ev.Started("c"))
    too_late = m.state_after(m.make_replied("tool_use", calls[1]), ev.Started("c"), limits=Limits(timeout=1.0))
    too_late = step(too_late, ev.Ticked(seconds=1.0))
    ends = ev.TurnEnded(waits=True)
    keep_all, keep_p, keep_d = (ev.HistoryTaken(reply=m.make_said(*kept)) for kept in (calls, calls[:1], calls[2:]))
    return [
        (fork(decided, "copy", 0.0), keep_all),
        (decided, keep_p),
        (edited, keep_p),
        (edited, keep_d),
        (answered, keep_p),
        (step(full, ev.Woken()), ev.Continued()),
        (decided, ev.GrantRevoked("1/c")),
        (judging, decides),
        (judging, ev.Approved(decides.decisions)),
        (judging, ev.Stopped()),
        (judging, ev.Ended("c", m.DONE, iteration=9, attempt=1)),
        (m.state_after(m.make_replied("end_turn", m.text("so")), callables=frozenset({"stop_when"})), ev.Restored()),
        (runs, ev.Judged(stop=True)),
        (step(runs, ev.HistoryTaken(reply=m.make_said(*calls[1:], m.call("e")))), ev.Stopped(waits=True)),
        (step(runs, ev.Stopped(waits=True)), ev.GrantRevoked("1/c")),
        (m.state_after(ev.Requested()), ev.Stopped(is_abandoned=True)),
        (too_late, ends),
        (step(too_late, ends), ev.Changed(limits=Limits())),
        *(
            (state, ev.Restored())
            for states in reach_phases().values()
            for state in states
            if m.phase(state) != "TooDeep"
        ),
        *(
            (state, event)
            for states in reach_phases().values()
            for state in states
            for event in (ev.LinksRevoked(), ev.MetadataChanged(()))
            if m.phase(state) != "TooDeep"
        ),
        (State({(): m.state_after().root._replace(messages=Chain())}), ev.Restored()),
        (m.go(m.state_after(), ev.Requested(), ev.Stopped()), ev.Restored()),
    ]


def test_the_table_is_what_happens() -> None:
    """Over many lives each declared target of each pair is reached, and nothing else."""
    lived = {way for nested in (False, True) for world in worlds(nested=nested) for way in ways(world, below=False)}
    lived |= {(type(was.root.phase), type(event), type(step(was, event).root.phase)) for was, event in make_rare()}
    assert lived == TARGETS


def test_links_and_metadata_change_in_any_phase() -> None:
    """Which is noted, in order; nothing else changes. A loop that is too deep never had a call."""
    title, draft = (("title", None, "One"), ("title", "One", "Two")), (("draft", "yes", None),)
    for states in reach_phases().values():
        for state in states:
            if m.phase(state) != "TooDeep":
                after = m.go(state, ev.LinksRevoked("a", "ana", "inbox"), ev.LinksRevoked())
                noted = (*state.root.revoked_links, "a", None)
                assert after == State({**state.loops, (): state.root._replace(revoked_links=noted)})
                after = m.go(state, ev.MetadataChanged(title), ev.MetadataChanged(draft))
                changed = (("draft", None), ("title", "Two"))
                assert after == State({**state.loops, (): state.root._replace(metadata=changed)})


def test_a_loop_inside_a_call_goes_no_other_ways() -> None:
    """But it waits for no command, it cannot be stopped, and what ends in it may end the call above."""
    expected = {
        (was, event, Ready if now is Waiting and event is ev.Replied else now)
        for was, event, now in TARGETS
        if event in BELOW
    } | {(phase, event, Ready) for phase in PHASES for event in (ev.Judged, ev.TurnEnded)}
    found = Counter(way for world in worlds(nested=True) for way in ways(world, below=True))
    assert set(found) <= expected
    assert not {(Requesting, event, Finished) for event in (ev.RequestFailed, ev.Woken)} & set(found)
    assert {event for _, event, _ in found} == set(BELOW)
    assert {was for was, _, _ in found} >= {Ready, Requesting, Judging, Running, Waiting}


@pytest.mark.parametrize("phase", PHASES, ids=name)
def test_an_event_that_is_not_listed_is_refused(phase: type[Phase]) -> None:
    """The error names the phase, and what the caller may ask for there."""
    for event in (event for event in EVENTS if event not in TRANSITIONS[phase]):
        for seed, state in enumerate(reach_phases()[phase][:5]):
            world = World(random.Random(seed))
            world.state = state
            with pytest.raises(IllegalCommand) as refused:
                step(state, world.make(event))
            assert refused.value.state == phase.__name__
            assert refused.value.allowed == allowed(state.root)


def test_what_may_be_asked_for_is_said_as_the_caller_would_say_it() -> None:
    """In each phase its own words."""
    anywhere = (
        "stop()",
        "an edit of the history",
        "update_params()",
        "extend()",
        "say()",
        "revoking a grant",
        "fork()",
    )
    assert allowed(m.state_after().root) == ("resume(InjectMessages(...))", *anywhere)
    assert allowed(m.state_after(m.make_replied("pause_turn")).root) == (
        "continue_loop()",
        "inject_and_continue()",
        *anywhere,
    )
    assert allowed(m.state_after(ev.RequestFailed(m.FAILURE)).root) == (
        "retry()",
        *anywhere[:4],
        "follow_up()",
        *anywhere[4:],
    )
    asking = m.state_after(m.make_replied("tool_use", m.call("c")), m.asks("c"))
    assert "a decision" in allowed(asking.root)
    assert set(TRANSITIONS[TooDeep]) == set()
    for event, words in (
        (ev.Continued(), "continue_loop()"),
        (ev.Continued((m.user(),)), "resume(InjectMessages(...))"),
        (ev.FollowedUp((m.user(),)), "follow_up()"),
        (m.make_decided(c=m.DENY), "a decision"),
        (ev.TurnEnded(), "TurnEnded"),
    ):
        with pytest.raises(IllegalCommand) as refused:
            step(
                m.state_after()
                if words in ("continue_loop()", "follow_up()")
                else m.state_after(ev.RequestFailed(m.FAILURE)),
                event,
            )
        assert refused.value.asked == words


# --- journals --------------------------------------------------------------------------------------------------------


@examples(25)
@given(lives)
def test_a_journal_tells_the_state_and_no_event_changes_an_older_one(world: World) -> None:
    """At every point; and a refused event leaves the state as it was, to the last field."""
    told = [fold(world.journal[:1])]
    for event in world.journal[1:]:
        told.append(step(told[-1], event))
    assert told == world.states
    by_identity = {id(state): then for state, then in zip(world.states, told, strict=True)}
    for state, event, _ in world.refused:
        assert state == by_identity[id(state)]
        with pytest.raises(CallerError):
            step(state, event)


@examples(15)
@given(lives, st.integers(0, 30))
def test_a_journal_may_start_with_a_state_that_was_taken_over(world: World, more: int) -> None:
    """Wherever a loop stood: the fold begins there, to the last field."""
    before = world.state
    world.adopt().live(more)
    assert more > 50 or world.forks or fold(world.journal[:1]) is before
    assert fold(world.journal) == world.state


@examples(25)
@given(lives)
def test_what_the_next_event_implies_may_be_left_out(world: World) -> None:
    """A journal without the events that are implied gives the same state."""
    following = [*world.journal[1:], None]
    pairs = zip(world.journal, following, strict=True)
    assert fold(event for event, then in pairs if then is None or not implied(event, then)) == world.state


@pytest.mark.parametrize(
    ("event", "following", "left_out"),
    [
        (ev.Judged(), ev.Started("c", at=1.0), True),
        (ev.Judged(), ev.Opened(m.setup(), (), path=("c",)), True),
        (ev.Judged(path=("c",)), ev.Opened(m.setup(), (), path=("c",)), False),
        (ev.Judged(path=("c",)), ev.Started("c"), False),
        (ev.Judged(at=1.0), ev.Started("c", at=1.0), False),
        (ev.Judged(seconds=0.1), ev.Started("c"), False),
        (ev.Judged(stop=True), ev.Started("c"), False),
        (m.make_judged(c=m.APPROVE), ev.Started("c"), False),
        (ev.Judged(), ev.TurnEnded(), False),
        (ev.TurnEnded(), ev.Started("c"), False),
    ],
)
def test_only_a_judgement_that_lets_all_run_is_implied(event: ev.Event, following: ev.Event, *, left_out: bool) -> None:
    """By the start that follows it in the same loop, if it tells nothing of time."""
    assert implied(event, following) is left_out


@pytest.mark.parametrize(
    ("journal", "says"),
    [
        ([], "this one starts with NoneType"),
        ([ev.Continued()], "this one starts with Continued"),
        ([ev.Opened(m.setup(), (), path=("c",))], "this one starts with Opened inside a call"),
    ],
)
def test_a_journal_starts_with_the_beginning_of_a_loop(journal: list[ev.Event], says: str) -> None:
    with pytest.raises(IllegalCommand) as refused:
        fold(journal)
    assert str(refused.value) == f"a journal must start with Opened or Adopted; {says}"
    asked = says.split()[4]
    assert (refused.value.state, refused.value.asked, refused.value.allowed) == ("none", asked, ("Opened", "Adopted"))


def test_a_loop_begins_at_the_time_of_its_first_event() -> None:
    assert fold([evolve(m.make_opened(), at=7.0)]).root.now == 7.0


def test_an_event_of_no_time_ages_nothing() -> None:
    """And a failed loop ages by what is said of it."""
    for state in (m.state_after(), m.state_after(ev.RequestFailed(m.FAILURE)), m.state_after(ev.Stopped())):
        assert isinstance(state.root.phase, (Ready, Failed, Finished))
        assert step(state, ev.Ticked(at=-1.0, seconds=-1.0)) == state
        assert step(state, ev.Ticked(at=9.0)).root.now == 9.0
