"""What the tests of the handles share: a few tools, a loop over real HTTP, and checks that hold for every test."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, TypeVar, cast

import pytest
from attrs import define, field

from toolloop import (
    AsyncToolLoopHandle,
    Completed,
    Error,
    LoopConfig,
    LoopContext,
    ToolContext,
    ToolLoopHandle,
    Yielded,
    tool,
)
from toolloop.errors import ToolLoopError
from toolloop.machine.record.loop import Waiting
from toolloop.testing import FakeMessagesAPI

MODEL = "claude-opus-5-5"
HUNDRED = {"input_tokens": 100, "output_tokens": 50}
E = TypeVar("E", bound=ToolLoopError)


def note(context: ToolContext, *what: Any) -> None:
    """Write into the caller's own list which tool ran, and with what."""
    if context.state is not None:
        context.state.append(what)


@tool
def add(a: int, b: int, context: ToolContext) -> str:
    """Add two numbers."""
    note(context, "add", a, b)
    return str(a + b)


@tool(needs_approval=True)
def write(path: str, text: str, context: ToolContext) -> str:
    """Replace a text file."""
    note(context, "write", path, text)
    return f"wrote {path}"


@tool(effect="pure")
def look(path: str, context: ToolContext) -> str:
    """Read a text file."""
    note(context, "look", path)
    return f"text of {path}"


@tool
def broken(context: ToolContext) -> str:
    """Fail."""
    note(context, "broken")
    raise OSError("the disk is gone")


@tool
def picture(kind: Literal["png", "jpeg"], context: ToolContext) -> list[dict[str, Any]]:
    """Take a picture."""
    note(context, "picture", kind)
    data = {"png": "iVBORw0KGgo=", "jpeg": "/9j/4A=="}[kind]  # the first bytes of such a file
    source = {"type": "base64", "media_type": f"image/{kind}", "data": data}
    return [{"type": "image", "source": source}]


TOOLS = (add, write, look, broken, picture)


def user(content: Any = "hello") -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def params(**more: Any) -> dict[str, Any]:
    """Parameters of a small request."""
    return {"model": MODEL, "max_tokens": 256, "messages": [user()], **more}


@define
class Scene:
    """A loop, the API it talks to, and what its tools did."""

    handle: ToolLoopHandle
    api: FakeMessagesAPI
    ran: list[Any] = field(factory=list)

    def sent(self, number: int = -1) -> list[dict[str, Any]]:
        """The messages of a request, the last one unless said otherwise."""
        return cast("list[dict[str, Any]]", self.api.requests[number].json["messages"])

    @property
    def count(self) -> int:
        """How many requests came in."""
        return len(self.api.requests)

    def turn(self) -> Yielded:
        return yielded(self.handle.next_turn())

    def done(self) -> Completed:
        return completed(self.handle.next_turn())

    def failed(self) -> Error:
        return failed(self.handle.next_turn())


@contextmanager
def scene(
    script: Any,
    *,
    tools: Any = TOOLS,
    asked: Mapping[str, Any] | None = None,
    depth: int = 0,
    refusals: int = 0,
    **config: Any,
) -> Iterator[Scene]:
    """A loop over real HTTP. Whatever the test does, the API refuses none of its requests unless it says so."""
    ran: list[Any] = []
    with FakeMessagesAPI(script) as api:
        handle = ToolLoopHandle(
            api.client(),
            params=params() if asked is None else asked,
            tools=tools,
            config=LoopConfig(**config),
            context=LoopContext(state=ran, depth=depth),
            loop_id="loop",
        )
        yield Scene(handle, api, ran)
        assert len(api.refused) == refusals, [request.refusal for request in api.refused]


def yielded(result: object) -> Yielded:
    assert isinstance(result, Yielded), result
    return result


def completed(result: object) -> Completed:
    assert isinstance(result, Completed), result
    return result


def failed(result: object) -> Error:
    assert isinstance(result, Error), result
    return result


def results_in(message: Mapping[str, Any]) -> list[Any]:
    """The `tool_result` blocks of a message."""
    assert message["role"] == "user"
    return [block for block in message["content"] if block["type"] == "tool_result"]


def place(handle: ToolLoopHandle | AsyncToolLoopHandle) -> str:
    """Where a loop is: the name of its phase, or what it waits for."""
    phase = handle.state.root.phase
    return phase.reason if isinstance(phase, Waiting) else type(phase).__name__


@contextmanager
def refused(
    handle: ToolLoopHandle | AsyncToolLoopHandle, kind: type[E], *words: str
) -> Iterator[pytest.ExceptionInfo[E]]:
    """The block raises this error, which says these words, survives pickling, and changed nothing."""
    before = handle.state
    with pytest.raises(kind) as caught:
        yield caught
    assert handle.state == before
    told = str(caught.value)
    assert [word for word in words if word not in told] == [], told
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (type(copy), str(copy), vars(copy)) == (type(caught.value), told, vars(caught.value))
