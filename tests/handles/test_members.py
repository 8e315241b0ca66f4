"""The members of the handle: reads, `run`, `resume`, `update_params`, `into_result`, `view`, in every state."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.kit.each import each
from tests.kit.support import expect_refusal, expect_yielded, place
from tests.kit.tools import HUNDRED, params, user
from tests.kit.world import World, open_over_http
from toolloop import Answer, Continue, InjectMessages, Stop, Usage, Yielded
from toolloop.errors import BadTool, IllegalCommand, InvalidHistory, MaxDepthExceeded, ModelError
from toolloop.terminations import Failed, NaturalEnd, StopCondition, Unfinished
from toolloop.testing import call, fault, reply, server_call

CACHED = {**HUNDRED, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 3}
WRITE = call("write", {"path": "a", "text": "b"}, id="toolu_w")
ADD = call("add", {"a": 1, "b": 2}, id="toolu_a")
SEARCH = {"type": "web_search_20250305", "name": "web_search"}
PAUSED = reply("so far", content=[server_call("web_search", {"query": "x"})], stop_reason="pause_turn")


def _fails(view: Any) -> None:
    raise OSError("not now")


# How to bring a loop into each state in which a caller can hold it, and what each state allows.
STATES: dict[str, dict[str, Any]] = {
    "Ready": {"script": [], "turns": 0},
    "Judging": {"script": [reply("hm", calls=[ADD])], "turns": 1, "stop_when": _fails},
    "decision_required": {"script": [reply(calls=[WRITE])], "turns": 1},
    "tools_executed": {"script": [reply(calls=[ADD])], "turns": 1},
    "paused": {"script": [PAUSED], "turns": 1},
    "Finished": {"script": [reply("end")], "turns": 1},
    "Failed": {"script": [fault(529)], "turns": 1},
    "TooDeep": {"script": [], "turns": 1, "depth": 3},
}
WAITING = ("decision_required", "tools_executed", "paused")
PHASES = {state: "Waiting" if state in WAITING else state for state in STATES}
ENDED = ("Finished", "Failed", "TooDeep")


@contextmanager
def make_standing(state: str, *more: Any) -> Iterator[World]:
    """A loop in that state; further replies may follow."""
    recipe = dict(STATES[state])
    script, turns = [*recipe.pop("script"), *more], recipe.pop("turns")
    with open_over_http(script, asked=params(tools=[SEARCH]), **recipe) as at:
        for _ in range(turns):
            try:
                at.handle.next_turn()
            except OSError:
                assert state == "Judging"
        assert place(at.handle) == state
        yield at


@each("state", STATES)
def test_every_read_is_possible_in_every_state(state: str) -> None:
    """Reads change nothing, agree with each other, and the view is JSON."""
    with make_standing(state) as at:
        handle = at.handle
        before = handle.snapshot()
        view = json.loads(json.dumps(handle.view()))
        assert (view["state"], view["loop_id"], view["iterations"]) == (PHASES[state], "loop", handle.iterations)
        assert [shown["id"] for shown in view["pending"]] == [call.id for call in handle.pending]
        assert (handle.pending_turn is not None) == (state in WAITING)
        assert handle.is_finished == (state in ENDED)
        assert len(handle.usage_log) == handle.iterations
        assert sum((entry.usage for entry in handle.usage_log), Usage()) == handle.total_usage
        assert handle.messages[0] == user()
        assert handle.status == view["status"]
        assert PHASES[state] in repr(handle)
        assert handle.snapshot() == before


@each("state", STATES)
def test_into_result_tells_what_came_of_a_loop(state: str) -> None:
    """An unfinished loop has the termination `Unfinished`, a failed one `Failed` with its error."""
    with make_standing(state) as at:
        result = at.handle.into_result()
        other = Unfinished() if result.error is None else Failed(result.error)
        assert result.termination == (NaturalEnd() if state == "Finished" else other)
        assert result.termination.kind in ("complete", "unfinished", "failed")
        assert isinstance(result.error, {"Failed": ModelError, "TooDeep": MaxDepthExceeded}.get(state, type(None)))
        assert (result.iterations, result.total_usage) == (at.handle.iterations, at.handle.total_usage)
        assert (result.response is None) == (result.iterations == 0)


def test_the_view_tells_a_page_all_it_needs() -> None:
    """State, pending calls, last text, usage, what is left of the limits."""
    with open_over_http([reply("Writing.", calls=[WRITE], usage=CACHED)], max_iterations=5, timeout=60) as at:
        turn = at.turn()
        view = at.handle.view()
        assert view["status"] == "needs_decision"
        assert (view["state"], view["text"], view["termination"], view["error"]) == ("Waiting", "Writing.", None, None)
        (shown,) = view["pending"]
        assert shown == {
            "id": "toolu_w",
            "path": ["toolu_w"],
            "name": "write",
            "names": ["write"],
            "takes": ["approve", "deny", "answer"],
            "input": {"path": "a", "text": "b"},
            "why": "approval",
            "expires_at": None,
            "reason": None,
            "preview": None,
            "annotations": None,
            "digest": turn.pending[0].digest,
        }
        assert view["usage"] == {
            name: getattr(at.handle.total_usage, name)
            for name in ("input_tokens", "total_input_tokens", "output_tokens", "total_tokens")
        }
        assert (view["usage"]["input_tokens"], view["usage"]["total_input_tokens"]) == (100, 107)
        assert (view["left"]["iterations"], view["left"]["pauses"], view["left"]["requests"]) == (4, 10, None)
        assert 0 < (view["left"]["seconds"] or 0) < 60


REFUSED_MOVES: dict[str, tuple[Callable[[Any], Any], tuple[str, ...]]] = {
    "resume(InjectMessages(...))": (lambda at: at.resume(InjectMessages([user()])), ENDED),
    "follow_up()": (lambda at: at.follow_up([user()]), ("Ready", "Judging", *WAITING, "TooDeep")),
    "retry()": (lambda at: at.retry(), tuple(state for state in STATES if state != "Failed")),
    "next_turn()": (lambda at: at.next_turn(), WAITING),
    "update_params()": (lambda at: at.update_params(max_tokens=9), ("TooDeep",)),
    "extend()": (lambda at: at.extend(max_iterations=9), ("TooDeep",)),
    "messages_mut()": (lambda at: at.messages_mut(), ("TooDeep",)),
    "fork()": (lambda at: at.fork(), ("TooDeep",)),
}


@each("state", STATES)
def test_a_move_that_a_state_does_not_allow_is_refused(state: str) -> None:
    """It names the state, what was asked and what is allowed, and changes nothing."""
    with make_standing(state) as at:
        for asked, (move, states) in REFUSED_MOVES.items():
            if state in states:
                with expect_refusal(at.handle, IllegalCommand, asked) as caught:
                    move(at.handle)
                assert (caught.value.state, caught.value.asked) == (PHASES[state], asked)
                assert isinstance(caught.value.allowed, tuple)


@each("state", ENDED)
def test_a_command_after_the_end_does_nothing_and_is_logged(state: str, caplog: pytest.LogCaptureFixture) -> None:
    """An external event loop may be late: `resume` after a terminal result is allowed. Words of a user are refused."""
    caplog.set_level(logging.INFO, "toolloop")
    with make_standing(state) as at:
        before, end = at.handle.snapshot(), at.handle.next_turn()
        for command in (Stop("why"), Continue()):
            at.handle.resume(command)
            assert at.handle.snapshot() == before
            assert at.handle.next_turn() is end
        with expect_refusal(at.handle, IllegalCommand, "resume(InjectMessages(...))") as caught:
            at.handle.resume(InjectMessages("and?"))
        assert ("follow_up()" in caught.value.allowed) == (state != "TooDeep")
    assert caplog.text.count("ignored a command after the end") == 2


@each("state", [state for state in STATES if state not in (*WAITING, *ENDED)])
def test_to_continue_where_nothing_waits_changes_nothing(state: str) -> None:
    """A button is clicked twice."""
    with make_standing(state) as at:
        before = at.handle.snapshot()
        at.handle.resume(Continue())
        assert at.handle.snapshot() == before


@each("state", [state for state in STATES if state not in ("Finished", "TooDeep")])
def test_stop_ends_a_loop_for_good(state: str) -> None:
    """Also one whose request failed, and that is not to be retried."""
    with make_standing(state) as at:
        at.handle.stop("enough")
        at.handle.stop("again")
        assert at.expect_done().termination == StopCondition("enough")


@each("state", ["Finished", "TooDeep"])
def test_stop_after_the_end_changes_nothing(state: str) -> None:
    """The result stays what it is."""
    with make_standing(state) as at:
        end = at.handle.next_turn()
        at.handle.stop("enough")
        assert at.handle.next_turn() is end


def test_a_loop_is_finished_once_its_result_was_returned() -> None:
    """So `while not handle.is_finished: handle.next_turn()` sees every result, also the one after a `stop`."""
    with open_over_http([reply(calls=[ADD]), fault(500), reply("fine"), reply("again")]) as at:
        handle, seen = at.handle, list[str]()
        while not handle.is_finished:
            turn = handle.next_turn()
            seen.append(type(turn).__name__)
            if isinstance(turn, Yielded):
                turn.resume(Continue())
        assert seen == ["Yielded", "Error"]
        handle.retry()
        assert not handle.is_finished
        handle.next_turn()
        assert handle.is_finished
        handle.follow_up("and now?")
        handle.stop()
        assert not handle.is_finished
        at.expect_done()
        assert handle.is_finished


def test_every_result_tells_what_waits_its_text_and_what_was_used() -> None:
    """`handle.run().text` is right whatever comes; what only another result has is refused with what this one is."""
    with open_over_http([reply("Hm.", calls=[WRITE, WRITE | {"id": "toolu_x"}]), fault(500), reply("end")]) as at:
        yielded_ = expect_yielded(at.handle.next_turn())
        assert (yielded_.text, yielded_.iterations, len(yielded_.pending)) == ("Hm.", 1, 2)
        with pytest.raises(AttributeError, match=r"this turn is Yielded: 2 calls wait \(write, write\)"):
            _ = yielded_.termination  # type: ignore[attr-defined]
        yielded_.approve_all()
        yielded_.continue_loop()
        with pytest.raises(AttributeError, match="the loop waits for a command"):
            _ = at.handle.next_turn().error
        at.handle.resume(Continue())
        failed_ = at.handle.next_turn()
        assert (failed_.text, failed_.iterations, failed_.pending) == (None, 1, ())
        with pytest.raises(AttributeError, match="this turn is Error: ModelError"):
            failed_.approve("toolu_w")
        at.handle.retry()
        done = at.handle.run()
        assert (done.text, done.iterations, done.pending) == ("end", 2, ())
        with pytest.raises(AttributeError, match="this turn is Completed: NaturalEnd"):
            _ = done.reason


def test_a_yielded_gives_the_history_to_edit() -> None:
    """The same list as the handle's, as long as it waits."""
    with open_over_http([reply(calls=[ADD]), reply("end")]) as at:
        turn = expect_yielded(at.handle.next_turn())
        assert turn.messages_mut() is at.handle.messages_mut()
        turn.messages_mut()[0]["content"] = "else"
        turn.resume(InjectMessages("go on"))
        with pytest.raises(IllegalCommand, match="stale"):
            turn.messages_mut()
        at.expect_done()
        assert [message["content"] for message in at.handle.messages if message["role"] == "user"][::2] == [
            "else",
            "go on",
        ]


@each("state", [state for state in STATES if state not in ENDED])
def test_stop_is_possible_wherever_a_loop_has_not_ended(state: str) -> None:
    """Stop wins over all: the next turn is the end, without a request, with the last real response."""
    with make_standing(state, reply("fine")) as at:
        count = at.count
        at.handle.resume(Stop("enough"))
        done = at.expect_done()
        assert (done.termination, at.count) == (StopCondition("enough"), count)
        assert (done.response is None) == (state == "Ready")
        at.handle.follow_up([user("again")])
        if state != "Judging":
            assert at.handle.run().unwrap().text == "fine"


@each("junk", ["go", None, Continue, Answer("x")])
def test_a_value_that_is_not_a_command_is_refused(junk: Any) -> None:
    """A mistake of type, whatever the state."""
    with make_standing("tools_executed") as at:
        with pytest.raises(TypeError, match="not a command"):
            at.handle.resume(junk)
        assert at.handle.pending_turn is not None


@each("junk", [None, 5, [b"x"]])
def test_injected_messages_that_are_none_are_refused(junk: Any) -> None:
    """A number or bytes are not a list of messages."""
    with make_standing("tools_executed") as at:
        before = at.handle.snapshot()
        with pytest.raises(TypeError, match="injected messages"):
            at.handle.resume(InjectMessages(junk))
        assert at.handle.snapshot() == before


def test_run_asks_about_what_waits_and_goes_on() -> None:
    """`ask` is called with each turn that has waiting calls, and decides through it."""
    asked: list[str] = []

    def ask(turn: Yielded) -> None:
        asked.append(turn.pending[0].id)
        turn.approve_all()

    other = call("write", {"path": "c", "text": "d"}, id="toolu_o")
    with open_over_http([reply(calls=[WRITE]), reply(calls=[ADD]), reply(calls=[other]), reply("end")]) as at:
        assert at.handle.run(ask).unwrap().text == "end"
        assert asked == ["toolu_w", "toolu_o"]


def test_run_returns_the_turn_if_ask_leaves_something_open() -> None:
    """What is not decided waits for the caller."""
    with open_over_http([reply(calls=[WRITE])]) as at:
        turn = expect_yielded(at.handle.run(lambda turn: None))
        assert len(turn.pending) == 1
        assert at.handle.pending_turn is turn


def test_run_goes_on_after_a_command_that_ask_gave() -> None:
    """`ask` may stop, or inject, through the turn."""
    with open_over_http([reply(calls=[WRITE])]) as at:
        assert at.handle.run(lambda turn: turn.stop("no")).unwrap().termination == StopCondition("no")


def test_run_resumes_a_waiting_turn_whose_calls_are_decided() -> None:
    """A loop whose calls were decided elsewhere is simply run."""
    with open_over_http([reply(calls=[WRITE]), reply("end")]) as at:
        at.turn()
        at.handle.decide({"toolu_w": Answer("done by hand")})
        assert at.handle.run().unwrap().text == "end"


def test_update_params_counts_from_the_next_request_on() -> None:
    """Changed, added and taken away; recorded in the snapshot."""
    with open_over_http([reply(calls=[ADD]), reply("end")], asked=params(system="old", stop_sequences=["x"])) as at:
        turn = at.turn()
        at.handle.update_params(max_tokens=99, system="new", stop_sequences=None, metadata={"user_id": "u"})
        assert '"max_tokens":99' in at.handle.state.root.setup.params
        turn.continue_loop()
        at.expect_done()
        first, second = (request.json for request in at.api.requests)
        assert (first["system"], second["system"], second["max_tokens"]) == ("old", "new", 99)
        assert ("stop_sequences" in first, "stop_sequences" in second) == (True, False)
        assert (second["metadata"], second["tools"]) == ({"user_id": "u"}, first["tools"])


BAD_CHANGES: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "stream": ({"stream": True}, ValueError, "streaming"),
    "messages": ({"messages": [user()]}, ValueError, "messages_mut"),
    "no model": ({"model": None}, ValueError, "model"),
    "no max_tokens": ({"max_tokens": None}, ValueError, "max_tokens"),
    "not JSON": ({"metadata": {1}}, TypeError, "metadata"),
    "tools is not a list": ({"tools": 5}, TypeError, "tools"),
    "a name that is taken": ({"tools": [{"name": "add", "input_schema": {"type": "object"}}]}, BadTool, "'add'"),
    "one name twice": ({"tools": [SEARCH, SEARCH]}, BadTool, "'web_search'"),
}


@each(("changes", "kind", "word"), BAD_CHANGES.values())
def test_bad_parameters_are_refused_and_change_nothing(changes: Any, kind: type[Exception], word: str) -> None:
    """All of them, or none: a good change beside a bad one is not made either."""
    with make_standing("tools_executed", reply("end")) as at:
        before = at.handle.snapshot()
        with pytest.raises(kind, match=word):
            at.handle.update_params(temperature=0.5, **changes)
        assert at.handle.snapshot() == before
        at.handle.run()
        assert "temperature" not in at.api.requests[-1].json


def test_another_model_must_take_the_history() -> None:
    """A system message in the history keeps the loop from a model that takes none."""
    system = {"role": "system", "content": "Be brief."}
    with open_over_http([reply("end")], asked=params(messages=[user(), system])) as at:
        with expect_refusal(at.handle, InvalidHistory, "update_params()", "messages[1]") as caught:
            at.handle.update_params(model="claude-sonnet-4-5")
        assert caught.value.messages == [user(), system]
        assert at.expect_done().text == "end"


def test_headers_and_timeouts_can_be_changed_and_are_not_stored() -> None:
    """They stay with the process."""
    with open_over_http([reply(calls=[ADD]), reply("end")], asked=params(extra_headers={"x-mine": "one"})) as at:
        turn = at.turn()
        at.handle.update_params(extra_headers={"x-mine": "two"}, timeout=30)
        turn.continue_loop()
        at.expect_done()
        assert [request.headers["x-mine"] for request in at.api.requests] == ["one", "two"]
        assert "x-mine" not in json.dumps(at.handle.snapshot())
