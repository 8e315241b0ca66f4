"""What recorded traffic used: read by hand from the recordings, and what a loop says of it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.recordings import Exchange, load, names, needs_recordings
from tests.conformance.replaying import (
    KINDS,
    Kind,
    answer_of,
    finish,
    handle_for,
    params_of,
    replay,
    reply_of,
    serving,
    with_own_tools,
)
from toolloop import Completed, Usage
from toolloop.core.jsontext import decode
from toolloop.core.replies import read_reply
from toolloop.providers.calls import MOST_UNSTREAMED

pytestmark = needs_recordings

# Input and output of each answered request, in order. Nothing in these recordings was cached or thought.
COUNTS = {
    "bad_effort_400": [],
    "code_execution_tool_stream": [(4714, 304)],
    "multiple_parallel_tool_calls": [(423, 202), (771, 77)],
    "pause_turn_web_search": [(401468, 792), (494549, 1245)],
    "redacted_thinking": [(92, 196), (168, 232)],
    "sdk_400_orphan_result": [(659, 74)],
    "sdk_basic_call": [(656, 74), (770, 25)],
    "sdk_streamed_call": [(656, 74), (770, 27)],
    "sdk_tool_raises": [(656, 74), (760, 63)],
    "sdk_web_search_only": [(11306, 163)],
    "tool_with_thinking": [(398, 155), (566, 126)],
    "two_rounds_fable_5": [(594, 50), (797, 57), (868, 11)],
    "web_search_tool_stream": [(31772, 644)],
}
SEARCHES = {"pause_turn_web_search": [10, 5], "sdk_web_search_only": [1], "web_search_tool_stream": [2]}
# The server's tools took part, so nobody can say how long the context was.
BY_SERVER = {*SEARCHES, "code_execution_tool_stream"}
DRIVEN = [
    *("sdk_basic_call", "sdk_tool_raises", "sdk_streamed_call", "sdk_web_search_only"),
    *("multiple_parallel_tool_calls", "tool_with_thinking", "web_search_tool_stream", "code_execution_tool_stream"),
]


def usages(name: str) -> list[Usage]:
    """What each request of a recording used."""
    counts = COUNTS[name]
    searches = SEARCHES.get(name, [0] * len(counts))
    return [
        Usage(input_tokens=sent, output_tokens=said, web_search_requests=searched)
        for (sent, said), searched in zip(counts, searches, strict=True)
    ]


def answered(name: str) -> list[Exchange]:
    return [exchange for exchange in load(name) if exchange.status == 200]


def test_every_recording_is_counted() -> None:
    """A further one is to be read by hand first."""
    assert names() == sorted(COUNTS)


@pytest.mark.parametrize("name", COUNTS)
def test_a_recorded_reply_used_what_it_says(name: str) -> None:
    """Count by count, streams included; the labels are kept, and there is no breakdown."""
    entries = [read_reply(reply_of(exchange)).entry(1, 0.0) for exchange in answered(name)]
    assert usages(name) == [entry.usage for entry in entries]
    for entry, usage in zip(entries, usages(name), strict=True):
        assert entry.context_tokens == (None if name in BY_SERVER else usage.total_tokens)
        assert (entry.service_tier, entry.speed, entry.billed) == ("standard", None, ())
        assert entry.inference_geo in (None, "not_available", "global")


@pytest.mark.parametrize("name", ["web_search_tool_stream", "code_execution_tool_stream", "sdk_streamed_call"])
def test_the_end_of_a_stream_has_the_last_word(name: str) -> None:
    """The counts of the start are not added to it."""
    for exchange, usage in zip(answered(name), usages(name), strict=True):
        lines = [line.removeprefix("data: ") for line in str(exchange.sse).splitlines() if line.startswith("data: ")]
        first, last = (counts for event in map(decode, lines) if (counts := told_in(event)))
        assert (last["input_tokens"], last["output_tokens"]) == (usage.input_tokens, usage.output_tokens)
        assert 0 < first["output_tokens"] < last["output_tokens"]


def told_in(event: Any) -> Any:
    return event.get("usage") or event.get("message", {}).get("usage")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", DRIVEN)
def test_a_loop_adds_up_what_its_requests_used(kind: Kind, name: str) -> None:
    """Each request once, over HTTP; streamed where it was recorded so."""
    replay(kind, _driven, name)


async def _driven(kind: Kind, name: str) -> None:
    exchanges = load(name)
    streamed = exchanges[0].sse is not None
    more = {"max_tokens": MOST_UNSTREAMED + 1} if streamed else {}
    async with serving(kind, [answer_of(exchange, streamed=streamed) for exchange in exchanges]) as (_, client):
        handle = handle_for(client, kind=kind, **with_own_tools(exchanges, **more))
        done = await finish(handle)
        assert isinstance(done, Completed)
        assert usages(name) == [entry.usage for entry in done.usage_log]
        assert sum(usages(name), Usage()) == done.total_usage == handle.total_usage


@pytest.mark.parametrize("kind", KINDS)
def test_a_paused_turn_is_paid_for_each_time(kind: Kind) -> None:
    """The resumed request is another one: 401,468 tokens went in, and then 494,549."""
    replay(kind, _paused)


async def _paused(kind: Kind) -> None:
    exchanges = load("pause_turn_web_search")
    async with serving(kind, map(answer_of, exchanges)) as (_, client):
        handle = handle_for(client, params_of(exchanges[0]), kind)
        done = await finish(handle)
        assert isinstance(done, Completed)
        assert done.total_usage == Usage(input_tokens=896_017, output_tokens=2037, web_search_requests=15)
        assert [entry.stop_reason for entry in done.usage_log] == ["pause_turn", "end_turn"]
