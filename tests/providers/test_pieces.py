"""The piece that each event of a stream adds to its reply."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.providers.events import START, STOP, block, call, end, streamed
from tests.providers.server import MESSAGE
from toolloop.errors import ModelError, ProtocolError
from toolloop.providers.accumulate import Accumulator, Piece, accumulate

TEXTS = st.builds(lambda text: {"type": "text", "text": text}, st.text())
THOUGHTS = st.builds(lambda text: {"type": "thinking", "thinking": text, "signature": "s"}, st.text())
CALLS = st.builds(
    lambda number, value: {"type": "tool_use", "id": f"toolu_{number}", "name": f"f{number}", "input": value},
    st.integers(0, 9),
    st.dictionaries(st.text(max_size=5), st.integers() | st.text(), max_size=3),
)
OTHERS = st.just({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"text": "unseen"}]})


def pieces(events: list[dict[str, Any]]) -> list[Piece]:
    accumulator = Accumulator()
    return [piece for event in events if (piece := accumulator.add(event)) is not None]


@given(st.lists(TEXTS | THOUGHTS | CALLS | OTHERS, max_size=4), st.integers(1, 7))
def test_the_pieces_of_a_block_joined_are_the_block(content: list[Any], size: int) -> None:
    """Texts, thinking and inputs have pieces, in order and not empty; other blocks have none."""
    told = pieces(streamed(MESSAGE | {"content": content}, size))
    assert all(piece.value for piece in told)
    assert [piece.index for piece in told] == sorted(piece.index for piece in told)
    for index, whole in enumerate(content):
        mine = [piece for piece in told if piece.index == index]
        joined = "".join(piece.value for piece in mine)
        match whole["type"]:
            case "text" | "thinking" as kind:
                assert {piece.kind for piece in mine} <= {kind}
                assert joined == whole[kind]
            case "tool_use":
                assert {(piece.kind, piece.call_id, piece.name) for piece in mine} <= {
                    ("input", whole["id"], whole["name"])
                }
                assert json.loads(joined or "{}") == whole["input"]
            case _:
                assert mine == []


@given(st.lists(TEXTS | THOUGHTS | CALLS, max_size=4), st.data())
def test_the_partial_text_is_that_of_the_pieces_so_far(content: list[Any], data: st.DataObject) -> None:
    """After any event: the joined pieces of each text block, with newlines between the blocks."""
    events = streamed(MESSAGE | {"content": content}, 2)
    accumulator, told = Accumulator(), dict[int, str]()
    for event in events[: data.draw(st.integers(0, len(events)))]:
        piece = accumulator.add(event)
        if event["type"] == "content_block_start" and event["content_block"]["type"] == "text":
            told[event["index"]] = ""
        if piece is not None and piece.kind == "text":
            told[piece.index] += piece.value
    assert accumulator.partial_text == "\n".join(told.values())


def test_an_input_that_came_whole_is_sent_at_the_end_of_its_block() -> None:
    """At its end it is certain that no delta replaces it."""
    start = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "ü"}}
    replaced = call('{"a":', "1}")
    replaced[0]["content_block"] = start
    told = Piece("input", 0, '{"query":"ü"}', "srvtoolu_1", "web_search")
    assert pieces([START, *block(0, start)]) == [told]
    assert [piece.value for piece in pieces([START, *replaced])] == ['{"a":', "1}"]


def test_a_citation_is_sent_whole() -> None:
    """The value is the API's object."""
    citation = {"type": "char_location", "cited_text": "x"}
    events = [START, *block(0, {"type": "text", "text": ""}, {"type": "citations_delta", "citation": citation})]
    accumulator = Accumulator()
    (piece,) = (piece for event in events if (piece := accumulator.add(event)) is not None)
    assert piece == Piece("citation", 0, citation)
    for event in (end("end_turn"), STOP):
        accumulator.add(event)
    assert accumulator.message()["content"][0]["citations"] == [citation]


def test_an_invalid_event_adds_nothing() -> None:
    """Nor does what comes behind it; what was understood before stays known."""
    cases: list[Any] = [None, 7, "0", []]
    for index in cases:
        text = block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Hi"})
        accumulator = Accumulator()
        for event in (START, *text):
            accumulator.add(event)
        delta = {"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": "x"}}
        assert accumulator.add(delta) is None
        assert accumulator.add(text[1]) is None
        assert accumulator.partial_text == "Hi"
        with pytest.raises(ProtocolError, match="invalid event"):
            accumulator.message()


def test_events_that_cannot_be_are_refused() -> None:
    """A block that begins twice, a text that is none, a message without content, an error without words."""
    cases: list[dict[str, Any]] = [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": 5}},
        {"type": "message", "content": None},
        {"type": "error", "error": None},
    ]
    for event in cases:
        text = block(0, {"type": "text", "text": "a"})
        with pytest.raises(ProtocolError, match="invalid event"):
            accumulate([START, *text, event, end("end_turn"), STOP])


def test_an_error_event_is_the_apis_error() -> None:
    """For providers that pass it on; the SDK raises it."""
    cases: list[tuple[str, bool]] = [("overloaded_error", True), ("invalid_request_error", False)]
    for kind, retryable in cases:
        text = block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Half"})
        event = {"type": "error", "error": {"type": kind, "message": "Later."}}
        accumulator = Accumulator()
        for each in (START, *text[:-1], event, text[-1]):
            accumulator.add(each)
        with pytest.raises(ModelError, match=f"interrupted its reply with {kind}: Later.") as failed:
            accumulator.message()
        assert (failed.value.kind, failed.value.status, failed.value.retryable) == (kind, 200, retryable)
        assert accumulator.partial_text == "Half"
