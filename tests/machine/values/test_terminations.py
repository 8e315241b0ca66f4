"""How a loop ends, as values."""

from __future__ import annotations

import pickle
from typing import get_args

import pytest
from attrs.exceptions import FrozenInstanceError

from toolloop import terminations as t

EXAMPLES: tuple[t.Termination, ...] = (
    t.NaturalEnd(),
    t.StopCondition("why"),
    t.MaxIterations(3),
    t.PauseLimit(2),
    t.LoopDetected("look", 3),
    t.Timeout(1.5),
    t.BudgetExceeded("requests", 2, 2),
    t.Truncated("max_tokens"),
    t.InvalidOutput(("amount: missing",)),
    t.Expired("rm"),
    t.Refused("cyber", "no"),
    t.Unfinished(),
)


def test_the_examples_are_all_of_them() -> None:
    """Every termination is in this file's examples."""
    assert {type(example) for example in EXAMPLES} == set(get_args(t.Termination))


def test_each_has_a_kind_of_its_own() -> None:
    """The kinds are distinct strings."""
    kinds = [example.kind for example in EXAMPLES]
    assert len(set(kinds)) == len(kinds)
    assert all(kinds)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: str(example.kind))
def test_a_termination_is_a_value(example: t.Termination) -> None:
    """Equal by what it says, hashable, frozen, and the same after pickling."""
    copy = pickle.loads(pickle.dumps(example))
    assert copy == example
    assert hash(copy) == hash(example)
    assert [other for other in EXAMPLES if other == example] == [example]
    with pytest.raises(FrozenInstanceError):
        example.limit = 99  # type: ignore[union-attr,misc]


def test_limits_are_the_ends_that_extending_undoes() -> None:
    """The ends that a limit caused, and no other."""
    assert set(t.LIMITS) == {t.MaxIterations, t.PauseLimit, t.Timeout, t.BudgetExceeded}
