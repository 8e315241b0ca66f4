"""Stale thinking: thinking blocks whose prefix has changed since the model produced them.

Newer models accept a thinking block only after exactly the system prompt, tools and messages that preceded it when it
was produced (source: rule 29 of the Messages API). A loop records one mark, `Loop.stale_thinking`: thinking in messages
before that position is stale. It stays stale even if the old prefix is restored. The driver decides whether to send
stale thinking, because that depends on the model.
"""

from __future__ import annotations

from toolloop.machine.record.loop import Loop, Requesting, list_messages
from toolloop.machine.values.jsontext import decode
from toolloop.machine.values.setup import Setup, follow_definitions

_MARK = 'thinking"'  # in the type of both kinds of blocks


def mark_stale(loop: Loop, start: int = 0) -> Loop:
    """Return the loop after a change before the message at `start`: thinking from there on is stale.

    The reply to a request in progress is stale too, because the request has the old prefix.
    """
    texts = list_messages(loop)
    if isinstance(loop.phase, Requesting):
        mark = len(texts) + 1
    elif any(_MARK in text for text in texts[start:]):
        mark = len(texts)
    else:
        mark = min(loop.stale_thinking, start)
    return loop if mark == loop.stale_thinking else loop._replace(stale_thinking=mark)


def set_up(loop: Loop, setup: Setup) -> Loop:
    """Return the loop with another setup. If its requests have another prefix, all thinking is stale."""
    setup = follow_definitions(loop.setup, setup)
    is_same = has_same_prefix(loop.setup, setup, is_stale=bool(loop.stale_thinking))
    loop = loop._replace(setup=setup)
    return loop if is_same else mark_stale(loop)


def has_same_prefix(one: Setup, other: Setup, *, is_stale: bool) -> bool:
    """Return whether requests with these setups have the same prefix: the same system prompt and tools.

    If some thinking is already stale (`is_stale`), the model and the thinking parameter decide whether it is sent. Then
    the prefix of newer thinking depends on them too.
    """
    if _list_tools(one) != _list_tools(other):
        return False
    if one.params == other.params:
        return True
    names = ("system", "tools", "mcp_servers", *(("model", "thinking") if is_stale else ()))
    old, new = decode(one.params), decode(other.params)
    return all(old.get(name) == new.get(name) for name in names)


def _list_tools(setup: Setup) -> list[tuple[str, str]]:
    return [(facts.name, facts.digest) for facts in setup.tools]
