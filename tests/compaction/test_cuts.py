"""Where a cut falls: what stays beside the last rounds, and what the request for a summary holds."""

from __future__ import annotations

from typing import Any

from tests.compaction.long_loops import places, round_of, thoughtful
from tests.messages.bodies import (
    HELLO,
    HI,
    NEXT,
    assistant,
    call,
    compaction,
    result,
    system,
    text,
    thinking,
    tool_change,
    user,
)
from toolloop.compaction import DropRounds, Summarize
from toolloop.history import check

COMPACTED = [assistant(compaction(), thinking(), call("toolu_0")), user(result("toolu_0"))]


def test_a_second_cut_changes_nothing() -> None:
    """Where a question meets the results of a round that stays, that round begins the turn, and no other must think."""
    messages = [HI, *COMPACTED, HELLO, NEXT, *thoughtful(7), *round_of(8)]
    drop = DropRounds(1)
    after = drop(messages)
    assert drop(after) == after
    assert places(after, messages)[-3:] == [4, 7, 8]


def well(_messages: list[Any]) -> str:
    return "It went well."


def said_in_each(*more: Any) -> list[Any]:
    """A loop in which each round of ten is followed by something more."""
    return [HI, *(message for number in range(10) for message in (*round_of(number), *map(dict, more)))]


def test_words_beside_results_do_not_hold_every_round() -> None:
    """A warning or a reminder after each round: the last one before the rounds that stay is enough."""
    messages = said_in_each(user(text("You repeat yourself.")))
    kept = [0, *range(messages.index(round_of(7)[0]), len(messages))]
    assert places(DropRounds(2)(messages), messages) == kept
    assert places(Summarize(well, 2)(messages), messages) == [0, -1, *kept[1:]]


def test_a_setting_in_each_round_holds_none_of_them() -> None:
    """Of those that set the output the last stays, and no round with it."""
    low, high = system(output_config={"effort": "low"}), system(output_config={"effort": "high"})
    messages = [*said_in_each(low)[:-4], high, *round_of(9), low]
    after = DropRounds(1)(messages)
    assert places(after, messages) == [0, *range(len(messages) - 4, len(messages))]
    assert after[1] == high
    assert DropRounds(1)(after) == after
    assert Summarize(well, 1)(messages)[2:] == after[1:]


def test_tools_that_come_and_go_hold_no_rounds() -> None:
    """Each change stays, in its order, behind what the user said first, or behind the summary."""
    changes = [system(tool_change(kind, "look")) for kind in ("tool_removal", "tool_addition")]
    messages = [HI, *round_of(0), changes[0], *round_of(1), changes[1], *round_of(2), *round_of(3)]
    assert places(DropRounds(1)(messages), messages) == [0, 3, 6, 9, 10]
    assert places(Summarize(well, 1)(messages), messages) == [0, -1, 3, 6, 9, 10]
    assert check(Summarize(well, 1)(messages)) == []
