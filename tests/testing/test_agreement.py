"""Two readings of the same rules, written apart: the fake API's and that of `toolloop.history.check`.

What the checker calls an error the server refuses; of what the server refuses the checker at least warns.
"""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

from toolloop.history import check
from toolloop.testing.refusals import Context
from toolloop.testing.rules import judge
from toolloop.testing.strategies import broken_histories, histories

TOOLS: list[dict[str, Any]] = [
    {"name": "look", "input_schema": {"type": "object"}},
    {"type": "web_search_20250305", "name": "web_search"},
    {"type": "code_execution_20250825", "name": "code_execution"},
]
SETTINGS: list[tuple[str, dict[str, Any] | None]] = [
    ("claude-opus-5-5", None),
    ("claude-opus-5-5", {"type": "adaptive"}),
    ("claude-sonnet-5", None),
    ("claude-sonnet-4-5", None),
    ("claude-sonnet-4-5", {"type": "enabled", "budget_tokens": 1024}),
]
INTRUDERS: list[dict[str, Any]] = [
    {"type": "text", "text": ""},
    {"type": "text", "text": "w"},
    {"type": "text", "text": "w", "glow": 1},
    {"type": "thinking", "thinking": "hm", "signature": "s"},
    {"type": "tool_use", "id": "toolu_9", "name": "look", "input": {}},
    {"type": "tool_result", "tool_use_id": "toolu_1"},
    {"type": "server_tool_use", "id": "srvtoolu_9", "name": "web_search", "input": {}},
    {"type": "image"},
    {"type": "hologram"},
    {"type": "tool_reference", "tool_name": "look"},
    {"type": "compaction", "content": "w"},
    {"type": "compaction", "content": "w", "signature": "s"},
    {"type": "compaction", "content": None},
    {"type": "compaction", "content": ""},
    {"type": "mcp_tool_use", "id": "mcptoolu_9", "name": "ask", "server_name": "s", "input": {}},
]


PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
TEXT = {"type": "text", "text": "w"}
#: What a result, or a user message, may hold: each is fine until it is damaged.
INSIDES: list[dict[str, Any]] = [
    TEXT,
    PNG,
    {"type": "image", "source": {"type": "url", "url": "https://e.x/i.png"}},
    {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "w"}, "title": "t"},
    {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0xLjc="}},
    {"type": "document", "source": {"type": "content", "content": [TEXT, PNG]}, "citations": {"enabled": True}},
    {"type": "search_result", "source": "s", "title": "t", "content": [TEXT], "citations": {"enabled": False}},
    {"type": "tool_reference", "tool_name": "look"},
    {"type": "browser_state", "tabs": [{}], "state_changes": None},
    {**TEXT, "cache_control": {"type": "ephemeral", "ttl": "5m"}},
]
#: What any value in them may be turned into.
ODD: list[Any] = [
    *(None, True, 7, "", " ", "w", [], {}, ["w"], {"type": "text"}, TEXT, [TEXT], PNG, [PNG]),
    *("image/png", "image/jpeg", "image/bmp", "application/pdf", "text/plain", "base64", "url", "content", "ephemeral"),
    *("iVBORw0KGgo", "/9j/4AAQ", "R0lGODlhAQ==", "UklGRgAAAABXRUJQ", "ä", "1h", {"type": "ephemeral", "ttl": "1h"}),
]


def spots(value: Any) -> list[tuple[Any, Any]]:
    """Every place in a value: what holds it, and its key or index there."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    return [(value, key) for key in keys] + [spot for key in keys for spot in spots(value[key])]


def damaged_block(data: st.DataObject) -> dict[str, Any]:
    """A block with at most one thing wrong inside."""
    block: dict[str, Any] = copy.deepcopy(data.draw(st.sampled_from(INSIDES)))
    holder, key = data.draw(st.sampled_from(spots(block)))
    match data.draw(st.sampled_from(["leave", "lose", "turn", "turn", "turn", "add", "mark"])):
        case "lose":
            del holder[key]
        case "turn":
            holder[key] = copy.deepcopy(data.draw(st.sampled_from(ODD)))
        case "add" if isinstance(holder, dict):
            holder[data.draw(st.sampled_from(["glow", "name", "cache_control", "citations", "source", "text"]))] = (
                copy.deepcopy(data.draw(st.sampled_from(ODD)))
            )
        case "mark":
            block["cache_control"] = data.draw(st.sampled_from(ODD))
    return block


@given(st.data())
def test_the_two_agree_on_what_is_inside_blocks(data: st.DataObject) -> None:
    """Of a result, and of a user message: one block with something wrong in it, or two that do not go together."""
    blocks = [damaged_block(data) for _ in range(data.draw(st.integers(1, 2)))]
    call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
    result: dict[str, Any] = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "w"}
    after: list[Any] = []
    if data.draw(st.booleans()):
        result["content"] = blocks
    else:
        after = blocks
    match data.draw(st.sampled_from(["plain", "error", "toolset", "toolset", "code", "odd"])):
        case "error":
            result["is_error"] = True
        case "toolset":
            call["toolset_name"] = result["toolset_name"] = "browser"
        case "code":
            call["caller"] = {"type": "code_execution_20250825", "tool_id": "srvtoolu_1"}
        case "odd":
            key = data.draw(st.sampled_from(["toolset_name", "is_error", "cache_control", "tool_use_id", "glow"]))
            result[key] = data.draw(st.sampled_from(ODD))
    history: list[dict[str, Any]] = [
        {"role": "user", "content": "w"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result, *after]},
    ]
    agree(history, "claude-opus-5-5", None)


def damage(data: st.DataObject, history: list[dict[str, Any]]) -> None:
    index = data.draw(st.integers(0, len(history) - 1))
    message = history[index]
    blocks = message["content"] if isinstance(message.get("content"), list) else []
    place = data.draw(st.integers(0, max(len(blocks) - 1, 0)))
    match data.draw(st.sampled_from(["leave out", "repeat", "turn", "cut", "double", "add", "add"])):
        case "leave out":
            del history[index]
        case "repeat":
            history.insert(index, copy.deepcopy(data.draw(st.sampled_from(history))))
        case "turn":
            message["role"] = data.draw(st.sampled_from(["user", "assistant", "system"]))
        case "cut" if blocks:
            del blocks[place]
        case "double" if blocks:
            blocks.insert(place, copy.deepcopy(data.draw(st.sampled_from(blocks))))
        case "add":
            blocks.insert(place, dict(data.draw(st.sampled_from(INTRUDERS))))


@given(histories() | broken_histories(), st.sampled_from(SETTINGS), st.data())
def test_the_two_agree_on_any_history(
    history: list[dict[str, Any]], settings: tuple[str, dict[str, Any] | None], data: st.DataObject
) -> None:
    history = copy.deepcopy(history)
    for _ in range(data.draw(st.integers(0, 3))):
        if history:
            damage(data, history)
    agree(history, *settings)


def agree(history: list[dict[str, Any]], model: str, thinking: dict[str, Any] | None) -> None:
    body = {"model": model, "max_tokens": 4096, "tools": TOOLS, "messages": history, "container": "c"}
    refusal = judge(body | ({"thinking": thinking} if thinking else {}), Context(), None)
    problems = check(history, model=model, tools=TOOLS, thinking=thinking)
    event(refusal.message.partition(":")[2][:50] if refusal else "taken")
    if refusal:
        assert problems, refusal.message
    else:
        assert [problem for problem in problems if problem.level == "error"] == []
