"""The estimate of tokens: additive, from the last compaction on, and in proportion to what a model reads."""

from __future__ import annotations

import base64
from typing import Any

from hypothesis import given, strategies as st

from tests.messages.bodies import (
    CODE,
    HI,
    NEXT,
    PNG,
    TOOL,
    WEB_SEARCH,
    assistant,
    call,
    compaction,
    image,
    png,
    reference,
    result,
    search,
    text,
    thinking,
    user,
)
from tests.messages.histories import broken_histories, histories
from toolloop.compaction.tokens import message_tokens, text_tokens
from toolloop.history import estimate_tokens

PROSE = "The quick brown fox jumps over the lazy dog, and the cat is surprised. "
NOTHING = message_tokens(user())


def alone(block: Any) -> int:
    """What one block adds to a message."""
    return message_tokens(user(block)) - NOTHING


@given(histories() | broken_histories())
def test_the_estimate_of_a_history_is_the_sum_of_its_messages(history: list[Any]) -> None:
    """From the last message with a compaction block on."""
    marks = [
        at for at, m in enumerate(history) if any(b["type"] == "compaction" and b["content"] for b in blocks_of(m))
    ]
    counted = history[marks[-1] if marks else 0 :]
    assert sum(map(message_tokens, counted)) == estimate_tokens(history) > 0
    assert estimate_tokens(history, system=PROSE, tools=[TOOL]) == (
        estimate_tokens(history) + estimate_tokens([], system=PROSE) + estimate_tokens([], tools=[TOOL])
    )


def test_the_schema_of_a_structured_output_counts() -> None:
    """As a tool with this schema does, without the text that the API adds with tools; other settings count nothing."""
    schema = {"type": "object", "properties": {f"field_{number}": {"type": "string"} for number in range(50)}}
    with_schema = estimate_tokens([HI], output_config={"format": {"type": "json_schema", "schema": schema}})
    of_tools = [estimate_tokens([], tools=[{"name": "x", "input_schema": each}]) for each in ({}, schema)]
    assert abs((with_schema - estimate_tokens([HI])) - (of_tools[1] - of_tools[0])) <= 2
    for other in (None, {"effort": "low"}, {"format": None}, "text"):
        assert estimate_tokens([HI], output_config=other) == estimate_tokens([HI])


def blocks_of(message: dict[str, Any]) -> list[Any]:
    return message["content"] if isinstance(message["content"], list) else []


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "role", "content", "text", "source", "input", "data", "x"]), inner)
    ),
    max_leaves=12,
)
KINDS = st.sampled_from(
    [
        *("text", "thinking", "redacted_thinking", "tool_use", "tool_result", "image", "document", "search_result"),
        *("compaction", "tool_reference", "web_search_tool_result", "hologram"),
    ]
)
JUNK_BLOCKS = st.builds(
    lambda kind, rest: {**rest, "type": kind},
    KINDS,
    st.dictionaries(st.sampled_from(["content", "text", "source", "input", "data", "thinking", "signature"]), ANY),
)


@given(ANY | st.lists(st.builds(lambda blocks: {"content": blocks}, st.lists(ANY | JUNK_BLOCKS, max_size=3))), ANY, ANY)
def test_nothing_makes_it_raise(messages: Any, system: Any, tools: Any) -> None:
    """For any message, the estimate is a whole number."""
    assert type(estimate_tokens(messages, system=system, tools=tools)) is int


def test_only_what_is_left_by_a_compaction_counts() -> None:
    """The messages before it do not, nor the blocks; a compaction that failed changes nothing."""
    long = user(text(PROSE * 100))
    kept = assistant(compaction(), text())
    assert estimate_tokens([long, kept, NEXT]) == estimate_tokens([kept, NEXT])
    assert message_tokens(assistant(text(PROSE), compaction(), text())) == message_tokens(kept)
    failed = assistant(compaction(None), text())
    assert estimate_tokens([long, failed]) == message_tokens(long) + message_tokens(failed)
    assert message_tokens(failed) == message_tokens(assistant(text()))


def test_words_cost_what_their_script_costs() -> None:
    """A token has four to five characters of English, two or three of code, one or two of other scripts."""
    assert 140 <= text_tokens(PROSE * 10) <= 175  # 700 characters
    assert 180 <= text_tokens("def f(x): return {'a': x[0], 'b': 12}" * 15) <= 300  # 555 characters
    assert text_tokens("\u4f60\u597d" * 100) == 200
    assert 400 <= text_tokens("\u043f\u0440\u0438\u0432\u0435\u0442" * 100) <= 500
    assert [text_tokens(sign) for sign in ("", "a", "\ud83d", "\U0001f600")] == [0, 1, 1, 2]


def test_thinking_costs_its_words_and_not_its_signature() -> None:
    """Words that are hidden are read off the length of what hides them."""
    signature = base64.b64encode(bytes(180) + PROSE.encode() * 10).decode()
    shown = alone(thinking(PROSE * 10, signature))
    assert shown == text_tokens(PROSE * 10)
    hidden = alone(thinking("", signature))
    assert hidden == alone({"type": "redacted_thinking", "data": signature})
    assert shown * 2 // 3 <= hidden <= shown
    assert alone({"type": "redacted_thinking", "data": "c2hvcnQ="}) == 0


def test_calls_and_results_cost_more_than_their_words() -> None:
    plain = alone(call(input={}))
    assert plain > text_tokens("look")
    assert alone(call(input={"path": PROSE})) - plain >= text_tokens(PROSE)
    assert alone(search()) > plain
    assert alone(result(content=PROSE)) == alone(result(content=[text(PROSE)])) > text_tokens(PROSE)
    assert alone(result(content=None)) == alone(result(content=[])) > 0
    assert alone(reference("look")) > 0


def test_an_image_costs_what_the_largest_one_does() -> None:
    """Whatever its size and source."""
    sources = [PNG, png(4000, 4000), image("!"), {"type": "image", "source": {"type": "url", "url": "u"}}]
    assert [alone(each) for each in sources] == [1600] * 4


def pdf(data: bytes) -> dict[str, Any]:
    encoded = base64.b64encode(data).decode()
    return {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": encoded}}


def test_a_pdf_costs_its_pages() -> None:
    """They are estimated by its size."""
    page = alone(pdf(b"%PDF-1.4"))
    assert alone(pdf(b"%PDF-1.7" + bytes(110_000))) == 3 * page
    for source in ({"type": "url", "url": "u"}, {"type": "file", "file_id": "f"}, {"type": "base64", "data": None}):
        assert alone({"type": "document", "source": source}) == page


def test_other_documents_cost_their_words() -> None:
    words = text_tokens(PROSE)
    plain = {"type": "text", "media_type": "text/plain", "data": PROSE}
    assert alone({"type": "document", "source": plain}) == words
    assert alone({"type": "document", "source": plain, "title": PROSE, "context": PROSE}) == 3 * words
    blocks = {"type": "content", "content": [text(PROSE), PNG]}
    assert alone({"type": "document", "source": blocks}) == words + 1600
    assert alone({"type": "search_result", "title": PROSE, "source": PROSE, "content": [text(PROSE)]}) == 3 * words


def test_tools_cost_their_definitions() -> None:
    """And what the API says of tools at all; those of the server more, one that is deferred nothing."""
    none, one = estimate_tokens([HI]), estimate_tokens([HI], tools=[TOOL])
    assert estimate_tokens([HI], tools=[]) == none < one
    custom = estimate_tokens([HI], tools=[TOOL, TOOL | {"type": "custom", "description": PROSE * 3}])
    assert custom - one >= text_tokens(PROSE * 3)
    assert one == estimate_tokens([HI], tools=[TOOL, TOOL | {"defer_loading": True}])
    memory = {"type": "memory_20250818", "name": "memory"}
    assert one < estimate_tokens([HI], tools=[TOOL, memory]) < estimate_tokens([HI], tools=[TOOL, WEB_SEARCH])
    assert estimate_tokens([HI], tools=[WEB_SEARCH]) == estimate_tokens([HI], tools=[CODE])
