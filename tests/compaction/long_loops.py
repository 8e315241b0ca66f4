"""Loops of many rounds, for tests of what is compacted."""

from __future__ import annotations

from typing import Any

from tests.messages.bodies import HI, assistant, call, result, thinking, user

LONG = "seen " * 800
Message = dict[str, Any]


def round_of(number: int, *, content: Any = LONG, **of_call: Any) -> list[Message]:
    """A call with its result; about 700 tokens."""
    name = f"toolu_{number}"
    return [assistant(call(name, **of_call)), user(result(name, content))]


def loop_of(rounds: int) -> list[Message]:
    """A question and so many rounds."""
    return [HI, *(message for number in range(rounds) for message in round_of(number))]


def thoughtful(number: int) -> list[Message]:
    """A round that begins with thinking."""
    said, results = round_of(number)
    return [said | {"content": [thinking(), *said["content"]]}, results]


def places(after: list[Any], before: list[Any]) -> list[int]:
    """Where the messages stood before; -1 for a new one."""
    at = {id(message): place for place, message in enumerate(before)}
    return [at.get(id(message), -1) for message in after]
