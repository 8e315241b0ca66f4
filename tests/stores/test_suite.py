"""The conformance suite for stores: a store that breaks a rule is told which."""

from __future__ import annotations

import pytest

from tests.stores import broken_leases, broken_optional, broken_races  # noqa: F401 - they add theirs to BROKEN
from tests.stores.broken import BROKEN
from toolloop.testing import check_store
from toolloop.testing.stores import optional_rules
from toolloop.testing.stores.rules import _RULES


def test_every_rule_has_a_store_that_breaks_it() -> None:
    """So none of them is one that nobody can break."""
    assert sorted(BROKEN) == sorted(rule.__name__ for rule in _RULES)


def test_a_store_that_breaks_a_rule_is_told_which(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the rule's name, and not by that of another rule."""
    monkeypatch.setattr(optional_rules, "_PATIENCE", 0.1)
    for rule, kinds in BROKEN.items():
        for kind in kinds:
            with pytest.raises(AssertionError) as error:
                check_store(kind)
            assert str(error.value).startswith(f"broken rule: {rule.replace('_', ' ')}. "), kind.__name__
