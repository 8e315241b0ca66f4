"""A history is cut between rounds only."""

from __future__ import annotations

from typing import Any

from hypothesis import given

from tests.history.bodies import HELLO, HI, NEXT, assistant, call, found, result, search, system, text, user
from tests.history.test_check import NEARLY
from toolloop.history import check, rounds
from toolloop.testing.strategies import histories


def sizes(messages: list[Any]) -> list[int]:
    return [len(part) for part in rounds(messages)]


def test_a_call_stays_with_its_results() -> None:
    """The results may be spread over several messages."""
    messages = [HI, assistant(call("a"), call("b")), user(result("a")), user(result("b")), HELLO, NEXT]
    assert sizes(messages) == [1, 3, 1, 1]


def test_a_call_stays_with_its_results_past_a_system_message() -> None:
    """Also where a misplaced system message parts them."""
    assert sizes([HI, assistant(call()), system(text()), user(result()), HELLO]) == [1, 3, 1]


def test_neighbours_of_one_role_stay_together() -> None:
    """So a paused reply stays with its resume."""
    assert sizes([HI, NEXT, assistant(text(), search()), assistant(found(), text()), NEXT]) == [2, 2, 1]


def test_system_messages_stay_with_what_they_follow() -> None:
    assert sizes([HI, system(text()), system(text()), HELLO, NEXT, system(text())]) == [3, 1, 2]


def test_a_server_call_in_flight_holds_all_up_to_its_result() -> None:
    """Its result may come in a later reply."""
    in_flight = [assistant(search(), call()), user(result()), assistant(call("b")), user(result("b"))]
    assert sizes([HI, *in_flight, assistant(found(), text()), NEXT, HELLO]) == [1, 5, 1, 1]


def test_a_server_call_without_result_holds_its_open_turn() -> None:
    """Until the history ends, or a user turn closes it."""
    in_flight = [assistant(search(), call()), user(result()), assistant(call("b"))]
    assert sizes([HI, *in_flight, user(result("b"))]) == [1, 4]
    assert sizes([HI, *in_flight, user(result("b"), text()), HELLO]) == [1, 4, 1]
    assert sizes([HI, assistant(search(), text()), NEXT]) == [1, 1, 1]


def test_what_is_no_message_stays_with_what_is_before_it() -> None:
    assert sizes([3, None, HI]) == [2, 1]
    assert sizes([]) == []


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
