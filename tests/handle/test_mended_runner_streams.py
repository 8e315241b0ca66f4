"""Reading a streamed reply: where it is begun and ended, what its request carries, and what is said of a failed one."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from tests.handle.support import params, user
from tests.handle.talking import each_driver, play
from tests.handle.test_runner_streams import close, final, inside, one, read
from tests.handle.walking import ADD, asks, said, walking
from toolloop.errors import IllegalCommand, ModelError
from toolloop.events import TextDelta
from toolloop.testing import fault, reply, streamed

LONG = reply("a text that comes in several pieces, one after the other")
each_backend = pytest.mark.parametrize("driver", ["asyncio", "trio"])


@each_backend
def test_a_reader_may_bound_the_wait_for_an_event(driver: str) -> None:
    """The tasks of a reply belong to `async with stream:`, never to a scope inside of it."""

    async def story() -> None:
        async with walking(driver, [asks(ADD), LONG], stream=True) as walk:
            stream: Any = await walk.step()
            async with stream:
                assert walk.count == 0
                with anyio.move_on_after(60):
                    await anext(stream)
                with anyio.fail_after(60):
                    rest = [event async for event in stream]
                assert rest
                with anyio.fail_after(60):
                    assert (await stream.get_final_message())["content"] == [ADD]
                with anyio.fail_after(60):
                    assert await walk.respond()
            with anyio.fail_after(60):
                assert (await final(walk, await walk.step()))["content"] == LONG["content"]
            assert await walk.over()

    play(driver, story)


@each_backend
def test_a_wait_that_is_given_up_loses_nothing(driver: str) -> None:
    """The reader comes back, and reads on where it was."""

    async def story() -> None:
        held = streamed(LONG, hold=4)
        async with walking(driver, [held], stream=True) as walk:
            stream: Any = await walk.step()
            async with stream:
                with anyio.move_on_after(0.2):
                    async for _ in stream:
                        pass
                held.release()
                assert (await stream.get_final_message())["content"] == LONG["content"]
            assert walk.count == 1

    play(driver, story)


@each_backend
def test_events_are_read_in_their_block_alone(driver: str) -> None:
    """Outside of it nothing is begun that a reader could leave open; what to do is said, and the reply can be had."""

    async def story() -> None:
        async with walking(driver, [LONG], stream=True) as walk:
            stream: Any = await walk.step()
            with anyio.fail_after(60), pytest.raises(IllegalCommand, match="async with stream"):
                await anext(stream)
            assert walk.count == 0
            async with stream:
                with pytest.raises(IllegalCommand, match="open already"):
                    await stream.__aenter__()
                await anext(stream)
            with pytest.raises(StopAsyncIteration):
                await anext(stream)
            assert (await final(walk, stream))["content"] == LONG["content"]

    play(driver, story)


@each_driver
def test_who_closes_the_runner_while_reading_hangs_up(driver: str) -> None:
    """The stream has no more events, and the next step makes the request again."""

    async def story() -> None:
        async with walking(driver, [LONG, LONG], stream=True) as walk:
            stream: Any = await walk.step()
            async with inside(walk, stream):
                while not isinstance(await one(walk, stream), TextDelta):
                    pass
                await close(walk)
                assert await read_on(walk.is_sync, stream) == []
            assert walk.runner.iterations == 0
            assert await walk.until_done()
            assert walk.count == 2

    play(driver, story)


async def read_on(is_sync: bool, stream: Any) -> list[Any]:
    return list(stream) if is_sync else [event async for event in stream]


@each_driver
def test_the_tools_of_a_stream_that_was_not_begun_are_not_run_by_closing(driver: str) -> None:
    """Nothing is sent by it, and nothing by entering the stream then."""

    async def story() -> None:
        async with walking(driver, [LONG], stream=True) as walk:
            stream: Any = await walk.step()
            await close(walk)
            assert await read(walk, stream) == []
            assert walk.count == 0
            assert await walk.until_done()

    play(driver, story)


@each_driver
def test_parameters_that_are_set_before_the_stream_is_read_are_in_its_request(driver: str) -> None:
    """So they are no change beside its reply, which joins: no request is made twice. What is set later counts."""

    async def story() -> None:
        async with walking(driver, [asks(ADD), asks(ADD), LONG], stream=True) as walk:
            stream: Any = await walk.step()
            walk.runner.set_messages_params(lambda now: {**now, "max_tokens": 77})
            await read(walk, stream)
            first = await final(walk, stream)
            stream = await walk.step()
            assert walk.api.requests[0].json["max_tokens"] == 77
            assert walk.ran == [("add", 1, 2)]
            assert walk.shown[:2] == [user(), said(first)]
            await read(walk, stream)
            walk.runner.set_messages_params(lambda now: {**now, "max_tokens": 78})
            await final(walk, await walk.step())
            assert walk.sent() == walk.sent(1)
            assert walk.ran == [("add", 1, 2)]

    play(driver, story)


@each_driver
def test_a_stream_whose_request_failed_says_so(driver: str) -> None:
    """Nobody hung up on it."""

    async def story() -> None:
        async with walking(driver, [fault(529), LONG], params(), stream=True) as walk:
            stream: Any = await walk.step()
            with pytest.raises(ModelError):
                await read(walk, stream)
            with pytest.raises(IllegalCommand, match="its request failed or it was left") as raised:
                await final(walk, stream)
            assert raised.value.allowed == ("iterating the runner",)
            assert await walk.until_done()

    play(driver, story)
