"""Histories large enough to be worth a compaction, with thinking really signed, and what the fake API says of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from tests.messages.bodies import NEXT, TOOLS, assistant, text
from tests.messages.histories import histories
from toolloop.history import open_code_calls, open_server_calls
from toolloop.machine.values.jsontext import decode, encode
from toolloop.testing.api.api_refusals import Refusal, RequestContext
from toolloop.testing.api.rules import find_broken_rule
from toolloop.testing.api.signing import Signer

THINKING = {"thinking", "redacted_thinking"}
SIGNER = Signer(b"toolloop")
#: A model that binds thinking to what is before it, one that does not, and one that must begin a turn with thinking.
SETTINGS: list[dict[str, Any]] = [
    {"model": "claude-opus-5-5"},
    {"model": "claude-opus-4-8"},
    {"model": "claude-sonnet-4-5", "thinking": {"type": "enabled", "budget_tokens": 1024}},
]


def body(messages: list[Any], settings: dict[str, Any]) -> dict[str, Any]:
    return {"max_tokens": 4096, "tools": TOOLS, "container": "c", **settings, "messages": messages}


def refusal(messages: list[Any], settings: dict[str, Any], signer: Signer | None = SIGNER) -> Refusal | None:
    """What the API would say."""
    return find_broken_rule(body(messages, settings), RequestContext(), signer)


def larger(message: dict[str, Any]) -> dict[str, Any]:
    """The message with long words."""
    if isinstance(message["content"], str):
        return message
    blocks = [dict(block) for block in message["content"]]
    for block in blocks:
        if block["type"] == "tool_result" and block["content"] == "seen":
            block["content"] = "seen " * 200
        elif block["type"] == "text" and message["role"] == "assistant":
            block["text"] = "I say so. " * 50
    return message | {"content": blocks}


def signed(messages: list[Any], settings: dict[str, Any]) -> list[Any]:
    """The history as it would be, had the fake API written the model's part."""
    done: list[Any] = []
    for message in messages:
        if message["role"] == "assistant":
            message = message | {"content": SIGNER.sign(message["content"], body(done, settings))}  # noqa: PLW2901 - signed on the way
        done.append(message)
    return done


@st.composite
def long_histories(draw: st.DrawFn) -> list[Any]:
    """Valid histories of a few conversations, one after the other, with long words."""
    messages: list[Any] = []
    for number, part in enumerate(draw(st.lists(histories(), min_size=1, max_size=3))):
        if open_server_calls(messages) or open_code_calls(messages):
            break  # nothing but their results may follow
        if messages and messages[-1]["role"] != "assistant":
            messages.append(assistant(text("Hello")))
        messages += decode(re.sub(r'"(toolu|srvtoolu|mcptoolu)_', rf'"\1_{number}x', encode(part)))
    return list(map(larger, messages))


@st.composite
def requests(draw: st.DrawFn, using: Sequence[dict[str, Any]] = SETTINGS) -> tuple[list[Any], dict[str, Any]]:
    """Histories that the API takes as they are, but for a few, and the settings of the request."""
    settings = draw(st.sampled_from(using))
    messages = draw(long_histories())
    if settings["model"] == "claude-sonnet-4-5":
        messages = [message for message in messages if message["role"] != "system"]
    if messages[-1]["role"] == "assistant" and not open_server_calls(messages):
        messages.append(NEXT)
    return signed(messages, settings), settings


def bare_from(messages: list[Any], start: int) -> list[Any]:
    """The history without thinking from one message on, as a loop sends it whose history changed there."""
    return [
        message
        if number < start or message["role"] != "assistant"
        else message | {"content": [block for block in message["content"] if block["type"] not in THINKING]}
        for number, message in enumerate(messages)
    ]
