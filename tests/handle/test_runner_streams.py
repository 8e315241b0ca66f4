"""The streaming runner: each step yields a stream of one reply, and all else is as without."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import anyio
import anyio.to_thread
import pytest

from tests.handle.support import params, user
from tests.handle.talking import each_driver, play
from tests.handle.walking import ADD, Walk, asks, result, said, walking
from toolloop.errors import IllegalCommand, ModelError, UndecidedCalls
from toolloop.events import RequestStarted, TextDelta
from toolloop.terminations import MaxIterations
from toolloop.testing import fault, reply, server_call, server_result, streamed

LONG = reply("a text that comes in several pieces, one after the other")
SEARCH = params(tools=[{"type": "web_search_20250305", "name": "web_search"}])


async def read(walk: Walk, stream: Any) -> list[Any]:
    """The events of a stream."""
    async with inside(walk, stream):
        return list(stream) if walk.is_sync else [event async for event in stream]


@asynccontextmanager
async def inside(walk: Walk, stream: Any) -> AsyncIterator[None]:
    """Where events are read one by one."""
    async with nullcontext() if walk.is_sync else stream:
        yield


async def one(walk: Walk, stream: Any) -> Any:
    """The next event."""
    return next(stream) if walk.is_sync else await anext(stream)


async def final(walk: Walk, stream: Any) -> Any:
    return stream.get_final_message() if walk.is_sync else await stream.get_final_message()


@each_driver
def test_each_step_is_a_stream_of_one_reply(driver: str) -> None:
    """Its events, then the message; the tools run after the body, and all is sent as without streams."""

    async def story() -> None:
        async with walking(driver, [asks(ADD, text="so"), LONG], stream=True) as walk:
            stream: Any = await walk.step()
            assert walk.count == 0
            seen = await read(walk, stream)
            assert isinstance(seen[0], RequestStarted)
            first = await final(walk, stream)
            assert walk.ran == []
            assert walk.shown == [user()]
            stream = await walk.step()
            assert walk.ran == [("add", 1, 2)]
            pieces = [event.text for event in await read(walk, stream) if isinstance(event, TextDelta)]
            assert len(pieces) > 1
            last = await final(walk, stream)
            assert "".join(pieces) == last["content"][0]["text"]
            assert await walk.over()
            assert walk.shown == [user(), said(first), user([result("toolu_1", "3")]), said(last)]
            assert all(request.json["stream"] is True for request in walk.api.requests)
            assert "over" in repr(stream)

    play(driver, story)


@each_driver
def test_what_the_body_leaves_unread_is_read(driver: str) -> None:
    """By the next step, by a response that is asked for, or by leaving the stream."""

    async def story() -> None:
        async with walking(driver, [asks(ADD), asks(ADD), asks(ADD), LONG], stream=True) as walk:
            await walk.step()
            assert walk.count == 0
            stream: Any = await walk.step()
            assert walk.count == 1
            async with inside(walk, stream):
                await one(walk, stream)
                assert await walk.respond() == user([result("toolu_1", "3")])
            assert len(walk.ran) == 2
            stream = await walk.step()
            if walk.is_sync:
                with stream:
                    next(stream)
            else:
                async with stream:
                    await anext(stream)
            assert (await final(walk, stream))["content"] == [ADD]
            last = await walk.until_done()
            assert last is not None
            assert last["content"] == LONG["content"]
            assert len(walk.ran) == 3

    play(driver, story)


@each_driver
def test_an_exception_hangs_up(driver: str) -> None:
    """The request was not made then, and the next step makes it again."""

    async def story() -> None:
        async with walking(driver, [streamed(LONG), LONG, LONG], stream=True) as walk:
            stream: Any = await walk.step()
            with pytest.raises(ZeroDivisionError):
                await fail_inside(walk, stream)
            with pytest.raises(IllegalCommand, match="did not come to its end"):
                await final(walk, stream)
            assert walk.runner.iterations == 0
            stream = await walk.step()
            async with inside(walk, stream):
                await one(walk, stream)
                await close(walk)
                assert walk.runner.iterations == 0
            assert await walk.until_done()
            assert walk.runner.iterations == 1

    play(driver, story)


async def fail_inside(walk: Walk, stream: Any) -> None:
    """Read one event, and raise."""
    if walk.is_sync:
        with stream:
            next(stream)
            raise ZeroDivisionError
    else:
        async with stream:
            await anext(stream)
            raise ZeroDivisionError


async def close(walk: Walk) -> None:
    if walk.is_sync:
        walk.runner.close()
    else:
        await walk.runner.aclose()


@each_driver
def test_what_the_body_changes_counts_though_the_stream_is_not_read(driver: str) -> None:
    """The reply is left out then, as ever."""

    async def story() -> None:
        async with walking(driver, [asks(ADD), LONG], stream=True) as walk:
            stream: Any = await walk.step()
            walk.runner.append_messages(user("rather not"))
            await read(walk, stream)
            await final(walk, await walk.step())
            assert walk.ran == []
            assert walk.sent() == [user(), user("rather not")]

    play(driver, story)


@each_driver
def test_an_error_is_raised_where_it_is_read(driver: str) -> None:
    """With what came until then; and the next step makes the request again."""

    async def story() -> None:
        script = [streamed(LONG, cut=6), fault(529), LONG]
        async with walking(driver, script, stream=True) as walk:
            with pytest.raises(Exception, match=r".") as raised:
                await read(walk, await walk.step())
            assert "several" not in str(walk.shown)
            assert raised.value.partial_text is not None  # type: ignore[attr-defined]
            await walk.step()
            with pytest.raises(ModelError):
                await walk.step()
            assert await walk.until_done()
            assert walk.shown == [user(), said(LONG)]

    play(driver, story)


@each_driver
def test_pauses_limits_and_waits_are_as_without(driver: str) -> None:
    """A pause is resumed, a limit ends it, and a call that waits says so at the next step."""

    async def story() -> None:
        search = server_call("web_search", {"query": "q"}, id="srvtoolu_1")
        found = server_result("web_search", [], id="srvtoolu_1")
        pause = reply(content=[search], stop_reason="pause_turn")
        async with walking(driver, [pause, reply(content=[found, *LONG["content"]])], SEARCH, stream=True) as walk:
            assert await walk.until_done()
            assert walk.count == 2
            assert len(walk.shown) == 3
        async with walking(driver, [asks(ADD)], stream=True, max_iterations=1) as walk:
            assert await walk.until_done()
            assert walk.runner.into_result().termination == MaxIterations(1)
        write = {**ADD, "name": "write", "input": {"path": "p", "text": "t"}}
        async with walking(driver, [asks(write)], stream=True) as walk:
            await walk.step()
            with pytest.raises(UndecidedCalls):
                await walk.step()

    play(driver, story)


@pytest.mark.parametrize("driver", ["asyncio", "trio"])
def test_a_cancelled_stream_hangs_up(driver: str) -> None:
    """As if the request had not been made, and with nothing left behind."""

    async def story() -> None:
        held = streamed(LONG, hold=4)
        async with walking(driver, [held, LONG], stream=True) as walk:
            stream: Any = await walk.step()
            async with anyio.create_task_group() as group:

                async def reading() -> None:
                    await read(walk, stream)

                group.start_soon(reading)
                await anyio.to_thread.run_sync(held.arrived.wait)
                group.cancel_scope.cancel()
            assert walk.runner.iterations == 0
            assert await walk.until_done()
            assert walk.runner.iterations == 1

    play(driver, story)
