"""Ctrl-C and cancellation pass through a request, and the client can send the next one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NoReturn

import anthropic
import httpx2
import pytest
import trio
import trio.testing

from tests.providers.asking import KEY, request
from tests.providers.events import START, streamed
from tests.providers.server import MESSAGE, Answer, message, serving, stream
from toolloop.providers import AnthropicProvider, AsyncAnthropicProvider
from toolloop.providers.sdk_arguments import MOST_UNSTREAMED

if TYPE_CHECKING:
    from tests.providers.server import Server

PATIENCE = 60.0  # seconds; it is never reached but where something hangs
LONG = request(max_tokens=MOST_UNSTREAMED + 1)


class Interrupted(httpx2.SyncByteStream):
    """An event stream that raises KeyboardInterrupt in its middle."""

    def __iter__(self) -> Any:
        yield stream(START).body
        raise KeyboardInterrupt


@pytest.mark.parametrize("asked", [request(), LONG])
def test_ctrl_c_passes_through(asked: Any) -> None:
    """Before the reply and in the middle of its stream."""

    def answer(_: httpx2.Request) -> httpx2.Response:
        if asked is LONG:
            return httpx2.Response(200, stream=Interrupted(), headers={"content-type": "text/event-stream"})
        return _interrupt()

    transport = httpx2.MockTransport(answer)
    client = anthropic.Anthropic(api_key=KEY, http_client=httpx2.Client(transport=transport))
    with client, pytest.raises(KeyboardInterrupt):
        AnthropicProvider(client).send(asked)


HANGING = [(request(), Answer(fault="hang"), message()), (LONG, Answer(fault="hang"), stream(*streamed(MESSAGE)))]


@pytest.mark.parametrize(("asked", "hang", "answer"), HANGING)
def test_a_cancelled_task_is_cancelled(asked: Any, hang: Answer, answer: Answer) -> None:
    """Under asyncio: the exception is the task's own, and the same client answers the next request."""

    async def main(server: Server) -> Any:
        async with anthropic.AsyncAnthropic(api_key=KEY, base_url=server.url, max_retries=0) as client:
            provider = AsyncAnthropicProvider(client)
            task = asyncio.create_task(provider.send(asked))
            assert await asyncio.to_thread(server.arrived.wait, PATIENCE)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return await provider.send(asked)

    with serving(hang, answer) as server:
        assert asyncio.run(main(server)) == MESSAGE


@pytest.mark.parametrize(("asked", "hang", "answer"), HANGING)
def test_a_cancelled_scope_is_left_quietly(asked: Any, hang: Answer, answer: Answer) -> None:
    """Under trio: the scope catches its own cancellation, and the same client answers the next request."""

    async def main(server: Server) -> Any:
        async with anthropic.AsyncAnthropic(api_key=KEY, base_url=server.url, max_retries=0) as client:
            provider = AsyncAnthropicProvider(client)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(provider.send, asked)
                assert await trio.to_thread.run_sync(server.arrived.wait, PATIENCE)
                nursery.cancel_scope.cancel()
            return await provider.send(asked)

    with serving(hang, answer) as server:
        assert trio.run(main, server) == MESSAGE


def _interrupt() -> NoReturn:
    raise KeyboardInterrupt
