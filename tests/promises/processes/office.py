"""What the drivers of an office do: each drives a loop by the rules of its day, and may die in a tool."""

from __future__ import annotations

import os
import socket
import sys
from typing import Any

from tests.kit.fork_server import Line, serve
from tests.promises.processes.programs import PARAMS, store_of, warm_up
from toolloop import Ask, Deny, LoopConfig, LoopContext, ToolCall, ToolContext, ToolLoopHandle, tool
from toolloop.errors import Conflict
from toolloop.testing import ScriptedProvider, call, reply

_ROUNDS = 9


def answer(request: Any) -> Any:
    """Three payments in each round."""
    spoken = sum(message["role"] == "assistant" for message in request["messages"])
    calls = [call("pay", {"amount": number}, id=f"{spoken}p{number}") for number in (1, 2, 3)]
    return reply("done") if spoken == _ROUNDS else reply(calls=calls)


@tool
def pay(context: ToolContext, amount: int) -> str:
    """Pay. The driver dies here as often as the day says."""
    if amount in context.state:
        os._exit(9)
    return "paid"


def rules_of(day: dict[str, Any]) -> Any:
    """The policy of a day: what it asks about each amount."""

    def rules(shown: ToolCall, _view: object) -> Any:
        match day.get(str(shown.effective_input["amount"])):
            case "raises":
                raise ValueError("the rules cannot be read")
            case "deny":
                return Deny("never")
            case list() as asks:
                return [Ask(**ask) for ask in asks]

    return rules


def opened(path: str, day: dict[str, Any], dies: list[int], *, take_over: bool) -> ToolLoopHandle:
    """A handle on the loop, by the rules of a day."""
    return ToolLoopHandle.open(
        store_of(path),
        "loop",
        ScriptedProvider(answer),
        tools=[pay],
        params=PARAMS,
        config=LoopConfig(on_tool_call=rules_of(day), execution="ready"),
        context=LoopContext(state=dies),
        take_over=take_over,
    )


def drive(_line: Line, path: str, day: dict[str, Any], dies: list[int], *, take_over: bool) -> str:
    """Drive until calls wait, the loop has ended, or the driver dies."""
    try:
        with opened(path, day, dies, take_over=take_over) as handle:
            return type(handle.run()).__name__
    except Conflict:
        return "Conflict"


if __name__ == "__main__":
    warm_up()
    serve(socket.socket(fileno=int(sys.argv[1])), {"drive": drive})
