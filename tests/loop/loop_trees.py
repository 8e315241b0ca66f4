"""What the tests of loops in loops share: a model that answers each loop of a tree by the first words it was told."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anyio.to_thread
from attrs import define, field

from tests import own_threads
from tests.loop.support import params, user
from toolloop import AsyncToolLoopHandle, LoopConfig, LoopContext, ToolLoopHandle, sub_loop
from toolloop.testing import AsyncScriptedProvider, ScriptedProvider, call, reply

Handle = ToolLoopHandle | AsyncToolLoopHandle
join = own_threads.join


def bare(**more: Any) -> dict[str, Any]:
    """Parameters without messages, as for a loop inside a call."""
    return {name: value for name, value in params(**more).items() if name != "messages"}


def kid(tools: Sequence[Any] = (), name: str = "kid", **config: Any) -> Any:
    """A tool whose calls are loops."""
    return sub_loop(name, "Do a part of it.", params=bare(), tools=tools, config=LoopConfig(**config))


def task(prompt: str, name: str = "kid") -> Any:
    """A call of that tool; the id is the prompt."""
    return call(name, {"prompt": prompt}, id=prompt)


@define
class LoopTree:
    """A tree of loops: what the model says to each, by the first words of that loop; the outermost is told `go`.

    Attributes:
        said: the last words are said again and again. A function is called, and an exception raised.
        on: what else happens when a loop with these first words makes a request; any number may at once.
        asked: the first words of the loops that made requests, in order.
        requests: these requests.

    """

    kind: str
    said: Mapping[str, Sequence[Any]]
    tools: Sequence[Any]
    config: dict[str, Any] = field(factory=dict)
    on: dict[str, Callable[[], object]] = field(factory=dict)
    asked: list[str] = field(factory=list)
    requests: list[Any] = field(factory=list)
    state: Any = None
    lock: threading.Lock = field(factory=threading.Lock)

    def send(self, request: Any) -> Any:
        """Answer a request, in the thread that makes it."""
        return ScriptedProvider([self.answer(request)]).send(request)

    def answer(self, request: Any) -> Any:
        messages = request["messages"]
        who = messages[0]["content"]
        with self.lock:
            self.asked.append(who)
            self.requests.append(request)
        if who in self.on:
            self.on[who]()
        spoken = sum(message["role"] == "assistant" for message in messages)
        words = self.said[who]
        answer = words[min(spoken, len(words) - 1)]
        return answer() if callable(answer) else answer

    @property
    def bodies(self) -> list[bytes]:
        """The bytes of the requests."""
        return [request.body() for request in self.requests]

    def provider(self) -> Any:
        if self.kind == "sync":
            return self
        loop_tree = self

        class Apart:
            async def send(self, request: Any) -> Any:
                answer = await anyio.to_thread.run_sync(loop_tree.answer, request, abandon_on_cancel=True)
                return await AsyncScriptedProvider([answer]).send(request)

        return Apart()

    def parts(self, **more: Any) -> dict[str, Any]:
        return {
            "tools": self.tools,
            "config": LoopConfig(**self.config),
            "context": LoopContext(state=self.state),
            **more,
        }

    def loop(self, **more: Any) -> Handle:
        """A handle on a new tree."""
        made = ToolLoopHandle if self.kind == "sync" else AsyncToolLoopHandle
        return made(self.provider(), params=params(messages=[user("go")]), loop_id="loop", **self.parts(**more))

    def restored(self, snapshot: Any, **more: Any) -> Handle:
        """The same in another process."""
        made = ToolLoopHandle if self.kind == "sync" else AsyncToolLoopHandle
        return made.restore(snapshot, self.provider(), **self.parts(**more))


def parallel(*prompts: str) -> list[Any]:
    """What the model says to the outermost loop: these tasks at once, then that it is done."""
    return [reply(calls=[task(prompt) for prompt in prompts]), reply("all done")]
