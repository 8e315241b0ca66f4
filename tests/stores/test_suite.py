"""The conformance suite for stores: a store that breaks a rule is told which."""

from __future__ import annotations

import pytest

from tests.stores import broken_leases, broken_races  # noqa: F401 - they add theirs to BROKEN
from tests.stores.broken import BROKEN
from toolloop.stores import MemoryStore
from toolloop.testing import check_store
from toolloop.testing.store_suite import _RULES


def test_every_rule_has_a_store_that_breaks_it() -> None:
    """So none of them is one that nobody can break."""
    assert sorted(BROKEN) == sorted(rule.__name__ for rule in _RULES)


@pytest.mark.parametrize(
    ("rule", "kind"), [pytest.param(rule, kind, id=kind.__name__) for rule in BROKEN for kind in BROKEN[rule]]
)
def test_a_store_that_breaks_a_rule_is_told_which(rule: str, kind: type[MemoryStore]) -> None:
    """By the rule's name, and not by that of another rule."""
    with pytest.raises(AssertionError) as error:
        check_store(kind)
    assert str(error.value).startswith(f"broken rule: {rule.replace('_', ' ')}. ")
