"""What goes over the wire, read to the last key and digit, and what must hold of it."""

from __future__ import annotations

import json
from typing import Any

from tests.recorded.second_opinion.judge import problems

_THINKING = {"thinking", "redacted_thinking"}
_CUT = {"max_tokens", "model_context_window_exceeded"}
_WAITS = {"pause_turn", "compaction"}


class Exact(dict[str, Any]):
    """A JSON object that is equal to another only if the order of its keys is the same."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, dict) and list(self.items()) == list(other.items())

    __hash__ = None


def exact(raw: bytes) -> Any:
    """JSON with the order of its keys, the size of its integers and the spelling of its numbers."""
    return json.loads(raw, object_pairs_hook=Exact, parse_float=str)


def check_results(body: Any) -> None:
    """Every `tool_use` has exactly one result, in the next user message, results first, in the model's order."""
    messages = body["messages"]
    results = [block["tool_use_id"] for message in messages for block in _blocks(message, "tool_result")]
    calls = [block["id"] for message in messages for block in _blocks(message, "tool_use")]
    assert sorted(results) == sorted(calls), "a call without its one result, or a result without its call"
    for index, message in enumerate(messages):
        ids = [block["id"] for block in _blocks(message, "tool_use")]
        if not ids:
            continue
        follows = messages[index + 1]
        assert follows["role"] == "user"
        first = follows["content"][: len(ids)]
        assert [block.get("tool_use_id") for block in first] == ids, "the results are not first, or not in order"


def check_accepted(body: Any) -> None:
    """Check that the second opinion accepts a request, except for two drawn things that no model sends."""
    text = {"type": "text", "text": "a block of a type that is not known yet"}
    messages = [
        {**message, "content": [text if block["type"] == "hologram" else block for block in _all(message)]}
        if isinstance(message["content"], list)
        else message
        for message in body["messages"]
    ]
    sent = {name: value for name, value in body.items() if name != "thread"}
    found = problems({**sent, "messages": messages})
    assert [text for text in found if not text.startswith("10:")] == [], "the API refuses this"  # a pause with no call


def check_verbatim(body: Any, received: list[Any], *, edited: bool, masked: bool = False) -> None:
    """The model's messages are what was received, in order; what is missing of them had to go.

    Args:
        body: a request.
        received: the replies before it.
        edited: whether the caller, or a compaction, took something out of the history.
        masked: whether results have other words than they had.

    """
    done = {block.get("tool_use_id") for message in body["messages"] for block in _all(message)}
    left = list(received)
    cut = edited or masked  # whether something was taken out, which may take the thinking that was bound to it along
    for message in body["messages"]:
        if message["role"] != "assistant":
            continue
        while left and (missing := _missing(message["content"], left[0], done, cut=cut)) is None:
            assert edited or not _must_join(left[0]), f"a reply is missing: {left[0]}"
            cut |= _has_call(left.pop(0)["content"])
        assert left, f"this was never said: {message}"
        cut |= _has_call(missing or [])
        left.pop(0)
    for reply in left:
        assert edited or not _must_join(reply), f"a reply is missing: {reply}"


def _missing(content: list[Any], reply: Any, done: set[str], *, cut: bool) -> list[Any] | None:
    """What a message leaves out of a reply; None if it is not of this reply, or something is missing that must not."""
    rest, missing, last = list(content), [], -1
    for place, block in enumerate(reply["content"]):
        if rest and rest[0] == block:
            rest.pop(0)
            last = place
        else:
            missing.append(block)
    ended = reply["content"][last + 1 :]
    may_go = all(_may_go(block, reply, done) or (_thinks(block) and (cut or block in ended)) for block in missing)
    return missing if not rest and may_go else None


def _has_call(blocks: list[Any]) -> bool:
    return any(block["type"] in {"tool_use", "server_tool_use"} for block in blocks)


def _thinks(block: Any) -> bool:
    return block["type"] in _THINKING


def _may_go(block: Any, reply: Any, done: set[str]) -> bool:
    match block["type"]:
        case "text":
            return not block["text"].strip()
        case "server_tool_use":
            return block["id"] not in done  # its result never came
        case "tool_use":
            return reply["stop_reason"] in _CUT or "caller" in block
    return False


def _must_join(reply: Any) -> bool:
    """Whether a reply is for good: what was paused may be dropped, and what was refused is."""
    kinds = [block["type"] for block in reply["content"]]
    if reply["stop_reason"] in {"refusal", None, *_WAITS}:
        return False
    if reply["stop_reason"] == "tool_use" and "tool_use" not in kinds:
        return False
    return any(block["type"] == "text" and block["text"].strip() for block in reply["content"])


def _all(message: Any) -> list[Any]:
    return [] if isinstance(message["content"], str) else list(message["content"])


def _blocks(message: Any, kind: str) -> list[Any]:
    return [block for block in _all(message) if block["type"] == kind]
