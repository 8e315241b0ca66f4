"""What goes out: messages that are encoded once, and thinking that is left out once what stood before it changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.kit.each import each as each_of
from tests.kit.tools import TOOLS, params, user
from tests.kit.world import World, open_over_http
from toolloop import LoopConfig, ToolLoopHandle
from toolloop._requests.encoded_messages import EncodedMessages, count_marks
from toolloop._requests.params import Secrets
from toolloop._requests.request_maker import RequestMaker
from toolloop.events import ThinkingDropped
from toolloop.machine.values.chain import Chain
from toolloop.machine.values.jsontext import decode, encode
from toolloop.providers import Request
from toolloop.testing import call, fault, reply

THINK = {"thinking": {"type": "adaptive"}}
DROP = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
CONTROLS = ["thinking-binding-controls-2026-08-01"]


def thoughts(number: int) -> dict[str, Any]:
    return reply(thinking=f"thought {number}", calls=[call("add", {"a": number, "b": 1})])


def list_sent_thinking(at: World, number: int = -1) -> list[str]:
    blocks = [block for message in at.list_sent(number) for block in message["content"] if isinstance(block, dict)]
    return [block["thinking"] for block in blocks if block["type"] == "thinking"]


def list_kept_thinking(at: World) -> list[str]:
    messages = [message for message in at.handle.messages if message["role"] == "assistant"]
    return [block["thinking"] for each_of in messages for block in each_of["content"] if block["type"] == "thinking"]


def list_dropped(at: World) -> list[int]:
    result = at.handle.pending_turn or at.handle.next_turn()
    return [event.count for event in result.events if isinstance(event, ThinkingDropped)]


def rounds(at: World, how_many: int) -> None:
    for _ in range(how_many):
        at.turn().continue_loop()


def edit_first(at: World) -> None:
    at.handle.messages_mut()[0] = user("another question")


def change_system(at: World) -> None:
    at.handle.update_params(system="Be brief.")


def change_tools(at: World) -> None:
    schema = {"type": "object"}
    at.handle.update_params(tools=[{"name": "elsewhere", "description": "d", "input_schema": schema}])


CHANGES: dict[str, Callable[[World], None]] = {
    "edit": edit_first,
    "system": change_system,
    "tools": change_tools,
}


@each_of("change", CHANGES)
def test_what_was_born_after_other_words_is_not_sent(change: str) -> None:
    """The API would refuse it. The history keeps it, and what is born from here on is sent."""
    script = [thoughts(1), thoughts(2), thoughts(3), reply("done")]
    with open_over_http(script, asked=params(**THINK)) as at:
        rounds(at, 2)
        assert list_sent_thinking(at) == ["thought 1"]
        CHANGES[change](at)
        turn = at.turn()
        assert list_sent_thinking(at) == []
        assert [event.count for event in turn.events if isinstance(event, ThinkingDropped)] == [2]
        turn.continue_loop()
        assert at.expect_done().text == "done"
        assert list_sent_thinking(at) == ["thought 3"]
        assert list_kept_thinking(at) == ["thought 1", "thought 2", "thought 3"]


def test_what_the_caller_said_about_it_is_honoured() -> None:
    """With `drop_block` the API itself leaves it out: all is sent."""
    asked = params(thinking=DROP, betas=CONTROLS)
    with open_over_http([thoughts(1), thoughts(2), reply("done")], asked=asked) as at:
        rounds(at, 2)
        edit_first(at)
        assert not list_dropped(at)
        assert list_sent_thinking(at) == ["thought 1", "thought 2"]


def test_a_loop_that_is_restored_with_other_tools() -> None:
    """An accepted drift changes what stood before all of it."""
    with open_over_http(
        [thoughts(1), reply(thinking="thought 2", calls=[call("add", {"a": 1, "b": 1})]), reply("done")]
    ) as at:
        at.handle.update_params(**THINK)
        rounds(at, 1)
        woken = ToolLoopHandle.restore(
            at.handle.snapshot(), at.api.client(), tools=TOOLS[:2], config=LoopConfig(), on_drift="accept"
        )
        at.handle = woken
        rounds(at, 1)
        assert list_sent_thinking(at) == []
        assert at.expect_done().text == "done"
        assert list_sent_thinking(at) == ["thought 2"]


def test_it_is_remembered_across_sleep() -> None:
    """A snapshot between the edit and the next request keeps what is to be left out: the same bytes go out."""
    with open_over_http([thoughts(1), fault(529), fault(529), reply("done")], asked=params(**THINK)) as at:
        rounds(at, 1)
        edit_first(at)
        at.expect_failed()
        woken = ToolLoopHandle.restore(at.handle.snapshot(), at.api.client(), tools=TOOLS, config=LoopConfig())
        at.handle.retry()
        at.expect_failed()
        woken.retry()
        assert woken.run().unwrap().text == "done"
        assert at.api.requests[-1].body == at.api.requests[-2].body
        assert list_sent_thinking(at) == []


# The first binds thinking, so that stale thinking is left out.
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
def draw_requests(draw: st.DrawFn) -> list[dict[str, Any]]:
    """What a loop asks for, one request after the other: mostly with a history that has grown."""
    history: Chain[str] = Chain(draw(TEXTS))
    every: list[dict[str, Any]] = []
    stale = 0
    unjoined: list[str] = []
    for _ in range(draw(st.integers(1, 6))):
        match draw(
            st.sampled_from(["grows", "grows", "grows", "beside joins", "is another", "goes back", "is copied"])
        ):
            case "grows":
                history = history.extend(draw(TEXTS))
            case "beside joins":
                history = history.extend(unjoined)
            case "is another":
                kept = draw(st.integers(0, len(history)))
                history = Chain([*history[:kept], *draw(TEXTS)])
            case "goes back":
                history = every[draw(st.integers(0, len(every) - 1))]["messages"] if every else history
            case "is copied":
                history = Chain(list(history))
        unjoined = draw(st.just([]) | TEXTS)
        if draw(st.integers(0, 3)) == 0:
            stale = draw(st.integers(0, len(history) + len(unjoined) + 1))
        stored = draw(st.sampled_from(STORED))
        every.append({"stored": stored, "messages": history, "unjoined": tuple(unjoined), "stale_thinking": stale})
    return every


@given(draw_requests())
def test_a_request_does_not_depend_on_those_before_it(every: list[dict[str, Any]]) -> None:
    """It has the bytes that a new maker would give it, adds up to the same, and stays what it was later on."""
    maker, made = RequestMaker([], Secrets()), []
    for each in every:
        fresh = RequestMaker([], Secrets())
        request, expected = maker.make(**each), fresh.make(**each)
        made.append((request, expected.body()))
        assert maker.may_be_refused_for_marks() == fresh.may_be_refused_for_marks()
        assert maker._encoded.size == fresh._encoded.size
    for (request, body), each in zip(made, every, strict=True):
        assert request.body() == body
        assert [encode(message) for message in request["messages"]] == list(request.messages)
        if not each["stale_thinking"]:
            assert list(request.messages) == [*each["messages"], *each["unjoined"]]
        assert decode(request.body())["messages"] == request["messages"]


@given(TEXTS, TEXTS, TEXTS)
def test_a_message_of_a_history_becomes_bytes_once(first: list[str], unjoined: list[str], more: list[str]) -> None:
    """The same bytes go out again as the history grows, whatever goes out beside it."""
    encoded, history = EncodedMessages(), Chain(first)
    before = list(encoded.take(history, unjoined))
    after = list(encoded.take(history.extend(more)))
    assert all(one is other for one, other in zip(before[: len(first)], after, strict=False))
    assert after == [text.encode() for text in [*first, *more]]
    assert before == [text.encode() for text in [*first, *unjoined]]


@given(TEXTS, st.integers(0, 5))
def test_stale_thinking_is_left_out_and_no_other(texts: list[str], stale: int) -> None:
    """Of the first messages: a message in which nothing is left is left out, too."""
    request = RequestMaker([], Secrets()).make(STORED[0], texts, stale_thinking=stale)
    before, after = map(decode, texts[:stale]), list(texts[stale:])
    kept = []
    for message in before:
        content = message["content"]
        if message["role"] == "assistant" and isinstance(content, list):
            content = [block for block in content if block["type"] != "thinking"]
        if content or message["content"] == content:
            kept.append({**message, "content": content})
    assert request["messages"] == [*kept, *map(decode, after)]
    assert RequestMaker([], Secrets()).make(STORED[1], texts, stale_thinking=stale).messages == Chain(texts)


def test_the_history_of_a_maker_cannot_be_changed_from_outside() -> None:
    """A provider reads the messages of a request; it is given no list of the maker's own to write to."""
    maker, history = RequestMaker([], Secrets()), Chain(['{"role":"user","content":"a"}'])
    request = maker.make(STORED[0], history)
    body = request.body()
    assert not isinstance(request.messages, list)
    beside = maker.make(STORED[0], history, unjoined=['{"role":"assistant","content":"b"}'])
    if isinstance(beside.messages, list):
        beside.messages.clear()
    assert maker.make(STORED[0], history).body() == body
    assert request.body() == body


def test_a_request_without_messages_has_a_body() -> None:
    """However little goes out, it is JSON."""
    assert Request("{}", []).body() == b'{"messages":[]}'
    assert Request('{"model":"m"}', [], encoded=[]).body() == b'{"model":"m","messages":[]}'


@pytest.mark.parametrize(
    ("block", "marks"),
    [
        ({"type": "text", "text": '"cache_control":{'}, 0),
        (PICTURE, 0),
        (MARKED, 1),
        ({"type": "tool_result", "content": [MARKED], "cache_control": {"type": "ephemeral"}}, 2),
    ],
)
def test_cache_marks_are_counted(block: dict[str, Any], marks: int) -> None:
    """Inside results, too, but not inside a text."""
    assert count_marks([encode({"role": "user", "content": [block]}).encode()]).count == marks
