"""`check` finds what the API refuses, and nothing else."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.history.bad_requests import BAD_REQUESTS, GOOD_REQUESTS, WARNED_REQUESTS, BadRequest
from tests.history.bodies import (
    CODE,
    HELLO,
    HI,
    NEXT,
    TOOL,
    assistant,
    call,
    found,
    result,
    search,
    system,
    text,
    thinking,
    tool_change,
    user,
)
from toolloop.history import RULES, Problem, check
from toolloop.testing.strategies import histories

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)
# Junk with the words of the API in it: it comes further into the checks than junk at large.
_KINDS = ["text", "tool_use", "tool_result", "server_tool_use", "web_search_tool_result", "thinking", "compaction"]
_BLOCKS = st.fixed_dictionaries(
    {"type": st.sampled_from(_KINDS) | JSON},
    optional={
        key: JSON | st.sampled_from(["a", "b", {"type": "code_execution_1"}, [{"type": "text", "text": ""}]])
        for key in ("text", "id", "tool_use_id", "input", "content", "is_error", "caller", "cache_control", "citations")
    },
)
NEARLY: st.SearchStrategy[Any] = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "role": st.sampled_from(["user", "assistant", "system"]) | JSON,
            "content": st.lists(_BLOCKS | JSON, max_size=4) | JSON,
            "output_config": JSON,
        },
    )
    | JSON,
    max_size=6,
)


def ask(body: dict[str, Any]) -> list[Problem]:
    return check(body["messages"], model=body.get("model"), tools=body.get("tools"), thinking=body.get("thinking"))


def rules(problems: list[Problem]) -> list[tuple[str, str]]:
    return [(problem.path, problem.rule) for problem in problems]


@pytest.mark.parametrize("bad", [bad for bad in BAD_REQUESTS if bad.checked], ids=lambda bad: bad.name)
def test_a_broken_rule_is_found(bad: BadRequest) -> None:
    """A request that breaks one rule gets that rule, at its level; it has no error if that is a warning."""
    problems = ask(bad.body)
    assert (bad.rule, bad.checked) in {(problem.rule, problem.level) for problem in problems}
    assert (bad.checked == "error") == any(problem.level == "error" for problem in problems)


@pytest.mark.parametrize(
    "bad", [bad for bad in BAD_REQUESTS if not bad.checked and "messages" in bad.body], ids=lambda bad: bad.name
)
def test_what_is_no_matter_of_the_history_is_left_alone(bad: BadRequest) -> None:
    """Where the fault is elsewhere in the request, the history is said to be fine."""
    assert ask(bad.body) == []


@pytest.mark.parametrize(("name", "body"), GOOD_REQUESTS, ids=[name for name, _ in GOOD_REQUESTS])
def test_what_the_api_takes_passes(name: str, body: dict[str, Any]) -> None:
    """A valid request has no problem at all."""
    assert ask(body) == []


@pytest.mark.parametrize(("name", "rule", "body"), WARNED_REQUESTS, ids=[name for name, *_ in WARNED_REQUESTS])
def test_what_the_api_may_take_is_a_warning(name: str, rule: str, body: dict[str, Any]) -> None:
    """Doubt is a warning, never an error."""
    assert [(rule, "warning")] == [(problem.rule, problem.level) for problem in ask(body)]


@given(JSON | NEARLY, st.text() | st.none(), JSON, JSON)
def test_no_junk_makes_it_raise(messages: Any, model: str | None, tools: Any, thinking: Any) -> None:
    """Whatever JSON it is given, the answer is a list of problems of known rules."""
    for problem in check(messages, model=model, tools=tools, thinking=thinking):
        assert problem.rule in RULES
        assert problem.path.startswith(("messages", "tools["))
        assert problem.message
        assert problem.remedy


@given(NEARLY)
def test_nearly_right_messages_do_not_make_it_raise(messages: Any) -> None:
    """Known models and thinking reach the rules that depend on them."""
    check(messages, model="claude-sonnet-4-5", tools=[], thinking={"type": "enabled"})
    check(messages, model="claude-opus-5", tools=[{"cache_control": {}}, 3])


@given(histories())
def test_generated_valid_histories_pass(messages: list[Any]) -> None:
    """What the strategy of valid histories makes has neither errors nor warnings."""
    assert check(messages) == []


@pytest.mark.parametrize("value", [None, 3, True, "Hi", {}, object()])
def test_messages_that_are_no_list_are_one_problem(value: Any) -> None:
    assert rules(check(value)) == [("messages", "message-shape")]


def test_a_message_of_a_foreign_type_is_named() -> None:
    """A value that is not JSON is named by its type."""
    assert "the message is a object, not an object" in [problem.message for problem in check([object()])]


@pytest.mark.parametrize(("value", "name"), [("yes", "a string"), (1, "a number"), ([], "a list")])
def test_is_error_is_true_or_false(value: Any, name: str) -> None:
    """Anything else is named; null passes for absent."""
    (problem,) = check([HI, assistant(call()), user(result(is_error=value))])
    assert (problem.rule, problem.message) == ("block-fields", f"'is_error' is {name}, not true or false")
    assert check([HI, assistant(call()), user(result(is_error=None))]) == []


def test_no_tools_are_fine_without_calls() -> None:
    """An empty list of tools is a matter only of a history with calls."""
    assert check([HI, HELLO, NEXT], tools=[]) == []


def test_a_tuple_of_messages_is_as_good_as_a_list() -> None:
    assert check((HI,)) == []


def test_too_many_messages_are_found() -> None:
    """More than 100,000 messages are refused (rule 1)."""
    assert rules(check([HI] * 100_001)) == [("messages", "too-many-messages")]


def test_paths_are_in_the_indices_of_the_caller() -> None:
    """Merging neighbours does not shift the indices."""
    messages = [HI, NEXT, HELLO, user(text()), user(text(), result("x"))]
    assert rules(check(messages)) == [("messages[4].content[1]", "orphan-result")]


def test_each_call_without_result_is_told() -> None:
    """Every unanswered call is a problem of its own, at the call."""
    messages = [HI, assistant(text(), call("a"), call("b"), call("c")), user(result("b"))]
    assert rules(check(messages)) == [
        ("messages[1].content[1]", "unanswered-call"),
        ("messages[1].content[3]", "unanswered-call"),
    ]


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([HI, assistant(search(), found()), user(result("srvtoolu_1"))], "runs itself"),
        ([HI, assistant(call()), user(result()), HELLO, user(result())], "right before"),
        ([HI, user(result())], "there is no call"),
    ],
)
def test_an_orphan_is_told_why(messages: list[Any], words: str) -> None:
    """The three ways a result can be without its call are told apart."""
    (problem,) = check(messages)
    assert words in problem.message


def test_an_open_server_call_is_told_by_its_tool() -> None:
    """The tool is named if the call has a name."""
    named, nameless = [
        [
            problem.message
            for problem in check([HI, assistant(block, text()), NEXT])
            if problem.rule == "open-server-call"
        ]
        for block in (search(), search(name=""))
    ]
    assert named == ["the server call srvtoolu_1 of web_search has no result"]
    assert nameless == ["the server call srvtoolu_1 of server_tool_use has no result"]


def test_an_open_server_call_keeps_its_tool() -> None:
    """Where the tools are known; a tool that a system message brought may be the one."""
    messages = [HI, assistant(search())]
    assert check(messages) == []
    assert rules(check(messages, tools=[CODE])) == [("messages[1].content[0]", "server-tool-gone")]
    added = system(tool_change("tool_addition", "look"))
    assert [p.level for p in check([HI, added, assistant(search())], tools=[CODE, TOOL])] == ["warning"]
    closed = check([HI, assistant(search(), text()), NEXT], tools=[CODE])
    assert [problem.rule for problem in closed] == ["open-server-call"]


def test_system_messages_stand_after_a_server_result() -> None:
    """An assistant turn that ends in the result of a server tool may be followed by a system message (rule 21)."""
    assert check([HI, assistant(search(), found()), system(text()), HELLO], tools=[CODE]) == []


def test_a_misplaced_system_message_is_told_where() -> None:
    """Where it follows the wrong turn the first of the run is named, where the wrong turn follows it the last."""
    messages = [HI, HELLO, system(text()), system(text()), NEXT]
    assert rules(check(messages)) == [("messages[2]", "system-place"), ("messages[3]", "system-place")]


def test_a_directive_may_stand_anywhere() -> None:
    """A system message that only sets `output_config` has no wrong place, and parts no turn for certain (rule 21)."""
    directive = system(output_config={"effort": "low"})
    messages = [directive, HI, directive, HELLO, directive, NEXT, directive, directive, NEXT]
    assert check(messages, model="claude-opus-5") == []


def test_an_empty_system_message_between_a_call_and_its_result_is_told() -> None:
    """Even without a block to point at, the system message in the way is found."""
    found_rules = rules(check([HI, assistant(call()), system(), user(result())]))
    assert ("messages[2]", "unanswered-call") in found_rules


def test_calls_before_a_compaction_no_longer_count() -> None:
    """What stands before the last compaction block is not paired (rule 36)."""
    compaction = {"type": "compaction", "content": "So far: nothing."}
    assert check([HI, assistant(call("a")), NEXT, assistant(call("b"), compaction, text()), NEXT]) == []


def test_an_unknown_model_is_never_refused_anything() -> None:
    """What depends on the model is judged for known models only."""
    messages = [HI, system(text()), HELLO]
    assert check(messages, model="gpt-9") == []
    found_rules = {
        problem.rule for problem in check([*messages[:-1], assistant(text("Hm "))], model="claude-haiku-4-5")
    }
    assert found_rules == {"system-model", "trailing-whitespace"}


def test_what_may_be_a_pause_is_a_warning() -> None:
    """Recorded pauses end in a server call; one that ends in its result is not certain to be refused (rule 10)."""
    (problem,) = check([HI, assistant(search(), found())], model="claude-opus-5")
    assert (problem.rule, problem.level) == ("prefill", "warning")


def test_an_empty_prefill_is_a_warning() -> None:
    """An older text of the API allows it (rule 13); other models and other places do not."""
    levels = [check([HI, assistant()], model=model)[0].level for model in ("claude-haiku-4-5", "claude-opus-5", None)]
    assert levels == ["warning", "error", "error"]


@pytest.mark.parametrize("block", [thinking(), search(), found()], ids=lambda block: block["type"])
def test_the_models_own_blocks_are_not_the_users(block: dict[str, Any]) -> None:
    """Thinking, server calls and their results stand in assistant messages only (rule 20)."""
    assert ("messages[0].content[1]", "misplaced-block") in rules(check([user(text(), block)]))


def test_manual_thinking_wants_thinking_in_the_turn_that_goes_on() -> None:
    """Only the turn of the last results is looked at, and only for known models."""
    manual = {"type": "enabled", "budget_tokens": 1024}
    messages = [HI, assistant(call("a")), user(result("a")), system(text()), assistant(call("b")), user(result("b"))]
    assert rules(
        [p for p in check(messages, model="claude-opus-4-5", thinking=manual) if p.rule == "thinking-first"]
    ) == [("messages[4]", "thinking-first")]
    assert check(messages, model="unheard-of", thinking=manual) == []
    assert check(messages[2:4], thinking=manual)[1:] == []
    assert check([*messages, HELLO, NEXT], model="claude-opus-4-5", thinking=manual)[1:] == []


def test_marks_of_five_minutes_come_last() -> None:
    """A mark without `ttl` is one of five minutes."""
    marks = [text(cache_control={"type": "ephemeral"} | more) for more in ({"ttl": "1h"}, {}, {"ttl": "1h"})]
    assert rules(check([user(*marks)])) == [("messages[0].content[2]", "cache-marks")]


def test_it_takes_linear_time() -> None:
    """Ten times the history takes about ten times as long: far from the hundred of a square."""

    def seconds(rounds: int) -> float:
        messages = [HI]
        for number in range(rounds):
            calls = [f"toolu_{number}_{index}" for index in range(3)]
            server = f"srvtoolu_{number}"
            messages.append(assistant(search(server), found(server), *map(call, calls)))
            messages.append(user(*map(result, calls)))
        best = float("inf")
        for _ in range(3):
            start = time.process_time()
            assert check(messages) == []
            best = min(best, time.process_time() - start)
        return best

    assert seconds(2_000) < 40 * seconds(200)
