"""An edit as what changed: it gives the new list, holds nothing that stayed, and is found in linear work."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, strategies as st

from tests.kit.machine import making as m
from toolloop.errors import IllegalCommand
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import State
from toolloop.machine.tree import step
from toolloop.machine.values.splicing import Splice, apply_splices, find_splices

few = st.lists(st.sampled_from("abcd"), max_size=12)  # so that they repeat
many = st.lists(st.text(max_size=2), max_size=12)
lists = st.one_of(few, many)


@given(lists, lists)
def test_the_splices_between_two_lists_make_the_one_of_the_other(old: list[str], new: list[str]) -> None:
    """Whatever is in them, and however often; and they are in order and apart from each other."""
    splices = find_splices(old, new)
    assert apply_splices(old, splices) == new
    assert splices == () if old == new else splices
    for one, other in pairwise(splices):
        assert one.stop < other.start
    for splice in splices:
        assert splice.start < splice.stop or splice.messages
        assert list(splice.messages) != old[splice.start : splice.stop]


@given(many.map(lambda items: list(dict.fromkeys(items))), st.data())
def test_an_edit_of_different_messages_holds_what_is_new_and_nothing_else(old: list[str], data: st.DataObject) -> None:
    """Some go, some change, some come: what stays in its order is in no splice."""
    new: list[str] = []
    fresh = 0
    for text in old:
        what = data.draw(st.sampled_from(("stays", "stays", "goes", "changes", "one comes before")))
        if what in ("changes", "one comes before"):
            fresh += 1
            new.append(f"fresh {fresh}")
        if what in ("stays", "one comes before"):
            new.append(text)
    splices = find_splices(old, new)
    assert apply_splices(old, splices) == new
    assert [text for splice in splices for text in splice.messages] == [t for t in new if t.startswith("fresh")]
    gone = {text for splice in splices for text in old[splice.start : splice.stop]}
    assert gone == set(old) - set(new)


@pytest.mark.parametrize(
    ("old", "new", "splices"),
    [
        ("abc", "abc", []),
        ("", "", []),
        ("", "ab", [Splice(0, 0, ("a", "b"))]),
        ("ab", "", [Splice(0, 2)]),
        ("abcde", "cde", [Splice(0, 2)]),
        ("abcde", "ade", [Splice(1, 3)]),
        ("abcde", "xcde", [Splice(0, 2, ("x",))]),
        ("abcde", "abcdex", [Splice(5, 5, ("x",))]),
        ("aaaa", "aa", [Splice(2, 4)]),
        ("axbxc", "dxbxe", [Splice(0, 1, ("d",)), Splice(4, 5, ("e",))]),  # also what repeats, beside what does not
        ("ab", "ba", [Splice(0, 0, ("b",)), Splice(1, 2)]),
    ],
)
def test_what_changed_is_said_briefly(old: str, new: str, splices: list[Splice]) -> None:
    """A prefix that goes, a round in the middle, a summary in their place, a message at the end."""
    assert find_splices(list(old), list(new)) == tuple(splices)


class Counting(str):
    """A text that counts how often it is looked at."""

    __slots__ = ()
    looks = 0

    def __eq__(self, other: object) -> bool:
        Counting.looks += 1
        return str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        Counting.looks += 1
        return str.__ne__(self, other)

    def __hash__(self) -> int:
        Counting.looks += 1
        return str.__hash__(self)


def _edits(length: int) -> dict[str, list[str]]:
    rng = random.Random(1)
    texts = [f"message {n}" for n in range(length)]
    shuffled = rng.sample(texts, length)
    return {
        "dropped": texts[length // 2 :],
        "masked": [text if n % 2 else f"masked {n}" for n, text in enumerate(texts)],
        "shuffled": shuffled,
        "reversed": texts[::-1],
        "all new": [f"new {n}" for n in range(length)],
        "all alike": ["same"] * length,
    }


def looks(old: list[str], new: list[str]) -> int:
    ones, others = [Counting(text) for text in old], [Counting(text) for text in new]
    Counting.looks = 0
    splices = find_splices(ones, others)
    counted = Counting.looks
    assert apply_splices(ones, splices) == others
    return counted


@pytest.mark.parametrize("edit", _edits(1))
@pytest.mark.parametrize("repeats", [False, True])
def test_the_work_is_linear_in_the_messages(edit: str, repeats: bool) -> None:
    """Ten times the messages: ten times the looks at them, not a hundred times; and few at each."""

    def work(length: int) -> int:
        old = ["same", *(f"message {n // 2 if repeats else n}" for n in range(length)), "same"]
        return looks(old, _edits(length)[edit])

    assert work(2000) <= 12 * work(200)
    assert work(2000) <= 15 * 2000


BAD: list[tuple[Splice, ...]] = [
    (Splice(0, 4),),
    (Splice(4, 4, ("x",)),),
    (Splice(-1, 0),),
    (Splice(2, 1),),
    (Splice(1, 2), Splice(0, 1)),
    (Splice(0, 2), Splice(1, 3)),
]


@pytest.mark.parametrize("splices", BAD)
def test_splices_that_do_not_fit_are_refused(splices: tuple[Splice, ...]) -> None:
    """Out of the list, back to front, or one over the other."""
    with pytest.raises(IllegalCommand, match="does not fit a history of 3"):
        apply_splices(["a", "b", "c"], splices)


@pytest.mark.parametrize("splices", BAD)
@pytest.mark.parametrize("make", [ev.HistoryEdited, lambda s: ev.HistoryEdited(s, "x"), ev.HistoryTaken])
def test_an_edit_that_does_not_fit_leaves_the_same_state(splices: tuple[Splice, ...], make: Any) -> None:
    """The machine refuses it as any mistake of the caller's."""
    ready = m.state_after()
    messages = ready.root.messages.extend((m.user(), m.user()))
    state = State({(): ready.root._replace(messages=messages)})
    before = evolve(state)
    with pytest.raises(IllegalCommand):
        step(state, make(splices))
    assert state == before
