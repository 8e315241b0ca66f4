"""`toolloop.history.check` against a second reading of the pairing rules, over random histories and the corpus."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import event, given, strategies as st

from tests.messages.bad_requests import BAD_REQUESTS, GOOD_REQUESTS, WARNED_REQUESTS
from tests.messages.bodies import NEXT
from tests.messages.histories import broken_histories, histories
from tests.testing.pairing import broken_rules
from toolloop.history import check, repair

Message = dict[str, Any]

NUMBERS = {
    "unanswered-call": 15,
    "results-first": 15,
    "orphan-result": 16,
    "repeated-result": 17,
    "duplicate-call": 18,
    "misplaced-block": 20,
    "open-server-call": 23,
    "code-results-only": 25,
}
#: A history that breaks one of these is not well-shaped, and the second reading does not apply.
SHAPE = {"message-shape", "block-shape", "block-fields", "unknown-role", "unknown-block", "result-content"}


def checked(messages: Any, *levels: str) -> set[int]:
    problems = check(messages)
    return {NUMBERS[problem.rule] for problem in problems if problem.level in levels and problem.rule in NUMBERS}


def damage(data: st.DataObject, history: list[Message]) -> None:
    index = data.draw(st.integers(0, len(history) - 1))
    message = history[index]
    blocks = message["content"] if isinstance(message["content"], list) else []
    place = data.draw(st.integers(0, max(len(blocks) - 1, 0)))
    match data.draw(st.sampled_from(["leave out", "repeat", "turn", "cut", "double"])):
        case "leave out":
            del history[index]
        case "repeat":
            history.insert(index, copy.deepcopy(data.draw(st.sampled_from(history))))
        case "turn" if message["role"] != "system":
            message["role"] = data.draw(st.sampled_from(["user", "assistant"]))
        case "cut" if blocks:
            del blocks[place]
        case "double" if blocks:
            blocks.insert(place, copy.deepcopy(data.draw(st.sampled_from(blocks))))


@given(histories() | broken_histories(), st.data())
def test_both_readings_find_the_same_rules_broken(history: list[Message], data: st.DataObject) -> None:
    history = copy.deepcopy(history)
    for _ in range(data.draw(st.integers(0, 3))):
        if history:
            damage(data, history)
    found = broken_rules(history)
    event(f"broken: {sorted(found)}")
    expected = checked(history, "error")
    if 20 in found:
        assert 20 in expected  # with blocks in the wrong messages, nobody can say what pairs
    else:
        assert found == expected


@given(broken_histories())
def test_a_repaired_history_breaks_no_pairing_rule(history: list[Message]) -> None:
    assert broken_rules(repair([*history, NEXT]).messages) == set()


CORPUS = {
    **{bad.name: bad.body for bad in BAD_REQUESTS},
    **dict(GOOD_REQUESTS),
    **{name: body for name, _, body in WARNED_REQUESTS},
}


def test_both_readings_agree_on_the_corpus() -> None:
    """`check` only warns where it is unknown what the API does."""
    for name, body in CORPUS.items():
        messages: Any = body.get("messages")
        if SHAPE.isdisjoint(problem.rule for problem in check(messages)):
            found = broken_rules(messages)
            assert checked(messages, "error") <= found <= checked(messages, "error", "warning"), name
