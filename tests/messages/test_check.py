"""`check` finds what the API refuses, and nothing else."""

from __future__ import annotations

import math
from itertools import chain
from typing import Any

from hypothesis import given, strategies as st

from tests.measured.speed.work import calls_of
from tests.messages.bad_requests import BAD_REQUESTS, GOOD_REQUESTS, WARNED_REQUESTS
from tests.messages.bodies import (
    CODE,
    HELLO,
    HI,
    MANUAL,
    NEXT,
    TOOL,
    assistant,
    call,
    compaction,
    make_found,
    of_toolset,
    result,
    search,
    system,
    text,
    thinking,
    tool_change,
    user,
)
from tests.messages.histories import histories
from toolloop.history import RULES, Problem, check

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


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)


LOW = system(output_config={"effort": "low"})


def ask(body: dict[str, Any]) -> list[Problem]:
    parts = {name: body.get(name) for name in ("model", "tools", "thinking", "tool_choice", "max_tokens")}
    return check(body["messages"], **parts)


def rules(problems: list[Problem]) -> list[tuple[str, str]]:
    return [(problem.path, problem.rule) for problem in problems]


#: Every request of the corpus, with the rule and the level that `check` reports; None for a history without a problem.
CORPUS: list[tuple[str, dict[str, Any], tuple[str, str] | None]] = [
    *((bad.name, bad.body, (bad.rule, bad.checked) if bad.checked else None) for bad in BAD_REQUESTS),
    *((name, body, None) for name, body in GOOD_REQUESTS),
    *((name, body, (rule, "warning")) for name, rule, body in WARNED_REQUESTS),
]


def test_the_corpus_is_judged_by_its_rules() -> None:
    """A request that breaks one rule gets that rule, at its level; a doubt is never an error."""
    for name, body, expected in CORPUS:
        if "messages" not in body:
            continue
        levels = {(problem.rule, problem.level) for problem in ask(body)}
        errors = any(level == "error" for _, level in levels)
        assert (expected in levels and (expected[1] == "error") == errors) if expected else not levels, (name, levels)


@given(JSON | NEARLY, st.sampled_from([None, "?", "claude-sonnet-4-5", "claude-opus-5"]), JSON, JSON | st.just(MANUAL))
def test_no_junk_makes_it_raise(messages: Any, model: str | None, tools: Any, thinking: Any) -> None:
    """Whatever JSON it is given, the answer is a list of problems of known rules, of known models too."""
    for problem in check(messages, model=model, tools=tools, thinking=thinking):
        assert problem.rule in RULES
        assert problem.path.startswith(("messages", "tools[", "thinking"))
        assert problem.message
        assert problem.remedy


@given(histories())
def test_generated_valid_histories_pass(messages: list[Any]) -> None:
    """What the strategy of valid histories makes has neither errors nor warnings."""
    assert check(messages) == []


def test_messages_that_are_not_a_list_are_one_problem() -> None:
    cases: list[Any] = [None, 3, True, "Hi", {}, object()]
    for value in cases:
        assert rules(check(value)) == [("messages", "message-shape")]


def test_is_error_is_true_or_false() -> None:
    """Anything else is named; null passes for absent."""
    cases: list[tuple[Any, str]] = [("yes", "a string"), (1, "a number"), ([], "a list")]
    for value, name in cases:
        (problem,) = check([HI, assistant(call()), user(result(is_error=value))])
        assert (problem.rule, problem.message) == ("block-fields", f"'is_error' is {name}, not true or false")
        assert check([HI, assistant(call()), user(result(is_error=None))]) == []


def test_a_message_that_is_not_json_is_found() -> None:
    """The other messages are not judged then."""
    cases: list[Any] = [math.nan, math.inf, 10**5000, b"x", {1}, {(): 1}, object(), ENDLESS]
    for value in cases:
        for message in (user(value), assistant(call(input={"a": [value]})), value):
            (problem,) = check([HI, message, {"role": "tool"}])
            assert (problem.path, problem.rule, problem.level) == ("messages[1]", "not-encodable", "error")
            assert problem.message.startswith("the message is not JSON: ")


def test_half_of_a_surrogate_pair_is_an_error_but_in_a_reply() -> None:
    """The API wrote it there, and takes it back as an escape."""
    ((asked,), (said,)) = (check([HI, message(text("a \ud83d")), NEXT]) for message in (user, assistant))
    assert (asked.rule, asked.level) == ("not-encodable", "error")
    assert (said.rule, said.level) == ("not-encodable", "warning")


def test_too_many_messages_are_found() -> None:
    """More than 100,000 messages are refused (rule 1)."""
    assert rules(check([HI] * 100_001)) == [("messages", "too-many-messages")]


def test_paths_are_in_the_indices_of_the_caller() -> None:
    """Merging neighbours does not shift the indices."""
    messages = [HI, NEXT, HELLO, user(text()), user(text(), result("x"))]
    assert rules(check(messages)) == [("messages[4].content[1]", "orphan-result")]


def test_each_call_without_result_is_reported() -> None:
    """Every unanswered call is a problem of its own, at the call."""
    messages = [HI, assistant(text(), call("a"), call("b"), call("c")), user(result("b"))]
    assert rules(check(messages)) == [
        ("messages[1].content[1]", "unanswered-call"),
        ("messages[1].content[3]", "unanswered-call"),
    ]


def test_an_orphan_is_reported_with_its_reason() -> None:
    """The three ways a result can be without its call are told apart."""
    cases: list[tuple[list[Any], str]] = [
        ([HI, assistant(search(), make_found()), user(result("srvtoolu_1"))], "answers itself"),
        ([HI, assistant(call()), user(result()), HELLO, user(result())], "directly before"),
        ([HI, user(result())], "does not exist"),
    ]
    for messages, words in cases:
        (problem,) = check(messages)
        assert words in problem.message


def test_an_open_server_call_is_named_by_its_tool() -> None:
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


def test_a_misplaced_system_message_is_reported_with_its_place() -> None:
    """Where it follows the wrong turn the first of the run is named, where the wrong turn follows it the last."""
    messages = [HI, HELLO, system(text()), system(text()), NEXT]
    assert rules(check(messages)) == [("messages[2]", "system-place"), ("messages[3]", "system-place")]


def test_a_system_message_may_stand_there() -> None:
    """After the result of a server tool; and one that only sets `output_config` stands anywhere (rule 21)."""
    cases: list[list[Any]] = [
        [HI, assistant(search(), make_found()), system(text()), HELLO, NEXT],
        [LOW, HI, LOW, HELLO, LOW, NEXT, LOW, LOW, NEXT],
        [HI, assistant(call()), LOW, user(result())],
        [HI, assistant(thinking()), LOW, assistant(text()), NEXT],
    ]
    for messages in cases:
        assert check(messages, model="claude-opus-5", tools=[CODE, TOOL]) == []


def test_an_empty_system_message_between_a_call_and_its_result_is_reported() -> None:
    """Even without a block to point at, the system message in the way is found."""
    found_rules = rules(check([HI, assistant(call()), system(), user(result())]))
    assert ("messages[2]", "unanswered-call") in found_rules


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
    (problem,) = check([HI, assistant(search(), make_found())], model="claude-opus-5")
    assert (problem.rule, problem.level) == ("prefill", "warning")


def test_an_empty_prefill_is_a_warning() -> None:
    """An older text of the API allows it (rule 13); other models and other places do not."""
    levels = [check([HI, assistant()], model=model)[0].level for model in ("claude-haiku-4-5", "claude-opus-5", None)]
    assert levels == ["warning", "error", "error"]


def test_the_models_own_blocks_are_not_the_users() -> None:
    """Thinking, server calls and their results stand in assistant messages only (rule 20)."""
    cases: list[dict[str, Any]] = [thinking(), search(), make_found()]
    for block in cases:
        assert ("messages[0].content[1]", "misplaced-block") in rules(check([user(text(), block)]))


def test_manual_thinking_wants_thinking_in_the_turn_that_goes_on() -> None:
    """Only the turn of the last results is looked at, and only for known models."""
    messages = [HI, assistant(call("a")), user(result("a")), system(text()), assistant(call("b")), user(result("b"))]
    assert rules(
        [p for p in check(messages, model="claude-opus-4-5", thinking=MANUAL) if p.rule == "thinking-first"]
    ) == [("messages[4]", "thinking-first")]
    assert check(messages, model="unheard-of", thinking=MANUAL) == []
    assert check(messages[2:4], thinking=MANUAL)[1:] == []
    assert check([*messages, HELLO, NEXT], model="claude-opus-4-5", thinking=MANUAL)[1:] == []


def test_manual_thinking_is_at_the_start_of_a_turn_or_before_its_last_call() -> None:
    """A model thinks once, or before each call. Thinking in between comes of neither."""
    for place, found in enumerate(([], [("messages[5]", "thinking-first")], [])):
        thoughts = [[thinking()] if number == place else [] for number in range(3)]
        calls = [
            (assistant(*thought, call(name)), user(result(name))) for thought, name in zip(thoughts, "abc", strict=True)
        ]
        assert rules(check([HI, *chain(*calls)], model="claude-opus-4-5", thinking=MANUAL)) == found


def test_marks_of_five_minutes_come_last() -> None:
    """A mark without `ttl` is one of five minutes."""
    marks = [text(cache_control={"type": "ephemeral"} | more) for more in ({"ttl": "1h"}, {}, {"ttl": "1h"})]
    assert rules(check([user(*marks)])) == [("messages[0].content[2]", "cache-marks")]


def test_results_before_a_compaction_are_not_held_to_their_toolset() -> None:
    """What is before the last compaction is not paired (rule 36)."""
    first = of_toolset(
        content=[{"type": "browser_state", "tabs": []}, {"type": "browser_state", "tabs": []}], toolset_name="browser"
    )["messages"]
    assert rules(check(first)) == [("messages[2].content[0]", "result-content")]
    assert check([*first, assistant(compaction(), text()), NEXT]) == []


def test_it_takes_linear_time() -> None:
    """Ten times the history takes about ten times as many calls, not a hundred times."""

    def history(rounds: int) -> list[Any]:
        messages = [HI]
        for number in range(rounds):
            calls = [f"toolu_{number}_{index}" for index in range(3)]
            server = f"srvtoolu_{number}"
            messages.append(assistant(search(server), make_found(server), *map(call, calls)))
            messages.append(user(*map(result, calls)))
        return messages

    few, many = history(40), history(400)
    assert check(many) == []
    assert calls_of(lambda: check(many)) < 15 * calls_of(lambda: check(few))


def test_many_open_server_calls_are_checked_in_linear_time() -> None:
    """Ten times as many take about ten times as many calls."""

    def histories(count: int) -> list[Any]:
        rounds = ((assistant(search(f"srvtoolu_{n}"), call(f"a{n}")), user(result(f"a{n}"))) for n in range(count))
        return [HI, *(message for each in rounds for message in each)]

    few, many = histories(40), histories(400)
    assert {rule for _, rule in rules(check(few, tools=[TOOL]))} == {"server-tool-gone"}
    assert calls_of(lambda: check(many, tools=[TOOL])) < 15 * calls_of(lambda: check(few, tools=[TOOL]))
