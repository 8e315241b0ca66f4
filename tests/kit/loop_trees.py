"""What the tests of loops in loops share: a model that answers each loop of a tree by its first words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.kit import own_threads
from tests.kit.tools import params, user
from tests.kit.world import World
from toolloop import AsyncToolLoopHandle, LoopConfig, ToolLoopHandle, sub_loop
from toolloop.testing import call, reply

Handle = ToolLoopHandle | AsyncToolLoopHandle
join = own_threads.join


def make_bare(**more: Any) -> dict[str, Any]:
    """Parameters without messages, as for a loop inside a call."""
    return {name: value for name, value in params(**more).items() if name != "messages"}


def kid(tools: Sequence[Any] = (), name: str = "kid", **config: Any) -> Any:
    """A tool whose calls are loops."""
    return sub_loop(name, "Do a part of it.", params=make_bare(), tools=tools, config=LoopConfig(**config))


def task(prompt: str, name: str = "kid") -> Any:
    """A call of that tool; the id is the prompt."""
    return call(name, {"prompt": prompt}, id=prompt)


def tree_of(kind: str, script: Any, tools: Any = (), **more: Any) -> World:
    """A tree of loops: a script for each loop, by its first message. The outermost loop begins with `go`."""
    return World(kind, script=script, tools=tools, params=params(messages=[user("go")]), **more)


def ask_in_parallel(*prompts: str) -> list[Any]:
    """What the model says to the outermost loop: these tasks at once, then that it is done."""
    return [reply(calls=[task(prompt) for prompt in prompts]), reply("all done")]
