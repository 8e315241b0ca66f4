"""`repair` makes the least change after which the API takes a history."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from hypothesis import event, given, strategies as st
from hypothesis.strategies import DrawFn, composite

from tests.measured.speed.work import calls_of
from tests.messages.bad_requests import BAD_REQUESTS
from tests.messages.bodies import (
    DOCUMENT,
    HELLO,
    HI,
    NEXT,
    assistant,
    call,
    compaction,
    make_found,
    result,
    search,
    system,
    text,
    thinking,
    user,
)
from tests.messages.histories import broken_histories, histories
from tests.messages.test_check import NEARLY
from toolloop.history import NO_WORDS, NOT_RUN, Change, check, repair

AGAIN = {"again": True}  # the input of a call that the strategy makes a second time
REPAIRED = {
    "duplicate-call",
    "unanswered-call",
    "orphan-result",
    "repeated-result",
    "results-first",
    "open-server-call",
    "orphan-server-result",
    "blank-text",
    "empty-content",
    "empty-error-result",
    "toolset-name",
}


INSIDE = {
    f"{name}-inside-result"
    for name in ("document-of-empty-text", "document-of-blank-text", "search-result-of-empty-text")
}


@composite
def mixtures(draw: DrawFn) -> list[Any]:
    """Broken histories with messages of a request from the corpus among their own."""
    messages = list(draw(broken_histories()))
    bad = draw(st.sampled_from([bad.body["messages"] for bad in BAD_REQUESTS if bad.checked]))
    at = draw(st.integers(0, len(messages)))
    return [*messages[:at], *(bad if isinstance(bad, list) else [bad]), *messages[at:]]


def make_not_run(call_id: str) -> dict[str, Any]:
    return result(call_id, NOT_RUN, is_error=True)


def errors(messages: list[Any]) -> list[str]:
    return [problem.rule for problem in check(messages) if problem.level == "error"]


@given(broken_histories())
def test_a_broken_history_is_valid_afterwards(messages: list[Any]) -> None:
    """Whatever repairable faults come together, no error is left, and nothing is changed without a reason.

    No call, no text with a word and no image is lost, and their order is kept.
    """
    problems = [p for p in check(messages) if p.level == "error" or p.rule == "thinking-last"]
    repaired = repair(messages)
    assert errors(repaired.messages) == []
    assert repaired.remaining == ()
    assert bool(problems) == bool(repaired.changes)
    assert list_kept(messages) == list_kept(repaired.messages)
    event("was broken" if problems else "was valid")


def list_kept(history: list[Any]) -> list[Any]:
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
        and block.get("input") != AGAIN
    ]


@given(NEARLY | mixtures())
def test_every_error_that_is_left_is_listed(messages: list[Any]) -> None:
    """Of junk, of requests that break any rule of the API, and of several of these in one history."""
    repaired = repair(messages)
    assert repaired.remaining == tuple(each for each in check(repaired.messages) if each.level == "error")
    event("errors remain" if repaired.remaining else "all repaired")


@given(histories())
def test_a_valid_history_is_left_alone(messages: list[Any]) -> None:
    """The same messages come back, without a change."""
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


def test_a_rule_that_repair_knows_is_repaired() -> None:
    """Unless nothing is left of the history. Blank text inside a document or a search result is listed instead."""
    for bad in BAD_REQUESTS:
        if bad.rule not in REPAIRED or bad.checked != "error":
            continue
        repaired = repair(bad.body["messages"])
        rules = [problem.rule for problem in repaired.remaining]
        if bad.name in INSIDE:
            assert (rules, repaired.changes) == (["blank-text"], ()), bad.name
        else:
            assert rules in ([], ["no-messages"]), bad.name
            assert repaired.changes, bad.name


def test_the_result_of_a_toolset_member_gets_the_name_of_its_toolset() -> None:
    """One that is made up, one that names none, and one that names another; where the call names none, it goes."""
    calls = assistant(call("a", toolset_name="browser"), call("b", toolset_name="browser"), call("c"))
    repaired = repair([HI, calls, user(result("b", toolset_name="computer"), result("c", toolset_name="browser"))])
    named = {"toolset_name": "browser"}
    assert [HI, calls, user(result("b", **named), result("c"), make_not_run("a") | named)] == repaired.messages
    assert [(change.path, change.rule, change.what) for change in repaired.changes] == [
        ("messages[1].content[0]", "unanswered-call", "answered as not run"),
        ("messages[2].content[0]", "toolset-name", "set the toolset of its call"),
        ("messages[2].content[1]", "toolset-name", "removed the toolset"),
    ]
    assert repair([HI, calls, user(result("a"), result("b"), result("c"))]).messages[2:] == [
        user(result("a", **named), result("b", **named), result("c"))
    ]


def test_dangling_calls_are_answered_in_a_message_of_their_own() -> None:
    """At the end of the history, and where no user turn follows."""
    calls = assistant(call("a"), call("b"))
    repaired = repair([HI, calls])
    assert [HI, calls, user(make_not_run("a"), make_not_run("b"))] == repaired.messages
    assert repaired.changes == (
        Change("messages[1].content[0]", "unanswered-call", "answered as not run"),
        Change("messages[1].content[1]", "unanswered-call", "answered as not run"),
    )
    last = system(text())
    assert [HI, calls, user(make_not_run("a"), make_not_run("b")), last] == repair([HI, calls, last]).messages


def test_missing_results_join_the_user_turn_that_follows() -> None:
    """Behind the results that are there, before all else."""
    messages = [HI, assistant(call("a"), call("b")), user(result("b")), user(text())]
    assert [*messages[:3], user(make_not_run("a"), text())] == repair(messages).messages
    assert [*messages[:2], user(result("b"), make_not_run("a"))] == repair(messages[:3]).messages
    assert [*messages[:2], user(make_not_run("a"), make_not_run("b"), text("Go on"))] == repair(
        [*messages[:2], NEXT]
    ).messages


def test_the_second_of_two_calls_with_one_id_goes() -> None:
    """With its result, and in one turn only; thinking before it that ends the turn then goes too."""
    second = call(input={"again": True})
    twice = [HI, assistant(call(), thinking(), second), user(result(), result(content="again")), HELLO]
    repaired = repair([*twice, NEXT, assistant(call()), user(result())])
    assert [HI, assistant(call()), user(result()), HELLO, NEXT, assistant(call()), user(result())] == repaired.messages
    assert [change.rule for change in repaired.changes] == ["duplicate-call", "thinking-last", "repeated-result"]
    assert [HI, assistant(call()), user(make_not_run("toolu_1"))] == repair([HI, assistant(call(), second)]).messages


def test_what_only_the_author_can_repair_is_listed() -> None:
    """With its place in the repaired history."""
    repaired = repair([HI, assistant(call()), user(result(), text(colour="red")), HELLO, {"role": "tool"}])
    assert repaired.changes == ()
    assert [(each.path, each.rule) for each in repaired.remaining] == [
        ("messages[2].content[1]", "unknown-key"),
        ("messages[4]", "unknown-role"),
    ]


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


def test_a_result_behind_what_goes_still_finds_its_call() -> None:
    """What must go goes before calls are paired, so that no real result is taken for an orphan."""
    calls = assistant(call("a"), call("b"))
    for gone, last in (
        (assistant(thinking()), [result("b")]),
        (assistant(thinking(), search()), [result("b"), text()]),
    ):
        messages = [HI, calls, user(result("a")), gone, user(*last)]
        assert [*messages[:3], messages[4]] == repair(messages).messages


def test_thinking_at_the_end_of_a_turn_goes() -> None:
    """Also where the user message after it goes, too, and where a made-up result follows."""
    blank, orphan = text(" "), user(result("x"))
    messages = [HI, assistant(blank, thinking(), thinking("ha")), orphan, HELLO, NEXT, assistant(text(), thinking())]
    assert [HI, HELLO, NEXT, assistant(text())] == repair(messages).messages
    told = [HI, assistant(call(), thinking()), system(text()), orphan, HELLO]
    assert repair(told).messages == [HI, assistant(call()), user(make_not_run("toolu_1")), told[2], HELLO]


def test_system_messages_move_behind_the_user_turn() -> None:
    """Also from between a call and its results; an item that is not a message keeps its place."""
    brief, short = system(text("Be brief.")), system(text("Be short."))
    messages = [brief, HI, assistant(call()), short, user(result()), None, NEXT, HELLO]
    repaired = repair(messages)
    assert [HI, brief, assistant(call()), user(result()), NEXT, None, short, HELLO] == repaired.messages
    assert [(change.path, change.rule) for change in repaired.changes] == [
        ("messages[0]", "system-place"),
        ("messages[3]", "system-place"),
    ]


def test_empty_messages_go() -> None:
    """Also those beside a full one of their role."""
    messages = [HI, user(), HELLO, system(), user(), assistant(), NEXT]
    assert repair(messages).messages == [HI, HELLO, NEXT]


def test_server_results_without_their_call_go() -> None:
    """A compaction may be between the two, and results before it do not count."""
    assert [HI, assistant(text()), NEXT] == repair([HI, assistant(make_found(), text()), NEXT]).messages
    for kept in (
        [HI, assistant(search(), compaction(), make_found(), text()), NEXT],
        [assistant(make_found(), compaction())],
    ):
        assert kept == repair(kept).messages


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


def test_a_directive_with_blank_words_keeps_what_it_sets() -> None:
    """Its words go, and it stays where it was."""
    low = system(output_config={"effort": "low"})
    blank = low | {"content": " "}
    repaired = repair([HI, HELLO, blank, NEXT])
    assert repaired.messages == [HI, HELLO, low, NEXT]
    assert ("messages[2].content", "blank-text") in [(each.path, each.rule) for each in check([HI, HELLO, blank, NEXT])]
    assert repair(repaired.messages).changes == ()


def test_many_server_calls_of_one_id_are_repaired_in_linear_time() -> None:
    """Where the last goes, the one before it is open; all go at once."""
    few, many = ([HI, *[assistant(text("a"), search()), NEXT] * count] for count in (40, 400))
    assert [change.rule for change in repair(few).changes] == ["open-server-call"] * 40
    assert [change.path for change in repair(few[:5]).changes] == ["messages[1].content[1]", "messages[3].content[1]"]
    assert calls_of(lambda: repair(many)) < 15 * calls_of(lambda: repair(few))
