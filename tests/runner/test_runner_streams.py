"""The streaming runner: each step yields a stream of one reply, and all else is as without."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.to_thread
import pytest

from tests.kit.concurrency import either_driver, play
from tests.kit.runners import ADD, DrivenRunner, asks, drive_runner, make_said, result, start_runner
from tests.kit.tools import user
from toolloop.errors import IllegalCommand, ModelError
from toolloop.events import RequestStarted, TextDelta
from toolloop.testing import fault, reply, streamed

LONG = reply("a text that comes in several pieces, one after the other")


async def read(driven: DrivenRunner, stream: Any) -> list[Any]:
    """The events of a stream."""
    async with reading(driven, stream):
        return list(stream) if driven.is_sync else [event async for event in stream]


@asynccontextmanager
async def reading(driven: DrivenRunner, stream: Any) -> AsyncIterator[None]:
    """Leave the stream as its `with` statement does."""
    if driven.is_sync:
        with stream:
            yield
    else:
        async with stream:
            yield


async def one(driven: DrivenRunner, stream: Any) -> Any:
    """The next event."""
    return next(stream) if driven.is_sync else await anext(stream)


async def final(driven: DrivenRunner, stream: Any) -> Any:
    return stream.get_final_message() if driven.is_sync else await stream.get_final_message()


async def fail_inside(driven: DrivenRunner, stream: Any) -> None:
    """Read one event, and raise."""
    async with reading(driven, stream):
        await one(driven, stream)
        raise ZeroDivisionError


async def close(driven: DrivenRunner) -> None:
    if driven.is_sync:
        driven.runner.close()
    else:
        await driven.runner.aclose()


@either_driver
def test_each_step_is_a_stream_of_one_reply(driver: str) -> None:
    """Its events, then the message; the tools run after the body, and all is sent as without streams."""

    async def story() -> None:
        async with drive_runner(driver, [asks(ADD, text="so"), LONG], stream=True) as driven:
            stream: Any = await driven.step()
            assert driven.count == 0
            seen = await read(driven, stream)
            assert isinstance(seen[0], RequestStarted)
            first = await final(driven, stream)
            assert driven.ran == []
            assert driven.shown == [user()]
            stream = await driven.step()
            assert driven.ran == [("add", 1, 2)]
            pieces = [event.text for event in await read(driven, stream) if isinstance(event, TextDelta)]
            assert len(pieces) > 1
            last = await final(driven, stream)
            assert "".join(pieces) == last["content"][0]["text"]
            assert await driven.is_over()
            assert driven.shown == [user(), make_said(first), user([result("toolu_1", "3")]), make_said(last)]
            assert all(request.json["stream"] is True for request in driven.api.requests)
            assert "over" in repr(stream)

    play(driver, story)


@either_driver
def test_what_the_body_leaves_unread_is_read(driver: str) -> None:
    """By the next step, by a response that is asked for, or by leaving the stream."""

    async def story() -> None:
        async with drive_runner(driver, [asks(ADD), asks(ADD), asks(ADD), LONG], stream=True) as driven:
            await driven.step()
            assert driven.count == 0
            stream: Any = await driven.step()
            assert driven.count == 1
            async with reading(driven, stream):
                await one(driven, stream)
                assert await driven.respond() == user([result("toolu_1", "3")])
            assert len(driven.ran) == 2
            stream = await driven.step()
            async with reading(driven, stream):
                await one(driven, stream)
            assert (await final(driven, stream))["content"] == [ADD]
            last = await driven.until_done()
            assert last is not None
            assert last["content"] == LONG["content"]
            assert len(driven.ran) == 3

    play(driver, story)


@either_driver
def test_who_leaves_by_an_exception_or_closes_the_runner_hangs_up(driver: str) -> None:
    """The request was not made then, the stream has no more events, and the next step makes the request again."""

    async def story() -> None:
        async with drive_runner(driver, [streamed(LONG), LONG, LONG], stream=True) as driven:
            stream: Any = await driven.step()
            with pytest.raises(ZeroDivisionError):
                await fail_inside(driven, stream)
            with pytest.raises(IllegalCommand, match="this stream is incomplete"):
                await final(driven, stream)
            assert driven.runner.iterations == 0
            stream = await driven.step()
            async with reading(driven, stream):
                while not isinstance(await one(driven, stream), TextDelta):
                    pass
                await close(driven)
                assert (list(stream) if driven.is_sync else [event async for event in stream]) == []
            assert driven.runner.iterations == 0
            await driven.step()
            await close(driven)  # of one that was not begun
            assert await driven.until_done()
            assert driven.runner.iterations == 1

    play(driver, story)


def test_an_error_is_raised_where_it_is_read() -> None:
    """With what came until then; and the next step makes the request again."""
    with start_runner([streamed(LONG, cut=6), fault(529), LONG], stream=True) as run:
        stream = run.step()
        with pytest.raises(Exception, match=r".") as raised:
            list(stream)
        assert raised.value.partial_text is not None  # type: ignore[attr-defined]
        with pytest.raises(IllegalCommand, match="its request failed, or it was left early") as refused:
            stream.get_final_message()
        assert refused.value.allowed == ("iterating the runner",)
        run.step()
        with pytest.raises(ModelError):
            run.step()
        assert run.runner.until_done()
        assert run.shown == [user(), make_said(LONG)]


# --- under asyncio and trio ---
def test_a_cancelled_stream_hangs_up() -> None:
    """As if the request had not been made, and with nothing left behind."""

    async def story() -> None:
        held = streamed(LONG, hold=4)
        async with drive_runner("asyncio", [held, LONG], stream=True) as driven:
            stream: Any = await driven.step()
            async with anyio.create_task_group() as group:

                async def read_on() -> None:
                    await read(driven, stream)

                group.start_soon(read_on)
                await anyio.to_thread.run_sync(held.arrived.wait)
                group.cancel_scope.cancel()
            assert driven.runner.iterations == 0
            assert await driven.until_done()
            assert driven.runner.iterations == 1

    play("asyncio", story)


def test_a_reader_may_bound_the_wait_for_an_event() -> None:
    """The tasks of a reply belong to `async with stream:`, never to a scope inside; a wait given up loses nothing."""

    async def story() -> None:
        held = streamed(asks(ADD), hold=4)
        async with drive_runner("asyncio", [held, LONG], stream=True) as driven:
            stream: Any = await driven.step()
            async with stream:
                assert driven.count == 0
                with anyio.move_on_after(0.05):
                    async for _ in stream:
                        pass
                held.release()
                with anyio.fail_after(60):
                    assert [event async for event in stream]
                    assert (await stream.get_final_message())["content"] == [ADD]
                with anyio.fail_after(60):
                    assert await driven.respond()
            with anyio.fail_after(60):
                assert (await final(driven, await driven.step()))["content"] == LONG["content"]
            assert await driven.is_over()
            assert driven.count == 2

    play("asyncio", story)


def test_events_are_read_in_their_block_alone() -> None:
    """Outside of it nothing is begun that a reader could leave open; what to do is said, and the reply can be had."""

    async def story() -> None:
        async with drive_runner("asyncio", [LONG], stream=True) as driven:
            stream: Any = await driven.step()
            with anyio.fail_after(60), pytest.raises(IllegalCommand, match="async with stream"):
                await anext(stream)
            assert driven.count == 0
            async with stream:
                with pytest.raises(IllegalCommand, match="already open"):
                    await stream.__aenter__()
                await anext(stream)
            with pytest.raises(StopAsyncIteration):
                await anext(stream)
            assert (await final(driven, stream))["content"] == LONG["content"]

    play("asyncio", story)
