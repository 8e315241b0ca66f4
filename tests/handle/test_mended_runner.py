"""What a runner does at the edges of its life: odd histories, ends, waits, words of errors, and what a step costs."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from tests.handle.support import params, user
from tests.handle.talking import each_driver, play
from tests.handle.test_runner_streams import final
from tests.handle.walking import ADD, LOOK, WRITE, asks, result, said, walking
from tests.properties.test_compaction_linear import Work
from toolloop import Answer, Approve, Deny, LoopConfig, LoopDetection, Rerun, ToolRunner, tool
from toolloop.errors import IllegalCommand, InvalidHistory, UndecidedCalls
from toolloop.terminations import LoopDetected
from toolloop.testing import ScriptedProvider, call, reply

BYE = reply("bye")


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def work_of_a_step(rounds: int, *, appends: bool) -> int:
    """How many functions of the library are entered in the step after so many rounds."""
    script = [asks(call("add", {"a": number, "b": 2}, id=f"toolu_{number}")) for number in range(rounds + 2)]
    asked = params()
    runner = ToolRunner(ScriptedProvider(script), params=asked, tools=[add], config=LoopConfig(max_iterations=None))
    work = Work()
    for number, message in enumerate(runner):
        with work.counting() if number == rounds else Work().counting():
            response = runner.generate_tool_response()
            if appends:
                runner.append_messages(message, response)
            if number == rounds:
                next(runner)
                break
    return work.entered.total()


@pytest.mark.parametrize("appends", [False, True])
def test_a_step_costs_the_same_at_any_length(appends: bool) -> None:
    """Also where the body appends the reply and its results, for only what is new is judged."""
    early, late = (work_of_a_step(rounds, appends=appends) for rounds in (20, 200))
    assert late <= 1.05 * early


@each_driver
def test_what_is_appended_is_judged_with_what_it_follows(driver: str) -> None:
    """A history that was good, and what is new behind it: the error names the place in the whole."""

    async def story() -> None:
        async with walking(driver, [asks(ADD), asks(LOOK), asks(LOOK)]) as walk:
            await walk.step()
            first = await walk.reply()
            walk.runner.append_messages(first, user([result("toolu_9")]))
            with pytest.raises(InvalidHistory) as raised:
                await walk.step()
            assert raised.value.problems[0].path.startswith("messages[4]")
            assert raised.value.messages == walk.shown
            marked = [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}]
            walk.runner.set_messages_params(lambda now: {**now, "messages": [*now["messages"][:3], user(marked * 3)]})
            await walk.step()
            walk.runner.append_messages(user(marked * 2))
            with pytest.raises(InvalidHistory, match="cache-marks"):
                await walk.step()

    play(driver, story)


@each_driver
def test_an_empty_history_is_refused_in_words(driver: str) -> None:
    """As at construction; it stays to be mended."""

    async def story() -> None:
        async with walking(driver, [asks(ADD), BYE]) as walk:
            await walk.step()
            walk.runner.set_messages_params(lambda now: {**now, "messages": []})
            with pytest.raises(InvalidHistory, match="no-messages"):
                await walk.step()
            assert walk.shown == []
            walk.runner.append_messages(user("anew"))
            assert await walk.reply()
            assert walk.sent() == [user("anew")]

    play(driver, story)


@each_driver
def test_the_order_of_the_fields_of_a_message_is_no_matter(driver: str) -> None:
    """Open calls are open calls, at the start and set later."""

    async def story() -> None:
        asked = params(messages=[user(), {"content": [ADD], "role": "assistant"}])
        async with walking(driver, [asks(LOOK), BYE], asked) as walk:
            await walk.step()
            assert walk.ran == [("add", 1, 2)]
            walk.runner.set_messages_params({**asked, "messages": [user(), {"content": [LOOK], "role": "assistant"}]})
            await walk.step()
            assert walk.ran[1:] == [("look", "x")]
            assert walk.sent()[1] == said({"content": [LOOK]})

    play(driver, story)


@each_driver
@pytest.mark.parametrize("odd", [1, {"text": "no type"}, {"type": 3}])
def test_nonsense_beside_a_call_is_an_invalid_history(driver: str, odd: Any) -> None:
    """Whatever it is, nothing else is raised, and it can be mended."""

    async def story() -> None:
        async with walking(driver, [asks(ADD), BYE]) as walk:
            await walk.step()
            walk.runner.append_messages({"role": "assistant", "content": [odd, ADD]})
            with pytest.raises(InvalidHistory):
                await walk.step()
            walk.runner.set_messages_params(params(messages=[user("anew")]))
            assert await walk.step()
            assert walk.ran == []

    play(driver, story)


@each_driver
@pytest.mark.parametrize("reason", ["refusal", "end_turn", "stop_sequence", "unheard_of"])
def test_no_call_of_a_reply_that_ended_the_loop_runs_later(driver: str, reason: str) -> None:
    """Though the body appended that reply, and says something after the end: such a call is told as not run."""

    async def story() -> None:
        ends = reply(content=[ADD, LOOK], stop_reason=reason)
        async with walking(driver, [ends, asks(LOOK), BYE]) as walk:
            last = await walk.reply()
            walk.runner.append_messages(last)
            assert await walk.over()
            assert walk.shown == [user(), said(last)]
            assert await walk.respond() is None
            walk.runner.append_messages(user([result("toolu_1", "mine")]), user("go on"))
            assert await walk.reply()
            assert walk.ran == []
            mine, not_run = walk.sent()[2]["content"]
            assert mine == result("toolu_1", "mine")
            assert not_run["tool_use_id"] == "toolu_2"
            assert "not run" in not_run["content"]
            assert walk.sent()[3:] == [user("go on")]
            await walk.until_done()
            assert walk.ran == [("look", "x")]

    play(driver, story)


@each_driver
@pytest.mark.parametrize("streams", [False, True])
def test_what_the_error_about_waiting_calls_says_is_possible(driver: str, streams: bool) -> None:
    """Each of the ways that it names is taken, and goes through."""

    async def story() -> None:
        ask_twice = [asks(WRITE), asks(WRITE), asks(WRITE), BYE]
        async with walking(driver, ask_twice, stream=streams) as walk:
            answer = user([result("toolu_4", "done by hand")])
            await walk.step()
            with pytest.raises(UndecidedCalls, match=r"append_messages\(results\).*") as raised:
                await walk.step()
            assert "approval: Approve, Deny or Answer" in str(raised.value)
            walk.runner.append_messages(answer)
            step = await walk.reply()
            message = await final(walk, step) if streams else step
            with pytest.raises(UndecidedCalls, match=r"append_messages\(message, results\)"):
                await walk.respond()
            walk.runner.append_messages(message)
            with pytest.raises(UndecidedCalls, match=r"append_messages\(results\)"):
                await walk.respond()
            walk.runner.append_messages(answer)
            await walk.step()
            with pytest.raises(UndecidedCalls):
                await walk.step()
            walk.runner.decide({"toolu_4": Deny("no")})
            await walk.until_done()
            assert [message["content"][0]["content"] for message in walk.sent()[2:6:2]] == ["done by hand"] * 2
            assert walk.ran == []

    play(driver, story)


@each_driver
def test_what_may_be_decided_is_said_by_why_a_call_waits(driver: str) -> None:
    """A call of the caller's own can be answered or denied; one that nobody saw end may run again as well."""

    async def story() -> None:
        own = {"name": "own", "description": "d", "input_schema": {"type": "object", "properties": {}}}
        script = [asks(call("own", {}, id="toolu_1")), BYE]
        async with walking(driver, script, params(tools=[own])) as walk:
            await walk.step()
            with pytest.raises(UndecidedCalls, match=r"external: Answer or Deny\)"):
                await walk.step()
            walk.runner.decide({"toolu_1": Answer("hey")})
            await walk.until_done()
            assert walk.sent()[2] == user([result("toolu_1", "hey")])

    play(driver, story)


def test_a_call_that_was_interrupted_may_run_again() -> None:
    """The error says so, and so it is."""
    tries: list[int] = []

    @tool
    def stubborn() -> str:
        """Be interrupted at first."""
        tries.append(1)
        if len(tries) == 1:
            raise KeyboardInterrupt
        return "fine"

    script = [asks(call("stubborn", {}, id="toolu_1")), BYE]
    runner = ToolRunner(ScriptedProvider(script), params=params(), tools=[stubborn])
    next(runner)
    with pytest.raises(KeyboardInterrupt):
        next(runner)
    with pytest.raises(UndecidedCalls, match="uncertain: Rerun, Answer or Deny"):
        next(runner)
    runner.decide({"toolu_1": Rerun()})
    assert runner.until_done() is not None
    assert len(tries) == 2


@each_driver
def test_errors_of_a_runner_name_what_a_runner_has(driver: str) -> None:
    """Not the commands of a handle, which it has not, and nothing from inside."""

    async def story() -> None:
        async with walking(driver, [asks(WRITE), BYE]) as walk:
            await walk.step()
            with pytest.raises(IllegalCommand, match="no call waits") as raised:
                walk.runner.decide({"toolu_4": Approve()})
            assert raised.value.allowed == ("iterating the runner", "generate_tool_response()")
            with pytest.raises(UndecidedCalls):
                await walk.respond()
            walk.runner.decide({"toolu_4": Deny("no")})
            await walk.respond()
            with pytest.raises(IllegalCommand, match="'toolu_4' never ran") as raised:
                await walk.respond(["toolu_4"])
            assert "Reopened" not in str(raised.value)
            assert "Proposed" not in str(raised.value)

    play(driver, story)


def test_who_comes_second_is_told_that_one_may_at_a_time() -> None:
    """Whoever reads, or iterates, changes no history; so that is not what they are told."""
    inside, go = threading.Event(), threading.Event()

    @tool
    def hold() -> str:
        """Wait."""
        inside.set()
        assert go.wait(60)
        return "held"

    runner = ToolRunner(ScriptedProvider([asks(call("hold", {}, id="i")), BYE]), params=params(), tools=[hold])
    next(runner)
    other = threading.Thread(target=runner.until_done)
    other.start()
    try:
        assert inside.wait(60)
        with pytest.raises(IllegalCommand, match=r"the next step: .* One may at a time"):
            next(runner)
        with pytest.raises(IllegalCommand, match="Change the history between two steps"):
            runner.append_messages(user("x"))
    finally:
        go.set()
        other.join()


@each_driver
def test_a_reply_with_another_input_is_not_said_to_be_left_out(driver: str, caplog: pytest.LogCaptureFixture) -> None:
    """Its call runs, as the caller wrote it."""

    async def story() -> None:
        with caplog.at_level(logging.WARNING):
            async with walking(driver, [asks(ADD, text="so"), BYE]) as walk:
                message = await walk.reply()
                text, asked = message["content"]
                edited = {"role": "assistant", "content": [text, {**asked, "input": {"a": 5, "b": 6}}]}
                walk.runner.append_messages(edited)
                await walk.until_done()
                assert walk.ran == [("add", 5, 6)]
        assert not [record for record in caplog.records if "left out" in record.message]

    play(driver, story)


@each_driver
def test_a_caller_may_keep_a_list_of_their_own(driver: str) -> None:
    """And set it each time: a reply that goes back without its blank text does so in every iteration."""

    async def story() -> None:
        blank = {"type": "text", "text": ""}
        script = [reply(content=[blank, ADD]), reply(content=[blank, LOOK]), BYE]
        async with walking(driver, script) as walk:
            own = [user()]
            while (message := await walk.step()) is not None:
                response = await walk.respond()
                own += [said(message), *([response] if response else [])]
                walk.runner.set_messages_params(lambda now: {**now, "messages": own})  # noqa: B023 - called at once
            assert [len(entry["content"]) for entry in walk.sent()[1::2]] == [1, 1]
            assert len(walk.ran) == 2

    play(driver, story)


@each_driver
@pytest.mark.parametrize("appends", ["nothing", "the reply", "the reply and its results"])
def test_a_model_that_goes_in_circles_is_noticed_whoever_appends(driver: str, appends: str) -> None:
    """The rounds count that the caller looked at and put into the history, as those do that joined by themselves."""

    async def story() -> None:
        detection = LoopDetection(action="stop")
        async with walking(driver, [asks(ADD)] * 6 + [BYE], loop_detection=detection) as walk:
            while (message := await walk.step()) is not None:
                response = None if appends == "the reply" else await walk.respond()
                if appends != "nothing":
                    walk.runner.append_messages(message, *([response] if appends.endswith("results") else []))
            assert isinstance(walk.runner.into_result().termination, LoopDetected)
            assert walk.count == detection.threshold

    play(driver, story)


@each_driver
def test_rounds_that_the_caller_answers_are_no_circle(driver: str) -> None:
    """Nobody knows what came of these calls."""

    async def story() -> None:
        detection = LoopDetection(action="stop")
        async with walking(driver, [asks(ADD)] * 6 + [BYE], loop_detection=detection) as walk:
            while (message := await walk.step()) is not None:
                if message["stop_reason"] == "tool_use":
                    walk.runner.append_messages(message, user([result("toolu_1", f"{walk.count}")]))
            assert walk.count == 7
            assert walk.ran == []

    play(driver, story)


@each_driver
def test_a_warning_about_a_circle_goes_out_behind_what_the_caller_appends(driver: str) -> None:
    """The model is told in the request that follows."""

    async def story() -> None:
        detection = LoopDetection(action="inject_warning")
        async with walking(driver, [asks(ADD)] * 4 + [BYE], loop_detection=detection) as walk:
            warned: list[Any] = []
            while (message := await walk.step()) is not None:
                warned.append("add" in str(walk.sent()[-1]["content"]))
                if (response := await walk.respond()) is not None:
                    walk.runner.append_messages(message, response)
            assert warned.index(True) == detection.threshold

    play(driver, story)
