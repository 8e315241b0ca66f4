"""An audit finds every way in which a journal may have been spoiled, and nothing in a good one."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from tests.core.worlds import World
from tests.stores import journals as j
from tests.stores.edited_stories import EDITED
from toolloop import LoopConfig
from toolloop.errors import UnreadableSnapshot
from toolloop.machine import (
    Adopted,
    Continued,
    Decided,
    Ended,
    Event,
    Judged,
    Opened,
    Replied,
    Requested,
    Result,
    Ruling,
    Started,
    TurnEnded,
    Woken,
    fold,
)
from toolloop.stores import Entry, MemoryStore, StoredJournal, audit
from toolloop.stores.events import encode_event
from toolloop.testing import call, reply

GOOD = j.a_journal()
EVENTS = j.events(GOOD)
ASKED, NOTHING_DROPPED = ("summary requested", None, None), ("not compacted", "drop_rounds", None)


def rules(journal: list[Event]) -> list[tuple[str, str | None]]:
    """What an audit finds in these events: rules and calls."""
    return [(problem.rule, problem.call_id) for problem in audit(j.entries(journal)).problems]


def without(at: int, journal: list[Event] = EVENTS) -> list[Event]:
    return [*journal[:at], *journal[at + 1 :]]


def changed(at: int, **changes: Any) -> list[Event]:
    return [*EVENTS[:at], evolve(EVENTS[at], **changes), *EVENTS[at + 1 :]]


_RUNNING = EVENTS[: j.find(EVENTS, Started, "edited") + 1]
# Two calls ran, one of them repeatable, and their driver is gone.
ASLEEP = [*without(j.find(_RUNNING, Ended, "looked"), _RUNNING), Woken(driver="another")]


# --- good journals ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", range(len(GOOD) + 1))
def test_a_good_journal_is_good_wherever_it_is_cut(length: int) -> None:
    """Nothing is said about what is not there yet."""
    assert audit(GOOD[:length]).problems == ()


def test_a_journal_is_taken_as_a_store_gives_it_and_as_entries_and_as_texts() -> None:
    """The three say the same."""
    whole = audit(StoredJournal(len(GOOD), GOOD))
    assert whole.ok
    assert audit(iter(GOOD)) == whole
    assert audit(entry.body for entry in GOOD) == whole


@given(seed=st.integers(0, 2**32), adopts=st.integers(0, 60))
def test_whatever_the_machine_takes_keeps_its_promises(seed: int, adopts: int) -> None:
    """Journals of invented worlds, from their beginning or from a state in their midst.

    Their drivers invent ends and uses, and ask nobody; only that an audit may find there.
    """
    world = World(random.Random(seed)).live(adopts)
    if adopts:
        world.adopt()
    world.live(60 - adopts)
    assert {problem.rule for problem in audit(j.entries(world.journal)).problems} <= {
        "ended_without_start",
        "spent_without_start",
        "not_asked",
    }


# --- who did what when -----------------------------------------------------------------------------------------------


def test_it_lists_who_did_what_when() -> None:
    """Of a call: that it was proposed, asked about, decided, started and ended, with what was proposed and what ran."""
    proposed, ran = {"path": "a", "text": "x"}, {"path": "a", "text": "z"}
    told = [(act.what, act.by, act.reason, act.proposed, act.decided, act.ran) for act in audit(GOOD).of_call("edited")]
    assert told == [
        ("proposed", None, None, proposed, None, None),
        ("asked", None, None, proposed, None, None),
        ("approved", "ana", "typo", proposed, ran, None),
        ("granted", "ana", "typo", proposed, None, None),
        ("started", "ana", None, proposed, ran, ran),
        ("ended", None, "returned", proposed, None, None),
    ]


def test_it_says_by_which_grant_a_call_ran() -> None:
    """And who gave it."""
    (allowed,) = [act for act in audit(GOOD).actions if act.what == "allowed by grant"]
    assert (allowed.call_id, allowed.grant, allowed.by, allowed.tool) == ("granted", "1/edited", "ana", "write")


def test_times_are_aware_and_in_order() -> None:
    """Every event that says when is told with its time, in UTC."""
    times = [act.at for act in audit(GOOD).actions if act.at is not None]
    assert times == sorted(times)
    assert all(at.utcoffset() is not None and at.year == 2027 for at in times)


def test_a_denial_is_told_with_its_reason() -> None:
    """And nothing comes after it."""
    told = [(act.what, act.by, act.reason) for act in audit(GOOD).of_call("denied")]
    assert told == [("proposed", None, None), ("asked", None, None), ("denied", "bo", "not that one")]


def test_a_stop_tells_what_became_of_the_open_calls() -> None:
    """They did not run."""
    journal = j.a_journal(ask=lambda turn: turn.stop("enough"))
    assert [act.what for act in audit(journal).of_call("denied")] == ["proposed", "asked", "not run"]
    assert [(act.what, act.reason) for act in audit(journal).actions][-1] == ("finished", "stop_condition")


def test_a_policy_is_named_where_it_decided() -> None:
    """By its own name, or as the policy."""
    config = LoopConfig(on_tool_call=lambda call, _view: j.DENIED if call.id == "denied" else j.APPROVED)
    told = {act.call_id: (act.what, act.by) for act in audit(j.a_journal(config=config)).actions if act.by}
    assert told["denied"] == ("denied", "bo")
    assert told["edited"] == ("started", "ana")


def test_a_call_that_cannot_run_is_told_as_rejected() -> None:
    """With the reason."""
    journal = j.a_journal([reply(calls=[call("nothing", {}, id="c")]), reply("done")])
    assert [(act.what, act.reason) for act in audit(journal).of_call("c")] == [
        ("proposed", None),
        ("rejected", "unknown tool"),
    ]


def test_a_call_whose_driver_died_is_told_as_lost() -> None:
    """One that may be run again, and one that waits; and an end that nobody had thought to see any more."""
    told = {act.call_id: act.reason for act in audit(j.entries(ASLEEP)).actions if act.what == "lost"}
    assert told == {"looked": "it may be run again", "edited": "it waits for a decision"}
    end = EVENTS[j.find(EVENTS, Ended, "looked")]
    late = audit(j.entries([*ASLEEP, end, end]))
    assert [act.what for act in late.of_call("looked")][-3:] == ["lost", "ended", "late"]
    assert late.ok


@pytest.mark.parametrize(
    ("story", "path", "told"),
    [
        ("masked", (), [("compacted", "mask_results", "900 tokens before, 80 after"), NOTHING_DROPPED]),
        ("summary-asked", (), [("summary requested", None, None)]),
        ("summarized", (), [ASKED, ("compacted", "summarize", "900 tokens before, 80 after")]),
        ("summary-failed", (), [ASKED, ("not compacted", "summarize", "the request failed: slow down")]),
        ("nested-compacted", ("p",), [ASKED, ("compacted", "summarize", "900 tokens before, 80 after")]),
        ("nested-compacted", ("q",), [("compacted", "drop_rounds", "9 tokens before, 8 after")]),
        ("spliced", (), [("history replaced", None, None)]),
    ],
)
def test_what_became_of_the_history_is_told(story: str, path: tuple[str, ...], told: list[Any]) -> None:
    """By which strategy, and how many tokens it left; and it breaks no promise."""
    found = audit(j.entries(EDITED[story]))
    assert {problem.rule for problem in found.problems} == {"ran_something_else"}  # for the digests are made up
    words = {what for what, _, _ in told}
    acts = [(act.what, act.by, act.reason) for act in found.actions if act.path == path]
    assert [act for act in acts if act[0] in words] == told


def test_what_expired_is_told_at_its_deadline() -> None:
    """Whenever it is noticed."""
    now = [100.0]
    replies = [reply(calls=[call("write", {"path": "a", "text": ""}, id="w")]), reply("done")]
    journal = j.a_journal(
        replies, lambda _turn: now.append(1000), LoopConfig(decision_timeout=60), seconds=lambda: now[-1]
    )
    (gone,) = [act for act in audit(journal).actions if act.what == "expired"]
    assert gone.call_id == "w"
    assert gone.at is not None
    assert gone.at.timestamp() == 160


# --- spoiled journals ------------------------------------------------------------------------------------------------


def test_an_end_without_a_start_is_found() -> None:
    """Write-ahead: a start is stored before its tool runs."""
    assert ("ended_without_start", "edited") in rules(without(j.find(EVENTS, Started, "edited")))


def test_an_end_of_a_run_that_never_was_is_found() -> None:
    """Also where the machine ignores it as late."""
    end = Ended("edited", Result('"x"'), iteration=1, attempt=7)
    assert rules([*EVENTS, end]) == [("ended_without_start", "edited")]
    unnumbered = Ended("edited", Result('"x"'))
    assert rules([*EVENTS, unnumbered]) == [("ended_without_start", "edited")]


@pytest.mark.parametrize("call_id", ["looked", "edited"])
def test_a_second_start_is_found(call_id: str) -> None:
    """Of a call that runs, and of one that has ended, whatever its tool may do."""
    at = j.find(EVENTS, Started, call_id)
    assert rules([*EVENTS[: at + 1], *EVENTS[at:]]) == [("started_twice", call_id)]
    ended = j.find(EVENTS, Ended, call_id)
    assert rules([*EVENTS[: ended + 1], EVENTS[at], *EVENTS[ended + 1 :]]) == [("started_after_end", call_id)]


def test_a_start_after_a_denial_is_found() -> None:
    """A denied call never starts."""
    start = Started("denied")
    at = j.find(EVENTS, Started, "edited")
    assert rules([*EVENTS[:at], start, *EVENTS[at:]]) == [("started_after_denial", "denied")]
    earlier = j.find(EVENTS, Continued)
    assert rules([*EVENTS[:earlier], start, *EVENTS[earlier:]]) == [("started_after_denial", "denied")]


def test_a_start_after_an_answer_is_found() -> None:
    """Who answers a call says that it is not to run."""
    denial = next(at for at, event in enumerate(EVENTS) if isinstance(event, Decided) and "denied" in str(event))
    answered = changed(denial, rulings=(("denied", Ruling("answer", '"mine"', by="bo")),))
    at = j.find(answered, Started, "edited")
    assert rules(answered) == []
    assert rules([*answered[:at], Started("denied"), *answered[at:]]) == [("started_after_answer", "denied")]


def test_a_start_after_an_expiry_is_found() -> None:
    """A deadline binds whether anybody ticked or not."""
    opened = EVENTS[0]
    assert isinstance(opened, Opened)
    timed = [evolve(opened, setup=evolve(opened.setup, decision_timeout=60.0)), *EVENTS[1:]]
    asked = timed[j.find(timed, Judged)]
    head = timed[: j.find(timed, Decided)]
    assert rules([*head, Started("edited", at=asked.at + 60)]) == [("started_after_expiry", "edited")]


def test_a_start_that_nobody_decided_on_is_found() -> None:
    """What was asked is answered first."""
    decided = j.find(EVENTS, Decided)
    assert ("started_undecided", "edited") in rules(without(decided))


def test_a_start_that_nobody_was_asked_about_is_found() -> None:
    """A tool that always needs approval does not run where the journal has no word on it."""
    end = j.find(EVENTS, Ended, "edited")
    unasked = [*EVENTS[:3], Started("edited"), EVENTS[end]]
    assert rules(unasked) == [("not_asked", "edited")]


def test_another_edited_input_is_found() -> None:
    """What ran is what was decided: the start has the digest of it."""
    at = j.find(EVENTS, Decided)
    decided = EVENTS[at]
    assert isinstance(decided, Decided)
    ((call_id, ruling),) = decided.rulings
    swapped = changed(at, rulings=((call_id, evolve(ruling, content='{"path":"/etc","text":"z"}')),))
    assert rules(swapped) == [("ran_something_else", "edited")]


def test_another_proposed_input_is_found() -> None:
    """What ran is what was proposed: the start has the digest of it."""
    spoiled = [entry.body for entry in GOOD]
    at = j.find(EVENTS, Replied)
    spoiled[at] = spoiled[at].replace('"path":"a"}', '"path":"/etc"}')
    assert [(problem.rule, problem.call_id) for problem in audit(spoiled).problems] == [
        ("ran_something_else", "looked")
    ]


def test_a_forged_digest_is_found() -> None:
    """It is counted anew from the call as it starts."""
    at = j.find(EVENTS, Started, "looked")
    assert rules(changed(at, digest="0" * 64)) == [("ran_something_else", "looked")]


def test_a_reply_that_nobody_asked_for_is_found() -> None:
    """A request is stored before it is sent."""
    assert rules(without(j.find(EVENTS, Requested)))[0] == ("reply_without_request", None)


def test_events_in_another_order_are_found() -> None:
    """A turn does not end before its calls do."""
    at = j.find(EVENTS, TurnEnded)
    swapped = [*EVENTS[: at - 1], EVENTS[at], EVENTS[at - 1], *EVENTS[at + 1 :]]
    assert rules(swapped)[0] == ("impossible", None)


def test_a_journal_without_its_beginning_is_found() -> None:
    """Nothing can be said of the rest."""
    assert rules(EVENTS[1:]) == [("no_beginning", None)]


def test_two_entries_of_one_id_are_found() -> None:
    """A store adds no event twice."""
    twice = [*GOOD, Entry(GOOD[3].id, encode_event(Continued()))]
    problems = audit(twice).problems
    assert [(problem.entry, problem.rule) for problem in problems] == [
        (len(twice), "same_id"),
        (len(twice), "impossible"),
    ]
    assert GOOD[3].id in problems[0].message


@pytest.mark.parametrize("at", range(1, len(EVENTS)))
def test_an_event_that_is_gone_is_found_or_changes_nothing(at: int) -> None:
    """Whichever it is: unless the journal is as good without it, the audit says so."""
    journal = without(at)
    try:
        fold(journal)
    except Exception:  # noqa: BLE001 - whatever the machine says
        assert rules(journal) != []


def test_a_second_run_of_a_lost_call_is_a_problem_only_if_nobody_wanted_it() -> None:
    """A repeatable call runs again by itself; any other when a person says so by name."""
    start, first = Started("edited"), EVENTS[j.find(EVENTS, Started, "edited")]
    assert rules([*ASLEEP, start]) == [("started_undecided", "edited")]
    by_name = [*ASLEEP, Decided((("edited", Ruling("rerun", by="ana")),))]
    assert rules([*by_name, start]) == [("started_undecided", "edited")]
    looks_again = [Judged(), Started("looked"), Ended("looked", Result('"x"'), iteration=1, attempt=2), TurnEnded()]
    runs_again = [*by_name, *looks_again, Continued(), start]
    assert rules(runs_again) == []
    assert rules([*runs_again, start]) == [("started_twice", "edited")]
    assert rules([*runs_again[:-1], first]) == [("ran_something_else", "edited")]  # it has the digest of the first run


# --- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spoil", [lambda body: body[:-3], lambda _: "{}", lambda _: ""])
def test_damaged_text_is_said_to_be_damaged(spoil: Callable[[str], str]) -> None:
    """With the number of the entry; it is no broken promise."""
    bodies = [entry.body for entry in GOOD]
    bodies[4] = spoil(bodies[4])
    with pytest.raises(UnreadableSnapshot, match="entry 5 of the journal"):
        audit(bodies)


def test_half_a_journal_is_refused() -> None:
    """What came after a revision cannot be judged by itself."""
    store = MemoryStore()
    store.create("loop", GOOD, head=j.HEAD)
    with pytest.raises(ValueError, match=f"of a journal of {len(GOOD)}"):
        audit(store.load("loop", after=3))
    with pytest.raises(TypeError, match="entry 1 is a int"):
        audit([1])  # type: ignore[list-item]


def test_a_fork_is_audited_from_its_own_beginning() -> None:
    """What was started before is none of its affair, and no second start of it goes unseen."""
    running = EVENTS[: j.find(EVENTS, Started, "looked") + 1]
    adopted = Adopted(fold(running))
    start = running[-1]
    assert rules([adopted]) == []
    assert rules([adopted, start]) == [("started_twice", "looked")]
