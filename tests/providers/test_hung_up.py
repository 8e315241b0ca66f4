"""Leaving a stream early closes its connection, without warnings, and the client can send the next request."""

from __future__ import annotations

import asyncio
import gc
from functools import partial
from typing import Any

import anthropic
import anyio
import anyio.lowlevel
import httpx2
import pytest
import trio

from tests.providers.asking import FACES, HISTORY, Face, request, run
from toolloop.providers import AnthropicProvider, AsyncAnthropicProvider, accumulate
from toolloop.testing import FakeMessagesAPI, reply, streamed

ASKED = request(messages=HISTORY[:1])
LONG_TEXT = "All work and no play. " * 5_000
# Seconds: none of these waits is to end so; without it a failure would hang.
PATIENCE = 60

LOOPS: list[Face] = ["asyncio", "trio"]


def hung_up(api: FakeMessagesAPI) -> bool:
    (first, *_) = api.requests
    assert first.stream is not None
    return first.stream.hung_up.wait(PATIENCE)


def test_a_sync_stream_is_closed_early() -> None:
    """After any event, while the server still writes or waits. Closing twice does nothing."""
    for taken in (1, 5):
        with FakeMessagesAPI([streamed(reply(LONG_TEXT), hold=6), reply("Next.")]) as api:
            provider = AnthropicProvider(api.client())
            events = provider.stream(ASKED)
            for _ in range(taken):
                next(events)
            events.close()
            events.close()
            assert list(events) == []
            assert hung_up(api)
            del events
            assert accumulate(provider.stream(ASKED))["content"][0]["text"] == "Next."
    gc.collect()


@pytest.mark.parametrize("face", LOOPS)
def test_an_async_stream_is_closed_early(face: Face) -> None:
    """Also if more of it has arrived. Trio would warn of a generator that is garbage-collected."""

    async def leave(api: FakeMessagesAPI, taken: int) -> str:
        async with api.async_client() as client:
            provider = AsyncAnthropicProvider(client)
            events = provider.stream(ASKED)
            for _ in range(taken):
                await anext(events)
            await events.aclose()
            await events.aclose()
            assert [event async for event in events] == []
            del events
            gc.collect()
            assert await anyio.to_thread.run_sync(hung_up, api)
            return await text_of(provider)

    for taken, hold in ((1, 6), (4, None)):
        with FakeMessagesAPI([streamed(reply(LONG_TEXT), hold=hold, send_buffer=4096), reply("Next.")]) as api:
            assert run(face, partial(leave, api, taken)) == "Next."


@pytest.mark.parametrize("face", LOOPS)
def test_cancellation_while_waiting_closes_the_connection(face: Face) -> None:
    """In the middle of a reply; a later `aclose` does nothing."""
    held = streamed(reply(LONG_TEXT), hold=6)

    async def main() -> str:
        async with api.async_client() as client:
            provider = AsyncAnthropicProvider(client)
            await cancelled(face, provider, held)
            gc.collect()
            assert await anyio.to_thread.run_sync(hung_up, api)
            return await text_of(provider)

    with FakeMessagesAPI([held, reply("Next.")]) as api:
        assert run(face, main) == "Next."


async def cancelled(face: Face, provider: AsyncAnthropicProvider, held: Any) -> None:
    async def read() -> None:
        events = provider.stream(ASKED)
        try:
            async for _ in events:
                pass
        finally:
            await events.aclose()

    if face == "asyncio":
        task = asyncio.create_task(read())
        assert await asyncio.to_thread(held.arrived.wait, PATIENCE)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            assert await trio.to_thread.run_sync(held.arrived.wait, PATIENCE)
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("face", LOOPS)
def test_aclose_keeps_a_cancellation_from_outside(face: Face) -> None:
    """`aclose` swallows only its own cancellation."""
    reached: list[str] = []

    async def main() -> bool:
        async with api.async_client() as client:
            events = AsyncAnthropicProvider(client).stream(ASKED)
            await anext(events)
            with anyio.CancelScope() as scope:
                scope.cancel()
                await events.aclose()
                reached.append("behind aclose")
                await anyio.lowlevel.checkpoint()
                reached.append("behind the checkpoint")
            return scope.cancelled_caught

    with FakeMessagesAPI([streamed(reply(LONG_TEXT), hold=6)]) as api:
        assert run(face, main)
    assert reached == ["behind aclose"]


@pytest.mark.parametrize("face", FACES)
def test_a_stream_that_was_read_to_its_end_keeps_the_connection(face: Face) -> None:
    """One connection serves both requests."""
    addresses = []

    def see(response: httpx2.Response) -> None:
        addresses.append(response.extensions["network_stream"].get_extra_info("client_addr"))

    async def async_see(response: httpx2.Response) -> None:
        see(response)

    async def main() -> None:
        http = anthropic.DefaultAsyncHttpxClient(trust_env=False, verify=False, event_hooks={"response": [async_see]})
        async with api.async_client(http_client=http) as client:
            provider = AsyncAnthropicProvider(client)
            for _ in range(2):
                assert await text_of(provider) == "Hi."

    with FakeMessagesAPI([reply("Hi.")] * 2) as api:
        if face == "sync":
            http = anthropic.DefaultHttpxClient(trust_env=False, verify=False, event_hooks={"response": [see]})
            provider = AnthropicProvider(api.client(http_client=http))
            for _ in range(2):
                assert accumulate(provider.stream(ASKED))["content"][0]["text"] == "Hi."
        else:
            run(face, main)
    first, second = addresses
    assert first == second


@pytest.mark.parametrize("face", FACES)
def test_a_slow_reader_slows_the_stream(face: Face) -> None:
    """Nothing is read ahead: the server is ahead only by the network's buffers."""
    ahead: list[int] = []

    def see(number: int) -> None:
        (asked,) = api.requests
        assert asked.stream is not None
        ahead.append(asked.stream.events - number)

    async def main() -> None:
        async with api.async_client() as client:
            number = 0
            async for _ in AsyncAnthropicProvider(client).stream(ASKED):
                see(number := number + 1)

    with FakeMessagesAPI([streamed(reply(LONG_TEXT), send_buffer=4096)]) as api:
        if face == "sync":
            for number, _ in enumerate(AnthropicProvider(api.client()).stream(ASKED)):
                see(number)
        else:
            run(face, main)
    assert len(ahead) > len(LONG_TEXT) // 16
    assert max(ahead) < len(ahead) // 2


async def text_of(provider: AsyncAnthropicProvider) -> str:
    events = [event async for event in provider.stream(ASKED)]
    text: str = accumulate(events)["content"][0]["text"]
    return text
