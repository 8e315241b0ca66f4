"""The second opinion finds what is wrong with a request, and has nothing against one that the API accepts."""

from __future__ import annotations

from typing import Any

from tests.kit.each import each
from tests.recorded.second_opinion.good_bodies import (
    ADAPTIVE,
    ANSWERED,
    ASKED,
    BY_CODE,
    FIVE,
    GOOD,
    HOUR,
    MANUAL,
    PDF,
    PNG,
    REDACTED,
    SEARCH_TOOL,
    THOUGHT,
    WEATHER,
    body,
    call,
    model,
    pages,
    result,
    search,
    text,
    user,
)
from tests.recorded.second_opinion.judge import problems
from tests.recorded.second_opinion.moved import moved_thinking

#: By what was done to a good request: the request, and the number of the rule that refuses it.
PLANTED: dict[str, tuple[dict[str, Any], str]] = {
    "the call is gone": (body(ASKED, user(result())), "16"),
    "the result is gone": (body(*ANSWERED[:2], user("And?")), "15"),
    "the same id twice": (body(ASKED, model(call(), call()), user(result())), "18"),
    "two results of one call": (body(*ANSWERED[:2], user(result(), result())), "17"),
    "words before the results": (body(*ANSWERED[:2], user(text(), result())), "15"),
    "an unknown role": (body({**ASKED, "role": "tool"}), "2"),
    "a system message before the results": (
        body(*ANSWERED[:2], {"role": "system", "content": "Now."}, ANSWERED[2], settings=ADAPTIVE),
        "15",
    ),
    "an empty text": (body(user(text(""))), "14"),
    "a blank at the end": (body(ASKED, model(text("The weather "))), "11"),
    "a thought without a signature": (body(ASKED, model({**THOUGHT, "signature": ""}, text()), ASKED), "26"),
    "a thought at the end": (body(ASKED, model(text(), THOUGHT), ASKED), "12"),
    "a thought after the call": (body(ASKED, model(text(), THOUGHT, call()), user(result()), settings=MANUAL), "27"),
    "a forced tool": (body(ASKED, settings=MANUAL, tool_choice={"type": "any"}), "31"),
    "as much thinking as tokens": (body(ASKED, settings=MANUAL, max_tokens=1024), "31"),
    "a fifth mark": (body(user(*[text(**FIVE)] * 4), cache_control=FIVE["cache_control"]), "34"),
    "1 h after 5 m": (body(user(text(**FIVE), text(**HOUR))), "34"),
    "a search result without its call": (body(ASKED, model(pages(), text()), ASKED), "23"),
    "an unknown choice": (body(ASKED, tool_choice={"type": "tool", "name": "nowhere"}), "35"),
    "one tool twice": (body(ASKED, tools=[WEATHER, WEATHER]), "35"),
    # More than the nineteen, of the same rules and of the others.
    "a tool name with a dot": (body(ASKED, tools=[{**WEATHER, "name": "get.weather"}]), "35"),
    "an image of no source": (body(user({**PNG, "source": {"type": "path"}})), "3"),
    "a document of the model": (body(ASKED, model(PDF), ASKED), "33"),
    "one stop sequence": (body(ASKED, stop_sequences=[1]), "7"),
    "a temperature": (body(ASKED, temperature=0.5), "4"),
    "no messages": (body(), "1"),
    "no tokens": (body(ASKED, max_tokens=0, stream=True), "5"),
    "a type that there is not": (body(user({"type": "hologram"})), "3"),
    "an addition of the SDK": (body(ASKED, model(text(parsed_output=1)), ASKED), "4"),
    "prefill on a new model": (body(ASKED, model(text()), settings=ADAPTIVE), "10"),
    "nothing between two users": (body(ASKED, model(), ASKED), "13"),
    "calls at the end": (body(*ANSWERED[:2]), "15"),
    "a search that nothing ends": (body(ASKED, model(search(), text()), ASKED), "23"),
    "a search that cannot go on": (body(ASKED, model(search()), tools=[WEATHER]), "23"),
    "a bad id": (body(ASKED, model(call("a b")), user(result("x", "a b"))), "20"),
    "a call of the user": (body(user(call())), "20"),
    "no tools": (body(*ANSWERED, tools=[]), "20"),
    "an empty error": (body(*ANSWERED[:2], user(result("", is_error=True))), "3.2"),
    "an error that is an image": (body(*ANSWERED[:2], user(result([PNG], is_error=True))), "3.2"),
    "a result inside a result": (body(*ANSWERED[:2], user(result([result()]))), "3.3"),
    "another toolset": (body(*ANSWERED[:2], user(result(toolset_name="browser"))), "3.1"),
    "no container": (body(ASKED, model(search("srvtoolu_1", "code_execution"), BY_CODE), user(result())), "25"),
    "a container for nothing": (body(ASKED, container="c", tools=[SEARCH_TOOL]), "7"),
    "a system message first": (body({"role": "system", "content": "x"}, ASKED, settings=ADAPTIVE), "21"),
    "a system message on an old model": (body(ASKED, {"role": "system", "content": "x"}), "21"),
    "an empty thought": (body(ASKED, model({**THOUGHT, "thinking": "", "signature": ""}, text()), ASKED), "28"),
    "a mark on a thought": (body(ASKED, model({**THOUGHT, **FIVE}, text()), ASKED), "34"),
    "adaptive on an old model": (body(ASKED, thinking={"type": "adaptive"}), "31"),
    "by hand on a new model": (body(ASKED, settings=MANUAL, model="claude-opus-5"), "31"),
    "citations of the user": (body(user(text(citations=[{"type": "char_location"}]))), "32"),
    "an empty compaction": (body(ASKED, model({"type": "compaction", "content": ""}, text()), ASKED), "36"),
    "all tools deferred": (body(ASKED, tools=[{**WEATHER, "defer_loading": True}]), "35"),
    "a reference to nothing": (
        body(*ANSWERED[:2], user(result([{"type": "tool_reference", "tool_name": "nowhere"}]))),
        "35",
    ),
}


def test_good_requests_are_of_many_kinds() -> None:
    """A rule that refuses too much shows only in a request of its kind."""
    assert len(GOOD) >= 40


@each("what", GOOD)
def test_nothing_is_said_of_a_good_request(what: str) -> None:
    """A request that the API accepted, or whose shape the notes allow, has no problem."""
    assert problems(GOOD[what]) == []


@each("what", PLANTED)
def test_what_was_planted_is_found(what: str) -> None:
    """One change makes a request bad, and the rule that refuses it is named."""
    bad, rule = PLANTED[what]
    assert rule in {text.split(":")[0] for text in problems(bad)}


def test_thinking_that_was_changed_or_moved_is_found() -> None:
    """A thought that goes back unchanged, after what it was generated after, is accepted; any other is a problem."""
    settings = {**ADAPTIVE, "model": "claude-opus-5-5"}
    reply = [THOUGHT, REDACTED, call()]
    first = (body(ASKED, settings=settings), reply)
    same, marked = [ASKED, model(*reply), user(result())], [user(text("What is the weather in SF?", **FIVE))]
    changed = [ASKED, model({**THOUGHT, "thinking": "No."}, REDACTED, call()), user(result())]
    assert moved_thinking([first, (body(*same, settings=settings), [])]) == []
    assert moved_thinking([first, (body(*marked, *same[1:], settings=settings), [])]) == []
    changes: list[tuple[Any, Any, str]] = [
        (changed, {}, "26"),
        ([user("What is the weather in LA?"), *same[1:]], {}, "29"),
        (same, {"system": "Be brief."}, "29"),
        (same, {"tools": [WEATHER]}, "29"),
    ]
    for messages, more, rule in changes:
        found = moved_thinking([first, (body(*messages, settings=settings, **more), [])])
        assert rule in {text.split(":")[0] for text in found}
