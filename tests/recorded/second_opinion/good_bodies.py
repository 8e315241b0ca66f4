"""Requests that the API accepts: the shapes of recorded ones, cut short, and those that the reference notes allow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.recorded.second_opinion.shapes import Block, Body

Message = dict[str, Any]
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]}
WEATHER = {"name": "get_weather", "description": "Lookup the weather.", "input_schema": SCHEMA}
SEARCH_TOOL = {"type": "web_search_20250305", "name": "web_search"}
CODE_TOOL = {"name": "code_execution", "type": "code_execution_20260120"}
PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
PDF = {"type": "document", "source": {"type": "url", "url": "https://example.com/a.pdf"}}
FOUND = {"type": "search_result", "source": "s", "title": "t", "content": [{"type": "text", "text": "found"}]}
THOUGHT = {"type": "thinking", "thinking": "The user asks for the weather.", "signature": "EqEECkYICxgCKkAo3UA4"}
REDACTED = {"type": "redacted_thinking", "data": "EvgFCkYIBxgCKkBmxKtCnM3x"}
MANUAL: Any = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 4096, "model": "claude-sonnet-4-5"}
ADAPTIVE: Any = {"thinking": {"type": "adaptive"}, "model": "claude-opus-4-8"}
FIVE: Any = {"cache_control": {"type": "ephemeral"}}
HOUR: Any = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}


def user(*blocks: Any) -> Message:
    return {"role": "user", "content": blocks[0] if isinstance(blocks[0], str) else list(blocks)}


def model(*blocks: Block) -> Message:
    return {"role": "assistant", "content": list(blocks)}


def text(words: str = "Hello.", **more: Any) -> Block:
    return {"type": "text", "text": words, **more}


def call(call_id: str = "toolu_011bpynHqFZ9P4u5rSaXsTJQ", name: str = "get_weather", **more: Any) -> Block:
    return {"type": "tool_use", "id": call_id, "name": name, "input": {"location": "SF"}, **more}


def result(content: Any = "sunny", call_id: str = "toolu_011bpynHqFZ9P4u5rSaXsTJQ", **more: Any) -> Block:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def search(call_id: str = "srvtoolu_015V9Q8YNSkSyaVE5jFgZPhy", name: str = "web_search") -> Block:
    return {"type": "server_tool_use", "id": call_id, "name": name, "input": {"query": "weather"}}


def pages(call_id: str = "srvtoolu_015V9Q8YNSkSyaVE5jFgZPhy") -> Block:
    return {"type": "web_search_tool_result", "tool_use_id": call_id, "content": [], "caller": {"type": "direct"}}


ASKED = user("What is the weather in SF?")
ANSWERED = [ASKED, model(text(), call()), user(result())]
BY_CODE = call(caller={"type": "code_execution_20250825", "tool_id": "srvtoolu_1"})


def body(*messages: Message, settings: Mapping[str, Any] | None = None, **more: Any) -> Body:
    base = {"model": "claude-haiku-4-5", "max_tokens": 1024, "tools": [WEATHER, SEARCH_TOOL, CODE_TOOL]}
    return {**base, "messages": list(messages), **(settings or {}), **more}


#: By what it is about. The first nine are recorded, cut short.
GOOD: dict[str, Body] = {
    "a first question": body(ASKED, tools=[WEATHER]),
    "one call": body(*ANSWERED),
    "a call by the model": body(ASKED, model(call(caller={"type": "direct"})), user(result())),
    "an error": body(ASKED, model(call()), user(result("RuntimeError('again')", is_error=True))),
    "four calls": body(ASKED, model(*map(call, "abcd")), user(*(result("x", each) for each in "abcd"))),
    "thinking by hand": body(ASKED, model(THOUGHT, text(), call()), user(result()), settings=MANUAL),
    "redacted": body(ASKED, model(REDACTED, text()), user(text("What was that?")), settings=MANUAL),
    "a pause": body(ASKED, model(THOUGHT, text(), search(), pages(), text(), search("srvtoolu_2")), settings=MANUAL),
    "a reference": body(
        ASKED,
        model(call("auto_load_0f10f8b6", "search_tools")),
        user(result([{"type": "tool_reference", "tool_name": "get_weather"}], "auto_load_0f10f8b6")),
    ),
    "a deferred tool": body(ASKED, tools=[WEATHER, {**WEATHER, "name": "b", "defer_loading": True}]),
    "adaptive thinking": body(ASKED, model(THOUGHT, call()), user(result()), settings=ADAPTIVE),
    "adaptive, no thought": body(*ANSWERED, settings=ADAPTIVE),
    "adaptive, forced": body(ASKED, settings=ADAPTIVE, tool_choice={"type": "any"}),
    "a thought that is not shown": body(ASKED, model({**THOUGHT, "thinking": ""}, text()), ASKED),
    "no thought in a later round": body(
        ASKED,
        model(THOUGHT, call("a")),
        user(result("x", "a")),
        model(call("b")),
        user(result("x", "b")),
        settings=MANUAL,
    ),
    "two users in a row": body(ASKED, ASKED),
    "two assistants in a row": body(ASKED, model(text()), model(text()), ASKED),
    "an assistant first": body(model(text()), ASKED),
    "prefill on an old model": body(ASKED, model(text("The weather"))),
    "an empty message beside another": body({"role": "user", "content": []}, ASKED),
    "split results": body(ASKED, model(call("a"), call("b")), user(result("x", "b")), user(result("x", "a"))),
    "words after the results": body(*ANSWERED[:2], user(result(), text("And in LA?"), PNG)),
    "words in the next message": body(*ANSWERED, user("And in LA?")),
    "an id used again": body(*ANSWERED, model(call()), user(result())),
    "a tool that is gone": body(ASKED, model(call(name="old")), user(result())),
    "an empty result": body(ASKED, model(call()), user(result(""))),
    "an empty list": body(ASKED, model(call()), user(result([]))),
    "no content": body(ASKED, model(call()), user({"type": "tool_result", "tool_use_id": call()["id"]})),
    "an image": body(ASKED, model(call()), user(result([text(), PNG, text()]))),
    "a document": body(ASKED, model(call()), user(result([PDF]))),
    "search results": body(ASKED, model(call()), user(result([FOUND, FOUND]))),
    "an image of the user": body(user(PNG, PDF, text())),
    "a toolset": body(ASKED, model(call(toolset_name="browser")), user(result(toolset_name="browser"))),
    "a search": body(ASKED, model(text(), search(), pages(), text()), ASKED),
    "a search that a later message ends": body(
        ASKED, model(search(), call()), user(result()), model(pages(), text()), ASKED
    ),
    "a search beside a call": body(ASKED, model(search(), call()), user(result())),
    "a call by code": body(
        ASKED, model(search("srvtoolu_1", "code_execution"), BY_CODE), user(result()), container="c"
    ),
    "a compaction": body(ASKED, model({"type": "compaction", "content": "So far."}, text()), ASKED),
    "results before a compaction": body(user(result()), model({"type": "compaction", "content": "So."}, text()), ASKED),
    "a system message": body(*ANSWERED, {"role": "system", "content": "Be brief."}, settings=ADAPTIVE),
    "a system message inside": body(
        ASKED, {"role": "system", "content": [text()]}, model(text()), ASKED, settings=ADAPTIVE
    ),
    "four marks": body(user(text(**FIVE), text(**FIVE)), system=[text(**FIVE)], cache_control=FIVE["cache_control"]),
    "1 h before 5 m": body(user(text(**HOUR), text(**FIVE)), system=[text(**HOUR)]),
    "a mark in a result": body(ASKED, model(call()), user(result([text(**FIVE)]))),
    "a chosen tool": body(ASKED, tool_choice={"type": "tool", "name": "get_weather"}),
    "no tool now": body(*ANSWERED, tool_choice={"type": "none"}),
    "stop sequences": body(ASKED, stop_sequences=["END"], metadata={"user_id": "u"}, service_tier="auto"),
    "a strict tool": body(
        ASKED, tools=[{**WEATHER, "strict": True, "input_schema": {**SCHEMA, "additionalProperties": False}}]
    ),
    "no thinking": body(ASKED, thinking={"type": "disabled"}),
    "an effort": body(ASKED, output_config={"effort": "high"}),
}
