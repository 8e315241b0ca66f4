"""What type checkers see of runners and streams: mypy and pyright check this file, nothing runs it."""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from typing import Any, assert_type

from anthropic import Anthropic, AsyncAnthropic
from anthropic.types import MessageCreateParams

from toolloop import AsyncToolLoopHandle, AsyncToolRunner, ToolLoopHandle, ToolRunner, Yielded
from toolloop.events import TextDelta, WatchEvent
from toolloop.types import AsyncReplyStream, ReplyStream, Turn


def asks(turn: Yielded) -> None:
    turn.approve_all()


async def asks_later(turn: Yielded) -> None:
    turn.approve_all()


def a_runner_yields_messages_or_streams(client: Anthropic, params: MessageCreateParams) -> None:
    runner: ToolRunner = ToolRunner(client, params=params, ask=asks)
    for message in runner:
        assert_type(message, dict[str, Any])
    for stream in ToolRunner(client, params=params, stream=True):
        assert_type(stream, ReplyStream)
        for event in stream:
            assert_type(event, WatchEvent)
        assert_type(stream.get_final_message(), dict[str, Any])
    assert_type(ToolRunner(client, params=params, stream=True).until_done(), dict[str, Any] | None)
    ToolRunner(client)  # type: ignore[call-overload]
    ToolRunner(client, params=params, streams=True)  # type: ignore[call-overload]
    ToolRunner(client, params=params, ask=len)  # type: ignore[arg-type]


async def an_async_runner_likewise(client: AsyncAnthropic, params: dict[str, Any]) -> None:
    async for message in AsyncToolRunner(client, params=params, ask=asks_later):
        assert_type(message, dict[str, Any])
    async for stream in AsyncToolRunner(client, params=params, stream=True, ask=asks):
        assert_type(stream, AsyncReplyStream)


async def streams_yield_events(handle: ToolLoopHandle, later: AsyncToolLoopHandle) -> None:
    with handle.stream(ask=asks) as stream:
        for event in stream:
            match event:
                case TextDelta():
                    assert_type(event.text, str)
                case _:
                    assert_type(event, WatchEvent)
        assert_type(stream.turn, Turn)
    async with later.stream_turn() as turns:
        async for event in turns:
            assert_type(event, WatchEvent)
        assert_type((await turns.finish()).text, str | None)
