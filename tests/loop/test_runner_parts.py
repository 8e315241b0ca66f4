"""The runner and the rest of the library: keys, loops inside calls, thinking, what tools open, observers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.loop.runners import ADD, LOOK, asks, driven_runner, result, running, said
from tests.loop.support import params, user
from tests.loop.talking import either_driver, play
from toolloop import Deny, LoopConfig, ToolContext, ToolRunner, sub_loop, tool
from toolloop.compaction import DropRounds
from toolloop.errors import ModelError, UndecidedCalls
from toolloop.events import CallProposed, CallStarted, HistoryReplaced, ThinkingDropped
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


@either_driver
def test_a_loop_inside_a_call_is_asked_about_by_its_path(driver: str) -> None:
    """What waits in it holds the runner up; it is decided with the path, and its calls are those of a tree."""

    async def story() -> None:
        child = sub_loop("child", "A child.", params={"model": "claude-opus-5-5", "max_tokens": 9}, tools=[gate])
        script = [asks(call("child", {"prompt": "go"}, id="p")), asks(call("gate", {}, id="c")), reply("no"), BYE]
        async with driven_runner(driver, script, tools=[child]) as driven:
            await driven.reply()
            with pytest.raises(UndecidedCalls, match=r"gate \(p/c: approval\)"):
                await driven.respond()
            driven.runner.decide({"p/c": Deny("no")})
            response = await driven.respond()
            assert content_of(response) == "no"
            assert await driven.until_done()
            assert driven.runner.iterations == 2
            assert len(driven.runner.usage_log) == 4

    play(driver, story)


def test_an_error_inside_a_call_is_raised_and_tried_again() -> None:
    """The call goes on where it was; or is left out, with all that is inside of it."""
    child = sub_loop("child", "A child.", params={"model": "claude-opus-5-5", "max_tokens": 9}, tools=[])
    asked = asks(call("child", {"prompt": "go"}, id="p"))
    with running([asked, fault(529), reply("there"), BYE], tools=[child]) as run:
        first = run.reply()
        with pytest.raises(ModelError):
            run.runner.generate_tool_response()
        answered = user([result("p", "there")])
        assert run.runner.generate_tool_response() == answered
        run.reply()
        assert run.sent() == [user(), said(first), answered]
    with running([asked, fault(529), BYE], tools=[child]) as run:
        run.reply()
        with pytest.raises(ModelError):
            run.step()
        run.set(messages=[user("anew")])
        run.reply()
        assert run.sent() == [user("anew")]


def test_thinking_goes_out_only_behind_what_it_was_born_behind() -> None:
    """Of a reply that the caller appended it stays; of one behind another history it does not."""
    script = [reply(content=[THOUGHT, ADD]), reply(content=[THOUGHT, LOOK]), reply(content=[THOUGHT, ADD]), BYE]
    seen: list[Any] = []
    with running(script, params(thinking={"type": "adaptive"}), observers=[seen.append]) as run:
        first = run.reply()
        run.runner.append_messages(first)
        second = run.reply()
        assert run.sent()[1] == said(first)
        run.runner.append_messages(second, user([result("toolu_2")]))
        third = run.reply()
        assert run.sent()[1::2] == [said(first), said(second)]
        assert not [event for event in seen if isinstance(event, ThinkingDropped)]
        run.set(messages=[user("other"), third])
        run.reply()
        assert run.sent()[1]["content"] == [ADD]
        assert [event.count for event in seen if isinstance(event, ThinkingDropped)] == [1]


def test_observers_are_told_what_the_caller_made_of_it() -> None:
    """Another history, and calls that were not known."""
    seen: list[Any] = []
    config = LoopConfig(observers=[seen.append])
    asked = {"role": "assistant", "content": [call("keyed", {}, id="k"), call("keyed", {}, id="l")]}
    begun = [user(), asked]
    runner = ToolRunner(ScriptedProvider([BYE, BYE]), params=params(messages=begun), tools=[keyed], config=config)
    assert [(type(event), event.call_id) for event in seen] == [(CallProposed, "k"), (CallProposed, "l")]
    runner.until_done()
    assert sorted(event.call_id for event in seen if isinstance(event, CallStarted)) == ["k", "l"]
    runner.set_messages_params(params(messages=[user("anew")]))
    next(runner)
    assert [(event.before, event.after) for event in seen if isinstance(event, HistoryReplaced)][-1][1] == 1


def test_a_compaction_of_the_api_is_yielded_and_stands_for_the_history() -> None:
    """As the SDK's runner shows it; leaving it out leaves the history as the caller made it."""
    asked = params(betas=["compact-2026-09-04"], compaction={"type": "summarize"})
    with running([compacted("They said hello."), BYE], asked) as run:
        block = run.reply()
        assert block["stop_reason"] == "compaction"
        assert run.shown == [user()]
        last = run.reply()
        assert run.sent() == [said(block)]
        assert run.step() is None
        assert run.shown == [said(block), said(last)]
    with running([compacted("They said hello."), BYE], asked) as run:
        run.reply()
        run.runner.append_messages(user("no summary, please"))
        run.reply()
        assert run.sent() == [user(), user("no summary, please")]
        assert "compaction" not in run.runner.params


def test_a_compaction_of_the_configuration_is_the_callers_history_from_then_on() -> None:
    """It happens before a request, and `params` shows what went out."""
    rounds = [asks(call("look", {"path": path * 900}, id=f"toolu_{path}")) for path in "abc"]
    with running([*rounds, BYE], compaction=DropRounds(1)) as run:
        for _ in range(4):
            run.reply()
            assert run.shown == run.sent()
        assert len(run.sent()) < 1 + 2 * len(rounds)
        assert len(run.ran) == len(rounds)
