"""`pause_turn` and `compaction` with every driver: the same requests go out, and all turns end alike."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from tests.compaction.compaction_stories import Reader, Reading, read, reading, thoughts_in
from tests.kit.concurrency import either_driver, play
from tests.kit.each import each
from tests.kit.streams import read as read_turn
from tests.kit.support import expect_refusal
from tests.kit.tools import TOOLS, params, user
from tests.kit.world import Handle, World, open_over_http_of
from toolloop import (
    AsyncToolRunner,
    Completed,
    LoopConfig,
    LoopContext,
    Stop,
    ToolLoopHandle,
    ToolRunner,
    Yielded,
)
from toolloop.errors import IllegalCommand
from toolloop.terminations import StopCondition
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
        async with open_over_http_of(driver, script, asked) as talk:
            parts: dict[str, Any] = {"params": asked, "tools": TOOLS, "config": LoopConfig(max_pauses=pauses)}
            replies, ended = await drive(face, talk, ran, parts)
            assert ended == kind
            assert len(talk.sent_bodies) == requests
            assert replies == requests
            assert len(ran) == runs
            for before, after in zip(talk.sent_bodies, talk.sent_bodies[1:], strict=False):
                if scene != "the API compacted":
                    assert after["messages"][: len(before["messages"])] == before["messages"]
                assert [message["role"] for message in after["messages"]].count("user") <= 1 + runs

    play(driver, story)


async def drive(face: str, talk: World, ran: list[Any], parts: dict[str, Any]) -> tuple[int, str]:
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
        return (await read_turn(handle))[1]
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


OTHER = user("Read another book.")
PAUSE = reply("Hm.", thinking="a long thought", stop_reason="pause_turn")


def edit(handle: Any) -> None:
    handle.messages_mut()[0] = OTHER


def make_pausing(*then: Any) -> Reader:
    """Two pages, then a pause that goes out only with its thinking."""
    return Reader(0, first=[read(1), read(2), PAUSE, *then])


async def to_the_pause(at: Reading) -> Any:
    turn = await at.aturn()
    while turn.reason != "paused":
        turn.continue_loop()
        turn = await at.aturn()
    return turn


@either_driver
def test_an_edit_before_a_pause_that_needs_its_thinking_is_refused(driver: str) -> None:
    """Nothing is sent; the list can be put back, and the loop goes on."""

    async def story() -> None:
        async with reading(driver, make_pausing()) as at:
            turn = await to_the_pause(at)
            edit(at.handle)
            with expect_refusal(at.handle, IllegalCommand, "has paused", "resume(Stop())"):
                turn.continue_loop()
            assert len(at.sent_bodies) == 3
            at.handle.messages_mut()[0] = user("Read the book.")
            turn.continue_loop()
            assert (await at.to_the_end()).text == "done"
            assert thoughts_in(at.list_sent()) == ["thought 1", "thought 2", "a long thought"]

    play(driver, story)


OTHERWISE: dict[str, dict[str, Any]] = {
    "system": {"system": "Be brief."},
    "tools": {"tools": [{"name": "ask", "input_schema": {"type": "object"}}]},
}


@each("what", OTHERWISE)
def test_other_words_before_such_a_pause_are_refused(what: str) -> None:
    """By `update_params`, at once; what stands before no thinking may change."""

    async def story() -> None:
        async with reading("sync", make_pausing()) as at:
            turn = await to_the_pause(at)
            with expect_refusal(at.handle, IllegalCommand, "has paused", "resume(Stop())"):
                at.handle.update_params(**OTHERWISE[what])
            assert len(at.sent_bodies) == 3
            at.handle.update_params(max_tokens=300)
            turn.continue_loop()
            assert (await at.to_the_end()).text == "done"
            assert at.sent_bodies[-1]["max_tokens"] == 300

    play("sync", story)


STOPS: dict[str, Callable[[Any, Any], object]] = {
    "stop": lambda _handle, turn: turn.stop("enough"),
    "resume": lambda handle, _turn: handle.resume(Stop("enough")),
}


@each("how", STOPS)
def test_stop_takes_the_edit_over(how: str) -> None:
    """The paused reply goes with it, so there is nothing that hangs on anything."""

    async def story() -> None:
        async with reading("sync", make_pausing(reply("done"))) as at:
            turn = await to_the_pause(at)
            edit(at.handle)
            STOPS[how](at.handle, turn)
            assert (await at.aexpect_done()).termination == StopCondition("enough")
            assert at.handle.messages[0] == OTHER
            assert "Hm." not in str(at.handle.messages)
            at.handle.follow_up([user("Go on.")])
            assert (await at.aexpect_done()).text == "done"
            assert at.list_sent()[0] == OTHER

    play("sync", story)
