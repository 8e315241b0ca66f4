"""`MaskResults`: which results are masked, and what stands there then."""

from __future__ import annotations

from typing import Any

import pytest

from tests.compaction.long_loops import LONG, loop_of, places, round_of
from tests.messages.bodies import BY_CODE, HELLO, HI, NEXT, PNG, assistant, call, result, text, user
from toolloop.compaction import MaskResults
from toolloop.compaction.tokens import outline
from toolloop.history import estimate_tokens
from toolloop.machine.values.jsontext import encode

COMPACTED = {"type": "compaction", "content": "So far: little."}
MASK = "[Left out to save room: the result of look, about 816 tokens.]"


def masked(messages: list[Any], *args: Any, **settings: Any) -> list[int]:
    """Which messages changed."""
    after = MaskResults(*args, **settings)(messages)
    assert len(after) == len(messages)
    return [number for number, (old, new) in enumerate(zip(messages, after, strict=True)) if old is not new]


def only_result(content: Any, **more: Any) -> Any:
    """A result after which two rounds follow is masked or kept, by the configuration."""
    messages = [HI, assistant(call()), user(result(content=content, **more)), *loop_of(2)[1:]]
    return MaskResults()(messages)[2]["content"][0]


def test_old_results_make_room_and_the_last_rounds_keep_theirs() -> None:
    messages = loop_of(5)
    assert masked(messages) == [2, 4, 6]
    assert masked(messages, 4) == [2]
    assert masked(messages, 5) == []
    assert estimate_tokens(MaskResults()(messages)) < 0.5 * estimate_tokens(messages)


def test_a_mask_says_what_stood_there() -> None:
    """The name of the tool, and the size."""
    assert only_result(LONG) == result(content=MASK)
    assert only_result([text(LONG), PNG])["content"].endswith("the result of look, about 2416 tokens.]")


def test_what_stands_beside_results_stays() -> None:
    """Also short results."""
    calls = assistant(call("a"), call("b"))
    beside = user(result("a", LONG), result("b", "seen"), text("Look."), PNG)
    after = MaskResults()([HI, calls, beside, *loop_of(2)[1:]])
    assert after[1] is calls
    assert after[2] == user(result("a", MASK), result("b", "seen"), text("Look."), PNG)


def test_the_calls_of_a_round_are_distinguished() -> None:
    calls = assistant(call("a"), call("b", name="listen"))
    after = MaskResults()([HI, calls, user(result("b", LONG)), user(result("a", LONG)), *loop_of(2)[1:]])
    assert "the result of listen," in after[2]["content"][0]["content"]
    assert "the result of look," in after[3]["content"][0]["content"]


def test_short_results_stay() -> None:
    messages = loop_of(3)
    assert masked(messages, 1, 816) == [2, 4]
    assert masked(messages, 1, 817) == []


def test_results_that_load_tools_stay() -> None:
    loads = [text(LONG), {"type": "tool_reference", "tool_name": "look"}]
    assert masked([HI, *round_of(1, content=loads), *loop_of(2)[1:]]) == []


def test_results_of_calls_that_code_made_are_masked_with_text() -> None:
    """They may hold nothing else (rule 25)."""
    messages = [HI, *round_of(1, content=[text(LONG)], **BY_CODE), HELLO, NEXT, *loop_of(2)[1:]]
    assert masked(messages) == [2]
    assert isinstance(MaskResults()(messages)[2]["content"][0]["content"], str)


def test_what_the_api_compacted_away_is_left_alone() -> None:
    """It does not count any more."""
    messages = [*loop_of(2), assistant(COMPACTED, text()), NEXT, *round_of(7), *round_of(8), *round_of(9)]
    assert masked(messages, 1) == [8, 10]
    assert masked([*loop_of(2), assistant(COMPACTED, text()), NEXT, *round_of(7)], 1) == []


def test_below_the_threshold_nothing_is_masked() -> None:
    assert masked(loop_of(5), at_tokens=10_000) == []
    assert masked(loop_of(5), at_tokens=4_000) == [2, 4, 6]


def test_the_plan_keeps_the_very_texts_of_what_stays() -> None:
    """So a loop does not store any of it again."""
    outlines = [outline(encode(message)) for message in loop_of(3)]
    edit = MaskResults().plan(outlines)
    assert edit is not None
    assert places(edit.texts, [each.text for each in outlines]) == [0, 1, -1, 3, 4, 5, 6]
    assert edit.after < edit.before


def test_values_that_make_no_sense_are_refused() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"keep_rounds": 0}, "keep_rounds: expected an int of at least 1, got 0"),
        ({"min_tokens": -1}, "min_tokens: expected an int of at least 0, got -1"),
        ({"min_tokens": 1.5}, "min_tokens: .* got 1.5"),
        ({"at_tokens": "many"}, "at_tokens: expected an int of at least 1, got 'many'"),
    ]
    for settings, said in cases:
        with pytest.raises(ValueError, match=said):
            MaskResults(**settings)
