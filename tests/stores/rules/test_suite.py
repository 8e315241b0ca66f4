"""The conformance suite for stores: the author of a store that breaks a rule learns which."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from tests.kit.effort import some
from tests.kit.tools import params
from tests.stores.rules import broken_leases, broken_optional, broken_races  # noqa: F401 - they add theirs to BROKEN
from tests.stores.rules.broken import BROKEN
from toolloop import Inbox, ToolLoopHandle
from toolloop.stores import Lease, MemoryStore, StoredJournal, StoredLoop
from toolloop.testing import ScriptedProvider, check_store, reply
from toolloop.testing.stores import optional_rules
from toolloop.testing.stores.rules import _RULES


def test_every_rule_has_a_store_that_breaks_it() -> None:
    """So each rule can be broken."""
    assert sorted(BROKEN) == sorted(rule.__name__ for rule in _RULES)


def test_the_error_for_a_store_names_the_broken_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the rule's name, and not by that of another rule."""
    monkeypatch.setattr(optional_rules, "_PATIENCE", 0.1)
    for rule, kinds in BROKEN.items():
        for kind in some(kinds, len(kinds)):
            with pytest.raises(AssertionError) as error:
                check_store(kind)
            assert str(error.value).startswith(f"broken rule: {rule.replace('_', ' ')}. "), kind.__name__


class Numbers(MemoryStore):
    """A store of others, whose revisions are numbers."""

    def create(self, *args: Any, **more: Any) -> int:
        return int(super().create(*args, **more))

    def append(self, *args: Any, **more: Any) -> int:
        return int(super().append(*args, **more))

    def load(self, *args: Any, **more: Any) -> StoredJournal:
        journal = super().load(*args, **more)
        return evolve(journal, rev=int(journal.rev))

    def head(self, loop_id: str) -> StoredLoop:
        row = super().head(loop_id)
        return evolve(row, rev=int(row.rev))

    def acquire(self, *args: Any, **more: Any) -> Lease:
        return evolve(super().acquire(*args, **more), rev=None)


def test_a_store_without_digests_passes_with_a_warning() -> None:
    """It breaks no rule. A loop in it is driven as in any other."""
    with pytest.warns(UserWarning, match="returns revisions without a digest, so a process may not notice"):
        check_store(Numbers)
    store = Numbers()
    handle = ToolLoopHandle.open(store, "loop", ScriptedProvider([reply("done")]), params=params())
    assert handle.run().text == "done"
    assert Inbox(store).show("loop")["status"] == "ended"
