"""A sequence that only grows, and whose older versions stay as they were."""

from __future__ import annotations

import pickle
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, strategies as st

from toolloop.machine.values.chain import Chain

numbers = st.lists(st.integers(), max_size=5)


@given(st.lists(st.tuples(st.integers(0, 20), numbers), max_size=12))
def test_every_version_stays_what_it_was(growth: list[tuple[int, list[int]]]) -> None:
    """Whatever version grows, and in whatever order, each is the list it was made as."""
    versions: list[tuple[Chain[int], list[int]]] = [(Chain(), [])]
    for which, more in growth:
        chain, told = versions[which % len(versions)]
        versions.append((chain.extend(more), told + more))
    for chain, told in versions:
        assert list(chain) == told
        assert len(chain) == len(told)
        assert chain == Chain(told)


@given(numbers, numbers, st.integers(-7, 7), st.slices(8))
def test_it_reads_like_a_tuple(items: list[int], more: list[int], index: int, cut: slice) -> None:
    """Indices and slices mean what they mean for a tuple of its length, though a sibling has grown past it."""
    chain = Chain(items)
    chain.extend(more)
    assert chain[cut] == items[cut]
    if -len(items) <= index < len(items):
        assert chain[index] == items[index]
    else:
        with pytest.raises(IndexError):
            chain[index]


def test_siblings_do_not_see_each_other() -> None:
    """Two continuations of one version are two lists."""
    trunk = Chain([1])
    left, right = trunk.append(2), trunk.append(3)
    assert (list(trunk), list(left), list(right)) == ([1], [1, 2], [1, 3])


def test_the_usual_append_copies_nothing() -> None:
    """Appending to the newest version shares its list; appending nothing returns the same chain."""
    chain = Chain([1])
    longer = chain.append(2)
    assert longer._items is chain._items
    assert chain.extend(()) is chain


def test_a_chain_tells_what_it_has_beyond_an_older_version() -> None:
    """Without a look at the rest; one that grew elsewhere, or was made again, tells nothing."""
    chain = Chain([1])
    longer = chain.extend([2, 3])
    assert longer.since(chain) == [2, 3]
    assert longer.since(longer) == []
    assert chain.since(longer) is None
    assert chain.append(4).since(longer) is None
    assert Chain([1, 2, 3]).since(chain) is None


def test_it_is_equal_by_content_pickles_and_is_not_hashable() -> None:
    """Equal to a chain of equal items alone; too long to be hashed, or to be shown."""
    chain = Chain([1, 2])
    assert pickle.loads(pickle.dumps(chain.append(3))) == Chain([1, 2, 3])
    assert chain != [1, 2]
    assert chain != Chain([1])
    assert repr(chain) == "Chain(2 items)"
    with pytest.raises(TypeError):
        hash(chain)


def test_versions_of_one_history_are_compared_by_their_length() -> None:
    """Without a look at their items, of which there may be many."""

    class Item:
        def __eq__(self, other: object) -> bool:
            raise AssertionError("an item was compared")

        __hash__ = object.__hash__

    older = Chain([Item()])
    newer = older.append(Item())
    assert older != newer
    assert newer != older
    assert older != [1]
    assert Chain([1]) == Chain([1])


def test_threads_that_continue_one_version_do_not_see_each_other() -> None:
    """Only one of them extends its list, though none waits for the others."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            for _ in range(100):
                trunk, gate = Chain([0]), threading.Barrier(4)
                longer = [
                    *pool.map(lambda item, trunk=trunk, gate=gate: (gate.wait(), trunk.append(item))[1], range(4))
                ]
                assert [list(each) for each in longer] == [[0, item] for item in range(4)]
    finally:
        sys.setswitchinterval(interval)
