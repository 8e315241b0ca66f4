"""`repair` makes the least change after which the API takes a history."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import event, given

from tests.history.bad_requests import BAD_REQUESTS, GOOD_REQUESTS, BadRequest
from tests.history.bodies import (
    DOCUMENT,
    HELLO,
    HI,
    NEXT,
    assistant,
    call,
    found,
    result,
    search,
    system,
    text,
    thinking,
    user,
)
from tests.history.test_check import NEARLY
from toolloop.history import NO_WORDS, NOT_RUN, Change, check, repair
from toolloop.testing.strategies import broken_histories, histories

MENDED = {
    "unanswered-call",
    "orphan-result",
    "repeated-result",
    "results-first",
    "open-server-call",
    "blank-text",
    "empty-content",
    "empty-error-result",
    "toolset-name",
}


def not_run(call_id: str) -> dict[str, Any]:
    return result(call_id, NOT_RUN, is_error=True)


def errors(messages: list[Any]) -> list[str]:
    return [problem.rule for problem in check(messages) if problem.level == "error"]


@given(broken_histories())
def test_a_broken_history_is_valid_afterwards(messages: list[Any]) -> None:
    """Whatever of the repairable faults come together, no error is left."""
    repaired = repair(messages)
    assert errors(repaired.messages) == []
    event("was broken" if errors(messages) else "was valid")


@given(broken_histories())
def test_every_error_is_mended_by_a_change(messages: list[Any]) -> None:
    """Nothing is changed without a reason: a history without errors and trailing thinking has no changes."""
    problems = [p for p in check(messages) if p.level == "error" or p.rule == "thinking-last"]
    assert bool(problems) == bool(repair(messages).changes)


@given(histories())
def test_a_valid_history_is_left_alone(messages: list[Any]) -> None:
    """The very same messages come back, without a change."""
    repaired = repair(messages)
    assert repaired.changes == ()
    assert [id(message) for message in messages] == [id(message) for message in repaired.messages]


@given(broken_histories() | NEARLY)
def test_a_second_repair_finds_nothing(messages: list[Any]) -> None:
    """Repair is idempotent, on junk too, and never changes what it was given."""
    before = deepcopy(messages)
    once = repair(messages)
    twice = repair(once.messages)
    assert repr(before) == repr(messages)
    assert twice.changes == ()
    assert repr(once.messages) == repr(twice.messages)


@given(broken_histories())
def test_what_is_right_is_kept(messages: list[Any]) -> None:
    """No call, no text with a word and no image is lost, and their order is kept."""

    def kept(history: list[Any]) -> list[Any]:
        blocks = [
            (message["role"], block)
            for message in history
            for block in ([text(message["content"])] if isinstance(message["content"], str) else message["content"])
        ]
        return [
            (role, block)
            for role, block in blocks
            if role != "system"
            and block["type"] in ("text", "tool_use", "image")
            and block.get("text") not in ("", " ", "\n\n")
        ]

    assert kept(messages) == kept(repair(messages).messages)


@pytest.mark.parametrize(
    "bad", [bad for bad in BAD_REQUESTS if bad.rule in MENDED and bad.checked == "error"], ids=lambda bad: bad.name
)
def test_the_mendable_bad_requests_are_mended(bad: BadRequest) -> None:
    """A request of the corpus that breaks a mendable rule is valid afterwards, unless nothing is left of it."""
    repaired = repair(bad.body["messages"])
    assert repaired.changes
    assert errors(repaired.messages) in ([], ["no-messages"])


@pytest.mark.parametrize(("name", "body"), GOOD_REQUESTS, ids=[name for name, _ in GOOD_REQUESTS])
def test_the_good_requests_are_left_alone(name: str, body: dict[str, Any]) -> None:
    assert (body["messages"], ()) == (repair(body["messages"]).messages, repair(body["messages"]).changes)


def test_the_result_of_a_toolset_member_gets_the_name_of_its_toolset() -> None:
    """One that is made up, one that names none, and one that names another; where the call names none, it goes."""
    calls = assistant(call("a", toolset_name="browser"), call("b", toolset_name="browser"), call("c"))
    repaired = repair([HI, calls, user(result("b", toolset_name="computer"), result("c", toolset_name="browser"))])
    named = {"toolset_name": "browser"}
    assert [HI, calls, user(result("b", **named), result("c"), not_run("a") | named)] == repaired.messages
    assert [(change.path, change.rule, change.what) for change in repaired.changes] == [
        ("messages[1].content[0]", "unanswered-call", "answered as not run"),
        ("messages[2].content[0]", "toolset-name", "named the toolset of its call"),
        ("messages[2].content[1]", "toolset-name", "named no toolset"),
    ]
    assert repair([HI, calls, user(result("a"), result("b"), result("c"))]).messages[2:] == [
        user(result("a", **named), result("b", **named), result("c"))
    ]


def test_dangling_calls_are_answered_in_a_message_of_their_own() -> None:
    """At the end of the history, and where no user turn follows."""
    calls = assistant(call("a"), call("b"))
    repaired = repair([HI, calls])
    assert [HI, calls, user(not_run("a"), not_run("b"))] == repaired.messages
    assert repaired.changes == (
        Change("messages[1].content[0]", "unanswered-call", "answered as not run"),
        Change("messages[1].content[1]", "unanswered-call", "answered as not run"),
    )
    last = system(text())
    assert [HI, calls, user(not_run("a"), not_run("b")), last] == repair([HI, calls, last]).messages


def test_missing_results_join_the_user_turn_that_follows() -> None:
    """Behind the results that are there, before all else."""
    messages = [HI, assistant(call("a"), call("b")), user(result("b")), user(text())]
    assert [*messages[:3], user(not_run("a"), text())] == repair(messages).messages
    assert [*messages[:2], user(result("b"), not_run("a"))] == repair(messages[:3]).messages
    assert [*messages[:2], user(not_run("a"), not_run("b"), text("Go on"))] == repair([*messages[:2], NEXT]).messages


def test_results_move_to_the_front() -> None:
    """In their order, over the messages of a turn; a message that is left empty goes."""
    messages = [HI, assistant(call("a"), call("b")), user(result("b"), text()), user(DOCUMENT), user(result("a"))]
    repaired = repair(messages)
    assert [*messages[:2], user(result("b"), result("a"), text()), user(DOCUMENT)] == repaired.messages
    assert (Change("messages[4].content[0]", "results-first", "moved to the front"),) == repaired.changes


def test_orphans_and_repeats_go() -> None:
    """The first result of a call stays; a message that held only what goes, goes too."""
    messages = [user(result("x")), HI, assistant(call()), user(result(), result(content="again"), result("x")), HELLO]
    repaired = repair(messages)
    assert [HI, assistant(call()), user(result()), HELLO] == repaired.messages
    assert [(change.path, change.rule) for change in repaired.changes] == [
        ("messages[0].content[0]", "orphan-result"),
        ("messages[3].content[1]", "repeated-result"),
        ("messages[3].content[2]", "orphan-result"),
    ]


def test_server_calls_of_closed_turns_go() -> None:
    """And thinking that they leave at the end; those of an open turn stay."""
    messages = [HI, assistant(text(), thinking(), search()), NEXT, assistant(search("srvtoolu_2"), text())]
    repaired = repair(messages)
    assert [HI, assistant(text()), NEXT, messages[3]] == repaired.messages
    assert [change.rule for change in repaired.changes] == ["open-server-call", "thinking-last"]


def test_a_result_behind_a_reply_that_goes_still_finds_its_call() -> None:
    """What must go goes before calls are paired, so that no real result is taken for an orphan."""
    messages = [HI, assistant(call("a"), call("b")), user(result("a")), assistant(thinking()), user(result("b"))]
    assert [*messages[:3], messages[4]] == repair(messages).messages


def test_a_result_behind_a_server_call_that_goes_still_finds_its_call() -> None:
    """Likewise; the thinking before that server call goes with it."""
    calls = assistant(call("a"), call("b"))
    messages = [HI, calls, user(result("a")), assistant(thinking(), search()), user(result("b"), text())]
    assert [*messages[:3], messages[4]] == repair(messages).messages


def test_thinking_stays_where_the_user_message_behind_it_goes() -> None:
    """Then it is no longer the end of its turn, be it a part of its message or the whole."""
    for said in ([thinking()], [text(), thinking(), thinking("ha")]):
        messages = [HI, assistant(*said), user(result("x")), HELLO, NEXT]
        repaired = repair(messages)
        assert [HI, messages[1], HELLO, NEXT] == repaired.messages
        assert repaired.messages[1] is messages[1]
        assert (Change("messages[2].content[0]", "orphan-result", "dropped"),) == repaired.changes


def test_what_of_the_thinking_still_ends_its_turn_goes() -> None:
    """What comes next decides: the user, a system message, nothing, or an answer that is made up."""
    blank, orphan = text(" "), user(result("x"))
    messages = [HI, assistant(blank, thinking(), thinking("ha")), orphan, HELLO, NEXT, assistant(text(), thinking())]
    assert [HI, assistant(thinking(), thinking("ha")), HELLO, NEXT, assistant(text())] == repair(messages).messages
    told = [HI, assistant(call(), thinking()), system(text()), orphan, HELLO]
    assert repair(told).messages == [HI, assistant(call()), user(not_run("toolu_1")), told[2], HELLO]


def test_system_messages_move_behind_the_user_turn() -> None:
    """Also from between a call and its results; what is no message keeps its place."""
    brief, short = system(text("Be brief.")), system(text("Be short."))
    messages = [brief, HI, assistant(call()), short, user(result()), None, NEXT, HELLO]
    repaired = repair(messages)
    assert [HI, brief, assistant(call()), user(result()), NEXT, None, short, HELLO] == repaired.messages
    assert [(change.path, change.rule) for change in repaired.changes] == [
        ("messages[0]", "system-place"),
        ("messages[3]", "system-place"),
    ]


def test_empty_messages_go_only_where_their_turn_is_empty() -> None:
    """An empty message beside a full one of its role is legal."""
    messages = [HI, user(), HELLO, system(), user(), assistant(), NEXT]
    assert [HI, user(), HELLO, NEXT] == repair(messages).messages


def test_silent_errors_are_given_words() -> None:
    """And blank text inside a result goes; where nothing else is there, an empty string stays."""
    silent = [result(content=content, is_error=True) for content in (None, "", [], [text("")], [text(" \n")])]
    for block in silent:
        assert [HI, assistant(call()), user(result(content=NO_WORDS, is_error=True))] == repair(
            [HI, assistant(call()), user(block)]
        ).messages
    kept = repair([HI, assistant(call()), user(result(content=[text(""), text(), text("\t"), "junk"]))])
    assert user(result(content=[text(), "junk"])) == kept.messages[2]
    alone = repair([HI, assistant(call()), user(result(content=[text(" ")]))])
    assert user(result(content="")) == alone.messages[2]
    assert [(change.path, change.rule) for change in alone.changes] == [("messages[2].content[0]", "blank-text")]


def test_calls_of_the_wrong_role_are_left_alone() -> None:
    """A call in a user or a system message is beyond repair, and gets no answer."""
    messages = [user(text(), call("a")), system(call("b"))]
    assert repair(messages).messages == messages


def test_calls_before_a_compaction_are_left_alone() -> None:
    """They are no longer paired (rule 36)."""
    compaction = {"type": "compaction", "content": "So far: nothing."}
    messages = [HI, assistant(call("a")), NEXT, assistant(call("b"), search(), compaction, text(), found("x")), NEXT]
    assert messages == repair(messages).messages
