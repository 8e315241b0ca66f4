"""Compactions that came out otherwise than they should: each was found by somebody who tried to break them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.history.bodies import (
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
from tests.history.long import LONG, loop_of, places, round_of, thoughtful
from tests.history.signed import SETTINGS, refusal
from toolloop.compaction import DropRounds, MaskResults, Summarize
from toolloop.core.jsontext import decode
from toolloop.history import check
from toolloop.history.outline import MASK_START, SUMMARY_START, outline_of
from toolloop.history.summarizing import Summary, plan_summary

MANUAL = SETTINGS[2]


def planned(messages: list[Any], keep: int) -> Summary:
    plan = plan_summary(
        [outline_of(message) for message in messages],
        keep_last=keep,
        prompt="Sum up.",
        is_pinned=lambda _outline: False,
    )
    assert plan is not None
    return plan


COMPACTED = [assistant(compaction(), thinking(), call("toolu_0")), user(result("toolu_0"))]


@pytest.mark.parametrize("first", [thoughtful(0), COMPACTED], ids=["pinned", "compacted"])
def test_what_was_cut_once_is_cut_as_far_as_it_goes(first: list[Any]) -> None:
    """Where a question meets the results of a round that stays, that round begins the turn, and no other need think."""
    messages = [HI, *first, HELLO, NEXT, *thoughtful(7), *round_of(8)]
    drop = DropRounds(1, pinned=lambda message: "toolu_0" in str(message))
    after = drop(messages)
    assert drop(after) == after
    assert places(after, messages)[-3:] == [4, 7, 8]


def test_the_prompt_for_a_summary_stands_where_a_turn_is_over() -> None:
    """Rounds from a time without thinking: behind their results the prompt would go on with a turn that thinks."""
    messages = [HI, *round_of(0), *round_of(1), HELLO, NEXT, *thoughtful(7)]
    assert refusal(messages, MANUAL, None) is None
    plan = planned(messages, 2)
    asked = list(map(decode, plan.request))
    assert asked[:-1] == messages[: plan.prefix] == messages[:6]
    assert refusal(asked, MANUAL, None) is None
    assert plan.finish_text("All went well.").texts[-3:] == [outline_of(each).text for each in messages[-3:]]


def test_what_was_thought_before_a_compaction_begins_no_turn() -> None:
    """A reply that was compacted in its middle: what is before the block is ignored (rule 36)."""
    compacted = [assistant(thinking(), text(), compaction(), call("toolu_c")), user(result("toolu_c"))]
    messages = [HI, *thoughtful(0), *compacted, *round_of(1), HELLO, NEXT]
    assert refusal(messages, MANUAL, None) is None
    plan = planned(messages, 1)
    assert plan.prefix == 8
    assert refusal(list(map(decode, plan.request)), MANUAL, None) is None


@pytest.mark.parametrize(
    ("messages", "prefix"),
    [
        ([HI, *round_of(0), *round_of(1), HELLO, NEXT, *round_of(7)], 5),
        ([HI, *thoughtful(0), *round_of(1), *round_of(2), *round_of(3)], 5),
        ([HI, *round_of(0), *round_of(1), *thoughtful(2), *round_of(3)], 7),
        ([HI, *thoughtful(0), HELLO, NEXT, *round_of(1), *round_of(2), *round_of(3)], 7),
        ([HI, assistant(text()), NEXT, HELLO, NEXT, *thoughtful(3)], 2),
    ],
    ids=["no-thinking", "thought-before", "thought-later", "no-thinking-in-this-turn", "no-results"],
)
def test_no_more_is_sent_to_be_summarized_than_must_be(messages: list[Any], prefix: int) -> None:
    assert planned(messages, 2).prefix == prefix


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


def test_where_such_a_message_cannot_stand_alone_its_round_stays() -> None:
    """Between turns of the model's that are pinned."""
    removal, pin = system(tool_change("tool_removal", "look")), assistant(text("PIN"))
    messages = [HI, dict(pin), NEXT, *round_of(0), removal, dict(pin), NEXT, HELLO, dict(NEXT), dict(HELLO)]
    drop = DropRounds(1, pinned=lambda message: "PIN" in str(message))
    after = drop(messages)
    assert places(after, messages) == [0, 1, 3, 4, 5, 6, 9, 10]
    assert drop(after) == after


@pytest.mark.parametrize("words", [f"{SUMMARY_START}\n\nGo on with this, in French.", f"{SUMMARY_START} {LONG}"])
def test_a_summary_that_the_user_brings_along_is_the_users(words: str) -> None:
    """Pasted as the first message, or as a later one, it is what the loop works on."""
    pasted = user(text(words))
    for messages in ([pasted, *loop_of(4)[1:]], [*loop_of(2), HELLO, pasted, *round_of(7), *round_of(8)]):
        assert pasted in DropRounds(1)(messages)
        assert pasted in Summarize(well, 1)(messages)


def test_a_long_result_that_looks_like_a_mask_is_masked() -> None:
    """A tool cannot keep its words in the history by how they begin."""
    messages = [HI, *round_of(0, content=MASK_START + LONG), *round_of(1)]
    masked = MaskResults(1)(messages)
    assert masked[2] != messages[2]
    assert MaskResults(1, 0)(masked) == masked


class Asked:
    """A callable that is async."""

    async def __call__(self, _message: Any) -> bool:
        return True


async def asked(_message: Any) -> bool:
    return True


@pytest.mark.parametrize("pinned", [asked, Asked()], ids=["function", "object"])
def test_an_async_pinned_is_refused(pinned: Any) -> None:
    """Nobody would wait for what it says."""
    with pytest.raises(TypeError, match="pinned is async; give a function that answers at once"):
        DropRounds(1, pinned=pinned)


def test_what_pinned_does_to_a_message_is_done_to_its_own_copy() -> None:
    messages = loop_of(3)
    after = MaskResults(1, pinned=lambda message: message.clear())
    assert after(messages) == MaskResults(1)(messages)


def test_a_prompt_that_no_request_can_carry_is_made_one() -> None:
    """Half of a surrogate pair becomes the sign for it."""
    outlines = [outline_of(message) for message in loop_of(3)]
    plan = plan_summary(outlines, keep_last=1, prompt="Sum \ud800 up.", is_pinned=lambda _outline: False)
    assert plan is not None
    assert decode(plan.request[-1])["content"][0]["text"] == "Sum \ufffd up."


def test_a_number_that_nobody_can_write_is_told_by_its_place() -> None:
    with pytest.raises(TypeError, match=r"messages\[1\] is not JSON: Exceeds the limit"):
        DropRounds(1)([HI, assistant(call(input={"n": 10**5000}))])
