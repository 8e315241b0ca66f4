"""What every strategy keeps to, whatever the history."""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import takewhile
from typing import Any

from hypothesis import assume, event, given, reject, strategies as st

from tests.compaction.signed_histories import SETTINGS, bare_from, larger, long_histories, refusal, requests
from tests.kit.each import each
from tests.kit.effort import examples
from tests.messages.histories import broken_histories, histories
from tests.messages.test_check import NEARLY
from toolloop.compaction import DropRounds, MaskResults, Summarize, SummaryFailed
from toolloop.compaction.segments import SUMMARY_START
from toolloop.compaction.strategy import live_tokens
from toolloop.compaction.tokens import outline_of
from toolloop.history import check, estimate_tokens, rounds
from toolloop.machine.values.jsontext import decode, to_plain

Compact = Callable[[list[Any]], list[Any]]
EXAMPLES = examples(8)


def short(messages: list[Any]) -> str:
    return "short"


#: By the number of rounds that stay.
MAKERS: dict[str, Callable[[int], Compact]] = {
    "mask": lambda keep: MaskResults(keep, 50),
    "drop": DropRounds,
    "summarize": lambda keep: Summarize(short, keep),
}
EACH = each("name", MAKERS)
CUTTING = each("name", ["drop", "summarize"])


def made(name: str, keep: int) -> Compact:
    """The strategy as a function. Where a summary would not shorten a history, the history stays."""
    strategy = MAKERS[name](keep)

    def compact(messages: list[Any]) -> list[Any]:
        try:
            after = strategy(messages)
        except SummaryFailed:
            after = list(messages)
        event("changed" if after != messages else "as before")
        return after

    return compact


def is_summary(message: Any) -> bool:
    return isinstance(message["content"], list) and str(message["content"][0].get("text")).startswith(SUMMARY_START)


def has_words(message: Any) -> bool:
    """Whether the user says something in it, beside results."""
    content = message["content"]
    return message["role"] == "user" and (
        isinstance(content, str) or any(block["type"] != "tool_result" for block in content)
    )


@EACH
@EXAMPLES
@given(requests(), st.integers(1, 3))
def test_the_api_takes_what_it_took_before(name: str, request: tuple[list[Any], dict[str, Any]], keep: int) -> None:
    """What is sent is never larger, and a second time there is nothing to do. What was given does not change.

    Left out is only thinking behind the first change, and that for models that bind it, as a loop does.
    """
    messages, parameters = request
    assume(refusal(messages, parameters) is None)
    before = copy.deepcopy(messages)
    compact = made(name, keep)
    after = compact(messages)
    same = sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], zip(messages, after, strict=False)))
    sent = bare_from(after, same) if parameters["model"] == "claude-opus-5-5" else after
    assert refusal(sent, parameters) is None
    assert messages == before
    assert estimate_tokens(after) <= estimate_tokens(messages)
    assert compact(after) == after


@CUTTING
@EXAMPLES
@given(long_histories(), st.integers(1, 3))
def test_a_cut_keeps_rounds_whole_and_what_it_promises(name: str, messages: list[Any], keep: int) -> None:
    """Of each round all or nothing; the user's first words and last; the last rounds."""
    after = made(name, keep)(messages)
    left = set(map(id, after))
    parts = rounds(messages)
    assert all(len(left & set(map(id, part))) in (0, len(part)) for part in parts)
    speaking = [part for part in parts if any(message["role"] == "assistant" for message in part)]
    words = [message for message in messages if has_words(message)]
    promised = [*words[:1], *words[-1:], *(message for part in speaking[-keep:] for message in part)]
    assert {id(message) for message in promised} <= left
    fresh = [message for message in after if id(message) not in set(map(id, messages))]
    assert all(map(is_summary, fresh))
    assert len(fresh) <= (name == "summarize")


@EXAMPLES
@given(requests(SETTINGS[:2]), st.integers(1, 2))
def test_the_api_takes_the_request_for_a_summary(request: tuple[list[Any], dict[str, Any]], keep: int) -> None:
    """It is the beginning of the history as it was sent, and the prompt; signed thinking stands where it was born."""
    messages, parameters = request
    assume(refusal(messages, parameters) is None)
    summary = Summarize(short, keep, prompt="What was that?").plan([outline_of(message) for message in messages])
    event("nothing to do" if summary is None else "a request")
    if summary is None:
        return
    asked = [decode(text) for text in summary.request]
    assert asked[:-1] == messages[: summary.prefix]
    assert asked[-1]["content"] == [{"type": "text", "text": "What was that?"}]
    assert refusal(asked, parameters) is None


@EXAMPLES
@given(long_histories(), st.integers(1, 3))
def test_masking_changes_nothing_but_the_contents_of_old_results(messages: list[Any], keep: int) -> None:
    """Each message that changed has no fewer blocks, and only results differ, in nothing but their content."""
    after = made("mask", keep)(messages)
    parts = rounds(messages)
    speaking = [part for part in parts if any(message["role"] == "assistant" for message in part)]
    stays = {id(message) for part in speaking[-keep:] for message in part}
    for old, new in zip(messages, after, strict=True):
        if old is new:
            continue
        assert id(old) not in stays
        for before, now in zip(old["content"], new["content"], strict=True):
            assert before == now or before | {"content": now["content"]} == now
            assert before == now or now["content"].startswith("[Left out to save room: the result of look, about ")


@examples(40)
@given(long_histories() | histories(), st.sampled_from([0, 30, 500]), st.booleans())
def test_every_plan_leaves_at_least_so_many_tokens(
    messages: list[Any],
    min_tokens: int,
    again: bool,
) -> None:
    """Also of a history that was masked before."""
    mask = MaskResults(1, min_tokens)
    outlines = [outline_of(message) for message in (mask(messages) if again else messages)]
    strategies: list[DropRounds | MaskResults] = [mask, DropRounds(1)]
    for strategy in strategies:
        plan = strategy.plan(outlines)
        left = live_tokens(outlines) if plan is None else plan.after
        event(f"{type(strategy).__name__}: {plan is None}")
        assert strategy.least(outlines) <= left


@EACH
@EXAMPLES
@given(st.lists(histories(), min_size=2, max_size=4), st.integers(1, 2))
def test_a_history_that_goes_on_is_compacted_again(name: str, turns: list[list[Any]], keep: int) -> None:
    """After each compaction the history is valid, and has one summary at most."""
    compact = made(name, keep)
    messages: list[Any] = []
    for turn in turns:
        went_on = [*messages, {"role": "user", "content": "Go on"}, *map(larger, turn)]
        if refusal([*went_on, {"role": "user", "content": "?"}], SETTINGS[1], None):
            continue
        messages = compact(went_on)
        assert not refusal([*messages, {"role": "user", "content": "?"}], SETTINGS[1], None)
        assert sum(map(is_summary, messages)) <= 1
        assert compact(messages) == messages


@EACH
@EXAMPLES
@given(broken_histories(), st.integers(1, 3))
def test_a_compaction_adds_no_error(name: str, messages: list[Any], keep: int) -> None:
    """A broken history comes out no worse, and as it was where no cut is sound."""
    messages = list(map(larger, messages))
    before, after = ([p.rule for p in check(each)] for each in (messages, made(name, keep)(messages)))
    errors = [rule for rule in after if rule != "assistant-first"]
    assert all(errors.count(rule) <= before.count(rule) for rule in set(errors))


@EACH
@EXAMPLES
@given(NEARLY)
def test_no_list_of_json_values_makes_a_strategy_fail(name: str, messages: list[Any]) -> None:
    """Whatever the messages are."""
    try:
        to_plain(messages)
    except TypeError:  # a number that no JSON has
        reject()
    assert estimate_tokens(made(name, 1)(messages)) <= estimate_tokens(messages)


@given(histories() | broken_histories())
def test_the_tokens_of_outlines_are_those_of_their_messages(messages: list[Any]) -> None:
    assert live_tokens([outline_of(message) for message in messages]) == estimate_tokens(messages)
