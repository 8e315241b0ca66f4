"""The last message of a request: edits cannot leave it to the model or to a server's result."""

from __future__ import annotations

from typing import Any

from tests.each import each
from tests.loop.support import params, refused, scene, user
from toolloop import ToolLoopHandle
from toolloop.errors import InvalidHistory
from toolloop.terminations import MaxIterations
from toolloop.testing import call, reply, server_call, server_result

SEARCH = {"type": "web_search_20250305", "name": "web_search"}
FOUND = [server_call("web_search", {"query": "q"}), server_result("web_search")]


def searched(text: str, **more: Any) -> dict[str, Any]:
    return reply(content=[*FOUND, {"type": "text", "text": text}], **more)


def test_an_edit_cannot_leave_a_servers_result_last() -> None:
    """No pause waits beside the history, so this is no paused turn; and the list stays to be mended."""
    with scene([searched("found"), reply("done")], asked=params(tools=[SEARCH])) as at:
        at.done()
        at.handle.follow_up([user("more")])
        edited = at.handle.messages_mut()
        del edited[-1]
        del edited[-1]["content"][-1]
        with refused(at.handle, InvalidHistory, "prefill"):
            at.handle.next_turn()
        assert at.count == 1
        edited.append(user("again"))
        assert at.done().text == "done"


def test_nor_can_one_after_a_limit() -> None:
    """`extend` judges what would go out as the next turn does."""
    script = [searched("found"), reply(calls=[call("add", {"a": 1, "b": 2})]), reply("done")]
    with scene(script, asked=params(tools=[SEARCH]), max_iterations=1) as at:
        at.done()
        at.handle.follow_up([user("more")])
        at.turn().continue_loop()
        assert isinstance(at.done().termination, MaxIterations)
        edited = at.handle.messages_mut()
        del edited[2:]
        del edited[-1]["content"][-1]
        with refused(at.handle, InvalidHistory, "prefill"):
            at.handle.extend(max_iterations=5)
        edited.append(user("again"))
        at.handle.extend(max_iterations=5)
        assert at.done().text == "done"


@each("paused", [FOUND, FOUND[:1]])
def test_a_loop_that_began_with_a_pause_may_be_edited_elsewhere(paused: list[dict[str, Any]]) -> None:
    """It was the caller who gave it so, as a turn that another loop left paused: an edit before it is no last word."""
    ids = [{**block, ("id" if "id" in block else "tool_use_id"): "srvtoolu_1"} for block in paused]
    begun = [user(), {"role": "assistant", "content": ids}]
    sent: list[Any] = []

    class Once:
        def send(self, request: Any) -> dict[str, Any]:
            sent.append(request["messages"])
            usage = {"input_tokens": 1, "output_tokens": 1}
            return {**reply("done"), "role": "assistant", "type": "message", "usage": usage}

    handle = ToolLoopHandle(Once(), params=params(messages=begun, tools=[SEARCH]))
    handle.messages_mut()[0] = user("edited")
    assert handle.run().unwrap().text == "done"
    assert sent == [[user("edited"), begun[1]]]
