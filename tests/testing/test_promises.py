"""The promises' checker: it finds each way to break a promise, and nothing in a good journal."""

from __future__ import annotations

import random

from attrs import evolve
from hypothesis import given, strategies as st

from tests.kit.machine.worlds import World
from tests.recorded.edited_stories import EDITED
from tests.recorded.nested_stories import NESTED
from tests.stores import journals as j
from toolloop.machine import Decided, Ended, Event, Judged, Opened, Restored, Started, TurnEnded, Woken, begin
from toolloop.machine.values.calls import DecisionRecord, Result
from toolloop.testing.promises import _unanswered, check_promises

EVENTS = j.make_good_journal()
GOOD = j.entries(EVENTS)


def broken(events: list[Event]) -> tuple[str, ...]:
    return check_promises(j.entries(events)).broken


def inserted(event: Event, after: int) -> list[Event]:
    return [*EVENTS[: after + 1], event, *EVENTS[after + 1 :]]


def test_a_good_journal_is_good_wherever_it_is_cut() -> None:
    """Nothing is said about events that are not there yet."""
    for length in range(len(GOOD) + 1):
        assert check_promises(GOOD[:length]).broken == ()


def test_it_counts_the_starts_of_each_tool() -> None:
    """By the tool's name."""
    assert check_promises(GOOD).starts == {"look": 1, "write": 2}


def test_stories_of_trees_and_edits_are_good() -> None:
    """But for the digests and the approvals, which the stories invent."""
    for name in (*NESTED, *EDITED):
        found = broken(list((NESTED | EDITED)[name]))
        assert [
            each for each in found if "another name or input" not in each and "without the approval" not in each
        ] == []


@given(seed=st.integers(0, 2**32), nested=st.booleans())
def test_the_machine_keeps_the_promises(seed: int, nested: bool) -> None:
    """Journals of random lives; their drivers invent ends and digests, and ask for no approval."""
    world = World(random.Random(seed), nested=nested).live(60)
    invented = ("ended without a start", "without the approval", "another name or input")
    assert [each for each in broken(world.journal) if not any(words in each for words in invented)] == []


def test_a_denied_call_that_starts_is_found() -> None:
    """Whatever the machine says."""
    found = broken(inserted(Started("denied"), j.find(EVENTS, Started, "edited")))
    assert "the call 'denied' (write) was started after it was denied or answered" in found[0]


def test_a_call_that_starts_twice_is_found() -> None:
    """While it runs, after it ended, and after its driver was gone, if its tool may not be repeated."""
    started = j.find(EVENTS, Started, "edited")
    assert "'edited' (write) was started a second time" in broken(inserted(Started("edited"), started))[0]
    ended = j.find(EVENTS, Ended, "edited")
    assert "'edited' (write) was started after it had a result" in broken(inserted(Started("edited"), ended))[0]
    asleep = [*EVENTS[: started + 1], Woken(driver="another"), Started("edited")]
    assert "'edited' (write) was started a second time" in broken(asleep)[0]


def test_a_repeatable_call_may_start_again() -> None:
    """Its driver was gone."""
    started = j.find(EVENTS, Started, "looked")
    assert broken([*EVENTS[: started + 1], Woken(driver="another"), Started("looked")]) == ()


def test_a_denied_call_may_be_uncertain_after_a_restore() -> None:
    """A driver had started it on the other branch. It starts again only if a person allows that."""
    at = j.find(EVENTS, Ended, "looked")
    uncertain = [*EVENTS[: at + 1], Restored(runs=(("denied", 1, 1),))]
    assert broken(uncertain) == ()
    assert "'denied' (write) was started a second time" in broken([*uncertain, Started("denied")])[0]
    rerun = Decided((("denied", DecisionRecord("rerun", by="ana")),))
    assert not any("denied" in each for each in broken([*uncertain, rerun, Started("denied")]))


def test_a_restore_may_name_a_run_that_the_journal_never_proposed() -> None:
    """Then the call starts as any other."""
    at = j.find(EVENTS, Judged)
    for iteration in (1, 2):
        found = broken([*EVENTS[:at], Restored(runs=(("other", iteration, 1),)), *EVENTS[at:]])
        assert not any("second time" in each for each in found)


def test_another_input_than_was_decided_is_found() -> None:
    """The digests differ."""
    at = j.find(EVENTS, Started, "edited")
    started = EVENTS[at]
    assert isinstance(started, Started)
    changed = [*EVENTS[:at], evolve(started, digest="0" * 64), *EVENTS[at + 1 :]]
    assert "was started with another name or input than the proposed and approved one" in broken(changed)[0]


def test_an_end_without_a_start_is_found() -> None:
    """Of a call that was never started, though the machine takes the end as a late one."""
    end = Ended("ghost", Result('"x"'), iteration=1, attempt=1)
    assert "the call 'ghost' ended without a start" in broken(inserted(end, j.find(EVENTS, TurnEnded)))[0]


def test_an_event_that_cannot_follow_is_found() -> None:
    """And the check ends there."""
    at = j.find(EVENTS, TurnEnded)
    found = broken([*EVENTS[:1], EVENTS[at], *EVENTS[1:]])
    assert len(found) == 1
    assert found[0].startswith("entry 2: TurnEnded is not allowed here")


def test_an_id_that_is_there_twice_is_found() -> None:
    """An id names one event."""
    twice = [*GOOD[:2], evolve(GOOD[2], id=GOOD[1].id), *GOOD[3:]]
    assert check_promises(twice).broken == (f"entry 3: its id {GOOD[1].id!r} is that of an earlier entry",)


def test_a_call_without_exactly_one_result_is_found() -> None:
    """In any message that the history gets."""
    asked = '{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"n","input":{}}]}'
    result = '{"type":"tool_result","tool_use_id":"c","content":"x"}'
    first = EVENTS[0]
    assert isinstance(first, Opened)
    for count in (0, 1, 2):
        answer = f'{{"role":"user","content":[{",".join([result] * count)}]}}'
        state = begin(evolve(first, messages=(*first.messages, asked, answer)))
        found = list(_unanswered(None, state.root))
        assert found == ([] if count == 1 else [f"the call 'c' occurs 1 times, and has {count} results"])
