"""Trees of loops in the machine: every promise holds in each loop of a tree, whatever happens in whatever order.

The checks after every event are in `tree_checks` and `tree_truth`, and in `TreeWorld.check`. `TOOLLOOP_DEEP=n` runs n
times as many examples.
"""

from __future__ import annotations

import os
from random import Random
from typing import Any

from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.core import making as m
from tests.properties.tree_caller import Tree
from tests.properties.trees import Planner
from toolloop.core import events as ev
from toolloop.core.effects import EndTurn
from toolloop.core.limits import time_left
from toolloop.core.machine import fold, outstanding, step
from toolloop.core.setup import Budget, Limits
from toolloop.core.states import Finished, Running
from toolloop.core.terminations import BudgetExceeded
from toolloop.core.tree import loop_at
from toolloop.stores.audit import audit

DEEP = int(os.environ.get("TOOLLOOP_DEEP", "1"))
_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]

lives = st.tuples(st.integers(0, 2**32), st.integers(0, 150))


def planted(seed: int, *, is_plain: bool = False) -> Tree:
    """A tree of which nothing has happened yet."""
    rng = Random(seed)
    return Tree(rng, Planner(rng, is_plain=is_plain).node())


@given(lives)
@settings(max_examples=160 * DEEP, suppress_health_check=_SLOW)
def test_the_promises_hold_in_every_loop_of_a_tree(life: tuple[int, int]) -> None:
    """Whatever is decided, ends, fails, expires, is stopped or dies, wherever in the tree, and in whatever order.

    And the tree comes to its end as soon as nothing goes wrong any more: it is never stuck.
    """
    seed, steps = life
    tree = planted(seed).live(steps).finish()
    tree.sleep()
    assert fold(tree.journal) == tree.state
    assert audit(tree.stored()).ok


@given(st.integers(0, 2**32), st.integers(0, 2**32))
@settings(max_examples=30 * DEEP, suppress_health_check=_SLOW)
def test_the_order_in_which_things_happen_in_a_tree_does_not_matter(seed: int, other: int) -> None:
    """The same tree with the same decisions: the same history in each of its loops, and the same usage."""
    one, two = planted(seed, is_plain=True), planted(seed, is_plain=True)
    two.rng = Random(other)
    one.finish()
    two.finish()
    assert isinstance(one.state, Finished)
    assert isinstance(two.state, Finished)
    assert one.state.ledger.messages == two.state.ledger.messages
    assert one.state.ledger.total_usage == two.state.ledger.total_usage
    assert sorted(one.state.ledger.ran) == sorted(two.state.ledger.ran)
    histories: Any = [{key: books.history for key, books in tree.truth.books.items()} for tree in (one, two)]
    assert histories[0] == histories[1]


def test_only_time_that_passes_is_waited_for() -> None:
    """A loop below one that rests has no time while that rests; so nobody waits for its time to be over."""
    state = m.after(m.replied("tool_use", m.call("p"), m.call("t", "pure")), m.judged())
    state = _inside(state, "p", max_parallel_tools=2)
    calls = m.replied("tool_use", m.call("a"), m.call("b"), m.call("c"))
    state = m.go(state, ev.Requested(path=("p",)), evolve(calls, path=("p",)), ev.Judged(path=("p",)))
    state = _inside(state, "p", "a", limits=Limits(timeout=4.0))
    state = m.go(state, ev.Started("b", path=("p",)), ev.Ticked(seconds=1.0))
    assert time_left(state) == 3.0
    # `c` is judged once more, and now the policy asks: the loop inside of `p` rests, with the one inside of `a`.
    state = m.go(state, ev.Woken(), ev.Judged(), evolve(m.asks("c"), path=("p",)), ev.Started("t"))
    inside = loop_at(state, ("p", "a"))
    assert inside is not None
    assert time_left(state) is None
    after = loop_at(step(state, ev.Ticked(seconds=9.0)), ("p", "a"))
    assert after is not None
    assert after.ledger.active == inside.ledger.active


def _inside(state: Any, *path: str, **changes: Any) -> Any:
    """The state after a loop began inside the call at a path."""
    above = loop_at(state, path[:-1])
    assert isinstance(above, Running)
    within = (*above.ledger.setup.within, (above.round.iteration, path[-1], 1))
    setup = m.setup(within=within, depth=above.ledger.setup.depth + 1, **changes)
    return step(state, ev.Opened(setup, (m.user(),), path=path))


def test_what_two_budgets_hold_back_is_ended_by_the_one_that_can() -> None:
    """A tool waits for the budget of its own loop, a request beside it for that of a loop above: the latter ends."""
    used = {"input_tokens": 9, "output_tokens": 1}
    asked = m.replied("tool_use", m.call("p"), usage=used)
    state = m.after(asked, ev.Judged(), limits=Limits(budget=Budget(input_tokens=18)))
    state = _inside(state, "p", limits=Limits(budget=Budget(tool_calls=1)))
    asked = evolve(m.replied("tool_use", m.call("a"), m.call("b"), usage=used), path=("p",))
    state = m.go(state, ev.Requested(path=("p",)), asked, ev.Judged(path=("p",)))
    state = _inside(state, "p", "a")  # it is about to make a request, and `b` is the second tool of its loop
    assert outstanding(state) == (EndTurn(),)
    ended = step(state, ev.TurnEnded())
    assert isinstance(ended, Finished)
    assert ended.termination == BudgetExceeded("input_tokens", 18, 18)
