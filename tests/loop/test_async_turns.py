"""The async handle does what the sync one does, under asyncio and under trio; and more of it may be async."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from tests.each import each
from tests.loop.concurrency import async_loop, async_wire, on_both_backends, run_async, sync_wire
from tests.loop.support import completed, failed, user, yielded
from toolloop import (
    Answer,
    Approve,
    Ask,
    AsyncToolLoopHandle,
    Completed,
    Deny,
    Error,
    ToolCall,
    ToolLoopHandle,
    View,
    Yielded,
    tool,
)
from toolloop.errors import BadTool, IllegalCommand
from toolloop.terminations import StopCondition
from toolloop.testing import dropped, fault, reply


@tool
def read_file(path: str) -> str:
    """Read a text file."""
    return f"text of {path}"


@tool(needs_approval=True)
def write_file(path: str, text: str) -> str:
    """Replace a text file."""
    return f"wrote {len(text)} letters to {path}"


TOOLS = (read_file, write_file)
TYPO: tuple[Any, ...] = (
    reply("I look", calls=[("read_file", {"path": "a"})]),
    reply(calls=[("write_file", {"path": "a", "text": "x"}), ("write_file", {"path": "b", "text": "y"})]),
    reply("The typo is gone."),
)


def test_the_program_of_the_readme() -> None:
    """One write is approved, the other denied, and the loop ends with the model's words."""

    async def main() -> None:
        async with async_wire(TYPO, TOOLS) as (handle, api):
            while True:
                match await handle.next_turn():
                    case Yielded() as turn:
                        for call in turn.pending:
                            if call.input["path"] == "a":
                                turn.approve(call, by="ana")
                            else:
                                turn.deny(call, "not today", by="ana")
                        turn.continue_loop()
                    case Completed() as done:
                        assert done.text == "The typo is gone."
                        assert done.iterations == len(api.requests) == 3
                        break
                    case Error() as error:
                        raise error.error

    run_async("asyncio", main)


def approve_all(handle: Any) -> None:
    for call in handle.pending:
        handle.decide({call: Approve(by="ana")})
    go_on(handle)


def decide_all_ways(handle: Any) -> None:
    one, two, three = handle.pending
    handle.decide({one: Approve({"path": "c", "text": "edited"}), two: Deny("no"), three: Answer("as you like")})
    go_on(handle)


def go_on(handle: Any) -> None:
    if handle.pending_turn is not None:
        handle.pending_turn.continue_loop()


def inject(handle: Any) -> None:
    handle.pending_turn.inject_and_continue([user("hurry"), user("please")])


def stop(handle: Any) -> None:
    handle.pending_turn.stop("enough")


def again(handle: Any) -> None:
    handle.retry()


def more(handle: Any) -> None:
    handle.follow_up([user("more")])


def edit(handle: Any) -> None:
    handle.messages_mut()[0]["content"] = "edited"
    go_on(handle)


WRITES = [("write_file", {"path": name, "text": name}) for name in "abc"]
STORIES: dict[str, tuple[list[Any], list[Callable[[Any], None]]]] = {
    "plain": ([*TYPO], [go_on, approve_all, go_on]),
    "edited, denied, answered": ([reply("x", calls=WRITES), reply("ok")], [decide_all_ways, go_on]),
    "injected": ([*TYPO], [inject, approve_all, go_on]),
    "stopped": ([reply(calls=WRITES)], [stop]),
    "failed and made again": ([fault(529), dropped(), reply("ok")], [again, again]),
    "followed up": ([reply("one"), reply("two")], [more]),
    "history edited": ([*TYPO], [edit, approve_all, go_on]),
    "unknown and invalid": (
        [reply(calls=[("nothing", {}), ("read_file", {"pat": 1}), ("read_file", {"path": "a"})]), reply("ok")],
        [go_on],
    ),
    "paused": ([reply("wait", stop_reason="pause_turn"), reply("ok")], [go_on]),
    "cut off": ([reply("and th", calls=WRITES, stop_reason="max_tokens")], []),
    "many at once": ([reply(calls=[("read_file", {"path": name}) for name in "abcdef"]), reply("ok")], [go_on]),
}


def summary(handle: Any, results: list[Any], api: Any) -> dict[str, Any]:
    """All that a story leaves behind, but for the time it took."""
    return {
        "bodies": [request.body for request in api.requests],
        "messages": handle.messages,
        "results": [(type(result), getattr(result, "termination", None), str(result)) for result in results],
        "usage": handle.total_usage,
        "view": handle.view(),
    }


@on_both_backends
@each("story", STORIES)
def test_sync_equals_async(backend: str, story: str) -> None:
    """The same story gives the same requests, byte for byte, the same history, and the same results."""
    script, steps = STORIES[story]
    results: list[Any] = []
    with sync_wire(script, TOOLS) as (handle, api):
        for step in steps:
            results.append(handle.next_turn())
            step(handle)
        results.append(handle.next_turn())
        expected = summary(handle, results, api)

    async def main() -> dict[str, Any]:
        results: list[Any] = []
        async with async_wire(script, TOOLS) as (handle, api):
            for step in steps:
                results.append(await handle.next_turn())
                step(handle)
            results.append(await handle.next_turn())
            return summary(handle, results, api)

    assert expected == run_async(backend, main)
    assert len(expected["bodies"]) == len(script)


@each("is_async", [False, True])
def test_policies_stop_conditions_and_predicates_may_be_async(is_async: bool) -> None:
    """Each is awaited where it is async; what each says counts the same."""

    def either(function: Callable[..., Any]) -> Callable[..., Any]:
        async def waiting(*args: Any) -> Any:
            await anyio.lowlevel.checkpoint()
            return function(*args)

        return waiting if is_async else function

    def policy(call: ToolCall, view: View) -> Any:
        return {"denied": Deny("never"), "asked": Ask("really?")}.get(call.input["word"])

    def enough(view: View) -> Any:
        return "enough" if view.iteration == 2 else None

    def is_loud(call: ToolCall) -> bool:
        return str(call.input["word"]).isupper()

    @tool(needs_approval=either(is_loud))
    def say(word: str) -> str:
        """Say a word."""
        return word

    async def main() -> None:
        calls = [("say", {"word": word}) for word in ("denied", "asked", "quiet", "LOUD")]
        handle = async_loop(
            [reply(calls=calls), reply(calls=calls)], [say], on_tool_call=either(policy), stop_when=either(enough)
        )
        turn = yielded(await handle.next_turn())
        assert [(call.input["word"], call.reason) for call in turn.pending] == [("asked", "really?"), ("LOUD", None)]
        turn.approve_all()
        turn.continue_loop()
        turn = yielded(await handle.next_turn())
        assert [slot.content for slot in turn.results if slot][1:] == ["asked", "quiet", "LOUD"]
        turn.continue_loop()
        assert completed(await handle.next_turn()).termination == StopCondition("enough")

    run_async("asyncio", main)


def test_an_async_policy_that_raises_asks_and_an_async_stop_condition_raises_through() -> None:
    """A policy fails closed; a stop condition's error is the caller's, and the turn can be driven again."""
    errors = [LookupError("not now")]

    async def policy(call: ToolCall, view: View) -> None:
        raise LookupError

    async def stop_when(view: View) -> None:
        if errors:
            raise errors.pop()

    async def main() -> None:
        script = [reply(calls=[("read_file", {"path": "a"})])]
        handle = async_loop(script, TOOLS, on_tool_call=policy, stop_when=stop_when)
        with pytest.raises(LookupError, match="not now"):
            await handle.next_turn()
        (call,) = yielded(await handle.next_turn()).pending
        assert call.reason == "the policy raised LookupError"

    run_async("asyncio", main)


@each("is_async", [False, True])
def test_run_asks_and_goes_on(is_async: bool) -> None:
    """`ask` may be async; without it the waiting turn is returned."""

    def approve(turn: Yielded) -> None:
        turn.approve_all(by="ana")

    async def approve_later(turn: Yielded) -> None:
        await anyio.lowlevel.checkpoint()
        approve(turn)

    async def main() -> None:
        async with async_wire(TYPO, TOOLS) as (handle, _):
            waiting = yielded(await handle.run())
            assert (waiting.reason, len(waiting.pending)) == ("decision_required", 2)
            assert yielded(await handle.run()) is waiting
            done = completed(await handle.run(approve_later if is_async else approve))
            assert done.text == "The typo is gone."
            assert await handle.run() is done

    run_async("asyncio", main)


def test_an_async_tools_error_is_a_result() -> None:
    """What an async tool raises is told to the model, and a timeout of its own is no cancellation."""

    @tool
    async def slow() -> str:
        """Give up at once."""
        with anyio.fail_after(0):
            await anyio.sleep_forever()
        return "never"

    async def main() -> None:
        handle = async_loop([reply(calls=[("slow", {}), ("slow", {})])], [slow])
        assert [slot.is_error for slot in yielded(await handle.next_turn()).results if slot] == [True, True]

    run_async("asyncio", main)


def test_one_task_drives() -> None:
    """A second `next_turn()` during one is refused at once; the first goes on."""
    refusals: list[BaseException] = []

    async def main() -> None:
        inside, leave = anyio.Event(), anyio.Event()

        @tool
        async def slow() -> str:
            """Wait to be let go."""
            inside.set()
            await leave.wait()
            return "done"

        handle = async_loop([reply(calls=[("slow", {})]), reply("done")], [slow])

        async def second() -> None:
            await inside.wait()
            with pytest.raises(IllegalCommand, match="another caller drives") as caught:
                await handle.next_turn()
            refusals.append(caught.value)
            leave.set()

        async with anyio.create_task_group() as group:
            group.start_soon(second)
            assert completed(await handle.run()).text == "done"
        assert len(refusals) == 1

    run_async("asyncio", main)


def test_the_sync_handle_refuses_what_is_async() -> None:
    """At construction, and with the name of the tool."""

    @tool
    async def slow() -> str:
        """Be async."""
        return "never"

    with sync_wire([reply("ok")]) as (handle, api), pytest.raises(BadTool, match="slow"):
        ToolLoopHandle(api.client(), params={"model": "m", "max_tokens": 1, "messages": [user()]}, tools=[slow])
    assert handle.iterations == 0


def test_an_error_is_the_same_and_can_be_retried() -> None:
    """A failed request is an `Error` result with what the API said."""

    async def main() -> None:
        async with async_wire([fault(429, retry_after=7), reply("ok")]) as (handle, _):
            assert isinstance(handle, AsyncToolLoopHandle)
            error = failed(await handle.next_turn())
            assert (error.retryable, error.retry_after, error.iterations) == (True, 7, 0)
            handle.retry()
            assert completed(await handle.next_turn()).text == "ok"

    run_async("asyncio", main)
