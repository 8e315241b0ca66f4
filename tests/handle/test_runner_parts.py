"""The runner and the rest of the library: keys, loops inside calls, thinking, what tools open, observers."""

from __future__ import annotations

from typing import Any, Self

import pytest

from tests.handle.support import params, user
from tests.handle.talking import each_driver, play
from tests.handle.walking import ADD, LOOK, asks, result, said, walking
from toolloop import Deny, LoopConfig, ToolContext, ToolRunner, sub_loop, tool
from toolloop.compaction import DropRounds
from toolloop.errors import ModelError, UndecidedCalls
from toolloop.events import CallFinished, CallProposed, CallStarted, HistoryReplaced, ThinkingDropped
from toolloop.testing import ScriptedProvider, call, compacted, fault, reply

BYE = reply("bye")
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": ""}  # the API signs it


@tool
def keyed(ctx: ToolContext) -> str:
    """Say under which key it runs."""
    return ctx.idempotency_key


@tool(needs_approval=True)
def gate() -> str:
    """Ask first."""
    return "open"


def content_of(message: Any) -> Any:
    return message["content"][0]["content"]


def test_a_run_that_was_asked_for_anew_has_a_key_of_its_own() -> None:
    """So the other side does it once more; asking for the response again is no new run."""
    runner = ToolRunner(ScriptedProvider([asks(call("keyed", {}, id="k")), BYE]), params=params(), tools=[keyed])
    next(runner)
    first = content_of(runner.generate_tool_response())
    assert content_of(runner.generate_tool_response()) == first
    second = content_of(runner.generate_tool_response(retry=["k"]))
    third = content_of(runner.generate_tool_response(retry=["k"]))
    assert len({first, second, third}) == 3


@each_driver
def test_a_loop_inside_a_call_is_asked_about_by_its_path(driver: str) -> None:
    """What waits in it holds the runner up; it is decided with the path, and its calls are those of a tree."""

    async def story() -> None:
        child = sub_loop("child", "A child.", params={"model": "claude-opus-5-5", "max_tokens": 9}, tools=[gate])
        script = [asks(call("child", {"prompt": "go"}, id="p")), asks(call("gate", {}, id="c")), reply("no"), BYE]
        async with walking(driver, script, tools=[child]) as walk:
            await walk.reply()
            with pytest.raises(UndecidedCalls, match=r"gate \(p/c: approval\)"):
                await walk.respond()
            walk.runner.decide({"p/c": Deny("no")})
            response = await walk.respond()
            assert content_of(response) == "no"
            assert await walk.until_done()
            assert walk.runner.iterations == 2
            assert len(walk.runner.usage_log) == 4

    play(driver, story)


@each_driver
def test_an_error_inside_a_call_is_raised_and_tried_again(driver: str) -> None:
    """The call goes on where it was; or is left out, with all that is inside of it."""

    async def story() -> None:
        child = sub_loop("child", "A child.", params={"model": "claude-opus-5-5", "max_tokens": 9}, tools=[])
        asked = asks(call("child", {"prompt": "go"}, id="p"))
        async with walking(driver, [asked, fault(529), reply("there"), BYE], tools=[child]) as walk:
            first = await walk.reply()
            with pytest.raises(ModelError):
                await walk.respond()
            answered = user([result("p", "there")])
            assert await walk.respond() == answered
            await walk.reply()
            assert walk.sent() == [user(), said(first), answered]
        async with walking(driver, [asked, fault(529), BYE], tools=[child]) as walk:
            await walk.reply()
            with pytest.raises(ModelError):
                await walk.step()
            walk.runner.set_messages_params(lambda now: {**now, "messages": [user("anew")]})
            await walk.reply()
            assert walk.sent() == [user("anew")]

    play(driver, story)


@each_driver
def test_thinking_goes_out_only_behind_what_it_was_born_behind(driver: str) -> None:
    """Of a reply that the caller appended it stays; of one behind another history it does not."""

    async def story() -> None:
        script = [reply(content=[THOUGHT, ADD]), reply(content=[THOUGHT, LOOK]), reply(content=[THOUGHT, ADD]), BYE]
        seen: list[Any] = []
        async with walking(driver, script, params(thinking={"type": "adaptive"}), observers=[seen.append]) as walk:
            first = await walk.reply()
            walk.runner.append_messages(first)
            second = await walk.reply()
            assert walk.sent()[1] == said(first)
            walk.runner.append_messages(second, user([result("toolu_2")]))
            third = await walk.reply()
            assert walk.sent()[1::2] == [said(first), said(second)]
            assert not [event for event in seen if isinstance(event, ThinkingDropped)]
            walk.runner.set_messages_params(lambda now: {**now, "messages": [user("other"), third]})
            await walk.reply()
            assert walk.sent()[1]["content"] == [ADD]
            assert [event.count for event in seen if isinstance(event, ThinkingDropped)] == [1]

    play(driver, story)


def test_observers_are_told_what_the_caller_made_of_it() -> None:
    """Another history, calls that were not known, and what was answered."""
    seen: list[Any] = []
    config = LoopConfig(observers=[seen.append])
    asked = {"role": "assistant", "content": [call("keyed", {}, id="k"), call("keyed", {}, id="l")]}
    begun = [user(), asked, user([result("l")])]
    runner = ToolRunner(ScriptedProvider([BYE, BYE]), params=params(messages=begun), tools=[keyed], config=config)
    assert [(type(event), event.call_id) for event in seen] == [
        (CallProposed, "k"),
        (CallProposed, "l"),
        (CallFinished, "l"),
    ]
    runner.until_done()
    assert [event.call_id for event in seen if isinstance(event, CallStarted)] == ["k"]
    runner.set_messages_params(params(messages=[user("anew")]))
    next(runner)
    assert [(event.before, event.after) for event in seen if isinstance(event, HistoryReplaced)][-1][1] == 1


class Opening:
    """Notes when it is opened and closed."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def __enter__(self) -> Self:
        self.told.append("open")
        return self

    def __exit__(self, *_error: object) -> None:
        self.told.append("closed")

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, *error: object) -> None:
        self.__exit__(*error)


@each_driver
def test_what_tools_open_is_opened_with_the_runner(driver: str) -> None:
    """In a `with` statement, which also hangs up on a stream that is not read."""

    async def story() -> None:
        opening = Opening()

        @tool
        def inside() -> str:
            """Work inside."""
            return ",".join(opening.told)

        object.__setattr__(inside, "opens", opening)
        script = [asks(call("inside", {}, id="i")), BYE]
        async with walking(driver, script, tools=[inside]) as walk:
            if walk.is_sync:
                with walk.runner:
                    await walk.until_done()
            else:
                async with walk.runner:
                    await walk.until_done()
            assert content_of(walk.shown[2]) == "open"
            assert opening.told == ["open", "closed"]

    play(driver, story)


@each_driver
def test_a_compaction_of_the_api_is_yielded_and_stands_for_the_history(driver: str) -> None:
    """As the SDK's runner shows it; leaving it out leaves the history as the caller made it."""

    async def story() -> None:
        asked = params(betas=["compact-2026-09-04"], compaction={"type": "summarize"})
        async with walking(driver, [compacted("They said hello."), BYE], asked) as walk:
            block = await walk.reply()
            assert block["stop_reason"] == "compaction"
            assert walk.shown == [user()]
            last = await walk.reply()
            assert walk.sent() == [said(block)]
            assert await walk.over()
            assert walk.shown == [said(block), said(last)]
        async with walking(driver, [compacted("They said hello."), BYE], asked) as walk:
            await walk.reply()
            walk.runner.append_messages(user("no summary, please"))
            await walk.reply()
            assert walk.sent() == [user(), user("no summary, please")]
            assert "compaction" not in walk.runner.params

    play(driver, story)


@each_driver
def test_a_compaction_of_the_configuration_is_the_callers_history_from_then_on(driver: str) -> None:
    """It happens before a request, and `params` shows what went out."""

    async def story() -> None:
        rounds = [asks(call("look", {"path": path * 900}, id=f"toolu_{path}")) for path in "abc"]
        async with walking(driver, [*rounds, BYE], compaction=DropRounds(1)) as walk:
            for _ in range(4):
                await walk.reply()
                assert walk.shown == walk.sent()
            assert len(walk.sent()) < 1 + 2 * len(rounds)
            assert len(walk.ran) == len(rounds)

    play(driver, story)
