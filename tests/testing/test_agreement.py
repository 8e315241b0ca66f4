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
]


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
    model, thinking = settings
    body = {"model": model, "max_tokens": 4096, "tools": TOOLS, "messages": history, "container": "c"}
    refusal = judge(body | ({"thinking": thinking} if thinking else {}), Context(), None)
    problems = check(history, model=model, tools=TOOLS, thinking=thinking)
    event(refusal.message.partition(":")[2][:50] if refusal else "taken")
    if refusal:
        assert problems, refusal.message
    else:
        assert [problem for problem in problems if problem.level == "error"] == []
