"""`DropRounds`: which rounds go, and what stays for whose sake."""

from __future__ import annotations

from typing import Any

import pytest

from tests.compaction.long_loops import loop_of, places, round_of, thoughtful
from tests.messages.bodies import HELLO, HI, NEXT, assistant, call, result, system, text, user
from toolloop.compaction import DropRounds
from toolloop.history import check

COMPACTED = {"type": "compaction", "content": "So far: little."}


def left(messages: list[Any], keep: int, **settings: Any) -> list[int]:
    return places(DropRounds(keep, **settings)(messages), messages)


def test_the_first_words_and_the_last_rounds_stay() -> None:
    assert left(loop_of(6), 2) == [0, 9, 10, 11, 12]


def test_a_history_of_no_more_rounds_stays_in_a_list_of_its_own() -> None:
    messages = loop_of(2)
    after = DropRounds(2)(messages)
    assert places(after, messages) == [0, 1, 2, 3, 4]
    assert after is not messages
    assert left([HI], 1) == [0]
    assert left([], 1) == []


def test_below_the_threshold_nothing_goes() -> None:
    """Seven rounds of the test's own have about 4,900 tokens."""
    assert len(left(loop_of(7), 2, at_tokens=10_000)) == 15
    assert len(left(loop_of(7), 2, at_tokens=4_000)) == 5


def test_the_question_of_the_last_rounds_stays() -> None:
    """Else the model would no longer know what it works on."""
    messages = [*loop_of(2), HELLO, NEXT, *round_of(7), *round_of(8), *round_of(9)]
    assert left(messages, 1) == [0, 6, 11, 12]


def test_later_words_of_the_user_stay_too() -> None:
    """Words beside results, with the round that they are in, and the question before them."""
    said = user(result("toolu_7"), text("Mind the gap."))
    messages = [*loop_of(1), HELLO, NEXT, assistant(call("toolu_7")), said, *round_of(8), *round_of(9)]
    assert left(messages, 1) == [0, 4, 5, 6, 9, 10]


def test_the_last_compaction_of_the_api_stays() -> None:
    messages = [*loop_of(1), assistant(COMPACTED, text()), NEXT, *round_of(7), HELLO, NEXT, *round_of(8), *round_of(9)]
    assert left(messages, 1) == [0, 3, 8, 11, 12]


def test_what_holds_for_all_that_follows_stays() -> None:
    """System messages that add or remove tools, or set the output: they alone, where they may stand alone."""
    cases: list[dict[str, Any]] = [
        system({"type": "tool_addition", "tool": {"type": "tool_reference", "tool_name": "look"}}),
        system({"type": "tool_removal", "tool": {"type": "tool_reference", "tool_name": "look"}}),
        system(output_config={"effort": "low"}),
    ]
    for lasting in cases:
        messages = [*loop_of(2), lasting, *round_of(7), *round_of(8)]
        assert left(messages, 1) == [0, 5, 8, 9]


def test_a_system_message_moves_behind_the_user_message_that_follows_it_now() -> None:
    """The API takes none before a user message."""
    messages = [HI, system(text()), HELLO, NEXT, HELLO, user(text()), HELLO]
    assert left(messages, 1) == [0, 5, 1, 6]


def test_a_turn_that_goes_on_begins_with_thinking_if_it_did() -> None:
    """With manual thinking the API may think only once in a turn, and asks for it (rule 27)."""
    messages = [HI, *thoughtful(1), *round_of(2), *round_of(3), *round_of(4)]
    assert left(messages, 1) == [0, 1, 2, 7, 8]
    messages = [HI, *thoughtful(1), *thoughtful(2), *round_of(3), *round_of(4)]
    assert left(messages, 1) == [0, 3, 4, 7, 8]
    messages = [HI, *thoughtful(1), *round_of(2), *round_of(3), *thoughtful(4)]
    assert left(messages, 1) == [0, 7, 8]
    assert left([*messages, HELLO], 1) == [0, 9]


def test_a_history_that_no_cut_leaves_valid_stays() -> None:
    """Here a broken one: the system message would have to move, and then something else is to be mended as well."""
    messages = [HI, user(text("")), system(text()), assistant(text()), NEXT, HELLO]
    assert [problem.rule for problem in check(messages)] == ["blank-text"]
    assert left(messages, 1) == [0, 1, 2, 3, 4, 5]
    del messages[1]
    assert left(messages, 1) == [0, 3, 1, 4]


def test_anything_else_is_refused() -> None:
    cases: list[Any] = ["words", b"bytes", 3, None, {"role": "user"}]
    for target in cases:
        with pytest.raises(TypeError, match="expected a list of messages"):
            DropRounds(1)(target)


def test_a_message_that_is_not_json_is_named() -> None:
    with pytest.raises(TypeError, match=r"messages\[1\] is an object"):
        DropRounds(1)([HI, object()])


def test_values_that_make_no_sense_are_refused() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"keep_last": 0}, "keep_last: expected an int of at least 1, got 0$"),
        ({"keep_last": None}, "keep_last: .* got None"),
        ({"keep_last": 2, "at_tokens": 0}, "at_tokens: expected an int of at least 1, got 0"),
    ]
    for settings, said in cases:
        with pytest.raises(ValueError, match=said):
            DropRounds(**settings)
