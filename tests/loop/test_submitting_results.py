"""How results are submitted, line by line of the checklist that the project comes from; the API refuses all else."""

from __future__ import annotations

import threading
from typing import Any

from tests.each import each
from tests.loop.concurrency import Gate, awaited
from tests.loop.support import results_in, scene, user
from toolloop import tool
from toolloop.testing import call, reply

PNG = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
FOUND = {"type": "search_result", "source": "s", "title": "t", "content": [{"type": "text", "text": "found"}]}
PAPER = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "words"}}
TEXT = {"type": "text", "text": "words"}


def test_results_go_into_one_user_message_and_the_roles_alternate() -> None:
    """However many there are."""
    script = [reply("Let me see.", calls=[("look", {"path": path}) for path in "abc"]), reply("fine")]
    with scene(script) as at:
        at.handle.run()
        assert [message["role"] for message in at.sent()] == ["user", "assistant", "user"]
        assert [block["type"] for block in at.sent()[-1]["content"]] == ["tool_result"] * 3


def test_each_result_has_the_id_of_its_call_whatever_the_order_of_the_ends() -> None:
    """By id, not by position or by time: the last one called ends first."""
    ended = [threading.Event() for _ in range(4)]
    ended[3].set()

    @tool
    def wait(number: int) -> str:
        """Wait for the next one to end."""
        awaited(ended[number + 1])
        ended[number].set()
        return f"number {number}"

    calls = [call("wait", {"number": number}, id=f"toolu_{number}") for number in range(3)]
    with scene([reply(calls=calls), reply("fine")], tools=[wait]) as at:
        at.handle.run()
        results = {block["tool_use_id"]: block["content"] for block in results_in(at.sent()[-1])}
    assert results == {f"toolu_{number}": f"number {number}" for number in range(3)}


def test_the_assistant_message_is_appended_exactly_as_received() -> None:
    """Every block, in its order, the text beside the calls as well."""
    content = [
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {"type": "text", "text": "Let me see."},
        call("look", {"path": "a"}, id="toolu_1"),
    ]
    with scene([{**reply(), "content": content, "stop_reason": "tool_use"}, reply("fine")]) as at:
        turn = at.turn()
        received = turn.message["content"]
        assert [block["type"] for block in received] == ["thinking", "text", "tool_use"]
        turn.continue_loop()
        at.done()
        assert at.sent()[1] == {"role": "assistant", "content": received}


def test_every_call_has_a_result_whatever_became_of_it() -> None:
    """Denied, unknown, invalid, failed, timed out, answered: one each, and the loop goes on."""
    gate = Gate()

    @tool(needs_approval=True)
    def ask() -> str:
        """Ask."""
        raise AssertionError("it was denied")

    @tool
    def fail() -> str:
        """Fail."""
        raise OSError("it broke")

    @tool(timeout=0.01)
    def slow() -> str:
        """Stand at a gate."""
        gate.stand()
        return "late"

    calls: list[Any] = [call("ask", id="denied"), call("ask", id="answered"), call("nothing", id="unknown")]
    calls += [call("fail", {"more": 1}, id="invalid"), call("fail", id="failed"), call("slow", id="late")]
    with scene([reply(calls=calls), reply("fine")], tools=[ask, fail, slow]) as at:
        turn = at.turn()
        turn.deny("denied", "no")
        turn.answer("answered", "by hand")
        turn.continue_loop()
        assert at.handle.run().unwrap().text == "fine"
        results = {block["tool_use_id"]: block.get("is_error", False) for block in results_in(at.sent()[-1])}
    assert results == {block["id"]: block["id"] != "answered" for block in calls}
    gate.opened.set()


def test_a_failure_is_an_error_with_its_text_and_the_loop_goes_on() -> None:
    """So the model can try again, or explain; a success says nothing of errors."""
    script = [reply(calls=[("broken", {})]), reply(calls=[("look", {"path": "a"})]), reply("It is gone.")]
    with scene(script) as at:
        assert at.handle.run().unwrap().text == "It is gone."
        (failed,) = results_in(at.sent()[2])
        (worked,) = results_in(at.sent()[4])
    assert (failed["is_error"], failed["content"]) == (True, "OSError: the disk is gone")
    assert worked.keys() == {"type", "tool_use_id", "content"}


@each("content", ["words", [TEXT], [PNG], [TEXT, PNG], [FOUND], [PAPER, TEXT]])
def test_content_is_a_string_or_a_list_of_blocks(content: Any) -> None:
    """Text, images, search results, documents."""

    @tool
    def give() -> Any:
        """Give it."""
        return content

    with scene([reply(calls=[("give", {})]), reply("fine")], tools=[give]) as at:
        at.handle.run()
        assert results_in(at.sent()[-1])[0]["content"] == content


def test_results_stay_in_the_history_and_are_there_in_later_turns() -> None:
    """The next round sees them, and so does the next user turn."""
    script = [reply(calls=[("look", {"path": path})]) for path in "ab"]
    with scene([*script, reply("fine"), reply("still there")]) as at:
        at.handle.run()
        at.handle.follow_up([user("and now?")])
        assert at.handle.run().unwrap().text == "still there"
        seen = [block["content"] for message in at.sent() if message["role"] == "user" for block in _results(message)]
    assert seen == ["text of a", "text of b"]


def _results(message: dict[str, Any]) -> list[Any]:
    return results_in(message) if isinstance(message["content"], list) else []


def test_results_come_right_after_their_calls_and_before_all_else() -> None:
    """What is injected comes in a message after theirs."""
    with scene([reply(calls=[("look", {"path": "a"})]), reply("fine")]) as at:
        at.turn().inject_and_continue([user("Hurry.")])
        assert at.done().text == "fine"
        assert [message["role"] for message in at.sent()] == ["user", "assistant", "user", "user"]
        assert at.sent()[2]["content"][0]["type"] == "tool_result"
        assert at.sent()[3] == user("Hurry.")
