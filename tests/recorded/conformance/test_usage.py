"""The tokens and searches of replayed traffic: read by hand from the JSON, and as a loop reports them."""

from __future__ import annotations

from tests.recorded.conformance.replaying import (
    KINDS,
    Kind,
    answer_of,
    finish,
    handle_for,
    replay,
    reply_of,
    serving,
    with_own_tools,
)
from tests.recorded.conformance.traffic import Exchange, Traffic, with_traffic
from toolloop import Completed, Usage
from toolloop.machine.record.replies import read_reply
from toolloop.providers.sdk_arguments import MOST_UNSTREAMED

STREAMS = ["web_search_tool_stream", "code_execution_tool_stream", "sdk_streamed_call"]
DRIVEN = [
    *("sdk_basic_call", "sdk_tool_raises", "sdk_web_search_only", "multiple_parallel_tool_calls"),
    *("tool_with_thinking", "pause_turn_web_search", *STREAMS),
]


def used(exchange: Exchange) -> Usage:
    """What one request used. Nothing in the traffic was cached."""
    if exchange.sse is None:
        counts = exchange.reply["usage"]
    else:
        (counts,) = (event["usage"] for event in exchange.streamed if event["type"] == "message_delta")
    searches = counts.get("server_tool_use", {}).get("web_search_requests", 0)
    return Usage(counts["input_tokens"], counts["output_tokens"], web_search_requests=searches)


@with_traffic()
def test_a_reply_used_what_it_says(traffic: Traffic) -> None:
    """Count by count, streams included."""
    for exchange in traffic.answered:
        assert read_reply(reply_of(exchange)).usage == used(exchange)


@with_traffic(*STREAMS)
def test_the_counts_at_the_end_of_a_stream_are_final(traffic: Traffic) -> None:
    """The counts of the start are not added to those of the end."""
    for exchange in traffic.answered:
        start = exchange.streamed[0]["message"]["usage"]
        entry = read_reply(reply_of(exchange)).entry(1, 0.0)
        assert 0 < start["output_tokens"] < entry.usage.output_tokens == used(exchange).output_tokens


@with_traffic(*DRIVEN)
def test_a_loop_adds_up_what_its_requests_used(traffic: Traffic) -> None:
    """Each request once, over HTTP, streamed where it was recorded so; a resumed turn is paid for each time."""
    for kind in KINDS:
        replay(kind, _driven, traffic.exchanges)


async def _driven(kind: Kind, exchanges: list[Exchange]) -> None:
    streamed = exchanges[0].sse is not None
    more = {"max_tokens": MOST_UNSTREAMED + 1} if streamed else {}
    async with serving(kind, [answer_of(exchange, streamed=streamed) for exchange in exchanges]) as (_, client):
        handle = handle_for(client, kind=kind, **with_own_tools(exchanges, **more))
        done = await finish(handle)
        assert isinstance(done, Completed)
        assert [entry.usage for entry in done.usage_log] == list(map(used, exchanges))
        assert sum(map(used, exchanges), Usage()) == done.total_usage == handle.total_usage
