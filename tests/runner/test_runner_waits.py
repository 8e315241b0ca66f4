"""The runner where something waits: the model pauses, a call needs a decision, a request fails, a tool still runs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.concurrency import either_driver, play
from tests.kit.runners import ADD, LOOK, WRITE, asks, drive_runner, make_said, result, start_runner
from tests.kit.tools import params, user
from toolloop import Answer, Approve, Budget, Deny, Rerun, ToolRunner, Yielded, sub_loop, tool
from toolloop.errors import IllegalCommand, InvalidHistory, ModelError, ProtocolError, UndecidedCalls
from toolloop.terminations import PauseLimit, StopCondition
from toolloop.testing import (
    ScriptedProvider,
    call,
    fault,
    reply,
    server_call,
    server_result,
)

BYE = reply("bye")
SEARCH = params(tools=[{"type": "web_search_20250305", "name": "web_search"}])


def search(number: int) -> Any:
    return server_call("web_search", {"query": "q"}, id=f"srvtoolu_{number}")


def found(number: int) -> Any:
    return server_result("web_search", [], id=f"srvtoolu_{number}")


def paused(*blocks: Any) -> Any:
    return reply(content=blocks, stop_reason="pause_turn")


# --- the model pauses ---
def test_a_pause_is_resumed_with_any_caller_that_appends_it() -> None:
    """Sent back unchanged, with no user turn, at most so often in a row; each pause is yielded."""
    script = [paused(search(1)), paused(found(1), search(2)), paused(found(2), search(3))]
    with start_runner(script, SEARCH, max_pauses=2) as run:
        first = run.reply()
        assert run.shown == [user()]
        second = run.reply()
        assert run.list_sent() == [user(), make_said(first)] == run.shown
        run.runner.append_messages(second)
        run.reply()
        assert run.list_sent() == [user(), make_said(first), make_said(second)]
        assert run.step() is None
        assert run.runner.into_result().termination == PauseLimit(2)


@pytest.mark.parametrize("stream", [False, True])
def test_what_is_appended_to_an_open_server_call_is_held_back(stream: bool) -> None:
    """Until a reply closes that turn; then the request with it follows at once, and its answer is yielded."""
    closes = reply(content=[found(1), {"type": "text", "text": "so"}])
    with start_runner([paused(search(1)), closes, BYE], SEARCH, stream=stream) as run:
        first = run.reply()
        run.runner.append_messages(first, user("also"))
        last = run.reply()
        assert run.list_sent(1) == [user(), make_said(first)]
        assert run.list_sent(2) == [user(), make_said(first), make_said(closes), user("also")] == run.shown
        assert run.step() is None
        assert run.shown == [*run.list_sent(2), make_said(last)]
    with start_runner([paused(search(1)), reply(content=[found(1), ADD]), BYE], SEARCH, stream=stream) as run:
        first = run.reply()
        run.runner.append_messages(first, user("also"))
        second = run.reply()
        assert run.shown == run.list_sent() == [user(), make_said(first)]
        run.runner.until_done()
        assert run.list_sent() == [
            user(),
            make_said(first),
            make_said(second),
            user([result("toolu_1", "3")]),
            user("also"),
        ]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.parametrize("in_one", [False, True])
def test_a_message_after_results_beside_an_open_server_call_is_held_back(
    stream: bool, by_hand: bool, in_one: bool
) -> None:
    """Whether the runner or the caller answered the call, also in the message with the result."""
    asks_both = reply(content=[search(1)], calls=[ADD])
    closes = reply(content=[found(1), {"type": "text", "text": "so"}])
    with start_runner([asks_both, closes, BYE], SEARCH, stream=stream) as run:
        first = run.reply()
        results = user([result("toolu_1", "3")])
        if not by_hand:
            assert run.runner.generate_tool_response() == results
        more = user([{"type": "text", "text": "also"}])
        said_after = [user([*results["content"], *more["content"]])] if in_one else [results, more]
        run.runner.append_messages(first, *said_after)
        last = run.reply()
        assert run.list_sent(1) == [user(), make_said(first), results]
        assert run.list_sent(2) == [user(), make_said(first), results, make_said(closes), more] == run.shown
        assert run.step() is None
        assert run.shown == [*run.list_sent(2), make_said(last)]
        assert run.ran == ([] if by_hand else [("add", 1, 2)])


def test_results_of_no_call_are_not_held_back() -> None:
    """The history stays to be mended."""
    with start_runner([paused(search(1)), paused(found(1)), BYE], SEARCH) as run:
        first = run.reply()
        run.runner.append_messages(first, user([result("toolu_9")]))
        for _ in range(2):
            with pytest.raises(InvalidHistory, match="toolu_9"):
                run.step()
        run.set(messages=[user(), first])
        run.reply()
        assert run.list_sent() == [user(), make_said(first)]


def test_a_runner_that_stops_at_a_limit_tells_which_calls_are_open(caplog: pytest.LogCaptureFixture) -> None:
    """Once, in the log: their results are in no reply. Without an open call it says nothing."""
    with start_runner([paused(search(1))], SEARCH, max_pauses=0) as run:
        run.reply()
        assert run.step() is run.step() is None
        assert run.runner.into_result().termination == PauseLimit(0)
    with start_runner([asks(ADD)], max_iterations=1) as run:
        run.runner.until_done()
    with start_runner([asks(ADD, LOOK)], budget=Budget(tool_calls=1)) as run:
        run.runner.until_done()
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        f"the runner stopped at a limit ({kind}); these open calls do not run: {names}"
        for kind, names in (("pause_limit", "web_search"), ("budget_exceeded", "look"))
    ]


def test_the_warning_about_a_reply_that_is_left_out_is_true_after_its_calls_ran(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It speaks of what is to come."""
    with start_runner([asks(ADD), BYE]) as run:
        run.reply()
        run.runner.generate_tool_response()
        run.runner.append_messages(user("no"))
        run.reply()
        assert (run.ran, run.list_sent()) == ([("add", 1, 2)], [user(), user("no")])
    (told,) = [record.getMessage() for record in caplog.records]
    assert "it is left out, and its calls do not run" in told


# --- a call waits for a decision ---
@pytest.mark.parametrize("stream", [False, True])
def test_what_the_error_about_waiting_calls_says_is_possible(stream: bool) -> None:
    """Each of the ways that it names is taken, and goes through; nothing of a reply runs before all is decided."""
    with start_runner([asks(WRITE, ADD)] * 5 + [BYE], stream=stream) as run:
        runner, answers = run.runner, user([result("toolu_4", "by hand"), result("toolu_1", "by hand")])
        first = run.reply()
        with pytest.raises(
            UndecidedCalls, match=r"write \(toolu_4: approval\).*append_messages\(results\).*"
        ) as raised:
            run.step()
        assert raised.value.calls == ("toolu_4",)
        assert "approval: Approve, Deny or Answer" in str(raised.value)
        assert run.shown == [user(), make_said(first)]
        assert [waiting.name for waiting in runner.pending] == ["write"]
        runner.append_messages(answers)
        message = run.reply()
        with pytest.raises(UndecidedCalls, match=r"append_messages\(message, results\)"):
            runner.generate_tool_response()
        runner.append_messages(message)
        with pytest.raises(UndecidedCalls, match=r"append_messages\(results\)"):
            runner.generate_tool_response()
        runner.append_messages(answers)
        run.reply()
        assert run.ran == []
        for decision in (Deny("no"), Answer("not now", is_error=True), Approve(by="ana")):
            with pytest.raises(UndecidedCalls):
                run.step()
            runner.decide({"toolu_4": decision})
            run.reply()
        assert run.step() is None
        assert sorted(run.ran) == [("add", 1, 2)] * 3 + [("write", "p", "t")]
        contents = [message["content"][0]["content"] for message in run.list_sent()[2::2]]
        assert contents[:2] == ["by hand"] * 2
        assert contents[3:] == ["not now", "wrote p"]


@either_driver
def test_the_caller_is_asked(driver: str) -> None:
    """`ask` decides through the turn, as in `run()`; it may be async under the async runner, and may stop the loop."""

    async def story() -> None:
        seen: list[Any] = []

        def decide(turn: Yielded) -> None:
            seen.append((turn.reason, turn.message["role"], [call.name for call in turn.pending]))
            with pytest.raises(IllegalCommand, match="the runner is busy"):
                driven.runner.append_messages(user("no"))
            turn.deny("toolu_4", "not today")

        async def decide_later(turn: Yielded) -> None:
            decide(turn)

        ask: Any = decide if driver == "sync" else decide_later
        async with drive_runner(driver, [asks(WRITE), BYE], ask=ask) as driven:
            assert await driven.until_done()
            assert seen == [("decision_required", "assistant", ["write"])]
            assert driven.ran == []
        async with drive_runner(driver, [asks(WRITE)], ask=lambda turn: turn.stop("enough")) as driven:
            await driven.reply()
            assert await driven.is_over()
            assert driven.runner.into_result().termination == StopCondition("enough")
            assert driven.shown[-1]["content"][0]["tool_use_id"] == "toolu_4"
        async with drive_runner(
            driver, [], params(messages=[user(), make_said({"content": [WRITE]})]), ask=ask
        ) as driven:
            response = await driven.respond()
            assert response is not None
            assert response["content"][0]["is_error"] is True

    play(driver, story)


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_condition_that_raises_is_raised_and_asked_again(stream: bool) -> None:
    """Of a pause or an end it is asked before that is shown: the step after shows it, and sends nothing again."""
    raises = [True, True, False, True, False, True, False]

    def stop_when(_view: Any) -> bool:
        if raises.pop(0):
            raise RuntimeError("broken")
        return False

    script = [asks(ADD), paused(search(1)), reply(content=[found(1), *reply("so")["content"]])]
    with start_runner(script, SEARCH, stop_when=stop_when, stream=stream) as run:
        first = run.reply()
        for _ in range(2):
            with pytest.raises(RuntimeError, match="broken"):
                run.step()
        for reason in ("pause_turn", "end_turn"):
            with pytest.raises(RuntimeError, match="broken"):
                run.reply()
            assert run.reply()["stop_reason"] == reason
        assert run.list_sent()[1] == make_said(first)
        assert run.step() is None
        assert (len(run.api.requests), run.ran) == (3, [("add", 1, 2)])


# --- errors and interrupts ---
def test_an_error_is_raised_and_the_request_made_again() -> None:
    """Nothing was consumed, and no tool runs twice; the caller may mend the history before."""
    odd = reply("so", stop_reason="tool_use")
    with start_runner(
        [asks(ADD), fault(529, "overloaded_error"), odd, fault(400, "invalid_request_error"), BYE]
    ) as run:
        first = run.reply()
        for kind, match in ((ModelError, "overloaded"), (ProtocolError, "tool_use"), (ModelError, "400")):
            with pytest.raises(kind, match=match):
                run.step()
        assert run.runner.into_result().error is not None
        run.runner.append_messages(user("shorter"))
        run.reply()
        assert run.list_sent() == [user(), make_said(first), user([result("toolu_1", "3")]), user("shorter")]
        assert run.ran == [("add", 1, 2)]
        assert run.step() is None


def test_a_call_that_was_interrupted_may_run_again() -> None:
    """Its end is unknown: the error says what may be decided, and so it is."""
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


SAYS: dict[str, tuple[Callable[[ToolRunner, Any], object], int]] = {
    "nothing": (lambda _runner, _message: None, 2),
    "the reply": (lambda runner, message: runner.append_messages(message), 2),
    "a part of it": (lambda runner, message: runner.append_messages(make_said({"content": message["content"][:1]})), 1),
}


@pytest.mark.parametrize("effect", ["pure", "once"])
@pytest.mark.parametrize("name", SAYS)
def test_what_still_runs_goes_on_whatever_is_appended(name: str, effect: Any) -> None:
    """Its end counts, nothing starts beside it, and no question is asked about its end. What was taken out is lost."""
    says, kept = SAYS[name]
    ran, begun, goes_on = list[int](), threading.Barrier(3), threading.Event()

    @tool(effect=effect)
    def slow(x: int) -> str:
        """Wait until the test says so."""
        ran.append(x)
        begun.wait(10)
        goes_on.wait(10)
        return f"slow {x}"

    def interrupt() -> None:
        begun.wait(10)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    calls = [call("slow", {"x": number}, id=f"toolu_{number}") for number in (1, 2)]
    with start_runner([asks(*calls), BYE], tools=[slow], stop_grace=0) as run:
        message = run.reply()
        helper = threading.Thread(target=interrupt)
        helper.start()
        with pytest.raises(KeyboardInterrupt):
            run.runner.generate_tool_response()
        helper.join()
        says(run.runner, message)
        later = threading.Timer(0.05, goes_on.set)
        later.start()
        run.runner.until_done()
        later.join()
        assert sorted(ran) == [1, 2]
        assert run.shown[2] == user([result(f"toolu_{number}", f"slow {number}") for number in (1, 2)[:kept]])


@tool(needs_approval=True)
def gate() -> str:
    """Ask first."""
    return "open"


def content_of(message: Any) -> Any:
    return message["content"][0]["content"]


@either_driver
def test_a_loop_inside_a_call_is_asked_about_by_its_path(driver: str) -> None:
    """What waits in it holds the runner up; it is decided with the path, and its calls are those of a tree."""

    async def story() -> None:
        child = sub_loop("child", "A child.", params={"model": "claude-opus-5-5", "max_tokens": 9}, tools=[gate])
        script = [asks(call("child", {"prompt": "go"}, id="p")), asks(call("gate", {}, id="c")), reply("no"), BYE]
        async with drive_runner(driver, script, tools=[child]) as driven:
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
