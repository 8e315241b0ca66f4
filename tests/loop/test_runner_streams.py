"""The streaming runner: each step yields a stream of one reply, and all else is as without."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.to_thread
import pytest

from tests import inside
from tests.loop.runners import ADD, DrivenRunner, asks, driven_runner, result, running, said
from tests.loop.support import params, user
from tests.loop.talking import either_driver, play
from toolloop import ToolRunner
from toolloop.errors import IllegalCommand, ModelError
from toolloop.events import RequestStarted, TextDelta
from toolloop.terminations import MaxIterations, Timeout
from toolloop.testing import FakeMessagesAPI, fault, reply, server_call, server_result, streamed

LONG = reply("a text that comes in several pieces, one after the other")
SEARCH = params(tools=[{"type": "web_search_20250305", "name": "web_search"}])


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
        async with driven_runner(driver, [asks(ADD, text="so"), LONG], stream=True) as driven:
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
            assert await driven.over()
            assert driven.shown == [user(), said(first), user([result("toolu_1", "3")]), said(last)]
            assert all(request.json["stream"] is True for request in driven.api.requests)
            assert "over" in repr(stream)

    play(driver, story)


@either_driver
def test_what_the_body_leaves_unread_is_read(driver: str) -> None:
    """By the next step, by a response that is asked for, or by leaving the stream."""

    async def story() -> None:
        async with driven_runner(driver, [asks(ADD), asks(ADD), asks(ADD), LONG], stream=True) as driven:
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
        async with driven_runner(driver, [streamed(LONG), LONG, LONG], stream=True) as driven:
            stream: Any = await driven.step()
            with pytest.raises(ZeroDivisionError):
                await fail_inside(driven, stream)
            with pytest.raises(IllegalCommand, match="did not come to its end"):
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


def test_what_the_body_changes_counts_though_the_stream_is_not_read() -> None:
    """Parameters are in the request of this very reply, and no change beside it. Messages leave the reply out."""
    with running([asks(ADD), asks(ADD), LONG], stream=True) as run:
        stream = run.step()
        run.set(max_tokens=77)
        first = stream.get_final_message()
        stream = run.step()
        assert run.api.requests[0].json["max_tokens"] == 77
        assert run.ran == [("add", 1, 2)]
        assert run.shown[:2] == [user(), said(first)]
        run.runner.append_messages(user("rather not"))
        list(stream)
        run.reply()
        assert run.sent() == [*run.sent(1), user("rather not")]
        assert len(run.ran) == 1


def test_an_error_is_raised_where_it_is_read() -> None:
    """With what came until then; and the next step makes the request again."""
    with running([streamed(LONG, cut=6), fault(529), LONG], stream=True) as run:
        stream = run.step()
        with pytest.raises(Exception, match=r".") as raised:
            list(stream)
        assert raised.value.partial_text is not None  # type: ignore[attr-defined]
        with pytest.raises(IllegalCommand, match="its request failed or it was left") as refused:
            stream.get_final_message()
        assert refused.value.allowed == ("iterating the runner",)
        run.step()
        with pytest.raises(ModelError):
            run.step()
        assert run.runner.until_done()
        assert run.shown == [user(), said(LONG)]


def test_pauses_and_limits_are_as_without() -> None:
    """A pause is resumed, and a limit ends it."""
    search = server_call("web_search", {"query": "q"}, id="srvtoolu_1")
    found = reply(content=[server_result("web_search", [], id="srvtoolu_1"), *LONG["content"]])
    with running([reply(content=[search], stop_reason="pause_turn"), found], SEARCH, stream=True) as run:
        assert run.runner.until_done()
        assert (len(run.api.requests), len(run.shown)) == (2, 3)
    with running([asks(ADD)], stream=True, max_iterations=1) as run:
        assert run.runner.until_done()
        assert run.runner.into_result().termination == MaxIterations(1)


def test_a_loop_that_ends_in_mid_request_shows_no_other_reply() -> None:
    """There is no message: not the one before, which stands in the history already, and is the last there was."""
    held = streamed(LONG, hold=4)

    def let_time_pass() -> None:
        assert held.arrived.wait(60)
        inside.active_time_passes(inside.loop_of(run.runner), 1000.0)

    with running([asks(ADD, text="first"), held], stream=True, timeout=900.0) as run:
        first, stream = run.reply(), run.step()
        clock = threading.Thread(target=let_time_pass)
        clock.start()
        with pytest.raises(IllegalCommand, match="the loop ended before this reply was in"):
            stream.get_final_message()
        clock.join()
        assert [message["role"] for message in run.shown] == ["user", "assistant", "user"]
        assert run.runner.until_done() == first
        assert isinstance(run.runner.into_result().termination, Timeout)


def test_a_stream_that_another_thread_reads_is_not_closed_under_it() -> None:
    """It is said, nothing is changed, and once that thread has left it may be closed."""
    held = streamed(LONG, hold=4)
    with FakeMessagesAPI([held]) as api:
        runner = ToolRunner(api.client(), params=params(), stream=True)
        stream, read_there = next(runner), list[Any]()
        reader = threading.Thread(target=lambda: read_there.extend(stream))
        reader.start()
        assert held.arrived.wait(10)
        with pytest.raises(IllegalCommand, match="at work"):
            runner.close()
        held.release()
        reader.join(10)
        assert stream.get_final_message()["content"] == LONG["content"]
        runner.close()


# --- under asyncio and trio ---


def test_a_cancelled_stream_hangs_up() -> None:
    """As if the request had not been made, and with nothing left behind."""

    async def story() -> None:
        held = streamed(LONG, hold=4)
        async with driven_runner("asyncio", [held, LONG], stream=True) as driven:
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
        async with driven_runner("asyncio", [held, LONG], stream=True) as driven:
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
            assert await driven.over()
            assert driven.count == 2

    play("asyncio", story)


def test_events_are_read_in_their_block_alone() -> None:
    """Outside of it nothing is begun that a reader could leave open; what to do is said, and the reply can be had."""

    async def story() -> None:
        async with driven_runner("asyncio", [LONG], stream=True) as driven:
            stream: Any = await driven.step()
            with anyio.fail_after(60), pytest.raises(IllegalCommand, match="async with stream"):
                await anext(stream)
            assert driven.count == 0
            async with stream:
                with pytest.raises(IllegalCommand, match="open already"):
                    await stream.__aenter__()
                await anext(stream)
            with pytest.raises(StopAsyncIteration):
                await anext(stream)
            assert (await final(driven, stream))["content"] == LONG["content"]

    play("asyncio", story)
