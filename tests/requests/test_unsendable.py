"""Requests that only the whole history, or all parameters together, show to be refused: they are not sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.kit.each import each
from tests.kit.effort import examples
from tests.kit.support import expect_completed, expect_refusal
from tests.kit.tools import add, params, user
from tests.kit.world import open_over_http
from tests.messages.bodies import make_found, search, text
from toolloop import SqliteStore, ToolLoopHandle, sub_loop, tool
from toolloop._interface import message_edits
from toolloop._messages.check import check
from toolloop.errors import InvalidHistory
from toolloop.events import CallFinished
from toolloop.machine.values.jsontext import encode
from toolloop.stores.codec import digest_snapshot
from toolloop.testing import FakeMessagesAPI, ScriptedProvider, call, reply

SHORT = {"type": "ephemeral"}
LONG = {"type": "ephemeral", "ttl": "1h"}
MANUAL = {"type": "enabled", "budget_tokens": 1024}
MANUAL_MODEL = "claude-sonnet-4-5"


def make_marked(mark: Mapping[str, str] | None) -> dict[str, Any]:
    return {"type": "text", "text": "x", **({} if mark is None else {"cache_control": mark})}


@tool
def mark(long: bool) -> list[Any]:
    """Return a marked text."""
    return [make_marked(LONG if long else SHORT)]


# --- cache marks -----------------------------------------------------------------------------------------------------


def test_a_mark_of_an_hour_after_one_of_five_minutes_is_not_sent() -> None:
    """The result of a later round has it. The caller takes it out, and the loop continues."""
    rounds = [reply(calls=[call("mark", {"long": long})]) for long in (False, True)]
    with open_over_http([*rounds, reply("fine")], tools=[mark]) as at:
        at.turn().continue_loop()
        at.turn().continue_loop()
        for _ in range(2):
            with pytest.raises(InvalidHistory, match="an hour is after one of five minutes"):
                at.handle.next_turn()
        assert at.count == 2
        del at.handle.messages_mut()[-1]["content"][0]["content"][0]["cache_control"]
        assert at.expect_done().text == "fine"


def test_a_nested_loop_does_not_send_it_either() -> None:
    """Its history cannot be edited, so its call ends with the reason."""
    rounds = [reply(calls=[call("mark", {"long": long})]) for long in (False, True)]
    script = [reply(calls=[call("helper", {"prompt": "go"})]), *rounds, reply("fine")]
    ended: list[Any] = []
    helper = sub_loop("helper", "Help.", params=params(messages=[]), tools=[mark])
    with open_over_http(script, tools=[helper], observers=[ended.append]) as at:
        assert expect_completed(at.handle.run()).text == "fine"
        (result,) = [event for event in ended if isinstance(event, CallFinished) and event.path == ()]
        assert "an hour is after one of five minutes" in result.plain_text


MARKS = st.sampled_from((None, SHORT, LONG))


@examples(40)
@given(st.lists(MARKS, max_size=5), MARKS, MARKS, MARKS)
def test_marks_are_refused_exactly_where_the_api_refuses_them(said: list[Any], own: Any, system: Any, top: Any) -> None:
    """In tools, system prompt, messages and at the top level: the API refuses nothing that the loop sends."""
    marked_tool = {
        "name": "lookup",
        "input_schema": {"type": "object"},
        **({} if own is None else {"cache_control": own}),
    }
    asked = params(tools=[marked_tool], system=[make_marked(system)], messages=[user()])
    in_order = [each for each in (own, system, *said) if each is not None]
    are_long = [each is LONG for each in in_order]
    count = len(in_order) + (top is not None)
    is_good = are_long == sorted(are_long, reverse=True) and count <= 4
    if top is not None:
        asked["cache_control"] = top
    with FakeMessagesAPI([reply("so")] * 9) as api:
        try:
            handle = ToolLoopHandle(api.client(), params=asked)
            expect_completed(handle.next_turn())
            for each in said:
                handle.follow_up([user([make_marked(each)])])
                expect_completed(handle.next_turn())
            was_refused = False
        except InvalidHistory:
            was_refused = True
        assert (was_refused, api.refused) == (not is_good, [])


# --- parameters ------------------------------------------------------------------------------------------------------


@each(
    "changes",
    [
        {"tool_choice": {"type": "any"}},
        {"tool_choice": {"type": "tool", "name": "add"}},
        {"max_tokens": 1024},
        {"max_tokens": 1},
        {"thinking": {"type": "enabled", "budget_tokens": 4096}},
        {"system": [make_marked(SHORT)]},
    ],
)
def test_parameters_that_do_not_fit_the_others_are_refused(changes: dict[str, Any]) -> None:
    """Where they are changed, and where a loop is made with them; the loop is as before."""
    asked = params(model=MANUAL_MODEL, max_tokens=4096, thinking=MANUAL, messages=[user([make_marked(LONG)])])
    with open_over_http([reply("fine")], tools=[add], asked=asked) as at:
        with pytest.raises(InvalidHistory, match=r"thinking|cache-marks"):
            at.handle.update_params(**changes)
        assert at.expect_done().text == "fine"
    with FakeMessagesAPI([]) as api, pytest.raises(InvalidHistory, match=r"thinking|cache-marks"):
        ToolLoopHandle(api.client(), params=asked | changes, tools=[add])


def test_with_interleaved_thinking_the_budget_may_be_above_max_tokens() -> None:
    """It is for all thinking between the calls of a turn, so the API judges it."""
    thinking, betas = MANUAL | {"budget_tokens": 9000}, ["interleaved-thinking-2025-05-14"]
    asked = params(model=MANUAL_MODEL, max_tokens=4096, thinking=thinking, betas=betas)
    handle = ToolLoopHandle(ScriptedProvider([reply("fine")]), params=asked, tools=[add])
    assert handle.run().unwrap().text == "fine"


def test_an_update_that_changes_nothing_is_not_recorded(tmp_path: Path) -> None:
    """Equal values, in any order; a parameter that is not stored cannot be compared, and is recorded by its name."""
    store = SqliteStore(tmp_path / "loops.db")
    with ToolLoopHandle.open(store, "loop", ScriptedProvider([]), params=params(metadata={"a": 1, "b": 2})) as handle:
        handle.flush()
        handle.update_params(max_tokens=256)
        handle.update_params(metadata={"b": 2, "a": 1}, system=None)
        assert store.head("loop").rev == 1
        handle.update_params(timeout=5)
        handle.update_params(max_tokens=7)
        assert store.head("loop").rev == 3


def test_parameters_of_an_empty_conversation_can_be_changed() -> None:
    """They are checked without messages."""
    with open_over_http([reply("fine")], tools=[add], asked=params(messages=[])) as at:
        with expect_refusal(at.handle, InvalidHistory, "thinking.budget_tokens"):
            at.handle.update_params(model=MANUAL_MODEL, thinking=MANUAL)
        at.handle.update_params(model="claude-opus-5", tool_choice={"type": "auto"})
        at.handle.follow_up("go")
        assert at.expect_done().text == "fine"
        assert at.api.requests[0].json["model"] == "claude-opus-5"


def test_parameters_of_an_old_journal_are_not_sent() -> None:
    """A loop that was stored before these rules says so, and goes on with other parameters."""
    asked = params(model=MANUAL_MODEL, max_tokens=4096, thinking=MANUAL)
    with open_over_http([reply("fine")], asked=asked) as at:
        fields = {name: part for name, part in at.handle.snapshot().items() if name not in ("format", "digest")}
        old = json.loads(json.dumps(fields).replace('\\"max_tokens\\":4096', '\\"max_tokens\\":64'))
        assert old != fields
        stored = {"format": 1, "digest": digest_snapshot(old), **old}
        copy = ToolLoopHandle.restore(stored, at.api.client(), tools=[])
        with pytest.raises(InvalidHistory, match="max_tokens only 64"):
            copy.next_turn()
        assert at.count == 0
        copy.update_params(max_tokens=4096)
        assert expect_completed(copy.next_turn()).text == "fine"


# --- messages --------------------------------------------------------------------------------------------------------


@each(
    "edited",
    [
        [user(), {"role": "assistant", "content": [make_found(), text("So.")]}],
        [user(), user([]), {"role": "assistant", "content": [search(), make_found(), text("So.")]}],
    ],
)
def test_an_edit_that_the_api_would_refuse_is_refused(edited: list[Any]) -> None:
    """A server result without its call, and an empty message beside one of its role."""
    first = reply(content=[search(), make_found(), text("So.")])
    with open_over_http([first, reply("fine")]) as at:
        at.expect_done()
        at.handle.messages_mut()[:] = edited
        with expect_refusal(at.handle, InvalidHistory, "messages[1].content"):
            at.handle.follow_up("more")
        at.handle.messages_mut()[:] = [user(), {"role": "assistant", "content": [search(), make_found(), text("So.")]}]
        at.handle.follow_up("more")
        assert at.expect_done().text == "fine"


# --- server tools ----------------------------------------------------------------------------------------------------


@each("goes_on", [False, True])
def test_words_may_follow_a_search_that_ended_in_a_later_reply(goes_on: bool) -> None:
    """The result has no call beside it, however far back its call is."""
    last = [call("add", {"a": 1, "b": 1}, id="c3")] if goes_on else []
    script = [
        reply(content=[search("srvtoolu_9"), call("add", {"a": 1, "b": 1}, id="c1")], stop_reason="tool_use"),
        reply(calls=[call("add", {"a": 1, "b": 1}, id="c2")]),
        reply(
            content=[make_found("srvtoolu_9"), text("found"), *last], stop_reason="tool_use" if goes_on else "end_turn"
        ),
        reply("fine"),
    ]
    asked = params(tools=[{"type": "web_search_20260209", "name": "web_search"}], messages=[user("Search")])
    with open_over_http(script, tools=[add], asked=asked) as at:
        for _ in range(2):
            at.turn().continue_loop()
        if goes_on:
            at.turn().inject_and_continue(["And?"])
        else:
            assert at.expect_done().text == "found"
            at.handle.follow_up("And?")
        assert at.expect_done().text == "fine"


def test_a_result_without_a_call_is_looked_up_in_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the long history of an old journal."""
    checked = list[int]()

    def count(messages: list[Any]) -> Any:
        checked.append(len(messages))
        return check(messages)

    monkeypatch.setattr(message_edits, "check", count)
    said = {"role": "assistant", "content": "so"}
    history = [encode(each) for each in [user(), said] * 200]
    history += map(encode, [user(), {"role": "assistant", "content": [make_found(), text("So.")]}])
    assert message_edits._cut_before_reply(history) == history
    assert sum(checked) < 3 * len(history)
