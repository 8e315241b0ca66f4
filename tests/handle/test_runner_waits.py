"""The runner where something waits: the model pauses, a call wants a word, a request fails."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.to_thread
import pytest

from tests.handle.support import TOOLS, add, params, user
from tests.handle.talking import each_driver, play
from tests.handle.walking import ADD, LOOK, WRITE, asks, result, said, walking
from toolloop import Approve, Deny, LoopConfig, ToolRunner, Yielded, tool
from toolloop.errors import IllegalCommand, ModelError, ProtocolError, UndecidedCalls
from toolloop.terminations import PauseLimit, Refused, StopCondition, Truncated
from toolloop.testing import ScriptedProvider, call, delayed, fault, reply, server_call, server_result

BYE = reply("bye")
SEARCH = params(tools=[{"type": "web_search_20250305", "name": "web_search"}])


def search(number: int) -> Any:
    return server_call("web_search", {"query": "q"}, id=f"srvtoolu_{number}")


def found(number: int) -> Any:
    return server_result("web_search", [], id=f"srvtoolu_{number}")


def paused(*blocks: Any) -> Any:
    return reply(content=blocks, stop_reason="pause_turn")


@each_driver
def test_a_pause_is_resumed(driver: str) -> None:
    """Sent back as it came, with no user turn, several times in a row; each pause is yielded."""

    async def story() -> None:
        script = [paused(search(1)), paused(found(1), search(2)), reply(content=[found(2), *reply("so")["content"]])]
        async with walking(driver, script, SEARCH) as walk:
            first = await walk.reply()
            assert walk.shown == [user()]
            second = await walk.reply()
            assert walk.sent() == [user(), said(first)] == walk.shown
            walk.runner.append_messages(second)
            last = await walk.reply()
            assert walk.sent() == [user(), said(first), said(second)]
            assert await walk.over()
            assert walk.shown == [user(), said(first), said(second), said(last)]

    play(driver, story)


@each_driver
def test_a_pause_with_calls_of_the_clients_has_these_answered_first(driver: str) -> None:
    """And the server goes on after that."""

    async def story() -> None:
        script = [paused(search(1), ADD), reply(content=[found(1), *reply("so")["content"]])]
        async with walking(driver, script, SEARCH) as walk:
            first = await walk.reply()
            assert await walk.respond() == user([result("toolu_1", "3")])
            await walk.reply()
            assert walk.sent() == [user(), said(first), user([result("toolu_1", "3")])]
            assert await walk.over()
            assert walk.ran == [("add", 1, 2)]

    play(driver, story)


@each_driver
def test_a_pause_that_the_caller_leaves_out_is_gone(driver: str) -> None:
    """What was appended before stays, and what cannot stand without it is refused."""

    async def story() -> None:
        async with walking(driver, [paused(search(1)), paused(search(1)), BYE], SEARCH) as walk:
            await walk.reply()
            walk.runner.append_messages(user("no, do not search"))
            first = await walk.reply()
            assert walk.sent() == [user(), user("no, do not search")]
            walk.runner.append_messages(first, user("stop that"))
            with pytest.raises(Exception, match="srvtoolu_1"):
                await walk.step()
            walk.runner.set_messages_params(lambda now: {**now, "messages": [user("anew")]})
            assert await walk.reply()
            assert walk.sent() == [user("anew")]

    play(driver, story)


@each_driver
def test_a_pause_is_resumed_with_other_parameters(driver: str) -> None:
    """What waited before the reply at hand stays where it was."""

    async def story() -> None:
        script = [
            paused(search(1)),
            paused(found(1), search(2)),
            paused(found(1), search(3)),
            reply(content=[found(3), *reply("so")["content"]]),
        ]
        async with walking(driver, script, SEARCH) as walk:
            first = await walk.reply()
            await walk.reply()
            walk.runner.set_messages_params(lambda now: {**now, "max_tokens": 99})
            third = await walk.reply()
            assert walk.sent() == [user(), said(first)]
            kept = [*walk.shown, third]
            walk.runner.set_messages_params(lambda now: {**now, "max_tokens": 98, "messages": kept})
            assert await walk.until_done()
            assert walk.sent() == [user(), said(first), said(third)]
            assert walk.api.requests[-1].json["max_tokens"] == 98

    play(driver, story)


@each_driver
def test_pauses_are_counted(driver: str) -> None:
    """Over the limit it ends; the replies so far were shown."""

    async def story() -> None:
        async with walking(driver, [paused(search(1)), paused(search(2))], SEARCH, max_pauses=1) as walk:
            assert await walk.until_done()
            assert walk.runner.into_result().termination == PauseLimit(1)
            assert walk.count == 2

    play(driver, story)


@each_driver
@pytest.mark.parametrize(
    ("stop", "joins", "kind"), [("max_tokens", True, Truncated), ("refusal", False, Refused), ("end_turn", True, None)]
)
def test_no_call_of_a_reply_that_ends_it_runs(driver: str, stop: str, joins: bool, kind: Any) -> None:
    """Whatever is in it; and what is left of it joins."""

    async def story() -> None:
        said_so = reply(content=[{"type": "text", "text": "so"}, ADD], stop_reason=stop)
        async with walking(driver, [said_so]) as walk:
            assert (await walk.reply())["stop_reason"] == stop
            assert await walk.respond() is None
            assert await walk.over()
            assert walk.ran == []
            assert ("so" in str(walk.shown)) is joins
            assert kind is None or isinstance(walk.runner.into_result().termination, kind)

    play(driver, story)


@each_driver
def test_a_call_that_wants_a_word_waits_for_it(driver: str) -> None:
    """Without `ask` an error names it and what to do; then the iteration goes on, and nothing was lost."""

    async def story() -> None:
        async with walking(driver, [asks(WRITE, ADD), BYE]) as walk:
            first = await walk.reply()
            with pytest.raises(UndecidedCalls, match=r"write \(toolu_4: approval\).*runner\.decide") as raised:
                await walk.step()
            assert raised.value.calls == ("toolu_4",)
            assert walk.shown == [user(), said(first)]
            with pytest.raises(UndecidedCalls):
                await walk.respond()
            assert [call.name for call in walk.runner.pending] == ["write"]
            assert walk.ran == []
            walk.runner.decide({walk.runner.pending[0]: Approve(by="ana")})
            await walk.reply()
            assert sorted(walk.ran) == [("add", 1, 2), ("write", "p", "t")]
            assert await walk.over()

    play(driver, story)


@each_driver
def test_a_waiting_call_can_be_answered_or_left_out(driver: str) -> None:
    """With messages, as any other: the rest of its round runs, or goes with it."""

    async def story() -> None:
        async with walking(driver, [asks(WRITE, ADD), asks(WRITE, ADD), BYE]) as walk:
            first = await walk.reply()
            with pytest.raises(UndecidedCalls):
                await walk.step()
            walk.runner.append_messages(user([result("toolu_4", "not now", is_error=True)]))
            await walk.reply()
            assert walk.ran == [("add", 1, 2)]
            assert walk.sent()[1] == said(first)
            with pytest.raises(UndecidedCalls):
                await walk.step()
            walk.runner.set_messages_params(lambda now: {**now, "messages": [user("anew")]})
            await walk.reply()
            assert walk.sent() == [user("anew")]
            assert walk.ran == [("add", 1, 2)]

    play(driver, story)


@each_driver
def test_the_caller_is_asked(driver: str) -> None:
    """`ask` decides through the turn, as in `run()`; it may be async under the async runner, and may stop the loop."""

    async def story() -> None:
        seen: list[Any] = []

        def decide(turn: Yielded) -> None:
            seen.append((turn.reason, turn.message["role"], [call.name for call in turn.pending]))
            with pytest.raises(IllegalCommand, match="the runner is at work"):
                walk.runner.append_messages(user("no"))
            turn.deny("toolu_4", "not today")

        async def decide_later(turn: Yielded) -> None:
            decide(turn)

        ask: Any = decide if driver == "sync" else decide_later
        async with walking(driver, [asks(WRITE), BYE], ask=ask) as walk:
            assert await walk.until_done()
            assert seen == [("decision_required", "assistant", ["write"])]
            assert walk.ran == []
        async with walking(driver, [asks(WRITE)], ask=lambda turn: turn.stop("enough")) as walk:
            await walk.reply()
            assert await walk.over()
            assert walk.runner.into_result().termination == StopCondition("enough")
            assert walk.shown[-1]["content"][0]["tool_use_id"] == "toolu_4"
        async with walking(driver, [], params(messages=[user(), said({"content": [WRITE]})]), ask=ask) as walk:
            response = await walk.respond()
            assert response is not None
            assert response["content"][0]["is_error"] is True

    play(driver, story)


@each_driver
def test_a_stop_condition_is_asked_after_the_body(driver: str) -> None:
    """Before any tool runs; then the calls are answered as not run."""

    async def story() -> None:
        async with walking(driver, [asks(ADD)], stop_when=lambda view: view.iteration == 1) as walk:
            await walk.reply()
            response = await walk.respond()
            assert response is not None
            assert "not run" in response["content"][0]["content"]
            assert await walk.over()
            assert walk.shown[-1] == response
            assert walk.ran == []

    play(driver, story)


@each_driver
def test_a_stop_condition_that_raises_is_raised_and_asked_again(driver: str) -> None:
    """The reply is shown once it is over."""

    async def story() -> None:
        broken = [True, True]

        def stop_when(_view: Any) -> bool:
            if broken:
                broken.pop()
                raise RuntimeError("broken")
            return False

        async with walking(driver, [asks(ADD), BYE], stop_when=stop_when) as walk:
            first = await walk.reply()
            with pytest.raises(RuntimeError, match="broken"):
                await walk.step()
            with pytest.raises(RuntimeError, match="broken"):
                await walk.step()
            broken.append(True)
            with pytest.raises(RuntimeError, match="broken"):
                await walk.step()
            assert await walk.reply()
            assert walk.sent()[1] == said(first)
            broken.append(True)
            walk.runner.append_messages(user("x"))
            assert await walk.over()

    play(driver, story)


@each_driver
def test_an_error_is_raised_and_the_request_made_again(driver: str) -> None:
    """Nothing was consumed, and no tool runs twice; the caller may mend the history before."""

    async def story() -> None:
        script = [asks(ADD), fault(529, "overloaded_error"), fault(400, "invalid_request_error"), BYE]
        async with walking(driver, script) as walk:
            first = await walk.reply()
            with pytest.raises(ModelError, match="overloaded"):
                await walk.step()
            with pytest.raises(ModelError, match="400"):
                await walk.step()
            assert walk.runner.into_result().error is not None
            walk.runner.append_messages(user("shorter"))
            await walk.reply()
            assert walk.sent() == [user(), said(first), user([result("toolu_1", "3")]), user("shorter")]
            assert walk.ran == [("add", 1, 2)]
            assert await walk.over()

    play(driver, story)


@each_driver
def test_a_reply_that_makes_no_sense_is_no_step(driver: str) -> None:
    """It is an error, and the next one is a reply."""

    async def story() -> None:
        async with walking(driver, [reply("so", stop_reason="tool_use"), BYE]) as walk:
            with pytest.raises(ProtocolError, match="tool_use"):
                await walk.step()
            assert await walk.reply()
            assert walk.sent() == [user()]
            assert await walk.over()

    play(driver, story)


def test_one_caller_drives() -> None:
    """A tool that changes the history of its own runner is told that the runner is at work."""

    @tool
    def meddle() -> str:
        """Meddle."""
        with pytest.raises(IllegalCommand, match="at work"):
            runner.append_messages(user("mine"))
        with pytest.raises(IllegalCommand, match="at work"):
            next(runner)
        return "done"

    runner = ToolRunner(ScriptedProvider([asks(call("meddle", {})), BYE]), params=params(), tools=[meddle, add])
    assert runner.until_done()
    assert runner.params["messages"][2]["content"][0]["content"] == "done"


@pytest.mark.parametrize("driver", ["asyncio", "trio"])
def test_a_cancelled_step_can_be_made_again(driver: str) -> None:
    """As if the request had not been made."""

    async def story() -> None:
        gate = delayed(60, BYE)
        async with walking(driver, [gate, BYE]) as walk:
            async with anyio.create_task_group() as group:

                async def waiting() -> None:
                    await walk.step()

                group.start_soon(waiting)
                await anyio.to_thread.run_sync(gate.arrived.wait)
                group.cancel_scope.cancel()
            assert await walk.reply()
            assert walk.sent() == [user()]
            assert await walk.over()

    play(driver, story)


def test_a_denied_call_of_a_policy_is_answered() -> None:
    """Policies have their say after the body, as on a handle."""
    config = LoopConfig(on_tool_call=lambda call, view: Deny("no") if call.name == "look" else None)
    provider = ScriptedProvider([asks(LOOK), BYE])
    runner = ToolRunner(provider, params=params(), tools=TOOLS, config=config)
    assert runner.until_done()
    assert runner.params["messages"][2]["content"][0]["is_error"] is True


@each_driver
@pytest.mark.parametrize("stream", [False, True])
def test_a_reply_is_shown_though_a_stop_condition_raised_over_it(driver: str, stream: bool) -> None:
    """Also a pause, and the last one: the step after that shows it, and asks for nothing again."""

    async def story() -> None:
        broken = [True, True]

        def stop_when(_view: Any) -> bool:
            if broken.pop():
                broken.append(False)
                raise RuntimeError("broken")
            broken.extend([True, False][:1])
            return False

        async with walking(driver, [paused(search(1)), BYE], SEARCH, stop_when=stop_when, stream=stream) as walk:
            for reason in ("pause_turn", "end_turn"):
                with pytest.raises(RuntimeError, match="broken"):
                    await final(walk, await walk.step())
                assert (await final(walk, await walk.step()))["stop_reason"] == reason
            assert await walk.over()
            assert walk.count == 2

    play(driver, story)


async def final(walk: Any, came: Any) -> Any:
    """The reply that a step gave, or its stream."""
    if isinstance(came, dict):
        return came
    return came.get_final_message() if walk.is_sync else await came.get_final_message()
