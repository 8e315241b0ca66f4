"""The runner: whose history counts, and what runs. Random bodies: `tests/promises/properties/test_runner_random`."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.concurrency import either_driver, play
from tests.kit.runners import ADD, LOOK, WRITE, Run, asks, drive_runner, make_said, result, start_runner
from tests.kit.tools import params, user
from tests.promises.properties.test_compaction_cost import Work
from toolloop import LoopConfig, ToolRunner, tool
from toolloop.errors import IllegalCommand, InvalidHistory, UnknownCall
from toolloop.providers import as_sdk
from toolloop.terminations import MaxIterations, NaturalEnd, Unfinished
from toolloop.testing import ScriptedProvider, call, reply, server_call, server_result

BYE = reply("bye")
SEARCH = params(tools=[{"type": "web_search_20250305", "name": "web_search"}])
Change = Callable[[Run, Any], object]  # what a body does with the reply
ANSWERED = user([result("toolu_1", "3")])
REPLY: dict[str, Any] = {}  # stands for the reply
MINE = user([result("toolu_1")])


def responds_and_answers(run: Run, message: Any) -> None:
    run.runner.generate_tool_response()
    run.runner.append_messages(message, MINE)


def takes_it_back(run: Run, _message: Any) -> None:
    run.runner.append_messages(user("no"))
    run.set(messages=[user()])


# What a body does; the messages after the first that go out next; how often ADD ran, for which each reply asks.
BODIES: dict[str, tuple[Change, list[Any], int]] = {
    "nothing": (lambda _run, _reply: None, [REPLY, ANSWERED], 1),
    "appends nothing": (lambda run, _reply: run.runner.append_messages(), [REPLY, ANSWERED], 1),
    "appends the reply": (lambda run, reply: run.runner.append_messages(reply), [REPLY, ANSWERED], 1),
    "appends it as the SDK's": (lambda run, reply: run.runner.append_messages(as_sdk(reply)), [REPLY, ANSWERED], 1),
    "answers": (lambda run, reply: run.runner.append_messages(reply, MINE), [REPLY, MINE], 0),
    "appends another response": (responds_and_answers, [REPLY, MINE], 1),
    "says something else": (lambda run, _reply: run.runner.append_messages(user("no")), [user("no")], 0),
    "says something else, and takes it back": (takes_it_back, [], 0),
    "sets parameters": (lambda run, _reply: run.set(max_tokens=99), [], 0),
}


@pytest.mark.parametrize("name", BODIES)
def test_what_goes_out_after_a_body(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """The reply and its results if it changed nothing; else what it made of the history, and the log warns."""
    change, expected, ran = BODIES[name]
    with start_runner([asks(ADD, text="so"), BYE]) as run:
        first = run.reply()
        assert (run.ran, run.shown, run.runner.into_result().termination) == ([], [user()], Unfinished())
        change(run, first)
        last = run.reply()
        sent = [user(), *(make_said(first) if message is REPLY else message for message in expected)]
        assert run.list_sent() == sent == run.shown
        assert run.ran == [("add", 1, 2)] * ran
        left_out = [record.levelno for record in caplog.records if "left out" in record.message]
        assert left_out == ([] if make_said(first) in sent else [logging.WARNING])
        assert run.step() is run.step() is None
        assert run.shown == [*sent, make_said(last)]
        assert (run.runner.iterations, len(run.api.requests), len(run.runner.usage_log)) == (2, 2, 2)
        assert run.runner.into_result().termination == NaturalEnd()
        assert run.runner.total_usage == run.runner.into_result().total_usage
        assert "2 iterations" in repr(run.runner)


@either_driver
def test_a_final_iteration_that_the_caller_changes(driver: str) -> None:
    """Their history stands, and the runner ends; a message after the end begins a further user turn."""

    async def story() -> None:
        async with drive_runner(driver, [BYE, asks(ADD), reply("there")]) as driven:
            await driven.reply()
            driven.runner.append_messages(user("one more thing"))
            for _ in range(2):
                assert await driven.is_over()
            assert driven.count == 1
            assert driven.shown == [user(), user("one more thing")]
            driven.runner.append_messages(user("please"))
            assert await driven.reply()
            assert driven.list_sent() == [user(), user("one more thing"), user("please")]
            last = await driven.until_done()
            assert last == await driven.until_done()
            assert last is not None
            assert driven.shown[-1] == make_said(last)
            assert driven.ran == [("add", 1, 2)]

    play(driver, story)


def test_a_retry_that_cannot_be_is_refused() -> None:
    """A call that is not open, one that never ran, and a value that is not a list of ids."""
    with start_runner([asks(ADD, WRITE), BYE], ask=lambda turn: turn.deny("toolu_4", "no")) as run:
        first, runner = run.reply(), run.runner
        with pytest.raises(UnknownCall, match="not an open call of the history: 'x'"):
            runner.generate_tool_response(retry=["x"])
        with pytest.raises(TypeError, match="expected a list of call ids"):
            runner.generate_tool_response(retry="toolu_1")
        runner.generate_tool_response()
        with pytest.raises(IllegalCommand, match="'toolu_4' never ran: its result is denied") as raised:
            runner.generate_tool_response(retry=["toolu_4"])
        assert "HistoryTaken" not in str(raised.value)
        runner.generate_tool_response(retry=iter(["toolu_1"]))
        assert run.ran == [("add", 1, 2)] * 2
        runner.append_messages(first, user([result("toolu_1"), result("toolu_4")]))
        assert runner.generate_tool_response() is None
        with pytest.raises(UnknownCall, match="Open calls: none"):
            runner.generate_tool_response(retry=["toolu_1"])


@pytest.mark.parametrize("fields", [("role", "content"), ("content", "role")])
def test_a_history_that_ends_with_open_calls_runs_these_first(fields: tuple[str, str]) -> None:
    """At the start, and where such a history is set later, in whatever order its fields are."""
    opens = make_said({"content": [ADD, LOOK]})
    asked = [user(), {name: opens[name] for name in fields}]
    with start_runner([BYE, BYE], params(messages=asked)) as run:
        assert run.shown == [user(), opens]
        run.reply()
        assert run.list_sent() == [user(), opens, user([result("toolu_1", "3"), result("toolu_2", "text of x")])]
        assert sorted(run.ran) == [("add", 1, 2), ("look", "x")]
        assert run.step() is None
        run.set(messages=asked)
        run.reply()
        assert len(run.ran) == 4
        assert run.list_sent()[:2] == [user(), opens]


MALFORMED: dict[str, tuple[list[Any], str]] = {
    "empty": ([], "no-messages"),
    "an orphan result": ([user(), user([result("toolu_1")])], "the next step of the runner"),
    **{f"nonsense {odd}": ([make_said({"content": [odd, ADD]})], "runner") for odd in (1, {"text": "?"}, {"type": 3})},
    "a call that is not answered": ([user(), make_said({"content": [ADD, LOOK]}), ANSWERED], "toolu_2"),
    "the model's last word": (
        [
            user(),
            make_said(
                {"content": [server_call("web_search", id="srvtoolu_1"), server_result("web_search", id="srvtoolu_1")]}
            ),
        ],
        "prefill",
    ),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_history_is_refused_and_can_be_mended(name: str) -> None:
    """Nothing goes out or runs, and what the caller made of it stays."""
    messages, problem = MALFORMED[name]
    with start_runner([asks(ADD), BYE], SEARCH) as run:
        run.reply()
        run.set(messages=messages)
        for _ in range(2):
            with pytest.raises(InvalidHistory, match=problem):
                run.step()
            assert run.shown == messages
        run.set(messages=[user("again")])
        run.reply()
        assert run.list_sent() == [user("again")]
        assert run.ran == []


@pytest.mark.parametrize("reason", ["max_tokens", "refusal", "end_turn", "unheard_of"])
def test_no_call_of_a_reply_that_ended_the_loop_runs_later(reason: str) -> None:
    """Though the body appended that reply, and says something after the end: such a call is reported as not run."""
    with start_runner([reply(content=[ADD, LOOK], stop_reason=reason), asks(LOOK), BYE]) as run:
        last = run.reply()
        assert run.runner.generate_tool_response() is None
        run.runner.append_messages(last)
        assert run.step() is None
        assert run.shown == [user(), make_said(last)]
        assert run.runner.generate_tool_response() is None
        run.runner.append_messages(user("go on"))
        assert run.reply()
        assert run.ran == []
        told = {block["tool_use_id"]: block["content"] for block in run.list_sent()[2]["content"]}
        assert list(told) == ["toolu_1", "toolu_2"]
        assert all("not run" in text for text in told.values())
        assert run.list_sent()[3:] == [user("go on")]
        run.runner.until_done()
        assert run.ran == [("look", "x")]


def test_a_limit_ends_it_after_the_last_results() -> None:
    """The calls of the last reply run, and their results are appended, and not sent."""
    with start_runner([asks(ADD)], max_iterations=1) as run:
        last = run.runner.until_done()
        assert last is not None
        assert run.shown == [user(), make_said(last), ANSWERED]
        assert (run.ran, len(run.api.requests)) == ([("add", 1, 2)], 1)
        assert run.runner.into_result().termination == MaxIterations(1)
    with start_runner([], max_iterations=0) as run:
        assert run.runner.until_done() is None


def test_one_caller_may_at_a_time() -> None:
    """The history cannot change while a step is in progress, nor can another step start: from no tool and no thread."""
    inside, go = threading.Event(), threading.Event()

    @tool
    def hold() -> str:
        """Wait."""
        with pytest.raises(IllegalCommand, match=r"the next step: .* from one thread or task at a time"):
            next(runner)
        inside.set()
        assert go.wait(60)
        return "held"

    runner = ToolRunner(ScriptedProvider([asks(call("hold", {}, id="i")), BYE]), params=params(), tools=[hold])
    next(runner)
    other = threading.Thread(target=runner.until_done)
    other.start()
    try:
        assert inside.wait(60)
        with pytest.raises(IllegalCommand, match="Change the history between two steps"):
            runner.append_messages(user("x"))
    finally:
        go.set()
        other.join()
    assert runner.params["messages"][2] == user([result("i", "held")])


def test_what_a_runner_is_made_with_is_looked_at() -> None:
    """As for a handle; and the later commands, too."""
    provider: Any = ScriptedProvider([])
    with pytest.raises(InvalidHistory, match="ToolRunner"):
        ToolRunner(provider, params=params(messages=[user([result("x")])]))
    with pytest.raises(ValueError, match="no 'messages'"):
        ToolRunner(provider, params={"model": "m", "max_tokens": 1})
    with pytest.raises(TypeError, match=r"ask: expected a callable .*, got a str"):
        ToolRunner(provider, params=params(), ask="me")  # type: ignore[call-overload]
    runner = ToolRunner(provider, params=params())
    with pytest.raises(TypeError, match="Pass each message as a separate argument"):
        runner.append_messages([user()])
    with pytest.raises(TypeError, match=r"expected a mapping, .* got a list"):
        runner.set_messages_params([])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no 'messages'"):
        runner.set_messages_params({"model": "m", "max_tokens": 1})
    assert runner.params == params()


def work_of_a_step(rounds: int) -> int:
    """How many functions of the library are entered in the step after so many rounds."""

    @tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    script = [asks(call("add", {"a": number, "b": 2}, id=f"toolu_{number}")) for number in range(rounds + 2)]
    config = LoopConfig(max_iterations=None)
    runner, work = ToolRunner(ScriptedProvider(script), params=params(), tools=[add], config=config), Work()
    for number, _ in enumerate(runner):
        with work.counting() if number == rounds else Work().counting():
            runner.generate_tool_response()
            if number == rounds:
                next(runner)
                break
    return work.entered.total()


def test_a_step_costs_the_same_at_any_length() -> None:
    """If the body changes nothing. A history that the caller changed is checked as a whole."""
    early, late = (work_of_a_step(rounds) for rounds in (20, 60))
    assert late <= 1.05 * early
