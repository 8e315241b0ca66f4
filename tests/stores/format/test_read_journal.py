"""A whole journal: its state, or the number of the entry that is wrong."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, strategies as st

from tests.kit.effort import examples
from tests.kit.machine import making as m
from tests.kit.machine.worlds import World
from tests.recorded.edited_stories import EDITED
from tests.recorded.nested_stories import NESTED
from tests.stores import journals as j
from toolloop.errors import CallerError, UnreadableSnapshot
from toolloop.machine.record import journal_events as ev
from toolloop.machine.tree import fold
from toolloop.stores import Entry, decode_event, dump, encode_event, load, read_journal

ROUND: tuple[ev.Event, ...] = (
    ev.Requested(at=1.0),
    m.make_replied("tool_use", m.call("a")),
    ev.Started("a"),
    m.make_ended("a"),
    ev.TurnEnded(),
    ev.Continued(),
)
JOURNAL = (m.make_opened(), *ROUND, *ROUND, ev.Requested(), m.make_replied("end_turn", m.text("so")))


@given(j.lives(90))
def test_any_journal_gives_its_state(world: World) -> None:
    """Each event comes back, and the journal leads to the same state."""
    entries = j.entries(world.journal)
    assert [decode_event(entry) for entry in entries] == world.journal
    assert read_journal(entries) == world.state


def test_a_damaged_entry_is_named() -> None:
    """By its number, counted from 1."""
    for damage in ("", "[]", '{"format":9,"event":"Started"}', '{"format":1,"event":"Started"}'):
        for number in range(1, len(JOURNAL) + 1):
            entries = j.entries(JOURNAL)
            entries[number - 1] = Entry("damaged", damage)
            with pytest.raises(UnreadableSnapshot, match=f"^entry {number} of the journal cannot be read: ") as caught:
                read_journal(entries)
            assert caught.value.entry == number  # type: ignore[attr-defined]  # errors keep their parts


def test_an_event_that_cannot_follow_is_named() -> None:
    """With the machine's refusal."""
    for number in range(1, len(JOURNAL) + 2):
        events = [*JOURNAL[: number - 1], ev.GrantRevoked("1/a"), *JOURNAL[number - 1 :]]
        refused = f"^entry {number} of .*GrantRevoked cannot follow the entries before"
        with pytest.raises(UnreadableSnapshot, match=refused) as e:
            read_journal(j.entries(events))
        assert isinstance(e.value.__cause__, CallerError)


def test_an_empty_journal_is_refused() -> None:
    """A loop has a first event."""
    with pytest.raises(UnreadableSnapshot, match="the journal is empty"):
        read_journal([])


WORLDS = tuple(j.entries(World(random.Random(seed)).live(40).journal) for seed in range(12))
JOURNALS = (
    j.entries(j.make_good_journal()),
    *WORLDS,
    *(j.entries(story) for story in (*NESTED.values(), *EDITED.values())),
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 1.5, 10**30, 1e308, 10**400, "", "x", "null", "[]", "{}", "5", "\ud800"),
    *([], {}, [None], [[]], {"a": 1}, [{"type": "text"}], [{"type": 5}], ["x"], {"role": "user", "content": 5}),
    *('{"role":"user","content":[5]}', '["x"]', '{"a":1e999}'),
)
FLIPS = ("", " ", "\n", '"', "\\", ",", ":", "}", "{", "]", "[", "0", "9", "e9", "e999")


def spots(value: Any) -> list[tuple[Any, Any]]:
    """Return every place in a value: its container, and its key there."""
    if not isinstance(value, (dict, list)):
        return []
    keys = value if isinstance(value, dict) else range(len(value))
    return [*((value, key) for key in keys), *(spot for key in keys for spot in spots(value[key]))]


@st.composite
def damaged_texts(draw: st.DrawFn, text: str) -> str:
    """Change a text: other characters; or another value, or none, somewhere in its JSON."""
    places = spots(json.loads(text))
    if not places or draw(st.booleans()):
        for _ in range(draw(st.integers(1, 3))):
            at = draw(st.integers(0, len(text)))
            text = text[:at] + draw(st.sampled_from(FLIPS)) + text[at + draw(st.integers(0, 2)) :]
        return text
    whole = json.loads(text)
    at, key = spots(whole)[draw(st.integers(0, len(places) - 1))]
    if draw(st.booleans()):
        at[key] = draw(st.sampled_from(VALUES))
    else:
        del at[key]
    return json.dumps(whole)


@st.composite
def damaged_journals(draw: st.DrawFn) -> tuple[list[Entry], int]:
    """A good journal of which one entry was changed, and its index."""
    journal = list(draw(st.sampled_from(JOURNALS)))
    at = draw(st.integers(0, len(journal) - 1))
    part = draw(st.sampled_from(["body"] if journal[at].text is None else ["body", "text"]))
    journal[at] = evolve(journal[at], **{part: draw(damaged_texts(getattr(journal[at], part)))})
    return journal, at


@examples(50, suppress_health_check=[HealthCheck.too_slow])
@given(damaged_journals())
def test_a_damaged_entry_is_refused_or_read_as_a_sound_one(found: tuple[list[Entry], int]) -> None:
    """An event that is read can be written, and the loop that it leads to can be kept."""
    journal, at = found
    try:
        event = decode_event(journal[at])
    except UnreadableSnapshot:
        with pytest.raises(UnreadableSnapshot) as refused:
            read_journal(journal)
        assert refused.value.entry == at + 1  # type: ignore[attr-defined]  # errors keep their parts
        return
    again = decode_event(encode_event("again", event))
    assert (again, repr(again)) == (event, repr(event))
    try:
        state = read_journal(journal)
    except UnreadableSnapshot as error:
        if error.entry > at:  # type: ignore[attr-defined]  # it is this event, or one that does not follow from it
            return
        raise
    assert state == fold(map(decode_event, journal))
    assert load(json.loads(json.dumps(dump(state)))) == state


def test_an_error_of_the_source_comes_through() -> None:
    """A store that fails while it is read is not a damaged journal."""

    def failing() -> Any:
        yield encode_event("1", m.make_opened())
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        read_journal(failing())
