"""`messages_mut`: the closed history as a list to edit. An edit takes effect at once, or is refused."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from tests.handles.test_members import make_standing
from tests.kit.each import each
from tests.kit.support import expect_refusal, expect_yielded
from tests.kit.tools import TOOLS, assistant, params, user
from tests.kit.world import World, open_over_http
from toolloop import Continue, MemoryStore, ToolLoopHandle
from toolloop.errors import IllegalCommand, InvalidHistory
from toolloop.events import HistoryReplaced
from toolloop.machine.values.jsontext import encode
from toolloop.testing import call, fault, reply

WRITE = call("write", {"path": "a", "text": "b"}, id="toolu_w")
ADD = call("add", {"a": 1, "b": 2}, id="toolu_a")
USE = {"type": "tool_use", "id": "toolu_x", "name": "add", "input": {"a": 1, "b": 2}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_x", "content": "3"}
# How a loop goes on from each state in which its history can be edited.
ONWARD: dict[str, Callable[[World], Any]] = {
    "Ready": lambda at: None,
    "decision_required": lambda at: at.handle.pending_turn.approve_all(),
    "tools_executed": lambda at: None,
    "paused": lambda at: None,
    "Finished": lambda at: at.handle.follow_up([user("again")]),
    "Failed": lambda at: at.handle.retry(),
}


@each("state", ONWARD)
def test_an_edit_is_legal_wherever_it_is_the_callers_turn(state: str) -> None:
    """It is in the history at once: reads and snapshots show it, and the next request carries it."""
    with make_standing(state, reply("fine")) as at:
        before = at.handle.snapshot()
        working = at.handle.messages_mut()
        assert working == list(at.handle.messages)
        assert at.handle.messages_mut() is working
        assert at.handle.snapshot() == before
        working[0] = user("edited")
        assert at.handle.messages[0] == user("edited")
        assert at.handle.snapshot() != before
        assert at.handle.messages_mut() is working
        ONWARD[state](at)
        assert at.handle.run().unwrap().text == "fine"
        assert at.list_sent()[0] == at.handle.messages[0] == user("edited")


@each("state", ONWARD)
def test_a_list_of_an_earlier_wait_refuses_every_change(state: str) -> None:
    """It would change nothing, so it says so; it can still be read and copied."""
    with make_standing(state, reply("fine")) as at:
        old = at.handle.messages_mut()
        ONWARD[state](at)
        at.handle.run()
        changes: list[Callable[[], Any]] = [
            lambda: old.append(user()),
            lambda: old.extend([user()]),
            lambda: old.insert(0, user()),
            old.pop,
            lambda: old.remove(user()),
            old.clear,
            old.reverse,
            lambda: old.sort(key=str),
            lambda: old.__setitem__(0, user()),
            lambda: old.__delitem__(0),
            lambda: old.__iadd__([user()]),
            lambda: old.__imul__(2),
        ]
        for change in changes:
            with expect_refusal(at.handle, IllegalCommand, "messages_mut()"):
                change()
        assert type(copy.copy(old)) is type(pickle.loads(pickle.dumps(old))) is list
        assert old[0] == user()
        assert at.handle.messages_mut() is not old


BROKEN: dict[str, Callable[[list[Any]], Any]] = {
    "an orphan result": lambda working: working.insert(0, user([RESULT])),
    "a call without a result": lambda working: working.extend([assistant([USE]), user("no result")]),
    "a text before a result": lambda working: working.extend(
        [assistant([USE]), user([{"type": "text", "text": "x"}, RESULT])]
    ),
    "two results of one call": lambda working: working.extend([assistant([USE]), user([RESULT, RESULT])]),
    "two calls of one id": lambda working: working.extend([assistant([USE, USE]), user([RESULT])]),
    "an unknown role": lambda working: working.append({"role": "tool", "content": "x"}),
    "no role": lambda working: working.append({"content": "x"}),
    "no content": lambda working: working.append({"role": "user"}),
    "an extra key": lambda working: working.append(user() | {"extra": 1}),
    "a blank text": lambda working: working.append(user([{"type": "text", "text": " "}])),
    "thinking at the end": lambda working: working.append(
        assistant([{"type": "thinking", "thinking": "x", "signature": "y"}])
    ),
    "a system message first": lambda working: working.insert(0, {"role": "system", "content": "x"}),
    "no message": lambda working: working.append(5),
}


@each(
    ("state", "broken"),
    [
        *(("Ready", broken) for broken in BROKEN),
        *((state, "a call without a result") for state in ("decision_required", "tools_executed", "Finished")),
    ],
)
def test_a_broken_edit_is_refused_where_it_would_be_adopted(state: str, broken: str) -> None:
    """Nothing is sent, the loop stands as before, and the list stays to be mended."""
    edit = BROKEN[broken]
    with make_standing(state, reply("fine")) as at:
        count = at.count
        original = list(at.handle.messages)
        working = at.handle.messages_mut()
        if state == "decision_required":
            ONWARD[state](at)
        edit(working)
        with expect_refusal(at.handle, InvalidHistory) as caught:
            go_on(at, state)
        (problem, *_) = caught.value.problems
        assert (problem.level, bool(problem.rule), bool(problem.remedy)) == ("error", True, True)
        assert at.count == count
        assert at.handle.messages_mut() is working
        working[:] = original
        if state == "Finished":
            ONWARD[state](at)
        assert at.handle.run().unwrap().text == "fine"


def go_on(at: World, state: str) -> None:
    """What would adopt the list."""
    match state:
        case "Ready":
            at.handle.next_turn()
        case "Finished":
            at.handle.follow_up([user("again")])
        case _:
            at.handle.pending_turn.continue_loop()


def test_a_list_that_is_emptied_is_refused() -> None:
    """A request needs a message."""
    with open_over_http([]) as at:
        at.handle.messages_mut().clear()
        with expect_refusal(at.handle, InvalidHistory, "the list of messages is empty"):
            at.handle.next_turn()


def test_an_edit_that_is_not_json_is_refused() -> None:
    """What cannot be a message at all is a mistake of type; the list stays."""
    with open_over_http([reply("fine")]) as at:
        before = at.handle.state
        working = at.handle.messages_mut()
        working.append(user({1, 2}))
        for take in (at.handle.next_turn, at.handle.snapshot):
            with pytest.raises(TypeError, match=r"messages\[1\]"):
                take()
        assert at.handle.state == before
        working.pop()
        assert at.expect_done().text == "fine"


@each("command", ["stop", "inject_and_continue", "continue_loop"])
def test_every_command_adopts(command: str) -> None:
    """Whichever command comes first takes the edit over, and an event tells of it."""
    with open_over_http([reply(calls=[ADD]), reply("fine")]) as at:
        turn = at.turn()
        at.handle.messages_mut()[:] = [user("all of it, in short"), *at.handle.messages[1:]]
        {
            "stop": turn.stop,
            "inject_and_continue": lambda: turn.inject_and_continue([user("more")]),
            "continue_loop": turn.continue_loop,
        }[command]()
        assert at.handle.messages[0] == user("all of it, in short")
        done = at.expect_done()
        assert [event for event in done.events if isinstance(event, HistoryReplaced)] == [HistoryReplaced(1, 3, 3)]


TAKES: dict[str, Callable[[ToolLoopHandle], Any]] = {
    "snapshot()": lambda handle: handle.snapshot(),
    "fork()": lambda handle: handle.fork(),
    "flush()": lambda handle: handle.flush(),
    "close()": lambda handle: handle.close(),
    "update_params()": lambda handle: handle.update_params(max_tokens=9),
}


@each("asked", TAKES)
def test_what_ends_no_wait_takes_the_edit_over_and_leaves_the_list(asked: str) -> None:
    """A broken one is refused there, and stays to be mended; the list can be edited on until the next command."""
    with open_over_http([reply(calls=[ADD]), reply("fine")]) as at:
        turn = at.turn()
        working = at.handle.messages_mut()
        working.insert(0, user([RESULT]))
        with expect_refusal(at.handle, InvalidHistory, asked, "orphan-result"):
            TAKES[asked](at.handle)
        working[:1] = [user("edited")]
        TAKES[asked](at.handle)
        assert at.handle.state.root.messages[0] == encode(user("edited"))
        working[0] = user("edited again")
        assert at.handle.messages_mut() is working
        turn.continue_loop()
        assert at.expect_done().text == "fine"
        assert at.list_sent()[0] == user("edited again")


def test_an_edit_of_a_history_that_goes_on_elsewhere_is_reported() -> None:
    """Another handle drove the stored loop on: the edit is lost, which is said once."""
    store = MemoryStore()
    with open_over_http([reply(calls=[ADD]), reply("fine")]) as at:
        handle = ToolLoopHandle(at.api.client(), params=params(), tools=TOOLS, store=store, loop_id="stored")
        handle.flush()
        other = ToolLoopHandle.open(store, "stored", at.api.client(), tools=TOOLS)
        working = handle.messages_mut()
        working[0] = user("edited")
        other.next_turn()
        with pytest.raises(IllegalCommand, match=r"flush\(\): the history was changed.*messages_mut\(\) again"):
            handle.flush()
        handle.flush()
        assert handle.messages == other.messages
        with pytest.raises(IllegalCommand, match="earlier wait"):
            working.clear()
        handle.messages_mut()[0] = user("edited again")
        assert expect_yielded(handle.pending_turn).reason == "tools_executed"
        handle.resume(Continue())
        assert handle.run().unwrap().text == "fine"
        assert at.list_sent()[0] == user("edited again")


def test_closed_rounds_can_be_dropped_while_calls_wait() -> None:
    """The open round is beside the history: no edit can leave a call without its result."""
    with open_over_http([reply(calls=[ADD]), reply(calls=[WRITE]), reply("fine")]) as at:
        at.turn().continue_loop()
        turn = at.turn()
        assert len(at.handle.messages) == 3
        at.handle.messages_mut()[1:] = []
        turn.approve_all()
        turn.continue_loop()
        at.turn().continue_loop()
        at.expect_done()
        assert [message["role"] for message in at.list_sent()] == ["user", "assistant", "user"]
        assert at.list_sent()[1]["content"][0]["id"] == "toolu_w"


def test_a_prompt_that_was_too_long_is_cut_and_retried() -> None:
    """`messages_mut` and `update_params` are legal before `retry`."""

    def api(body: dict[str, Any]) -> Any:
        return reply("fine") if len(body["messages"]) < 3 else fault(400, message="prompt is too long")

    with open_over_http(api) as at:
        at.handle.messages_mut().extend([user("long"), user("longer")])
        assert not at.expect_failed().retryable
        at.handle.messages_mut()[1:] = []
        at.handle.update_params(max_tokens=9)
        at.handle.retry()
        assert (at.expect_done().text, at.list_sent()) == ("fine", [user()])


def test_sdk_objects_are_taken_in_an_edit() -> None:
    """A block of the SDK in the list becomes the JSON that the SDK would send."""
    from anthropic.types import TextBlock  # noqa: PLC0415 - it takes a second, and one test needs it

    with open_over_http([reply("fine")]) as at:
        at.handle.messages_mut().extend([assistant([TextBlock(type="text", text="I said")]), user("go on")])
        at.expect_done()
        assert at.list_sent()[1] == assistant([{"type": "text", "text": "I said"}])


def test_next_turn_adopts_an_edit_after_the_end() -> None:
    """The result stays the same object, and reads show the edit."""
    with open_over_http([reply("so")]) as at:
        done = at.expect_done()
        at.handle.messages_mut()[0] = user("edited")
        assert at.handle.next_turn() is done
        assert at.handle.messages[0] == user("edited")
