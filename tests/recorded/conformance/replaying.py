"""Drives traffic through the real client and the handles."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal

import anyio
from attrs import frozen

from tests.recorded.conformance.traffic import Exchange
from toolloop import (
    AsyncToolLoopHandle,
    Completed,
    Error,
    LoopContext,
    ToolContext,
    ToolError,
    ToolLoopHandle,
    Yielded,
    tool as as_tool,
)
from toolloop.providers.accumulate import accumulate
from toolloop.testing import FakeMessagesAPI, verbatim

Kind = Literal["sync", "asyncio", "trio"]
Handle = ToolLoopHandle | AsyncToolLoopHandle
KINDS: tuple[Kind, ...] = ("sync", "asyncio", "trio")


def replay(kind: Kind, scenario: Callable[..., Awaitable[None]], *arguments: Any) -> None:
    """Run a scenario, which takes the kind of the handle first."""
    anyio.run(scenario, kind, *arguments, backend="trio" if kind == "trio" else "asyncio")


@asynccontextmanager
async def serving(kind: Kind, answers: Iterable[Any]) -> AsyncIterator[tuple[FakeMessagesAPI, Any]]:
    """A server that gives recorded answers as they are, and a real client of it."""
    with FakeMessagesAPI(answers, enforce=False) as api:
        if kind == "sync":
            yield api, api.client()
        else:
            async with api.async_client() as client:
                yield api, client


def handle_for(client: Any, params: Mapping[str, Any], kind: Kind, **options: Any) -> Handle:
    return (
        ToolLoopHandle(client, params=params, **options)
        if kind == "sync"
        else AsyncToolLoopHandle(client, params=params, **options)
    )


async def next_turn(handle: Handle) -> Yielded | Completed | Error:
    result = handle.next_turn()
    return await result if inspect.isawaitable(result) else result


async def finish(handle: Handle, decide: Callable[[Yielded], object] = lambda turn: None) -> Completed | Error:
    """Drive to the end; `decide` says what calls that wait need."""
    while True:
        turn = await next_turn(handle)
        if not isinstance(turn, Yielded):
            return turn
        decide(turn)
        turn.continue_loop()


def answer_of(exchange: Exchange, *, streamed: bool = False) -> Any:
    """The recorded answer; a stream as the message it amounts to, unless it is wanted as it was."""
    if exchange.sse is not None:
        return verbatim(exchange.status, exchange.headers, exchange.sse) if streamed else reply_of(exchange)
    return verbatim(exchange.status, exchange.headers, exchange.reply)


def reply_of(exchange: Exchange) -> dict[str, Any]:
    """The reply as JSON, also where it came as a stream."""
    if exchange.sse is None:
        return dict(exchange.reply)
    return accumulate(exchange.streamed)


def params_of(exchange: Exchange, *, own: Sequence[str] = (), **more: Any) -> dict[str, Any]:
    """The parameters of a recorded request, without the tools that the loop has as its own."""
    params = {name: value for name, value in exchange.request.items() if name != "stream"}
    params["tools"] = [tool for tool in params.get("tools", ()) if tool["name"] not in own]
    betas = {"betas": exchange.beta.split(",")} if exchange.beta else {}
    return {name: value for name, value in params.items() if value != []} | betas | more


def results_of(exchanges: Iterable[Exchange]) -> dict[str, dict[str, Any]]:
    """The recorded results, by the id of their call."""
    return {
        block["tool_use_id"]: block
        for exchange in exchanges
        for message in exchange.request["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == "tool_result"
    }


@frozen
class Answering:
    """Answers every call that waits with its recorded result."""

    results: Mapping[str, Mapping[str, Any]]

    def __call__(self, turn: Yielded) -> None:
        for call in turn.pending:
            recorded = self.results[call.id]
            turn.answer(call, recorded["content"], is_error=recorded.get("is_error", False))


def _recorded(ctx: ToolContext) -> Any:
    recorded = ctx.state[ctx.call_id]
    if recorded.get("is_error"):
        raise ToolError(recorded["content"])
    return recorded["content"]


# The tools that were recorded; each gives what it gave then, found by the id of its call.


@as_tool(description="")
def get_weather(location: str, units: Literal["c", "f"], ctx: ToolContext) -> Any:
    return _recorded(ctx)


@as_tool(description="")
def retrieve_entity_info(name: str, ctx: ToolContext) -> Any:
    return _recorded(ctx)


@as_tool(description="")
def get_user_country(ctx: ToolContext) -> Any:
    return _recorded(ctx)


@as_tool(description="")
def load_capability(id: str, ctx: ToolContext) -> Any:  # noqa: A002 - the recorded name
    return _recorded(ctx)


@as_tool(description="")
def lookup_refund_policy(order_id: str, ctx: ToolContext) -> Any:
    return _recorded(ctx)


TOOLS = (get_weather, retrieve_entity_info, get_user_country, load_capability, lookup_refund_policy)


def with_own_tools(exchanges: Sequence[Exchange], **more: Any) -> dict[str, Any]:
    """The arguments of a handle whose tools give the recorded results."""
    own = [tool for tool in TOOLS if any(tool.name == each["name"] for each in exchanges[0].request.get("tools", ()))]
    return {
        "params": params_of(exchanges[0], own=[tool.name for tool in own], **more),
        "tools": own,
        "context": LoopContext(state=results_of(exchanges)),
    }
