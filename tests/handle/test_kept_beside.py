"""What waits beside the history of a runner, and how a history of the caller's own may end."""

from __future__ import annotations

import pytest

from tests.handle.support import TOOLS, params, user
from toolloop import ToolRunner
from toolloop.errors import InvalidHistory
from toolloop.testing import FakeMessagesAPI, call, reply, server_call, server_result

CODE = {"type": "code_execution_20250825", "name": "code_execution"}
SEARCH = {"type": "web_search_20250305", "name": "web_search"}


def test_the_container_of_a_pause_goes_out_again_where_the_reply_after_it_is_left_out() -> None:
    """What waited before that reply is resumed once more, where its code runs."""
    box = {"id": "container_1", "expires_at": "2026-12-01T00:00:00Z"}
    pause = reply(
        content=[server_call("bash_code_execution", {"command": "ls"}, id="srvtoolu_1")],
        stop_reason="pause_turn",
        container=box,
    )
    script = [pause, reply(calls=[call("add", {"a": 1, "b": 2})], container=box), reply("done", container=box)]
    with FakeMessagesAPI(script, enforce=False) as api:
        runner = ToolRunner(api.client(), params=params(tools=[CODE]), tools=TOOLS)
        next(runner)
        next(runner)
        runner.set_messages_params(lambda asked: {**asked, "max_tokens": 300})  # alone: the reply is left out
        next(runner)
        bodies = [request.json for request in api.requests]
    assert [len(body["messages"]) for body in bodies] == [1, 2, 2]
    assert [body.get("container") for body in bodies] == [None, "container_1", "container_1"]


def test_a_history_of_the_callers_own_cannot_leave_the_model_the_last_word() -> None:
    """No pause waits, so a server's result at its end is refused before anything goes out, and may be mended."""
    found = [server_call("web_search", {"query": "q"}, id="srvtoolu_1"), server_result("web_search", id="srvtoolu_1")]
    searched = reply(content=[*found, {"type": "text", "text": "found"}, call("add", {"a": 1, "b": 2})])
    with FakeMessagesAPI([searched, reply("done")]) as api:
        runner = ToolRunner(api.client(), params=params(tools=[SEARCH]), tools=TOOLS)
        message = next(runner)
        ending = {"role": "assistant", "content": message["content"][:2]}
        runner.append_messages(ending)
        with pytest.raises(InvalidHistory, match="prefill"):
            next(runner)
        assert len(api.requests) == 1
        runner.append_messages(user("go on"))
        assert next(runner)["content"][0]["text"] == "done"
        assert api.refused == []
