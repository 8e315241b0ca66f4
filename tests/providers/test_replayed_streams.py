"""Replayed streams give the message that the SDK makes of them."""

from __future__ import annotations

from typing import Any

import anthropic

from tests.providers.asking import KEY, ask, request
from tests.providers.server import Answer, serving
from tests.recorded.conformance.traffic import Traffic, with_traffic
from toolloop.providers.sdk_arguments import MOST_UNSTREAMED

_KIND = {"content-type": "text/event-stream; charset=utf-8"}
STREAMS = ["sdk_streamed_call", "web_search_tool_stream", "code_execution_tool_stream"]


def bodies(traffic: Traffic) -> list[bytes]:
    return [exchange.sse.encode() for exchange in traffic.exchanges if exchange.sse is not None]


@with_traffic(*STREAMS)
def test_a_stream_is_the_message_the_sdk_makes_of_it(traffic: Traffic) -> None:
    """Two implementations of accumulating agree, block by block and count by count."""
    for body in bodies(traffic):
        answer = Answer(body, headers=_KIND)
        with serving(answer) as server:
            reply = ask("sync", server, request(max_tokens=MOST_UNSTREAMED + 1))
            with anthropic.Anthropic(api_key=KEY, base_url=server.url) as client:
                theirs = _theirs(client)
        assert _without_nulls(theirs) == _without_nulls(dict(reply))


def _theirs(client: anthropic.Anthropic) -> Any:
    with client.beta.messages.stream(
        model="claude-opus-5-5", max_tokens=10, messages=[{"role": "user", "content": "Hi"}]
    ) as stream:
        return stream.get_final_message().to_dict(mode="json", warnings=False)


def _without_nulls(value: Any) -> Any:
    # The SDK's snapshot says null where a delta said nothing.
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value
