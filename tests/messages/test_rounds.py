"""A history is cut between rounds only."""

from __future__ import annotations

from typing import Any

from hypothesis import given

from tests.messages.bodies import HELLO, HI, NEXT, assistant, call, make_found, result, search, system, text, user
from tests.messages.histories import histories
from tests.messages.test_check import NEARLY
from toolloop.history import check, rounds

IN_FLIGHT = [assistant(search(), call()), user(result()), assistant(call("b"))]

#: What stays together, the messages, and how many of them each round has.
ROUNDS: list[tuple[str, list[Any], list[int]]] = [
    (
        "a call and its results, over several messages",
        [HI, assistant(call("a"), call("b")), user(result("a")), user(result("b")), HELLO, NEXT],
        [1, 3, 1, 1],
    ),
    ("also past a system message", [HI, assistant(call()), system(text()), user(result()), HELLO], [1, 3, 1]),
    (
        "a pause and its resume",
        [HI, NEXT, assistant(text(), search()), assistant(make_found(), text()), NEXT],
        [2, 2, 1],
    ),
    (
        "a system message and what it follows",
        [HI, system(text()), system(text()), HELLO, NEXT, system(text())],
        [3, 1, 2],
    ),
    (
        "a server call and its result, of a later reply",
        [HI, *IN_FLIGHT, user(result("b")), assistant(make_found(), text()), NEXT, HELLO],
        [1, 5, 1, 1],
    ),
    ("a server call and its open turn", [HI, *IN_FLIGHT, user(result("b"))], [1, 4]),
    ("until a user turn closes it", [HI, *IN_FLIGHT, user(result("b"), text()), HELLO], [1, 4, 1]),
    ("or has closed it", [HI, assistant(search(), text()), NEXT], [1, 1, 1]),
    ("an item that is not a message, and the items before it", [3, None, HI], [2, 1]),
    ("nothing", [], []),
]


def test_a_round_is_what_stays_together() -> None:
    for name, messages, sizes in ROUNDS:
        assert [len(part) for part in rounds(messages)] == sizes, name


@given(NEARLY)
def test_parts_put_together_are_the_messages(messages: list[Any]) -> None:
    """Nothing is lost, added or moved, whatever the messages are."""
    parts = rounds(messages)
    assert all(parts)
    assert [id(message) for message in messages] == [id(message) for part in parts for message in part]


@given(histories())
def test_every_cut_leaves_two_valid_histories(messages: list[Any]) -> None:
    """No cut falls inside a round: what is before and what is after are each valid, but that both begin anywhere."""
    parts = rounds(messages)
    for cut in range(1, len(parts)):
        before = [message for part in parts[:cut] for message in part]
        after = [message for part in parts[cut:] for message in part]
        assert check(before) == []
        assert {"assistant-first"} >= {problem.rule for problem in check(after)}
