"""Runners over real HTTP: a sync one alone, or one story for both, async under both backends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, cast

from attrs import define, field

from tests.kit.tools import TOOLS, params
from toolloop import AsyncToolRunner, LoopConfig, LoopContext, ToolRunner
from toolloop.testing import FakeMessagesAPI, call, reply

ADD = call("add", {"a": 1, "b": 2}, id="toolu_1")
LOOK = call("look", {"path": "x"}, id="toolu_2")
BROKEN = call("broken", {}, id="toolu_3")
WRITE = call("write", {"path": "p", "text": "t"}, id="toolu_4")


@define
class DrivenRunner:
    """A runner, the API it talks to, and what its tools did."""

    runner: Any
    api: FakeMessagesAPI
    ran: list[Any] = field(factory=list)

    @property
    def is_sync(self) -> bool:
        return isinstance(self.runner, ToolRunner)

    async def step(self) -> dict[str, Any] | None:
        """The next reply; None where there is none any more."""
        try:
            return cast("dict[str, Any]", next(self.runner) if self.is_sync else await anext(self.runner))
        except (StopIteration, StopAsyncIteration):
            return None

    async def reply(self) -> dict[str, Any]:
        """The next reply, which there is."""
        message = await self.step()
        assert message is not None
        return message

    async def is_over(self) -> bool:
        """Whether there is no next reply."""
        return await self.step() is None

    async def respond(self, retry: Iterable[str] = ()) -> dict[str, Any] | None:
        came = self.runner.generate_tool_response(retry=retry)
        return cast("dict[str, Any] | None", came if self.is_sync else await came)

    async def until_done(self) -> dict[str, Any] | None:
        came = self.runner.until_done()
        return cast("dict[str, Any] | None", came if self.is_sync else await came)

    @property
    def shown(self) -> list[Any]:
        """The history as the caller sees it."""
        return cast("list[Any]", self.runner.params["messages"])

    @property
    def count(self) -> int:
        return len(self.api.requests)

    def list_sent(self, number: int = -1) -> list[dict[str, Any]]:
        """The messages of a request, the last one unless said otherwise."""
        return cast("list[dict[str, Any]]", self.api.requests[number].json["messages"])


@asynccontextmanager
async def drive_runner(
    driver: str, script: Any, asked: Mapping[str, Any] | None = None, *, refusals: int = 0, **parts: Any
) -> AsyncIterator[DrivenRunner]:
    """A runner over real HTTP, none of whose requests the API refuses unless it is said."""
    ran: list[Any] = []
    config = {name: parts.pop(name) for name in tuple(parts) if name not in ("ask", "stream", "tools")}
    parts = {"params": asked or params(), "tools": TOOLS, "context": LoopContext(ran), **parts}
    with FakeMessagesAPI(script) as api:
        if driver == "sync":
            yield DrivenRunner(ToolRunner(api.client(), config=LoopConfig(**config), **parts), api, ran)
        else:
            async with api.async_client() as client:
                yield DrivenRunner(AsyncToolRunner(client, config=LoopConfig(**config), **parts), api, ran)
        assert len(api.refused) == refusals, [request.refusal for request in api.refused]


@define
class Run:
    """A sync runner, the API it talks to, and what its tools did."""

    runner: ToolRunner[Any]
    api: FakeMessagesAPI
    ran: list[Any]

    def step(self) -> Any:
        """The next reply; None where there is none any more."""
        return next(self.runner, None)

    def reply(self) -> dict[str, Any]:
        """The next reply, which there is."""
        message = next(self.runner)
        return cast("dict[str, Any]", message if isinstance(message, dict) else message.get_final_message())

    def set(self, **changes: Any) -> None:
        """Change some of the parameters."""
        self.runner.set_messages_params(lambda now: {**now, **changes})

    @property
    def shown(self) -> list[Any]:
        """The history as the caller sees it."""
        return cast("list[Any]", self.runner.params["messages"])

    def list_sent(self, number: int = -1) -> list[dict[str, Any]]:
        """The messages of a request, the last one unless said otherwise."""
        return cast("list[dict[str, Any]]", self.api.requests[number].json["messages"])


@contextmanager
def start_runner(script: Any, asked: Mapping[str, Any] | None = None, **parts: Any) -> Iterator[Run]:
    """A sync runner over real HTTP, none of whose requests the API refuses."""
    ran: list[Any] = []
    config = {name: parts.pop(name) for name in tuple(parts) if name not in ("ask", "stream", "tools")}
    parts = {"params": asked or params(), "tools": TOOLS, "context": LoopContext(ran), **parts}
    with FakeMessagesAPI(script) as api:
        yield Run(ToolRunner(api.client(), config=LoopConfig(**config), **parts), api, ran)
        assert not api.refused, [request.refusal for request in api.refused]


def asks(*calls: Any, text: str | None = None) -> dict[str, Any]:
    """A reply that asks for these calls."""
    return reply(content=[*([{"type": "text", "text": text}] if text else []), *calls])


def result(call_id: str, content: Any = "mine", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def make_said(message: Mapping[str, Any]) -> dict[str, Any]:
    """A reply, unchanged, in a history."""
    return {"role": "assistant", "content": message["content"]}
