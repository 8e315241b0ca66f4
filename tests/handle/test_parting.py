"""A caller's history, parted: what is closed, what is open, and what makes no sense and is left for the check."""

from __future__ import annotations

from typing import Any

import pytest

from tests.handle.support import assistant, user
from tests.handle.walking import ADD, LOOK, result
from toolloop.core.jsontext import decode, encode
from toolloop.core.values import Outcome, Result
from toolloop.handle.parting import Parts, parted

ASKED = assistant([{"type": "text", "text": "so"}, ADD, LOOK])
WORDS = {"type": "text", "text": "and?"}


def parts(*messages: Any) -> Parts:
    return parted([encode(message) for message in messages])


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [user()],
        [user(), assistant("so")],
        [user(), assistant([WORDS])],
        [user(), ASKED, user([result("toolu_1"), result("toolu_2"), WORDS])],
        [user(), ASKED, user([result("toolu_1")]), user([result("toolu_2")])],
    ],
)
def test_a_history_without_open_calls_is_closed_as_it_is(messages: list[Any]) -> None:
    """To the byte."""
    assert parts(*messages) == Parts(tuple(map(encode, messages)))


def test_open_calls_come_with_what_is_answered_and_what_follows() -> None:
    """Of a message with results and words, the words follow; in order, whatever message they are in."""
    found = parts(user(), ASKED, user([result("toolu_2", None, is_error=True), WORDS]), user("x"))
    assert [decode(text) for text in found.closed] == [user()]
    assert found.reply == encode(ASKED)
    assert found.results == (("toolu_2", Result('""', is_error=True, outcome=Outcome.ANSWERED)),)
    assert [decode(text) for text in found.after] == [user([WORDS]), user("x")]


@pytest.mark.parametrize(
    "messages",
    [
        [ASKED, user([result("toolu_1"), result("toolu_1")])],
        [ASKED, user([result("another")])],
        [assistant([ADD, ADD])],
        [assistant([{"type": "tool_use", "id": 1, "name": "x", "input": {}}])],
        [assistant([{"type": "tool_use", "id": "a", "name": "x", "input": "y"}])],
        [assistant([{"type": "tool_use"}])],
        [assistant([1, ADD])],
        [assistant([{"text": "no type"}, ADD])],
        [assistant([{"type": 3}, ADD])],
        [{"role": "assistant"}],
        ["no message"],
        [assistant(["no block", 1])],
    ],
)
def test_what_makes_no_sense_is_left_as_it_is(messages: list[Any]) -> None:
    """So the check sees it, and says what is wrong with it."""
    assert parts(user(), *messages) == Parts(tuple(map(encode, [user(), *messages])))
