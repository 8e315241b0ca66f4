"""What an audit checks although the machine keeps to it: only a wrong machine could break it."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from tests.stores import journals as j
from toolloop.machine import Decided, Ended, Running, Started, fold
from toolloop.stores.audit_checks import Books, answered, kept_results

EVENTS = j.events(j.a_journal())


def test_a_call_with_two_results_or_none_is_found() -> None:
    """Every call of a closed round has exactly one result."""
    message = '{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"n","input":{}}]}'
    result = '{"type":"tool_result","tool_use_id":"c","content":"x"}'
    for count, found in (0, ["c"]), (1, []), (2, ["c"]):
        answer = f'{{"role":"user","content":[{",".join([result] * count)}]}}'
        assert [breach.call_id for breach in answered(1, ["{}", message, answer])] == found
    assert [breach.rule for breach in answered(1, [message])] == ["not_one_result"]
    assert [breach.rule for breach in answered(1, ['{"content":"text"}', f'{{"content":[{result}]}}'])] == [
        "not_one_result"
    ]


def test_a_result_that_changes_is_found() -> None:
    """The first end of a call stays its result."""
    before = fold(EVENTS[: j.find(EVENTS, Ended, "looked") + 1])
    assert isinstance(before, Running)
    spoiled = tuple(evolve(call, result=None) for call in before.round.calls)
    after = evolve(before, round=evolve(before.round, calls=spoiled))
    assert list(kept_results(1, before, before)) == []
    assert {breach.call_id for breach in kept_results(1, before, after)} == {"looked", "denied"}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, None),
        ({"uses": 0}, "is number 1"),
        ({"match": '{"path":"q"}'}, "not for such a call"),
        ({"tool": "look"}, "not for such a call"),
        ({"expires_at": 1.0}, "had expired"),
        ({"id": "other"}, "nobody gave"),
    ],
)
def test_a_grant_that_does_not_stand_is_found(changes: dict[str, Any], problem: str | None) -> None:
    """It is looked at again: who gave it, for what, how often, and until when."""
    given_at, used_at = j.find(EVENTS, Decided), j.find(EVENTS, Started, "granted") - 1
    before, after = fold(EVENTS[:used_at]), fold(EVENTS[: used_at + 1])
    (standing,) = fold(EVENTS[: given_at + 1]).ledger.grants
    spoiled = evolve(standing, **changes)
    books = Books(given={spoiled.id: spoiled})
    before, after = (evolve(each, ledger=evolve(each.ledger, grants=())) for each in (before, after))
    found = [breach.message for breach in books.take(1, before, EVENTS[used_at], after)]
    assert len(found) == (problem is not None)
    assert all(problem in message for message in found if problem is not None)


def test_a_revoked_grant_is_found() -> None:
    """What runs by it after that."""
    used_at = j.find(EVENTS, Started, "granted") - 1
    books = Books(revoked={"1/edited"})
    found = list(books.take(1, fold(EVENTS[:used_at]), EVENTS[used_at], fold(EVENTS[: used_at + 1])))
    assert [breach.rule for breach in found] == ["grant_overstepped"]


def test_a_grant_that_is_given_again_stands_again() -> None:
    """A call that asks once more in a copy may give the same one as before, which was revoked."""
    given_at, used_at = j.find(EVENTS, Decided), j.find(EVENTS, Started, "granted") - 1
    books = Books(revoked={"1/edited"}, users={"1/edited": {(1, "x"), (1, "y")}})
    for at in (given_at, used_at):
        assert list(books.take(1, fold(EVENTS[:at]), EVENTS[at], fold(EVENTS[: at + 1]))) == []
