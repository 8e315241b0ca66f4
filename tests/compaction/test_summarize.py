"""`Summarize` on plain lists: its request, the messages that replace old rounds, and texts that are not a summary."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.compaction.long_loops import LONG, loop_of, places, round_of
from tests.messages.bodies import BY_CODE, HELLO, HI, NEXT, assistant, call, result, system, text, user
from toolloop import errors
from toolloop.compaction import SUMMARY_PROMPT, Summarize, SummaryFailed
from toolloop.compaction.segments import SUMMARY_START
from toolloop.compaction.summarize import Summary
from toolloop.compaction.tokens import outline_of
from toolloop.history import estimate_tokens
from toolloop.providers.scripted import AsyncScriptedProvider, ScriptedProvider
from toolloop.testing import FakeMessagesAPI, call as calls, reply

PARAMS: dict[str, Any] = {"model": "claude-opus-5-5", "max_tokens": 1000}
COMPACTED = {"type": "compaction", "content": "So far: little."}
SHORT = user(text(f"{SUMMARY_START}\n\nIt went well."))


def well(messages: list[Any]) -> str:
    return "It went well."


def left(messages: list[Any], keep: int, **settings: Any) -> list[int]:
    """Where the messages stood before; -1 for the summary."""
    after = Summarize(well, keep, **settings)(messages)
    assert [message for message in after if message in messages or message == SHORT] == after
    return places(after, messages)


def planned(messages: list[Any], keep: int) -> Summary:
    plan = Summarize(keep_last=keep).plan([outline_of(message) for message in messages])
    assert plan is not None
    return plan


def test_a_summary_takes_the_place_of_old_rounds() -> None:
    messages = loop_of(6)
    assert left(messages, 2) == [0, -1, 9, 10, 11, 12]
    assert Summarize(well, 2)(messages)[1] == SHORT


def test_a_plan_says_what_it_frees_and_what_stays_behind_it() -> None:
    """Both in tokens, the summary aside."""
    messages = loop_of(6)
    plan = planned(messages, 2)
    assert (plan.frees, plan.stays) == (estimate_tokens(messages[1:9]), estimate_tokens(messages[9:]))


def test_nothing_is_asked_where_nothing_is_to_be_summarized() -> None:
    """Not of a short history, not below the threshold, and not where there is but an earlier summary."""
    provider = ScriptedProvider([])
    assert Summarize(provider, 2, params=PARAMS)(loop_of(2)) == loop_of(2)
    assert Summarize(provider, 2, at_tokens=100_000, params=PARAMS)(loop_of(6)) == loop_of(6)
    once = Summarize(well, 2)(loop_of(6))
    assert Summarize(provider, 2, params=PARAMS)(once) == once
    assert provider.requests == []


def test_the_next_summary_takes_the_place_of_the_earlier_one() -> None:
    """The model also sees it: it is among the messages to summarize."""
    seen: list[Any] = []

    def tell(messages: list[Any]) -> str:
        seen.extend(messages)
        return "All went well."

    once = Summarize(well, 2)(loop_of(6))
    twice = Summarize(tell, 2)([*once, *round_of(7), *round_of(8)])
    assert SHORT in seen
    assert [message["content"][0].get("text") for message in twice[1:]].count(f"{SUMMARY_START}\n\nAll went well.") == 1
    assert SHORT not in twice
    assert len(twice) == len(once)


def test_a_summary_stands_behind_the_apis_own_compaction() -> None:
    """Whatever is before that does not count."""
    messages = [*loop_of(1), assistant(COMPACTED, text()), NEXT, *round_of(7), *round_of(8), *round_of(9)]
    assert left(messages, 1) == [0, 3, -1, 4, 9, 10]
    assert left([*loop_of(3), assistant(COMPACTED, text()), NEXT, *round_of(7)], 1) == [*range(11)]
    assert left([*loop_of(3), assistant(COMPACTED, text())], 1) == [*range(8)]


def test_a_summary_waits_for_the_models_turn_after_calls_that_code_made() -> None:
    """No words of the user may stand beside their results (rule 25), in the history and in the request."""
    by_code = [assistant(COMPACTED, call(**BY_CODE)), user(result())]
    messages = [HI, *by_code, *round_of(7), *round_of(8), *round_of(9)]
    assert left(messages, 1) == [0, 1, 2, 3, 4, -1, 7, 8]
    assert left(messages, 2) == [*range(9)]
    messages = [*loop_of(3), *round_of(8, **BY_CODE), *round_of(9)]
    assert left(messages, 1) == [0, -1, 7, 8, 9, 10]
    assert planned(messages, 1).prefix == 7
    assert left([HI, *round_of(8, **BY_CODE), *round_of(9)], 1) == [*range(5)]


def test_the_request_is_the_beginning_of_the_history_and_the_prompt() -> None:
    """So the prompt cache has it; what stays at its end is not in it."""
    provider = ScriptedProvider([reply("It went well.")])
    messages = [*loop_of(4), HELLO, NEXT, *round_of(8), *round_of(9)]
    after = Summarize(provider, 2, params=PARAMS)(messages)
    assert places(after, messages) == [0, -1, 10, 11, 12, 13, 14]
    assert provider.requests == [{**PARAMS, "messages": [*messages[:10], user(text(SUMMARY_PROMPT))]}]


def test_behind_a_system_message_the_prompt_is_one_too() -> None:
    """The API takes no user message there (rule 21)."""
    summary = planned([*loop_of(2), system(text()), *round_of(9)], 1)
    assert summary.request[-1].startswith('{"role":"system","content":[{"type":"text","text":"Summarize')


def test_a_client_of_the_sdk_writes_the_summary() -> None:
    tools = [{"name": "look", "input_schema": {"type": "object"}}]
    with FakeMessagesAPI([reply("It went well.", thinking="Hm.")]) as api:
        strategy = Summarize(api.client(), 1, params={**PARAMS, "tools": tools, "timeout": 30})
        assert strategy(loop_of(4))[:2] == [HI, SHORT]
        assert api.refused == []


def test_async_providers_and_functions_give_an_awaitable() -> None:
    async def later(messages: list[Any]) -> str:
        await asyncio.sleep(0)
        return "It went well."

    async def main() -> None:
        provider = AsyncScriptedProvider([reply("It went well.")])
        assert await Summarize(later, 1)(loop_of(4)) == await Summarize(provider, 1, params=PARAMS)(loop_of(4))
        assert (await Summarize(later, 1)(loop_of(4)))[:2] == [HI, SHORT]
        assert await Summarize(later, 4)(loop_of(4)) == loop_of(4)
        with FakeMessagesAPI([]) as api:
            async with api.async_client() as client:
                assert Summarize(client).awaits
            assert not Summarize(api.client()).awaits

    asyncio.run(main())


def test_a_text_that_is_not_a_summary_changes_nothing() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        (
            reply("It went", stop_reason="max_tokens"),
            "the summary is incomplete: the stop reason of the reply is max_tokens",
        ),
        (reply("No.", stop_reason="refusal"), "the stop reason of the reply is refusal"),
        (reply("So", calls=[calls("look")]), "the model made calls instead of a summary"),
        (reply(" \n"), "the summary is blank"),
        (reply(thinking="Hm."), "the summary is blank"),
        (reply(LONG * 6), "the summary saves nothing: the messages have about "),
    ]
    for answer, why in cases:
        messages = loop_of(6)
        with pytest.raises(SummaryFailed, match=why):
            Summarize(ScriptedProvider([answer]), 1, params=PARAMS)(messages)
        assert messages == loop_of(6)


def test_a_function_that_returns_no_text_gets_an_error() -> None:
    with pytest.raises(SummaryFailed, match="expected a str as the summary, got an int"):
        Summarize(len, 1)(loop_of(4))


def test_the_error_of_the_provider_comes_through() -> None:
    problem = errors.ModelError("overloaded", status=529, retryable=True)
    with pytest.raises(errors.ModelError) as caught:
        Summarize(ScriptedProvider([problem]), 1, params=PARAMS)(loop_of(4))
    assert caught.value is problem


def test_a_plain_list_needs_a_provider_and_its_parameters() -> None:
    """Both are said at once, whether there is something to do or not."""
    with pytest.raises(TypeError, match="provider: None means the loop's provider"):
        Summarize()([HI])
    with pytest.raises(ValueError, match="params has no model and no max_tokens"):
        Summarize(ScriptedProvider([]))([HI])
    with pytest.raises(ValueError, match="params has no max_tokens"):
        Summarize(ScriptedProvider([]), params={"model": "claude-opus-5-5"})([HI])


def test_the_configuration_chooses_the_writer_of_a_summary() -> None:
    """Its own provider, another, or a function; and whether to await it."""
    own, other = ScriptedProvider([]), AsyncScriptedProvider([])
    assert (Summarize().provider_for(is_async=False), Summarize().function, Summarize().awaits) == (None, None, False)
    assert (Summarize(own).provider_for(is_async=False), Summarize(own).function) == (own, None)
    assert (Summarize(other).provider_for(is_async=True), Summarize(other).awaits) == (other, True)
    assert (Summarize(well).provider_for(is_async=True), Summarize(well).function) == (None, well)
    with pytest.raises(TypeError, match=r"ScriptedProvider\.send is sync"):
        Summarize(own).provider_for(is_async=True)


def test_what_is_of_the_wrong_kind_is_refused() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"provider": "claude"}, "provider: expected a client of the anthropic SDK, a provider, a function"),
        ({"provider": ScriptedProvider}, "got the class ScriptedProvider"),
        ({"params": [1]}, "params: expected the keyword arguments"),
    ]
    for settings, said in cases:
        with pytest.raises(TypeError, match=said):
            Summarize(**settings)


def test_values_that_make_no_sense_are_refused() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"keep_last": 0}, "keep_last: expected an int of at least 1, got 0"),
        ({"at_tokens": -5}, "at_tokens: .* got -5"),
        ({"prompt": " "}, "prompt: expected a text that is not blank, got ' '"),
        ({"params": {"stream": True}}, "params has 'stream'"),
        ({"params": {"messages": []}}, "params has 'messages', but the strategy chooses them"),
    ]
    for settings, said in cases:
        with pytest.raises(ValueError, match=said):
            Summarize(**settings)
