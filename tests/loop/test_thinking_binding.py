"""Thinking that the model binds to what stood before it: left out once that is another, and said so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.each import each
from tests.loop.support import TOOLS, Scene, params, scene, user
from toolloop import LoopConfig, ToolLoopHandle
from toolloop.events import ThinkingDropped
from toolloop.testing import call, fault, reply, server_call, server_result

THINK = {"thinking": {"type": "adaptive"}}
DROP = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
CONTROLS = ["thinking-binding-controls-2026-08-01"]
NOT_BINDING = "claude-opus-4-8"


def thoughts(number: int) -> dict[str, Any]:
    return reply(thinking=f"thought {number}", calls=[call("add", {"a": number, "b": 1})])


def sent_thinking(at: Scene, number: int = -1) -> list[str]:
    blocks = [block for message in at.sent(number) for block in message["content"] if isinstance(block, dict)]
    return [block["thinking"] for block in blocks if block["type"] == "thinking"]


def kept_thinking(at: Scene) -> list[str]:
    messages = [message for message in at.handle.messages if message["role"] == "assistant"]
    return [block["thinking"] for each in messages for block in each["content"] if block["type"] == "thinking"]


def dropped(at: Scene) -> list[int]:
    result = at.handle.pending_turn or at.handle.next_turn()
    return [event.count for event in result.events if isinstance(event, ThinkingDropped)]


def rounds(at: Scene, how_many: int) -> None:
    for _ in range(how_many):
        at.turn().continue_loop()


def edit_first(at: Scene) -> None:
    at.handle.messages_mut()[0] = user("another question")


def other_system(at: Scene) -> None:
    at.handle.update_params(system="Be brief.")


def other_tools(at: Scene) -> None:
    schema = {"type": "object"}
    at.handle.update_params(tools=[{"name": "elsewhere", "description": "d", "input_schema": schema}])


CHANGES: dict[str, Callable[[Scene], None]] = {
    "edit": edit_first,
    "system": other_system,
    "tools": other_tools,
}


@each("change", CHANGES)
def test_what_was_born_after_other_words_is_not_sent(change: str) -> None:
    """The API would refuse it. The history keeps it, and what is born from here on is sent."""
    script = [thoughts(1), thoughts(2), thoughts(3), reply("done")]
    with scene(script, asked=params(**THINK)) as at:
        rounds(at, 2)
        assert sent_thinking(at) == ["thought 1"]
        CHANGES[change](at)
        turn = at.turn()
        assert sent_thinking(at) == []
        assert [event.count for event in turn.events if isinstance(event, ThinkingDropped)] == [2]
        turn.continue_loop()
        assert at.done().text == "done"
        assert sent_thinking(at) == ["thought 3"]
        assert kept_thinking(at) == ["thought 1", "thought 2", "thought 3"]


@each(("place", "sent"), [(4, []), (6, ["thought 1", "thought 2", "thought 3"])])
def test_a_change_leaves_out_all_thinking_if_any_comes_after_it(place: int, sent: list[str]) -> None:
    """One mark tells what is left out: all before it. Where no thinking comes after the change, none is."""
    with scene([thoughts(1), thoughts(2), thoughts(3), reply("done")], asked=params(**THINK)) as at:
        rounds(at, 3)
        at.handle.messages_mut()[place]["content"][0]["content"] = "less"
        at.done()
        assert sent_thinking(at) == sent


def test_the_open_round_is_bound_to_the_closed_history_too() -> None:
    """An edit while a call waits: the reply that asked for it was born after the history as it was."""
    waits = reply(thinking="a thought", calls=[call("write", {"path": "a", "text": "b"})])
    with scene([thoughts(1), waits, reply("done")], asked=params(**THINK)) as at:
        rounds(at, 1)
        turn = at.turn()
        edit_first(at)
        turn.approve_all()
        turn.continue_loop()
        at.turn().continue_loop()
        assert at.done().text == "done"
        assert sent_thinking(at) == []


def test_a_paused_reply_is_bound_too() -> None:
    """An edit while the model pauses: what it thought before the pause is not sent with the resumption."""
    pause = reply(thinking="a thought", content=[server_call("web_search")], stop_reason="pause_turn")
    found = reply(content=[server_result("web_search"), {"type": "text", "text": "done"}])
    search = {"type": "web_search_20250305", "name": "web_search"}
    with scene([pause, found], asked=params(tools=[search], **THINK)) as at:
        turn = at.turn()
        edit_first(at)
        turn.continue_loop()
        assert at.done().text == "done"
        assert sent_thinking(at) == []


def test_a_model_that_does_not_bind_gets_all_of_it() -> None:
    """It takes thinking after any words, so nothing is lost."""
    with scene([thoughts(1), thoughts(2), reply("done")], asked=params(model=NOT_BINDING, **THINK)) as at:
        rounds(at, 2)
        edit_first(at)
        assert not dropped(at)
        assert sent_thinking(at) == ["thought 1", "thought 2"]


def test_going_over_to_a_model_that_binds() -> None:
    """What was unbound before is left out from then on, and said so."""
    with scene([thoughts(1), thoughts(2), thoughts(3), reply("done")], asked=params(model=NOT_BINDING, **THINK)) as at:
        rounds(at, 1)
        edit_first(at)
        rounds(at, 1)
        at.handle.update_params(model="claude-opus-5-5")
        turn = at.turn()
        assert [event.count for event in turn.events if isinstance(event, ThinkingDropped)] == [2]
        turn.continue_loop()
        at.done()
        assert sent_thinking(at) == ["thought 3"]


def test_what_the_caller_said_about_it_is_honoured() -> None:
    """With `drop_block` the API itself leaves it out: all is sent."""
    asked = params(thinking=DROP, betas=CONTROLS)
    with scene([thoughts(1), thoughts(2), reply("done")], asked=asked) as at:
        rounds(at, 2)
        edit_first(at)
        assert not dropped(at)
        assert sent_thinking(at) == ["thought 1", "thought 2"]


def test_an_edit_that_is_taken_back_stays_an_edit() -> None:
    """A thought that was left out once has other words before all that came after it; and what was restored is lost."""
    with scene([thoughts(1), thoughts(2), thoughts(3), reply("done")], asked=params(**THINK)) as at:
        rounds(at, 1)
        before = list(at.handle.messages)
        edit_first(at)
        rounds(at, 1)
        at.handle.messages_mut()[0] = before[0]
        rounds(at, 1)
        at.done()
        assert sent_thinking(at) == ["thought 3"]


def test_a_loop_that_wakes_up_with_other_tools() -> None:
    """An accepted drift changes what stood before all of it."""
    with scene([thoughts(1), reply(thinking="thought 2", calls=[call("add", {"a": 1, "b": 1})]), reply("done")]) as at:
        at.handle.update_params(**THINK)
        rounds(at, 1)
        woken = ToolLoopHandle.restore(
            at.handle.snapshot(), at.api.client(), tools=TOOLS[:2], config=LoopConfig(), on_drift="accept"
        )
        at.handle = woken
        rounds(at, 1)
        assert sent_thinking(at) == []
        assert at.done().text == "done"
        assert sent_thinking(at) == ["thought 2"]


def test_it_is_remembered_across_sleep() -> None:
    """A snapshot between the edit and the next request keeps what is to be left out: the same bytes go out."""
    with scene([thoughts(1), fault(529), fault(529), reply("done")], asked=params(**THINK)) as at:
        rounds(at, 1)
        edit_first(at)
        at.failed()
        woken = ToolLoopHandle.restore(at.handle.snapshot(), at.api.client(), tools=TOOLS, config=LoopConfig())
        at.handle.retry()
        at.failed()
        woken.retry()
        assert woken.run().unwrap().text == "done"
        assert at.api.requests[-1].body == at.api.requests[-2].body
        assert sent_thinking(at) == []


def test_nothing_is_left_out_of_a_history_that_only_grows() -> None:
    """Injections, follow-ups, pauses and errors change nothing that stood before."""
    script = [thoughts(1), fault(529), thoughts(2), reply("done", thinking="thought 3"), reply("again")]
    with scene(script, asked=params(**THINK)) as at:
        at.turn().inject_and_continue([user("more")])
        at.failed()
        at.handle.retry()
        at.turn().continue_loop()
        at.done()
        at.handle.follow_up([user("and then?")])
        at.done()
        assert sent_thinking(at) == ["thought 1", "thought 2", "thought 3"]


def test_a_replaced_turn_takes_its_thinking_with_it() -> None:
    """`replace_last` cuts the end off; what stood before is as it was."""
    script = [thoughts(1), reply("one"), thoughts(2), reply("two"), reply("three")]
    with scene(script, asked=params(**THINK)) as at:
        rounds(at, 1)
        at.done()
        at.handle.follow_up([user("second")])
        rounds(at, 1)
        at.done()
        at.handle.follow_up([user("instead")], replace_last=True)
        assert at.done().text == "three"
        assert sent_thinking(at) == ["thought 1"]
