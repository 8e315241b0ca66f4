"""`pause_turn` and `compaction`, whoever drives and however: the same requests go out, and all come to the same end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from tests.each import each
from tests.loop.streams import read
from tests.loop.support import TOOLS, params
from tests.loop.talking import Handle, Talk, play, talking
from toolloop import AsyncToolRunner, Completed, LoopConfig, LoopContext, ToolLoopHandle, ToolRunner, Yielded
from toolloop.testing import call, compacted, reply, server_call, server_result

COMPACT = {"type": "compact_20260112", "pause_after_compaction": True, "trigger": None}
SEARCH = {"type": "web_search_20250305", "name": "web_search"}


def searches(number: int) -> dict[str, Any]:
    """A paused reply whose search is under way."""
    call_id = f"srvtoolu_{number}"
    return reply(content=[server_call("web_search", {"query": "q"}, id=call_id)], stop_reason="pause_turn")


def finds(number: int, *more: Any, **parts: Any) -> dict[str, Any]:
    """A reply that goes on with it."""
    return reply(content=[server_result("web_search", id=f"srvtoolu_{number}"), *more], **parts)


TEXT = {"type": "text", "text": "found"}
ADD = call("add", {"a": 1, "b": 2}, id="toolu_1")
AGAIN = finds(1, server_call("web_search", {"query": "r"}, id="srvtoolu_2"), stop_reason="pause_turn")
MIXED = reply(content=[server_call("web_search", {"query": "q"}, id="srvtoolu_1"), ADD], stop_reason="pause_turn")

# The answers; the limit of pauses; how many requests are made, how the loop ends, how many tools ran.
SCENES: dict[str, tuple[list[Any], int, int, str, int]] = {
    "a server's tool only": ([searches(1), finds(1, TEXT)], 10, 2, "complete", 0),
    "several in a row": ([searches(1), AGAIN, finds(2, TEXT)], 10, 3, "complete", 0),
    "a text, and no call at all": ([reply("let me", stop_reason="pause_turn"), reply("found")], 10, 2, "complete", 0),
    "then a client's call": ([searches(1), finds(1, ADD, stop_reason="tool_use"), reply("3")], 10, 3, "complete", 1),
    "beside a call of the client's": ([MIXED, finds(1, TEXT)], 10, 2, "complete", 1),
    "over the limit": ([searches(1), AGAIN, finds(2, TEXT)], 1, 2, "pause_limit", 0),
    "no pause allowed": ([searches(1), finds(1, TEXT)], 0, 1, "pause_limit", 0),
    "the API compacted": ([compacted("what was"), reply("found")], 10, 2, "complete", 0),
}


FACES = ("handle", "stream", "runner", "streamed runner")
MIXED_SCENE = "beside a call of the client's"


@each(
    ("face", "scene", "driver"),
    [
        *(("handle", scene, "sync") for scene in SCENES),
        *((face, MIXED_SCENE, "sync") for face in FACES[1:]),
        *((face, MIXED_SCENE, "asyncio") for face in FACES),
    ],
)
def test_a_pause(face: str, scene: str, driver: str) -> None:
    """It is resumed with no user turn, at most so often; calls of the client's run first, and each once."""
    script, pauses, requests, kind, runs = SCENES[scene]
    asked = params(tools=[SEARCH])
    if scene == "the API compacted":
        asked |= {"betas": ["compact-2026-01-12"], "context_management": {"edits": [COMPACT]}}

    async def story() -> None:
        ran: list[Any] = []
        async with talking(driver, script, asked) as talk:
            parts: dict[str, Any] = {"params": asked, "tools": TOOLS, "config": LoopConfig(max_pauses=pauses)}
            replies, ended = await drive(face, talk, ran, parts)
            assert ended == kind
            assert len(talk.bodies()) == requests
            assert replies == requests
            assert len(ran) == runs
            for before, after in zip(talk.bodies(), talk.bodies()[1:], strict=False):
                if scene != "the API compacted":
                    assert after["messages"][: len(before["messages"])] == before["messages"]
                assert [message["role"] for message in after["messages"]].count("user") <= 1 + runs

    play(driver, story)


async def drive(face: str, talk: Talk, ran: list[Any], parts: dict[str, Any]) -> tuple[int, str]:
    """Drive to the end: how many replies were seen, and how it ended."""
    parts["context"] = LoopContext(state=ran)
    is_sync = isinstance(talk.handle, ToolLoopHandle)
    if "runner" in face:
        runner = (ToolRunner if is_sync else AsyncToolRunner)(talk.client, stream="streamed" in face, **parts)
        count = 0
        async for _ in every_message(runner):
            count += 1
        return count, runner.into_result().termination.kind
    handle = type(talk.handle)(talk.client, **parts)
    while True:
        turn = await _turn(handle, streams=face == "stream")
        if isinstance(turn, Completed):
            return turn.iterations, turn.termination.kind
        assert isinstance(turn, Yielded), turn
        turn.continue_loop()


async def _turn(handle: Handle, *, streams: bool) -> Any:
    if streams:
        return (await read(handle))[1]
    turn = handle.next_turn()
    return await turn if hasattr(turn, "__await__") else turn


async def every_message(runner: Any) -> AsyncIterator[Any]:
    """What a runner of either kind yields."""
    if hasattr(runner, "__anext__"):
        async for message in runner:
            yield message
    else:
        for message in runner:
            yield message
