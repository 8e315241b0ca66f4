"""The runner: what is appended where, and what runs, in each kind of body. Each test is for both runners."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.handle.support import params, user
from tests.handle.talking import each_driver, play
from tests.handle.walking import ADD, BROKEN, LOOK, WRITE, asks, result, said, walking
from toolloop.errors import IllegalCommand, InvalidHistory, UnknownCall
from toolloop.providers import as_sdk
from toolloop.terminations import MaxIterations, NaturalEnd, Unfinished
from toolloop.testing import reply

BYE = reply("bye")


@each_driver
def test_a_body_that_changes_nothing(driver: str) -> None:
    """Request, reply, body; then the reply and the results are appended, in this order, and the next request goes."""

    async def story() -> None:
        async with walking(driver, [asks(ADD, LOOK, text="so"), BYE]) as walk:
            first = await walk.reply()
            assert walk.ran == []
            assert walk.shown == [user()]
            last = await walk.reply()
            assert sorted(walk.ran) == [("add", 1, 2), ("look", "x")]
            answered = user([result("toolu_1", "3"), result("toolu_2", "text of x")])
            assert walk.shown == [user(), said(first), answered] == walk.sent()
            assert await walk.over()
            assert walk.shown == [user(), said(first), answered, said(last)]
            assert await walk.over()
            assert walk.count == 2
            assert walk.runner.iterations == 2
            assert walk.runner.into_result().termination == NaturalEnd()
            assert walk.runner.total_usage == walk.runner.into_result().total_usage
            assert len(walk.runner.usage_log) == 2

    play(driver, story)


@each_driver
def test_a_reply_that_the_caller_takes_over_has_its_calls_answered(driver: str) -> None:
    """Appending it is what the runner would have done."""

    async def story() -> None:
        async with walking(driver, [asks(ADD), BYE]) as walk:
            first = await walk.reply()
            walk.runner.append_messages(as_sdk(first) if driver == "sync" else first)
            assert walk.shown == [user(), said(first)]
            await walk.reply()
            assert walk.ran == [("add", 1, 2)]
            assert walk.sent() == [user(), said(first), user([result("toolu_1", "3")])]

    play(driver, story)


@each_driver
def test_a_call_that_the_caller_answered_does_not_run(driver: str) -> None:
    """Neither if all were answered, nor the answered ones if some were; what was said beside them comes after."""

    async def story() -> None:
        async with walking(driver, [asks(ADD, LOOK), asks(ADD, LOOK), BYE]) as walk:
            first = await walk.reply()
            denied = user([result("toolu_1", "denied", is_error=True), result("toolu_2")])
            walk.runner.append_messages(first, denied)
            second = await walk.reply()
            assert walk.ran == []
            assert walk.sent() == [user(), said(first), denied]
            walk.runner.append_messages(said(second), user([result("toolu_1"), {"type": "text", "text": "and?"}]))
            await walk.reply()
            assert walk.ran == [("look", "x")]
            assert walk.sent()[3:] == [
                said(second),
                user([result("toolu_1"), result("toolu_2", "text of x")]),
                user([{"type": "text", "text": "and?"}]),
            ]

    play(driver, story)


@each_driver
def test_a_reply_that_the_caller_left_out_is_gone_with_its_calls(driver: str, caplog: pytest.LogCaptureFixture) -> None:
    """None of them runs, no orphan goes out, and the log warns. A change of parameters alone counts, too."""

    async def story() -> None:
        async with walking(driver, [asks(ADD), asks(LOOK), BYE]) as walk:
            await walk.reply()
            walk.runner.append_messages(user("rather not"))
            await walk.reply()
            assert walk.sent() == [user(), user("rather not")]
            assert [record.levelno for record in caplog.records if "left out" in record.message] == [logging.WARNING]
            walk.runner.set_messages_params(lambda now: {**now, "max_tokens": 99})
            await walk.reply()
            assert walk.sent() == [user(), user("rather not")]
            assert walk.api.requests[-1].json["max_tokens"] == 99
            assert len([record for record in caplog.records if "left out" in record.message]) == 2
            assert walk.ran == []
            assert walk.runner.iterations == 3

    play(driver, story)


@each_driver
def test_parameters_may_change_with_a_reply_that_is_taken_over(driver: str) -> None:
    """The caller's function sees all of them, and gives all of them."""

    async def story() -> None:
        asked = params(extra_headers={"x-mine": "1"}, system="be brief")
        async with walking(driver, [asks(ADD), BYE], asked) as walk:
            first = await walk.reply()

            def change(now: dict[str, Any]) -> dict[str, Any]:
                assert now == asked
                rest = {name: value for name, value in now.items() if name != "system"}
                return {**rest, "max_tokens": 99, "messages": [*now["messages"], first]}

            walk.runner.set_messages_params(change)
            await walk.reply()
            assert walk.ran == [("add", 1, 2)]
            request = walk.api.requests[-1]
            assert request.json["max_tokens"] == 99
            assert "system" not in request.json
            assert request.headers["x-mine"] == "1"
            walk.runner.set_messages_params({**asked, "messages": [user("anew")], "extra_headers": {"x-mine": "2"}})
            assert walk.runner.params["extra_headers"] == {"x-mine": "2"}
            assert await walk.over()
            assert walk.shown == [user("anew")]

    play(driver, story)


@each_driver
def test_what_is_as_it_was_is_no_change(driver: str) -> None:
    """Nothing appended, or all set to what it is: the reply joins."""

    async def story() -> None:
        async with walking(driver, [asks(ADD), BYE]) as walk:
            first = await walk.reply()
            walk.runner.append_messages()
            walk.runner.append_messages(user("no"))
            walk.runner.set_messages_params(lambda now: {**now, "messages": now["messages"][:-1]})
            await walk.reply()
            assert walk.sent()[1] == said(first)

    play(driver, story)


@each_driver
def test_a_final_iteration_that_the_caller_changes(driver: str) -> None:
    """Their history stands, and the runner ends; whoever says more after the end begins a further user turn."""

    async def story() -> None:
        async with walking(driver, [BYE, asks(ADD), reply("there")]) as walk:
            await walk.reply()
            walk.runner.append_messages(user("one more thing"))
            assert await walk.over()
            assert walk.count == 1
            assert walk.shown == [user(), user("one more thing")]
            walk.runner.append_messages(user("please"))
            assert await walk.reply()
            assert walk.sent() == [user(), user("one more thing"), user("please")]
            last = await walk.until_done()
            assert last is not None
            assert walk.shown[-1] == said(last)
            assert walk.ran == [("add", 1, 2)]

    play(driver, story)


@each_driver
def test_a_response_is_generated_once_and_changes_nothing(driver: str) -> None:
    """It is the very thing that the runner appends, whether the caller appends it, changed or not, or leaves that."""

    async def story() -> None:
        async with walking(driver, [asks(ADD), asks(ADD), asks(ADD), BYE]) as walk:
            first = await walk.reply()
            response = await walk.respond()
            assert response == user([result("toolu_1", "3")])
            assert await walk.respond() == response
            assert walk.shown == [user()]
            second = await walk.reply()
            assert walk.sent()[1:] == [said(first), response]
            response = await walk.respond()
            assert response is not None
            response["content"][0]["content"] = "edited"
            walk.runner.append_messages(second, response)
            await walk.reply()
            assert walk.sent()[3:] == [said(second), response]
            assert len(walk.ran) == 2
            await walk.respond()
            walk.runner.append_messages(user("never mind"))
            await walk.reply()
            assert len(walk.ran) == 3
            assert await walk.respond() is None
            assert walk.sent()[5:] == [user("never mind")]

    play(driver, story)


@each_driver
def test_a_named_call_is_run_again(driver: str) -> None:
    """Only that, and its new result takes the place of the old one; as often as it is asked for."""

    async def story() -> None:
        async with walking(driver, [asks(BROKEN, ADD), BYE]) as walk:
            await walk.reply()
            response = await walk.respond()
            assert response is not None
            failed = [block["tool_use_id"] for block in response["content"] if block.get("is_error")]
            assert failed == ["toolu_3"]
            assert await walk.respond(retry=failed) == response
            await walk.respond(retry=iter(failed))
            assert sorted(walk.ran) == [("add", 1, 2), ("broken",), ("broken",), ("broken",)]
            await walk.reply()
            assert walk.sent()[-1] == response
            assert len(walk.ran) == 4

    play(driver, story)


@each_driver
def test_a_call_to_retry_that_has_not_run_runs_once(driver: str) -> None:
    """Asking for it by name is no second run where there was no first one."""

    async def story() -> None:
        async with walking(driver, [asks(ADD, LOOK), BYE]) as walk:
            first = await walk.reply()
            await walk.respond(retry=["toolu_1"])
            assert sorted(walk.ran) == [("add", 1, 2), ("look", "x")]
            walk.runner.append_messages(first)
            assert await walk.respond() == user([result("toolu_1", "3"), result("toolu_2", "text of x")])
            assert len(walk.ran) == 2

    play(driver, story)


@each_driver
def test_a_retry_that_cannot_be_is_refused(driver: str) -> None:
    """A call that is not open, one that never ran, and what is no list of ids."""

    async def story() -> None:
        async with walking(driver, [asks(ADD), BYE]) as walk:
            first = await walk.reply()
            with pytest.raises(UnknownCall, match="names 'x': no open call"):
                await walk.respond(retry=["x"])
            with pytest.raises(TypeError, match="give a list of call ids"):
                await walk.respond(retry="toolu_1")
            walk.runner.append_messages(first, user([result("toolu_1")]))
            assert await walk.respond() is None
            with pytest.raises(UnknownCall, match="Those are: none"):
                await walk.respond(retry=["toolu_1"])
            assert walk.ran == []

    play(driver, story)


@each_driver
def test_a_denied_call_is_not_run_by_a_retry(driver: str) -> None:
    """It never ran, and that is said."""

    async def story() -> None:
        async with walking(driver, [asks(WRITE)], ask=lambda turn: turn.deny(turn.pending[0], "no")) as walk:
            await walk.reply()
            await walk.respond()
            with pytest.raises(IllegalCommand, match="never ran: its result is denied"):
                await walk.respond(retry=["toolu_4"])
            assert walk.ran == []

    play(driver, story)


@each_driver
def test_a_history_that_begins_with_open_calls_runs_these_first(driver: str) -> None:
    """Also a part of them, and also where such a history is set later."""

    async def story() -> None:
        asked = [user(), {"role": "assistant", "content": [ADD, LOOK]}]
        async with walking(driver, [BYE, BYE], params(messages=[*asked, user([result("toolu_2")])])) as walk:
            assert walk.shown == [*asked, user([result("toolu_2")])]
            await walk.reply()
            assert walk.sent() == [*asked, user([result("toolu_1", "3"), result("toolu_2")])]
            assert walk.ran == [("add", 1, 2)]
            assert await walk.over()
            walk.runner.set_messages_params(params(messages=asked))
            await walk.reply()
            assert len(walk.ran) == 3
            assert walk.sent()[:2] == asked

    play(driver, story)


@each_driver
def test_a_broken_history_is_refused_and_can_be_mended(driver: str) -> None:
    """Nothing goes out or runs, and what the caller made of it stays."""

    async def story() -> None:
        async with walking(driver, [asks(ADD), BYE]) as walk:
            first = await walk.reply()
            walk.runner.append_messages(user([result("toolu_1")]))
            for _ in range(2):
                with pytest.raises(InvalidHistory, match="the next step of the runner"):
                    await walk.step()
                assert walk.shown == [user(), user([result("toolu_1")])]
            assert walk.count == 1
            walk.runner.set_messages_params(lambda now: {**now, "messages": [user(), first]})
            await walk.reply()
            assert walk.ran == [("add", 1, 2)]
            assert walk.sent()[1] == said(first)

    play(driver, story)


@each_driver
def test_a_limit_ends_it_after_the_last_results(driver: str) -> None:
    """The calls of the last reply run, and their results are appended, and not sent."""

    async def story() -> None:
        async with walking(driver, [asks(ADD)], max_iterations=1) as walk:
            last = await walk.until_done()
            assert last is not None
            assert walk.shown == [user(), said(last), user([result("toolu_1", "3")])]
            assert walk.ran == [("add", 1, 2)]
            assert walk.count == 1
            assert walk.runner.into_result().termination == MaxIterations(1)
        async with walking(driver, [], max_iterations=0) as walk:
            assert await walk.until_done() is None

    play(driver, story)


@each_driver
def test_it_can_be_left_and_taken_up_again(driver: str) -> None:
    """Whoever breaks off goes on where that was, in another loop or to the end."""

    async def story() -> None:
        async with walking(driver, [asks(ADD), BYE]) as walk:
            if walk.is_sync:
                for _ in walk.runner:
                    break
            else:
                async for _ in walk.runner:
                    break
            assert walk.runner.into_result().termination == Unfinished()
            assert await walk.until_done() == await walk.until_done()
            assert walk.ran == [("add", 1, 2)]
            assert "NaturalEnd" not in repr(walk.runner)
            assert "2 iterations" in repr(walk.runner)

    play(driver, story)


def test_what_a_runner_is_made_with_is_looked_at() -> None:
    """As for a handle."""
    from toolloop import ToolRunner  # noqa: PLC0415 - here alone
    from toolloop.testing import ScriptedProvider  # noqa: PLC0415 - likewise

    provider: Any = ScriptedProvider([])
    with pytest.raises(InvalidHistory, match="ToolRunner"):
        ToolRunner(provider, params=params(messages=[user([result("x")])]))
    with pytest.raises(ValueError, match="no 'messages'"):
        ToolRunner(provider, params={"model": "m", "max_tokens": 1})
    with pytest.raises(TypeError, match="ask is a str"):
        ToolRunner(provider, params=params(), ask="me")  # type: ignore[arg-type]
    runner = ToolRunner(provider, params=params())
    with pytest.raises(TypeError, match="give each as an argument of its own"):
        runner.append_messages([user()])
    with pytest.raises(TypeError, match="params is a list"):
        runner.set_messages_params([])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no 'messages'"):
        runner.set_messages_params({"model": "m", "max_tokens": 1})
    assert runner.params == params()
