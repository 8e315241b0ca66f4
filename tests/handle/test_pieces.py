"""The requests of a loop are made of pieces that are kept: they are what they would be if all were made anew."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolloop.core.chain import Chain
from toolloop.core.jsontext import decode, encode
from toolloop.handle.params import RequestMaker, Secrets
from toolloop.handle.pieces import NONE, Pieces, count
from toolloop.providers import Request

# The first binds thinking, so that it is left out where it is unbound.
STORED = [
    encode({"model": "claude-opus-5-5", "max_tokens": 9}),
    encode({"model": "claude-opus-4-8", "max_tokens": 9, "system": [{"type": "text", "cache_control": {"type": "e"}}]}),
]
PICTURE = {"type": "image", "source": {"type": "url", "url": "https://e.x/i.png"}}
MARKED = {"type": "text", "text": "—", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
THOUGHT = {"type": "thinking", "thinking": "Hm — hm.", "signature": "s"}
BLOCKS = st.sampled_from([{"type": "text", "text": "a — b"}, THOUGHT, PICTURE, MARKED, {"type": "document"}])
MESSAGES = st.builds(
    lambda role, content: encode({"role": role, "content": content}),
    st.sampled_from(["user", "assistant"]),
    st.text(max_size=3) | st.lists(BLOCKS, min_size=1, max_size=2),
)
TEXTS = st.lists(MESSAGES, max_size=4)


@st.composite
def asked(draw: st.DrawFn) -> list[dict[str, Any]]:
    """What a loop asks for, one request after the other: mostly with a history that has grown."""
    history: Chain[str] = Chain(draw(TEXTS))
    every: list[dict[str, Any]] = []
    places: tuple[tuple[int, int], ...] = ()
    tail: list[str] = []
    for _ in range(draw(st.integers(1, 6))):
        match draw(st.sampled_from(["grows", "grows", "grows", "tail joins", "is another", "goes back", "is copied"])):
            case "grows":
                history = history.extend(draw(TEXTS))
            case "tail joins":
                history = history.extend(tail)
            case "is another":
                kept = draw(st.integers(0, len(history)))
                history = Chain([*history[:kept], *draw(TEXTS)])
            case "goes back":
                history = every[draw(st.integers(0, len(every) - 1))]["messages"] if every else history
            case "is copied":
                history = Chain(list(history))
        tail = draw(st.just([]) | TEXTS)
        if draw(st.integers(0, 3)) == 0:
            cuts = sorted(draw(st.sets(st.integers(0, len(history) + len(tail) + 1), max_size=4)))
            places = tuple(zip(cuts[::2], cuts[1::2], strict=False))
        stored = draw(st.sampled_from(STORED))
        every.append({"stored": stored, "messages": history, "tail": tuple(tail), "unbound": places})
    return every


@given(asked())
def test_a_request_does_not_depend_on_those_before_it(every: list[dict[str, Any]]) -> None:
    """It has the bytes that a new maker would give it, adds up to the same, and stays what it was later on."""
    maker, made = RequestMaker([], Secrets()), []
    for each in every:
        fresh = RequestMaker([], Secrets())
        request, expected = maker.make(**each), fresh.make(**each)
        made.append((request, expected.body()))
        assert maker.may_add_up() == fresh.may_add_up()
        assert maker._pieces.size == fresh._pieces.size
    for (request, body), each in zip(made, every, strict=True):
        assert request.body() == body
        assert [encode(message) for message in request["messages"]] == list(request.messages)
        if not each["unbound"]:
            assert list(request.messages) == [*each["messages"], *each["tail"]]
        assert decode(request.body())["messages"] == request["messages"]


@given(TEXTS, TEXTS, TEXTS)
def test_a_message_becomes_bytes_once(first: list[str], tail: list[str], more: list[str]) -> None:
    """The same bytes go out again: of a history that grows, is rewritten behind them, or takes in what was beside."""
    pieces, history = Pieces(), Chain(first)
    before = list(pieces.take(history, tail))
    grown = history.extend(tail)
    then = list(pieces.take(grown, more))
    assert all(map(same, before[: len(first)], then))
    texts = dict(zip(tail, before[len(first) :], strict=False))
    assert all(texts[text] is piece for text, piece in zip(tail, then[len(first) :], strict=False))
    again = list(pieces.take(Chain([*grown, "{}"])))
    assert all(map(same, then[: len(grown)], again))


def same(one: bytes, other: bytes) -> bool:
    return one is other


def test_nobody_can_change_what_a_maker_keeps() -> None:
    """A provider reads the messages of a request; it is given no list of the maker's own to write to."""
    maker, history = RequestMaker([], Secrets()), Chain(['{"role":"user","content":"a"}'])
    request = maker.make(STORED[0], history)
    body = request.body()
    assert not isinstance(request.messages, list)
    beside = maker.make(STORED[0], history, tail=['{"role":"assistant","content":"b"}'])
    if isinstance(beside.messages, list):
        beside.messages.clear()
    assert maker.make(STORED[0], history).body() == body
    assert request.body() == body


def test_a_request_without_messages_has_a_body() -> None:
    """However little goes out, it is JSON."""
    assert Request("{}", []).body() == b'{"messages":[]}'
    assert Request('{"model":"m"}', [], encoded=[]).body() == b'{"model":"m","messages":[]}'


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ({"type": "text", "text": '"type":"image" "cache_control":{'}, NONE),
        (PICTURE, (0, 0, 1, 0, 0, 0)),
        (MARKED, (1, 1, 0, 0, 0, 0)),
        ({"type": "document", "citations": {"enabled": True}}, (0, 0, 0, 1, 1, 0)),
        ({"type": "search_result"}, (0, 0, 0, 0, 1, 0)),
    ],
)
def test_what_adds_up_is_counted_where_it_is(block: dict[str, Any], expected: tuple[int, ...]) -> None:
    """Inside a text it is none."""
    assert count(encode({"role": "user", "content": [block]}).encode()) == expected
