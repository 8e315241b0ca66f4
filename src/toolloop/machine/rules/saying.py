"""Queue messages. What persons say is kept until the API allows it, so that it can be withdrawn until then."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from attrs import evolve

from toolloop.errors import IllegalCommand
from toolloop.machine.record.journal_events import Said, Withdrawn
from toolloop.machine.record.loop import Kept, Loop
from toolloop.machine.values.jsontext import decode, encode
from toolloop.machine.values.setup import Setup

_DIGEST = 16  # characters


def keep(loop: Loop, event: Said) -> Loop:
    """Return the loop with what a person said.

    Raises:
        IllegalCommand: something with this id was said before.

    """
    if event.id in loop.said:
        raise _reject(loop, "say()", f"something with the id {event.id!r} was said before")
    kept = Kept(event.id, event.messages, event.by, event.said_at)
    return loop._replace(kept=(*loop.kept, kept), said=loop.said.append(event.id))


def list_new_tools(setup: Setup, tools: Sequence[str]) -> tuple[str, ...]:
    """Return the definitions among these, each once, of tools that the loop neither has nor had."""
    named = {decode(text)["name"]: text for text in reversed(tools)}
    return tuple([text for name, text in reversed(named.items()) if not setup.is_taken(name)])


def add_tools(setup: Setup, tools: Sequence[str]) -> Setup:
    """Return the setup with tools that a person's front end brings. One that the loop has is left as it is."""
    if not (new := [decode(text) for text in list_new_tools(setup, tools)]):
        return setup
    params = decode(setup.params)
    with_new = encode({**params, "tools": [*(params.get("tools") or ()), *new]})
    return evolve(setup, params=with_new, brought=setup.brought.union(tool["name"] for tool in new))


def withdraw(loop: Loop, event: Withdrawn) -> Loop:
    """Return the loop without what a person said.

    Raises:
        IllegalCommand: it is not kept.

    """
    rest = tuple([each for each in loop.kept if each.id != event.id])
    if event.id not in loop.said:
        raise _reject(loop, "withdraw()", f"nothing with the id {event.id!r} was said")
    if len(rest) == len(loop.kept):
        raise _reject(loop, "withdraw()", f"{event.id!r} is in the conversation already, or was withdrawn before")
    return loop._replace(kept=rest)


def _reject(loop: Loop, asked: str, why: str) -> IllegalCommand:
    return IllegalCommand(f"{asked}: {why}", state=type(loop.phase).__name__, asked=asked, allowed=())


def queue(loop: Loop, messages: Sequence[str]) -> Loop:
    """Return the loop with injected messages. They join after what was said before them."""
    if loop.kept:
        return loop._replace(kept=(*loop.kept, Kept("", tuple(messages))))
    return loop._replace(queued=(*loop.queued, *messages))


def queue_own(loop: Loop, message: str) -> Loop:
    """Return the loop with a user message that it wrote itself, before the injected ones.

    Its digest is noted, so that it is not taken for a request of a person. The text may have secret values, which an
    edit of the history removes.
    """
    own = loop.own if is_own(loop, message) else (*loop.own, _digest(message))
    return loop._replace(queued=(message, *loop.queued), own=own)


def is_own(loop: Loop, message: str) -> bool:
    """Return whether the loop itself wrote a user message. What an earlier version wrote in a snapshot is not known."""
    return bool(loop.own) and _digest(message) in loop.own


def _digest(message: str) -> str:
    return sha256(message.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]


def list_kept_texts(loop: Loop) -> tuple[str, ...]:
    """Return the kept messages, oldest first. They join the history after the queued ones."""
    return tuple([text for each in loop.kept for text in each.messages])


def release(loop: Loop) -> Loop:
    """Return the loop with the kept messages queued, because they join now."""
    return loop._replace(queued=(*loop.queued, *list_kept_texts(loop)), kept=()) if loop.kept else loop
