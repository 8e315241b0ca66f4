"""Rounds at the edges: ends in mid-request, interrupted calls, what is held back, and a stream that somebody reads."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.handle.support import params, user
from tests.handle.talking import each_driver, play
from tests.handle.test_runner_streams import final
from tests.handle.walking import ADD, asks, result, said, walking
from toolloop import LoopConfig, ToolRunner, tool
from toolloop.errors import IllegalCommand, InvalidHistory
from toolloop.terminations import NaturalEnd, Timeout
from toolloop.testing import FakeMessagesAPI, call, reply, server_call, server_result, streamed

BYE = reply("bye")
SEARCH = params(tools=[{"type": "web_search_20250305", "name": "web_search"}])
OPEN = server_call("web_search", {"query": "q"}, id="srvtoolu_1")
FOUND = server_result("web_search", [], id="srvtoolu_1")
SAY = user("say")


# --- a loop that ends in mid-request ---


@each_driver
@pytest.mark.parametrize("before", [[], [asks(ADD, text="first")]])
def test_a_loop_that_ends_in_mid_request_shows_no_other_reply(driver: str, before: list[Any]) -> None:
    """There is no message: not the one before, which stands in the history already."""

    async def story() -> None:
        silent = streamed(reply("Hello, and welcome to a longer text."), hold=4)
        async with walking(driver, [*before, silent], stream=True, timeout=1.0) as walk:
            for _ in before:
                await final(walk, await walk.step())
            stream: Any = await walk.step()
            with pytest.raises(IllegalCommand, match="the loop ended before this reply was in"):
                await final(walk, stream)
            shown = walk.shown
            assert [message["role"] for message in shown] == ["user", *["assistant", "user"] * len(before)]
            assert await walk.over()
            assert walk.shown == shown
            assert isinstance(walk.runner.into_result().termination, Timeout)

    play(driver, story)


@each_driver
def test_until_done_gives_the_last_reply_there_was(driver: str) -> None:
    """Also where the loop ended while the next one came in; None where there never was one."""

    async def story() -> None:
        for before in ([], [asks(ADD, text="first")]):
            silent = streamed(reply("Hello, and welcome to a longer text."), hold=4)
            async with walking(driver, [*before, silent], stream=True, timeout=1.0) as walk:
                last = await walk.until_done()
                assert (last is None) is (not before)
                assert last is None or last["stop_reason"] == "tool_use"

    play(driver, story)


# --- calls that still run when the caller has the word ---

Says = Callable[[ToolRunner, Any], object]


def interrupted(says: Says, *, effect: Any) -> tuple[list[int], list[Any]]:
    """What ran, and the history, where calls run, the step is interrupted, and the caller says something."""
    ran, begun, goes_on = list[int](), threading.Barrier(3), threading.Event()

    @tool(effect=effect)
    def slow(x: int) -> str:
        """Wait until somebody says so."""
        ran.append(x)
        begun.wait(10)
        goes_on.wait(10)
        return f"slow {x}"

    def interrupt() -> None:
        begun.wait(10)
        signal.pthread_kill(main, signal.SIGINT)

    main = threading.main_thread().ident or 0
    calls = [call("slow", {"x": 1}, id="toolu_1"), call("slow", {"x": 2}, id="toolu_2")]
    with FakeMessagesAPI([asks(*calls), BYE]) as api:
        runner = ToolRunner(api.client(), params=params(), tools=[slow])
        message = next(runner)
        helper = threading.Thread(target=interrupt)
        helper.start()
        with pytest.raises(KeyboardInterrupt):
            runner.generate_tool_response()
        helper.join()
        says(runner, message)
        later = threading.Timer(0.2, goes_on.set)
        later.start()
        runner.until_done()
        later.join()
        assert api.refused == []
        return ran, runner.params["messages"]


def outcomes(history: list[Any]) -> list[tuple[str, Any]]:
    return [(block["tool_use_id"], block["content"]) for block in history[2]["content"]]


@pytest.mark.parametrize("effect", ["pure", "once"])
@pytest.mark.parametrize(
    "says",
    [
        lambda _runner, _message: None,
        lambda runner, message: runner.append_messages(message),
        lambda runner, message: runner.append_messages(message, SAY),
    ],
    ids=["nothing", "append", "append and say"],
)
def test_what_still_runs_goes_on_whatever_is_appended(says: Says, effect: str) -> None:
    """Its end counts, nothing starts beside it, and nobody is asked how it ended."""
    ran, history = interrupted(says, effect=effect)
    assert sorted(ran) == [1, 2]
    assert outcomes(history) == [("toolu_1", "slow 1"), ("toolu_2", "slow 2")]


def test_the_end_of_what_the_caller_answered_or_took_out_is_lost() -> None:
    """The caller's word counts."""

    def answers(runner: ToolRunner, message: Any) -> None:
        runner.append_messages(message, user([result("toolu_2")]))

    def takes_out(runner: ToolRunner, message: Any) -> None:
        runner.append_messages({**said(message), "content": message["content"][:1]})

    ran, history = interrupted(answers, effect="once")
    assert outcomes(history) == [("toolu_1", "slow 1"), ("toolu_2", "mine")]
    ran_too, history = interrupted(takes_out, effect="once")
    assert outcomes(history) == [("toolu_1", "slow 1")]
    assert sorted(ran) == sorted(ran_too) == [1, 2]


# --- what is held back ---


@each_driver
def test_what_was_held_back_is_checked_where_it_comes_out(driver: str) -> None:
    """A history that bears only results behind it is refused before it goes out with more."""

    async def story() -> None:
        script = [asks(OPEN, ADD), reply(content=[FOUND, OPEN | {"id": "srvtoolu_2"}, ADD | {"id": "toolu_2"}])]
        found = FOUND | {"tool_use_id": "srvtoolu_2"}
        script += [reply(content=[found, ADD | {"id": "toolu_3"}]), BYE]
        async with walking(driver, script, SEARCH) as walk:
            await walk.reply()
            walk.runner.append_messages(await walk.reply(), SAY)
            third = await walk.reply()
            cut = walk.shown[:3]
            walk.runner.set_messages_params({**SEARCH, "messages": [*cut, said(third)]})
            with pytest.raises(InvalidHistory, match="open-server-call"):
                await walk.step()
            assert walk.count == 3

    play(driver, story)


@each_driver
def test_what_is_to_be_held_back_is_checked_when_it_is_said(driver: str) -> None:
    """Not when it goes out, which may be much later."""

    async def story() -> None:
        async with walking(driver, [asks(OPEN, ADD), BYE], SEARCH) as walk:
            walk.runner.append_messages(await walk.reply(), user([{"type": "text", "text": " "}]))
            with pytest.raises(InvalidHistory, match="blank"):
                await walk.step()
            assert walk.count == 1
            assert walk.ran == []

    play(driver, story)


@each_driver
def test_an_open_server_call_is_seen_wherever_it_stands(driver: str) -> None:
    """Also where it was in the history before, and what is appended says nothing of it."""

    async def story() -> None:
        begun = [user("hi"), said(asks(OPEN, ADD)), user([result("toolu_1")])]
        script = [asks(ADD | {"id": "toolu_2"}), asks(ADD | {"id": "toolu_3"}), BYE]
        async with walking(driver, script, {**SEARCH, "messages": begun}) as walk:
            message = await walk.reply()
            walk.runner.append_messages(message, user([result("toolu_2")]))
            message = await walk.reply()
            walk.runner.append_messages(message, user([result("toolu_3")]), SAY)
            with pytest.raises(InvalidHistory, match="open-server-call"):
                await walk.step()

    play(driver, story)


@each_driver
def test_what_was_held_back_is_answered_before_the_end(driver: str) -> None:
    """It goes out behind the reply that closes the turn, and that is not the end."""

    async def story() -> None:
        script = [asks(OPEN, ADD), reply(content=[FOUND, {"type": "text", "text": "so"}]), BYE]
        async with walking(driver, script, SEARCH) as walk:
            walk.runner.append_messages(await walk.reply(), SAY)
            assert (await walk.reply())["content"] == BYE["content"]
            assert SAY not in walk.sent(1)
            assert walk.sent(2)[-2:] == [{"role": "assistant", "content": [FOUND, {"type": "text", "text": "so"}]}, SAY]
            assert await walk.over()
            assert walk.runner.into_result().termination == NaturalEnd()

    play(driver, story)


# --- a stream that another thread reads ---


def test_a_stream_that_another_thread_reads_is_not_closed_under_it() -> None:
    """It is said, nothing is changed, and once that thread has left it may be closed."""
    held = streamed(reply("Hello, and welcome to a longer text, and more."), hold=4)
    with FakeMessagesAPI([held, BYE]) as api:
        runner = ToolRunner(api.client(), params=params(), stream=True, config=LoopConfig())
        stream, read = next(runner), list[Any]()
        reader = threading.Thread(target=lambda: read.extend(stream))
        reader.start()
        assert held.arrived.wait(10)
        with pytest.raises(IllegalCommand, match="at work"):
            runner.close()
        held.release()
        reader.join(10)
        assert stream.get_final_message()["content"][0]["text"].startswith("Hello")
        runner.close()
