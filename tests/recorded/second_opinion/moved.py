"""A second opinion, part two: the rules on thinking, which hold across the requests of one loop (26, 29)."""

from __future__ import annotations

import json
from collections.abc import Iterable

from tests.recorded.second_opinion.judge import version_of
from tests.recorded.second_opinion.shapes import THINKING, Block, Body, content

# 29: from which version on a family binds thinking to all that stands before it.
_BINDING = {"fable": (5, 1), "mythos": (5, 1), "opus": (5, 5), "sonnet": (5, 5), "haiku": (5, 5)}


def moved_thinking(exchanges: Iterable[tuple[Body, list[Block]]]) -> list[str]:
    """Return the thinking that one loop sent changed (26), or after something else than it was generated after (29).

    Args:
        exchanges: the bodies of one loop, in order, each with the content of its reply; empty if it had none.

    """
    found: list[str] = []
    origins: dict[str, set[str]] = {}  # by the text of a block: the conversations that it was generated after
    for number, (body, reply) in enumerate(exchanges):
        version = version_of(body["model"])
        binds = version is not None and version[1] >= _BINDING[version[0]]
        for block, before in _thinking(body):
            if (prefixes := origins.get(_text(block))) is None:
                found.append(f"26: body {number}: `thinking` blocks cannot be modified: {block}")
            elif binds and before not in prefixes:
                found.append(f"29: body {number}: the block is bound to a different conversation: {block}")
        answered = {**body, "messages": [*body["messages"], {"role": "assistant", "content": reply}]}
        for block, before in _thinking(answered)[len(_thinking(body)) :]:
            origins.setdefault(_text(block), set()).add(before)
    return found


def _thinking(body: Body) -> list[tuple[Block, str]]:
    """Return each block of thinking with what stands before it: tools, system and all earlier blocks."""
    blocks = [(message["role"], block) for message in body["messages"] for block in content(message)]
    setting = [body.get("system"), body.get("tools")]
    return [(b, _text([setting, blocks[:place]])) for place, (_, b) in enumerate(blocks) if b["type"] in THINKING]


def _text(value: object) -> str:
    """Return a value as JSON without its cache marks, which do not count (29)."""
    text = json.dumps(value, sort_keys=True)
    bare = json.loads(text, object_hook=lambda found: {k: v for k, v in found.items() if k != "cache_control"})
    return json.dumps(bare, sort_keys=True)
