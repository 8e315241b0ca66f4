"""`count_tokens`: the API's own count of the next request."""

from __future__ import annotations

import json

import anyio
import pytest

from tests.handle.support import params, scene, user
from toolloop import AsyncToolLoopHandle, ToolLoopHandle
from toolloop.errors import IllegalCommand, ModelError
from toolloop.testing import FakeMessagesAPI, ScriptedProvider, call, reply


def test_it_counts_what_would_go_out_next() -> None:
    """Before the first request, and between turns; the loop is as it was, and no answer is used up."""
    with scene([reply(calls=[call("add", {"a": 1, "b": 2})]), reply("3")]) as at:
        first = at.handle.count_tokens()
        turn = at.turn()
        before = at.handle.snapshot()
        second = at.handle.count_tokens()
        assert 0 < first < second
        assert at.handle.snapshot() == before
        turn.continue_loop()
        at.done()
        counted = [json.loads(each.body)["messages"] for each in at.api.requests if each.path.endswith("count_tokens")]
        assert counted[0] == at.sent(1)
        assert counted[1] == at.sent()


def test_open_calls_count_as_answered() -> None:
    """The API takes no history with a call that has no result."""
    with scene([reply(calls=[call("write", {"path": "a", "text": "b"})])]) as at:
        at.turn()
        assert at.handle.count_tokens() > 0
        assert at.sent()[-1]["content"][0]["type"] == "tool_result"


def test_an_edit_counts_and_is_not_taken_over() -> None:
    """So a caller can see what an edit saves before it counts."""
    with scene([reply(calls=[call("add", {"a": 1, "b": 2})])], asked=params(messages=[user("long " * 500)])) as at:
        at.turn()
        whole = at.handle.count_tokens()
        at.handle.messages_mut()[0] = user("short")
        assert at.handle.count_tokens() < whole
        assert at.handle.messages[0] == user("long " * 500)


def test_thinking_that_is_left_out_does_not_count() -> None:
    """It is not sent, and the API would refuse it."""
    thought = reply(thinking="hm " * 100, calls=[call("add", {"a": 1, "b": 2})])
    with scene([thought], asked=params(thinking={"type": "adaptive"})) as at:
        at.turn()
        whole = at.handle.count_tokens()
        at.handle.messages_mut()[0] = user("hello!")
        assert at.handle.count_tokens() < whole - 50


def test_a_provider_that_counts_nothing_says_so() -> None:
    """And names what gives an estimate."""
    handle = ToolLoopHandle(ScriptedProvider([]), params=params())
    with pytest.raises(TypeError, match="estimate_tokens"):
        handle.count_tokens()


def test_a_failure_is_raised_and_nothing_changes() -> None:
    """It is the caller's own question, not the loop's."""
    with FakeMessagesAPI([], models=["claude-opus-5"]) as api:
        handle = ToolLoopHandle(api.client(), params=params())
        with pytest.raises(ModelError, match="404"):
            handle.count_tokens()
        assert handle.view()["state"] == "Ready"


def test_nobody_counts_while_a_turn_is_in_progress() -> None:
    """One caller drives."""
    seen: list[Exception] = []

    def ask(_request: object) -> object:
        try:
            at.handle.count_tokens()
        except IllegalCommand as error:
            seen.append(error)
        return reply("done")

    with scene(ask) as at:
        at.done()
    assert len(seen) == 1


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_async_handle_counts_too(backend: str) -> None:
    """With `await`."""

    async def main() -> int:
        with FakeMessagesAPI([]) as api:
            async with api.async_client() as client:
                return await AsyncToolLoopHandle(client, params=params()).count_tokens()

    assert anyio.run(main, backend=backend) > 0
