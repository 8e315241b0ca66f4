"""A whole journal: its state, or which of its entries is wrong."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve
from hypothesis import given

from tests.core import making as m
from tests.core.test_machine_laws import lives
from tests.core.worlds import World
from toolloop.core import events as ev
from toolloop.core.machine import fold
from toolloop.errors import CallerError, UnreadableSnapshot
from toolloop.stores.events import _after, encode_event, read_journal

ROUND: tuple[ev.Event, ...] = (
    ev.Requested(at=1.0),
    m.replied("tool_use", m.call("a")),
    ev.Started("a"),
    m.ended("a"),
    ev.TurnEnded(),
    ev.Continued(),
)
JOURNAL = (m.opened(), *ROUND, *ROUND, ev.Requested(), m.replied("end_turn", m.text("so")))


def bodies(*events: ev.Event) -> list[str]:
    return [encode_event(event) for event in events]


@given(lives)
def test_any_journal_gives_its_state(world: World) -> None:
    """What was written and read is folded as what was lived."""
    assert read_journal(bodies(*world.journal)) == world.state


def test_every_beginning_of_a_journal_gives_its_state() -> None:
    """Wherever it ends: in a stride, or between two."""
    for end in range(1, len(JOURNAL) + 1):
        assert read_journal(iter(bodies(*JOURNAL[:end]))) == fold(JOURNAL[:end])


@pytest.mark.parametrize("number", range(1, len(JOURNAL) + 1))
@pytest.mark.parametrize("damage", ["", "[]", '{"format":9,"event":"Started"}', '{"format":1,"event":"Started"}'])
def test_a_damaged_entry_is_named(number: int, damage: str) -> None:
    """By its number, counted from 1."""
    damaged = bodies(*JOURNAL)
    damaged[number - 1] = damage
    with pytest.raises(UnreadableSnapshot, match=f"^entry {number} of the journal cannot be read: ") as caught:
        read_journal(damaged)
    assert caught.value.entry == number  # type: ignore[attr-defined]  # errors keep their parts


@pytest.mark.parametrize("number", range(1, len(JOURNAL) + 2))
def test_an_event_that_cannot_follow_is_named(number: int) -> None:
    """With what the machine says."""
    events = [*JOURNAL[: number - 1], ev.Retried(), *JOURNAL[number - 1 :]]
    with pytest.raises(UnreadableSnapshot, match=f"^entry {number} of .*Retried cannot follow what is before it") as e:
        read_journal(bodies(*events))
    assert isinstance(e.value.__cause__, CallerError)


def test_what_comes_first_is_told_first() -> None:
    """An event that cannot follow, before an entry that is damaged."""
    with pytest.raises(UnreadableSnapshot, match="entry 3 of"):
        read_journal([*bodies(m.opened(), ev.Requested(), ev.Retried()), "{"])
    with pytest.raises(UnreadableSnapshot, match="entry 8 of"):
        read_journal([*bodies(*JOURNAL[:7]), "{", *bodies(ev.Retried())])


def test_what_no_rule_foresees_is_told_as_the_entry_it_is() -> None:
    """A stride that fails over a reply leaves it to the steps to say where."""
    replied = m.replied("tool_use", m.call("a"))
    broken = evolve(replied, reply=evolve(replied.reply, blocks=[{}]))
    with pytest.raises(UnreadableSnapshot, match=r"entry 3 of the journal .*Replied cannot follow .*type"):
        _after(fold([m.opened()]), [ROUND[0], broken, *ROUND[2:]], 2)


def test_an_empty_journal_is_none() -> None:
    """There is no loop without a first event."""
    with pytest.raises(UnreadableSnapshot, match="the journal is empty"):
        read_journal([])


def test_an_error_of_the_source_comes_through() -> None:
    """A store that fails while it is read is not a damaged journal."""

    def failing() -> Any:
        yield encode_event(m.opened())
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        read_journal(failing())


def test_a_number_that_is_too_large_is_refused() -> None:
    """No writer wrote it, and no request could carry it."""
    damaged = bodies(*JOURNAL)
    damaged[2] = damaged[2].replace('"input":{"a":1}', '"input":{"a":1e999}')
    with pytest.raises(UnreadableSnapshot, match="entry 3 of the journal"):
        read_journal(damaged)
