"""The same script and the same body through the SDK's own runner and through `ToolRunner`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from anthropic import beta_tool
from attrs import define, field

from toolloop import LoopConfig, ToolRunner
from toolloop.testing import FakeMessagesAPI, call, reply

ADD = call("add", {"a": 1, "b": 2}, id="toolu_1")
MORE = call("add", {"a": 3, "b": 4}, id="toolu_2")
FAIL = call("fail", {}, id="toolu_3")
BYE = reply("bye")
PARAMS: dict[str, Any] = {
    "model": "claude-opus-5-5",
    "max_tokens": 256,
    "messages": [{"role": "user", "content": "hi"}],
}


@define
class Side:
    """One of the two: its runner, and what came of it.

    Attributes:
        bodies: the JSON of each request.
        ran: which tools ran, with what.
        error: what it raised at last.
        refused: how many of its requests the API refused.
        stream: the last stream that it yielded.
        later: what iterating again gave after the error; "over" where nothing.

    """

    is_sdk: bool
    runner: Any = None
    bodies: list[Any] = field(factory=list)
    ran: list[Any] = field(factory=list)
    error: Exception | None = None
    refused: int = 0
    yielded: int = 0
    stream: Any = None
    later: Any = None

    def respond(self) -> Any:
        """The tool response, by the name that each gives it."""
        return self.runner.generate_tool_call_response() if self.is_sdk else self.runner.generate_tool_response()

    @property
    def messages(self) -> list[Any]:
        """Those of the last request."""
        found: list[Any] = self.bodies[-1]["messages"]
        return found

    def tools(self) -> list[Any]:
        @beta_tool
        def add(a: int, b: int) -> str:
            """Add two numbers."""
            self.ran.append(("add", a, b))
            return str(a + b)

        @beta_tool
        def fail() -> str:
            """Fail."""
            self.ran.append(("fail",))
            raise ValueError("no")

        return [add, fail]


Body = Callable[[Side, Any, int], object]


def nothing(_side: Side, _message: Any, _number: int) -> None:
    """A body that changes nothing."""


def both(
    script: Callable[[], list[Any]],
    body: Body = nothing,
    *,
    limit: int | None = None,
    stream: bool = False,
    again: bool = False,
    **more: Any,
) -> list[Side]:
    """What comes of the same in both: first the SDK's, then ours. `again`: iterate once more after an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the SDK's, about a tool that is not there
        sides = []
        for is_sdk in (True, False):
            side = Side(is_sdk)
            _run(side, script(), body, {"limit": limit, "stream": stream, "again": again}, PARAMS | more)
            sides.append(side)
        return sides


def _run(side: Side, script: list[Any], body: Body, how: dict[str, Any], params: dict[str, Any]) -> None:
    limit, stream = how["limit"], how["stream"]
    with FakeMessagesAPI(script) as api:
        client = api.client()
        if side.is_sdk:
            bound: dict[str, Any] = {} if limit is None else {"max_iterations": limit}
            tools = [*side.tools(), *params.get("tools", ())]
            sent = params | {"tools": tools, "stream": stream}
            side.runner = client.beta.messages.tool_runner(**sent, thread=False, **bound)
        else:
            config = LoopConfig(max_iterations=limit)
            side.runner = ToolRunner(client, params=params, tools=side.tools(), config=config, stream=stream)
        try:
            for number, came in enumerate(side.runner):
                if stream:
                    side.stream = came
                message = came.get_final_message() if stream else came
                side.yielded += 1
                body(side, message, number)
        except Exception as error:  # noqa: BLE001 - it is compared
            side.error = error
        if how["again"]:
            side.later = next(side.runner, "over")
        side.bodies = [request.json for request in api.requests]
        side.refused = len(api.refused)


def once(act: Callable[[Side, Any], object]) -> Body:
    """A body that does this in its first iteration alone."""
    return lambda side, message, number: act(side, message) if number == 0 else None


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def said(message: Any) -> dict[str, Any]:
    """A reply, unchanged, in a history of either."""
    blocks = message["content"] if isinstance(message, dict) else [block.to_dict() for block in message.content]
    return {"role": "assistant", "content": blocks}


def denied(*call_ids: str) -> dict[str, Any]:
    return user([{"type": "tool_result", "tool_use_id": call_id, "content": "denied"} for call_id in call_ids])


def asks(*calls: Any) -> Any:
    return reply(content=list(calls))
