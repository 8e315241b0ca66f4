"""Traces: what people, models and tools said is left out, unless it is asked for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.handle.support import MODEL, params
from tests.handle.traced import Traces, attributes
from toolloop import LoopConfig, ToolLoopHandle, tool
from toolloop.handle import tracing_words as words
from toolloop.testing import FakeMessagesAPI, call, fault, reply

SECRET = "sesame"


@tool
def repeat(word: str) -> str:
    """Say it again."""
    return f"{word} {word}"


@tool
def refuse(word: str) -> str:
    """Fail."""
    raise LookupError(word)


def told_with(*, contents: bool, last: Any) -> Traces:
    """The traces of a loop in which everybody says the secret."""
    traces = Traces(contents=contents)
    calls = [call("repeat", {"word": SECRET}, id="t1"), call("refuse", {"word": SECRET}, id="t2")]
    with FakeMessagesAPI([reply(f"I say {SECRET}", calls=calls), last]) as api, api.client() as client:
        handle = ToolLoopHandle(
            client,
            params=params(messages=[{"role": "user", "content": f"say {SECRET}"}], system=f"hide {SECRET}"),
            tools=[repeat, refuse],
            config=LoopConfig(observers=[traces.observer]),
        )
        handle.run()
    return traces


@pytest.mark.parametrize("last", [reply(SECRET), fault(400, message=SECRET)], ids=["end", "fault"])
def test_what_was_said_is_in_no_span_unless_it_is_asked_for(last: Any) -> None:
    """Not in attributes, events, links, states; not in counts. Nor the text of an error, which may repeat it."""
    traces = told_with(contents=False, last=last)
    assert len(traces.spans) == 5
    assert SECRET not in "".join(span.to_json() for span in traces.spans)
    assert SECRET not in repr(traces.reader.get_metrics_data())


def test_contents_are_written_as_the_conventions_say() -> None:
    """When they are asked for: what went out and what came back of each request and each run."""
    traces = told_with(contents=True, last=reply("over"))
    first, second = (attributes(span) for span in traces.all(f"chat {MODEL}"))
    question = {"role": "user", "parts": [{"type": "text", "content": f"say {SECRET}"}]}
    answer = {
        "role": "assistant",
        "parts": [
            {"type": "text", "content": f"I say {SECRET}"},
            {"type": "tool_call", "id": "t1", "name": "repeat", "arguments": {"word": SECRET}},
            {"type": "tool_call", "id": "t2", "name": "refuse", "arguments": {"word": SECRET}},
        ],
    }
    results = {
        "role": "user",
        "parts": [
            {"type": "tool_call_response", "id": "t1", "response": f"{SECRET} {SECRET}"},
            {"type": "tool_call_response", "id": "t2", "response": f"LookupError: {SECRET}"},
        ],
    }
    assert json.loads(first["gen_ai.system_instructions"]) == [{"type": "text", "content": f"hide {SECRET}"}]
    assert json.loads(first["gen_ai.input.messages"]) == [question]
    assert json.loads(first["gen_ai.output.messages"]) == [answer]
    assert json.loads(second["gen_ai.input.messages"]) == [question, answer, results]
    run = attributes(traces.one("execute_tool repeat"))
    assert json.loads(run["gen_ai.tool.call.arguments"]) == {"word": SECRET}
    assert json.loads(run["gen_ai.tool.call.result"]) == f"{SECRET} {SECRET}"


BLOCKS = [
    ({"type": "text", "text": "a", "citations": None}, {"type": "text", "content": "a"}),
    ({"type": "thinking", "thinking": "b", "signature": "s"}, {"type": "reasoning", "content": "b"}),
    ({"type": "redacted_thinking", "data": "x"}, {"type": "redacted_thinking"}),
    (
        {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "c"}]},
        {"type": "tool_call_response", "id": "t1", "response": [{"type": "text", "content": "c"}]},
    ),
    ({"type": "tool_result", "tool_use_id": "t1"}, {"type": "tool_call_response", "id": "t1", "response": ""}),
    (
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "q"}},
        {
            "type": "server_tool_call",
            "id": "s1",
            "name": "web_search",
            "server_tool_call": {"type": "server_tool_use", "arguments": {"query": "q"}},
        },
    ),
    ({"type": "image", "source": {"type": "base64", "data": "AAAA"}}, {"type": "image"}),
]


@pytest.mark.parametrize(("block", "part"), BLOCKS, ids=lambda value: str(value["type"]))
def test_each_block_is_a_part(block: Any, part: Any) -> None:
    """Pictures and signatures are left out: the one is large, and the other says nothing."""
    assert words.parts([block]) == [part]


def test_a_part_is_made_of_whatever_there_is() -> None:
    """A reply may hold anything."""
    assert words.message({"content": None}) == {"role": "assistant", "parts": []}
    assert words.parts(["?", {}]) == [{}]
