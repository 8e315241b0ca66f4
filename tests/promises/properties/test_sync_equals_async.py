"""The sync handle and the async one, told the same, do the same: under asyncio and under trio, stored or not."""

from __future__ import annotations

import pytest
from attrs import evolve
from hypothesis import given

from tests.kit.effort import IS_DEEP, examples
from tests.promises.properties.drawn_programs import Kind, Program, live, programs
from toolloop import MemoryStore


@pytest.mark.parametrize("is_stored", [False, True], ids=["alone", "stored"])
@pytest.mark.parametrize("kind", ["asyncio", "trio"])
def test_the_two_handles_do_the_same(kind: Kind, is_stored: bool) -> None:
    """Requests to the byte, results, refusals, events, starts, snapshots and journals are the same, times aside."""

    @examples(8, derandomize=not IS_DEEP)
    @given(programs())
    def agree(program: Program) -> None:
        expected, actual = (live(program, each, MemoryStore() if is_stored else None) for each in ("sync", kind))
        assert expected.bodies == actual.bodies
        assert expected.seen == actual.seen
        assert expected.journal == actual.journal
        assert expected == evolve(actual, requests=expected.requests)

    agree()


@examples(8, derandomize=not IS_DEEP)
@given(programs())
def test_a_store_changes_nothing_of_what_is_done(program: Program) -> None:
    """Requests, results, refusals, events, starts and snapshots are those of a loop that is in no store."""
    alone, stored = live(program, "sync"), live(program, "sync", MemoryStore())
    assert alone.seen == stored.seen
    assert alone == evolve(stored, journal=[], requests=alone.requests)
