"""Traffic, driven again: the real client and the handles send the same requests.

Traffic whose name starts with `sdk_` has the shape of a client that sends history back unchanged, so requests are equal
to the last field. The others have the shape of a framework that rebuilds messages: equal in roles, block types, ids and
order, and each reply goes back unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.kit.streams import read, text_in
from tests.recorded.conformance.replaying import (
    KINDS,
    Answering,
    Kind,
    answer_of,
    finish,
    handle_for,
    next_turn,
    params_of,
    replay,
    reply_of,
    results_of,
    serving,
    with_own_tools,
)
from tests.recorded.conformance.traffic import Exchange, Traffic, with_traffic
from toolloop import Completed, Error, Yielded
from toolloop.errors import InvalidHistory, ModelError
from toolloop.machine.record.replies import read_reply
from toolloop.machine.values.jsontext import encode
from toolloop.providers.sdk_arguments import MOST_UNSTREAMED
from toolloop.terminations import NaturalEnd
from toolloop.testing import FakeMessagesAPI, reply

pytestmark = pytest.mark.parametrize("kind", KINDS)

LOOPS = ["sdk_basic_call", "sdk_tool_raises", "sdk_streamed_call", "sdk_web_search_only"]
REBUILT = ["multiple_parallel_tool_calls", "tool_with_thinking"]
STREAMS = ["sdk_streamed_call", "web_search_tool_stream", "code_execution_tool_stream"]


def sent(api: FakeMessagesAPI) -> list[Any]:
    return [request.json["messages"] for request in api.requests]


def shape(messages: Sequence[Any]) -> list[Any]:
    """Roles, and the type and id of each block, in order."""
    return [
        (
            message["role"],
            [(block["type"], block.get("id") or block.get("tool_use_id")) for block in message["content"]],
        )
        for message in messages
    ]


def assert_replies_went_back(api: FakeMessagesAPI, exchanges: Sequence[Exchange]) -> None:
    """Each reply is unchanged in every later request, including the order of its keys."""
    for number, messages in enumerate(sent(api)):
        back = [encode(message["content"]) for message in messages if message["role"] == "assistant"]
        for exchange in exchanges[:number]:
            assert encode(reply_of(exchange)["content"]) in back


def without_blank(content: Sequence[Any]) -> list[Any]:
    return [block for block in content if block["type"] != "text" or block["text"].strip()]


# --- equal to the last field ---


@with_traffic(*LOOPS)
def test_tools_that_give_the_same_results_lead_to_the_same_messages(kind: Kind, traffic: Traffic) -> None:
    """Every request has the messages of the traffic."""
    replay(kind, _by_tools, traffic.exchanges)


async def _by_tools(kind: Kind, exchanges: list[Exchange]) -> None:
    async with serving(kind, map(answer_of, exchanges)) as (api, client):
        handle = handle_for(client, kind=kind, **with_own_tools(exchanges))
        done = await finish(handle)
        assert isinstance(done, Completed)
        assert done.termination == NaturalEnd()
        assert [exchange.request["messages"] for exchange in exchanges] == sent(api)
        assert handle.messages[-1] == {
            "role": "assistant",
            "content": without_blank(reply_of(exchanges[-1])["content"]),
        }


@with_traffic(*LOOPS)
def test_answers_with_the_same_results_lead_to_the_same_requests(kind: Kind, traffic: Traffic) -> None:
    """With the tools as external ones, the whole body is the same, and so is the beta header."""
    replay(kind, _by_answers, traffic.exchanges)


async def _by_answers(kind: Kind, exchanges: list[Exchange]) -> None:
    async with serving(kind, map(answer_of, exchanges)) as (api, client):
        handle = handle_for(client, params_of(exchanges[0]), kind)
        done = await finish(handle, Answering(results_of(exchanges)))
        assert isinstance(done, Completed)
        recorded = [{name: value for name, value in e.request.items() if name != "stream"} for e in exchanges]
        assert recorded == [request.json for request in api.requests]
        assert [e.beta for e in exchanges] == [request.headers.get("anthropic-beta") for request in api.requests]


@with_traffic(*STREAMS)
def test_a_stream_joins_the_history_as_the_message_it_amounts_to(kind: Kind, traffic: Traffic) -> None:
    """Above the bound for unstreamed requests the provider streams by itself; the loop goes as it did."""
    replay(kind, _streamed, traffic.exchanges)


async def _streamed(kind: Kind, exchanges: list[Exchange]) -> None:
    answers = [answer_of(exchange, streamed=True) for exchange in exchanges]
    async with serving(kind, answers) as (api, client):
        handle = handle_for(client, kind=kind, **with_own_tools(exchanges, max_tokens=MOST_UNSTREAMED + 1))
        done = await finish(handle)
        assert isinstance(done, Completed)
        assert [True] * len(exchanges) == [request.json["stream"] for request in api.requests]
        assert [exchange.request["messages"] for exchange in exchanges] == sent(api)
        assert handle.messages[-1]["content"] == without_blank(reply_of(exchanges[-1])["content"])


@with_traffic(*STREAMS)
def test_a_stream_that_is_read_goes_the_same_way(kind: Kind, traffic: Traffic) -> None:
    """The deltas add up to the text; the requests and the history are those of an unstreamed loop."""
    replay(kind, _read, traffic.exchanges)


async def _read(kind: Kind, exchanges: list[Exchange]) -> None:
    answers = [answer_of(exchange, streamed=True) for exchange in exchanges]
    async with serving(kind, answers) as (api, client):
        handle = handle_for(client, kind=kind, **with_own_tools(exchanges))
        for exchange in exchanges:
            seen, turn = await read(handle)
            blocks = reply_of(exchange)["content"]
            assert text_in(seen) == "".join(block["text"] for block in blocks if block["type"] == "text")
            if isinstance(turn, Yielded):
                assert turn.message["content"] == blocks
                turn.continue_loop()
        assert isinstance(turn, Completed)
        assert [exchange.request["messages"] for exchange in exchanges] == sent(api)
        assert handle.messages[-1]["content"] == without_blank(reply_of(exchanges[-1])["content"])


@with_traffic("code_execution_tool_stream")
def test_a_stream_names_the_container_of_its_code(kind: Kind, traffic: Traffic) -> None:
    """At the end of the stream; the request after the turn does not go there, for the turn is over."""
    replay(kind, _in_container, traffic.exchanges)


async def _in_container(kind: Kind, exchanges: list[Exchange]) -> None:
    (exchange,) = exchanges
    assert read_reply(reply_of(exchange)).container == exchange.streamed[-2]["delta"]["container"]["id"]
    async with serving(kind, [answer_of(exchange, streamed=True), reply("fine")]) as (api, client):
        handle = handle_for(client, kind=kind, **with_own_tools(exchanges, max_tokens=MOST_UNSTREAMED + 1))
        assert isinstance(await finish(handle), Completed)
        handle.follow_up([{"role": "user", "content": "And?"}])
        await next_turn(handle)
        assert [request.json.get("container") for request in api.requests] == [None, None]


# --- equal in shape ---


@with_traffic(*REBUILT)
def test_a_rebuilt_history_is_replayed_in_its_shape(kind: Kind, traffic: Traffic) -> None:
    """Four calls in one reply, and a signed thinking block beside a call: all go back in order."""
    replay(kind, _rebuilt, traffic.exchanges)


async def _rebuilt(kind: Kind, exchanges: list[Exchange]) -> None:
    async with serving(kind, map(answer_of, exchanges)) as (api, client):
        done = await finish(handle_for(client, kind=kind, **with_own_tools(exchanges)))
        assert isinstance(done, Completed)
        assert [shape(exchange.request["messages"]) for exchange in exchanges] == list(map(shape, sent(api)))
        assert_replies_went_back(api, exchanges)
        assert results(exchanges[-1].request["messages"]) == results(sent(api)[-1])


def results(messages: Sequence[Any]) -> list[Any]:
    """The contents of all results, in order."""
    return [block["content"] for message in messages for block in message["content"] if block["type"] == "tool_result"]


@with_traffic("pause_turn_web_search")
def test_a_paused_reply_is_resumed_by_sending_it_back(kind: Kind, traffic: Traffic) -> None:
    """One search is still open: the reply goes back verbatim, without a user turn after it."""
    replay(kind, _paused, traffic.exchanges)


async def _paused(kind: Kind, exchanges: list[Exchange]) -> None:
    async with serving(kind, map(answer_of, exchanges)) as (api, client):
        handle = handle_for(client, params_of(exchanges[0]), kind)
        turn = await next_turn(handle)
        assert isinstance(turn, Yielded)
        assert (turn.reason, turn.calls) == ("paused", ())
        assert list(handle.messages) == exchanges[0].request["messages"]
        turn.continue_loop()
        done = await next_turn(handle)
        assert isinstance(done, Completed)
        assert done.termination == NaturalEnd()
        assert [shape(exchange.request["messages"]) for exchange in exchanges] == list(map(shape, sent(api)))
        assert_replies_went_back(api, exchanges)
        assert [reply_of(exchange)["content"] for exchange in exchanges] == [
            message["content"] for message in handle.messages if message["role"] == "assistant"
        ]


@with_traffic("redacted_thinking")
def test_redacted_thinking_goes_back_verbatim(kind: Kind, traffic: Traffic) -> None:
    """A second user turn of the same conversation carries the redacted block of the first."""
    replay(kind, _redacted, traffic.exchanges)


async def _redacted(kind: Kind, exchanges: list[Exchange]) -> None:
    async with serving(kind, map(answer_of, exchanges)) as (api, client):
        handle = handle_for(client, params_of(exchanges[0]), kind)
        assert isinstance(await next_turn(handle), Completed)
        handle.follow_up([exchanges[1].request["messages"][-1]])
        assert isinstance(await next_turn(handle), Completed)
        assert [exchange.request["messages"][-1] for exchange in exchanges] == [messages[-1] for messages in sent(api)]
        assert [shape(exchange.request["messages"]) for exchange in exchanges] == list(map(shape, sent(api)))
        assert_replies_went_back(api, exchanges)


@with_traffic("two_rounds_fable_5")
def test_two_rounds_with_an_injected_one_between(kind: Kind, traffic: Traffic) -> None:
    """The framework put a round of its own (a tool reference) between the two; injecting it gives the same requests."""
    replay(kind, _two_rounds, traffic.exchanges)


async def _two_rounds(kind: Kind, exchanges: list[Exchange]) -> None:
    async with serving(kind, map(answer_of, exchanges)) as (api, client):
        handle = handle_for(client, kind=kind, **with_own_tools(exchanges))
        turn = await next_turn(handle)
        assert isinstance(turn, Yielded)
        turn.inject_and_continue(exchanges[1].request["messages"][len(handle.messages) :])
        done = await finish(handle)
        assert isinstance(done, Completed)
        assert done.text == exchanges[-1].reply["content"][0]["text"]
        assert [shape(exchange.request["messages"]) for exchange in exchanges] == list(map(shape, sent(api)))
        assert_replies_went_back(api, exchanges)


# --- refused ---


@with_traffic("bad_effort_400")
def test_a_refused_request_is_an_error_that_consumed_nothing(kind: Kind, traffic: Traffic) -> None:
    """The 400 comes back with its text; with another parameter the retry goes through."""
    replay(kind, _bad_effort, traffic.exchanges)


async def _bad_effort(kind: Kind, exchanges: list[Exchange]) -> None:
    refusal = exchanges[0]
    async with serving(kind, [answer_of(refusal), answer_of(refusal), reply("4")]) as (api, client):
        handle = handle_for(client, params_of(refusal), kind)
        before = (handle.messages, handle.iterations, handle.total_usage)
        for _ in range(2):
            failed = await next_turn(handle)
            assert isinstance(failed, Error)
            assert not failed.retryable
            assert isinstance(failed.error, ModelError)
            assert (failed.error.status, failed.error.kind) == (400, refusal.reply["error"]["type"])
            assert refusal.reply["error"]["message"] in str(failed.error)
            assert await next_turn(handle) is failed
            assert before == (handle.messages, handle.iterations, handle.total_usage)
            handle.retry()
        handle.update_params(output_config={"effort": "high"})
        done = await next_turn(handle)
        assert isinstance(done, Completed)
        assert (done.text, done.iterations) == ("4", 1)
        first, second, third = api.requests
        assert first.body == second.body
        assert [refusal.request["messages"]] * 3 == sent(api)
        assert third.json["output_config"] == {"effort": "high"}


@with_traffic("sdk_400_orphan_result")
def test_an_orphan_result_is_refused_before_anything_is_sent(kind: Kind, traffic: Traffic) -> None:
    """The handle refuses what the API refused, and names the place."""
    replay(kind, _orphan_kept_back, traffic.exchanges)


async def _orphan_kept_back(kind: Kind, exchanges: list[Exchange]) -> None:
    async with serving(kind, []) as (api, client):
        with pytest.raises(InvalidHistory, match="orphan-result") as caught:
            handle_for(client, params_of(exchanges[1]), kind)
        assert [(p.path, p.rule) for p in caught.value.problems] == [("messages[1].content[0]", "orphan-result")]
        assert api.requests == []


@with_traffic("sdk_400_orphan_result")
def test_a_refusal_within_a_loop_leaves_the_closed_round_for_a_retry(kind: Kind, traffic: Traffic) -> None:
    """Had the API refused the second request of a loop: the round is kept, the tool does not run again."""
    replay(kind, _refused_later, traffic.exchanges)


async def _refused_later(kind: Kind, exchanges: list[Exchange]) -> None:
    answers = [*map(answer_of, exchanges), reply("20°C.")]
    async with serving(kind, answers) as (api, client):
        handle = handle_for(client, kind=kind, **with_own_tools(exchanges))
        failed = await finish(handle)
        assert isinstance(failed, Error)
        assert (getattr(failed.error, "status", None), failed.iterations) == (400, 1)
        messages = handle.messages
        assert list(messages) == sent(api)[1]
        handle.retry()
        done = await next_turn(handle)
        assert isinstance(done, Completed)
        assert done.iterations == 2
        assert api.requests[1].body == api.requests[2].body
        assert handle.messages[:-1] == messages
