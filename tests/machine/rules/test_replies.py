"""Reading a reply, and the parts that join the history."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given, strategies as st

from tests.kit.machine import making as m
from toolloop._usage import Usage
from toolloop.errors import ProtocolError
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import Phase
from toolloop.machine.record.replies import (
    drop_open_calls,
    drop_unfinished,
    ends_in_reply,
    ends_in_server_call,
    find_open_server_calls,
    keep_acceptable,
    make_assistant_message,
    read_reply,
)
from toolloop.machine.tree import begin
from toolloop.machine.values.jsontext import decode, encode

words = st.sampled_from(["type", "text", "id", "name", "input", "caller", "tool_use_id", "content", "category"])
scalars = st.none() | st.booleans() | st.integers() | st.sampled_from(["text", "tool_use", "server_tool_use", "", "x"])
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=5), max_leaves=8
)
types = st.sampled_from(["text", "tool_use", "server_tool_use", "mcp_tool_use", "thinking", "web_search_tool_result"])
odd_blocks = st.dictionaries(words, anything, max_size=5) | st.builds(
    lambda kind, rest: {**rest, "type": kind},
    types,
    st.fixed_dictionaries({"id": scalars, "name": st.just("n"), "input": st.just({})}, optional={"caller": anything}),
)
reasons = st.sampled_from(["end_turn", "tool_use", "pause_turn", "refusal", "max_tokens", None]) | anything
odd_replies = st.fixed_dictionaries(
    {"content": st.lists(odd_blocks, max_size=4) | anything, "stop_reason": reasons},
    optional={"usage": anything, "stop_details": anything, "model": anything},
)


def make_said(*blocks: Any) -> str:
    return encode({"role": "assistant", "content": list(blocks)})


def make_told(*blocks: Any) -> str:
    return encode({"role": "user", "content": list(blocks)})


def result(call_id: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": "x"}


@given(odd_replies)
def test_whatever_the_server_says_is_refused_or_taken(body: dict[str, Any]) -> None:
    """A reply makes no sense, and is a `ProtocolError`; or the machine takes it. Nothing else is raised."""
    try:
        reply = read_reply(body)
    except ProtocolError:
        return
    for state in (
        begin(m.make_opened()),
        m.state_after(m.make_replied("pause_turn", m.server_call("s")), ev.Continued()),
    ):
        assert isinstance(m.go(state, ev.Replied(reply)).root.phase, get_args(Phase))


def test_a_reply_is_read() -> None:
    """Its parts, its calls in order, and the text unchanged."""
    body = {
        "model": "claude",
        "stop_reason": "tool_use",
        "content": [m.text("so"), m.call("c1"), m.server_call("srvtoolu_s"), m.code_call("c2", "look")],
        "usage": {"output_tokens": 3},
        "stop_details": {"category": None},
    }
    reply = read_reply(body, text="the text as received", request_id="req_1")
    assert (reply.text, reply.model, reply.stop_reason) == ("the text as received", "claude", "tool_use")
    assert (reply.request_id, reply.usage) == ("req_1", Usage(output_tokens=3))
    assert [(call.id, call.name, call.input, call.by_code) for call in reply.calls()] == [
        ("c1", "once", '{"a":1}', False),
        ("c2", "look", '{"a":1}', True),
    ]
    assert read_reply(body).text == encode(body)


@pytest.mark.parametrize(("named", "toolset"), [("browser", "browser"), ("", ""), (None, None), (7, None)])
def test_a_call_says_of_which_toolset_it_is_a_member(named: Any, toolset: str | None) -> None:
    body = {"content": [m.call("c1", toolset_name=named)], "stop_reason": "tool_use"}
    assert [call.toolset for call in read_reply(body).calls()] == [toolset]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "no list of content"),
        ({"content": "hi"}, "no list of content"),
        ({"content": ["hi"]}, "no list of content"),
        ({"content": [{"text": "hi"}]}, "no list of content"),
        ({"content": [{"type": 7}]}, "no list of content"),
        ({"content": [], "stop_reason": 7}, "stop reason"),
        ({"content": [m.call("")]}, "without an id"),
        ({"content": [m.call("c", "")]}, "without an id"),
        ({"content": [m.call("c", input="{}")]}, "without an id"),
        ({"content": [m.call("c"), m.call("c")]}, "with the same id"),
        ({"content": [], "x": float("nan")}, "is not JSON"),
        ({"content": [], "x": object()}, "is not JSON"),
    ],
)
def test_a_reply_that_makes_no_sense_is_a_protocol_error(body: Any, says: str) -> None:
    """What is wrong is said."""
    with pytest.raises(ProtocolError, match=says):
        read_reply(body)


def test_a_message_is_the_blocks_verbatim() -> None:
    """Every block type, order, key order and integer size, known or not."""
    blocks = [{"z": 10**40, "type": "hologram", "a": {"y": 1, "b": [1.5, "é\ud800"]}}, m.thinking(), m.call("c")]
    text = make_assistant_message(blocks)
    assert text is not None
    assert decode(text) == {"role": "assistant", "content": blocks}
    assert text.index('"z"') < text.index('"type":"hologram"') < text.index('"a"')


@pytest.mark.parametrize(
    ("blocks", "kept"),
    [
        ([m.text(" \t\n"), m.call("c")], [m.call("c")]),
        ([{"type": "text"}, m.text("a")], [m.text("a")]),
        ([m.text("a"), m.thinking(), {"type": "redacted_thinking", "data": "x"}], [m.text("a")]),
        ([m.text("a"), m.thinking(), m.text("")], [m.text("a")]),
        ([m.thinking(), m.text("a")], [m.thinking(), m.text("a")]),
        ([], []),
    ],
)
def test_blank_text_and_trailing_thinking_are_left_out(blocks: list[Any], kept: list[Any]) -> None:
    """What the API would refuse to take back, and nothing else."""
    assert keep_acceptable(blocks) == kept
    assert make_assistant_message(blocks) == (make_said(*kept) if kept else None)


def test_calls_can_be_left_out() -> None:
    """Of a reply that was cut off; and the thinking that then ends it."""
    assert make_assistant_message([m.text("a"), m.thinking(), m.call("c")], calls=False) == make_said(m.text("a"))


def test_a_tail_ends_in_a_reply_if_it_is_to_be_resumed() -> None:
    """A paused reply is the last message."""
    assert ends_in_reply([make_said(m.text("a"))])
    assert not ends_in_reply([make_said(m.text("a")), make_told(m.text("b"))])
    assert not ends_in_reply([])


def test_open_server_calls_pair_by_id_across_messages() -> None:
    """A result may come in a later message; a client's result is none; other blocks do not matter."""
    first = make_said(m.server_call("s1"), m.server_call("s2"), {"type": "mcp_tool_use", "id": "s3"})
    assert find_open_server_calls([first]) == {"s1", "s2", "s3"}
    assert find_open_server_calls([first, make_told(result("s2")), make_said(m.server_result("s1"))]) == {"s2", "s3"}
    assert find_open_server_calls([m.user("a server_tool_use is a word"), make_said(m.text("b"))]) == set()
    assert find_open_server_calls([m.user('"server_tool_use"')]) == set()


def test_a_paused_reply_may_end_in_a_server_call() -> None:
    assert ends_in_server_call(make_said(m.text("a"), m.server_call("s")))
    assert ends_in_server_call(make_said({"type": "mcp_tool_use", "id": "s"}))
    assert not ends_in_server_call(make_said(m.server_call("s"), m.text("a")))
    assert not ends_in_server_call('{"role":"assistant","content":[]}')


def test_what_only_a_resumption_may_follow_is_left_out() -> None:
    """Open server calls go, with the thinking that then ends their message, and a message with nothing left."""
    assert drop_open_calls([make_said(m.text("a"), m.thinking(), m.server_call("s"))]) == [make_said(m.text("a"))]
    assert drop_open_calls([make_said(m.server_call("s")), make_told(m.text("b"))]) == [make_told(m.text("b"))]
    before = [make_said(m.thinking(), m.text("a")), make_told(m.text("b"))]
    cut = make_said(m.server_call("s"), m.thinking(), m.text("c"))
    assert drop_open_calls([*before, cut]) == [
        *before,
        make_said(m.text("c")),
    ]  # thinking was signed with what is before it
    whole = [make_said(m.server_call("s"), m.server_result("s"))]
    assert drop_open_calls(whole) == whole
    assert drop_open_calls([]) == []


def test_calls_of_code_go_with_their_results() -> None:
    """The calls that code execution made, if only results follow them; not those from which the model went on."""
    answered = [make_said(m.text("a"), m.code_call("c")), make_told(result("c"))]
    assert drop_open_calls(answered) == [make_said(m.text("a"))]
    gone_on = [*answered, make_said(m.text("b"))]
    assert drop_open_calls(gone_on) == gone_on


def test_a_paused_reply_that_nothing_resumed_is_dropped() -> None:
    """The beginning of an answer does not join; what was whole before it does."""
    whole = [make_said(m.text("a"), m.call("c")), make_told(result("c"))]
    assert drop_unfinished([*whole, make_said(m.text("half"))]) == whole
    assert drop_unfinished([make_said(m.text("half"))]) == []
    assert drop_unfinished([make_said(m.text("a"), m.server_call("s")), make_said(m.server_result("s"))]) == []


@pytest.mark.parametrize("text", [None, 5, ["words"]])
def test_a_text_block_without_a_text_makes_no_sense(text: object) -> None:
    """It could never be read, nor sent back."""
    with pytest.raises(ProtocolError, match="text block without text"):
        read_reply({"content": [{"type": "text", "text": text}], "stop_reason": "end_turn"})


@pytest.mark.parametrize("odd", [1, True, 1.5, [], ["a"], {}, {"a": 1}, 10**30])
def test_fields_that_are_only_for_the_record_block_nothing(odd: Any) -> None:
    """A reply was paid for: what is not a text or a count in it is left out of the record, and stays in the text."""
    body = {
        "content": [m.text("so")],
        "id": odd,
        "model": odd,
        "stop_details": {"category": odd, "explanation": "why"},
        "usage": {"input_tokens": [odd], "output_tokens": odd, "server_tool_use": {"web_search_requests": odd}},
        "container": {"id": odd},
    }
    reply = read_reply(body, text="the text as received", request_id=odd)
    counted = 1 if type(odd) is int and odd == 1 else 0
    assert (reply.model, reply.request_id, reply.container) == (None, None, None)
    assert reply.stop_details == {"category": None, "explanation": "why"}
    assert reply.usage == Usage(output_tokens=counted, web_search_requests=counted)
    assert read_reply({**body, "usage": odd}, text="").usage == Usage()
    assert read_reply({**body, "usage": {"output_tokens": 10**5000}}, text="").usage == Usage()


def test_a_result_of_a_call_without_an_id_makes_no_sense() -> None:
    """Nothing could be paired with it."""
    with pytest.raises(ProtocolError, match="a result block whose call id is not a string"):
        read_reply({"content": [m.server_result("a") | {"tool_use_id": ["a"]}]})
