"""What type checkers see of providers and tools: mypy and pyright check this file, nothing runs it."""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from typing import Any, assert_type

from anthropic import Anthropic, AsyncAnthropic, beta_async_tool, beta_tool
from anthropic.lib.aws import AnthropicAWS
from anthropic.lib.bedrock import AnthropicBedrock, AnthropicBedrockMantle, AsyncAnthropicBedrock
from anthropic.lib.foundry import AnthropicFoundry
from anthropic.lib.google_cloud import AnthropicGoogleCloud
from anthropic.lib.tools import BetaAbstractMemoryTool
from anthropic.lib.vertex import AnthropicVertex, AsyncAnthropicVertex

from toolloop import (
    AsyncToolLoopHandle,
    AsyncToolRunner,
    AsyncWorker,
    ToolLoopHandle,
    ToolRegistry,
    ToolRunner,
    Worker,
    sub_loop,
    tool,
)
from toolloop.dbos import DurableLoops
from toolloop.providers import AnthropicProvider, AsyncProvider, Provider, provider_for
from toolloop.stores import Store
from toolloop.testing import AsyncScriptedProvider, ScriptedProvider
from toolloop.tools import as_tool
from toolloop.types import AsyncSdkClient, SdkClient, Tools

PARAMS: dict[str, Any] = {"model": "claude-opus-5-5", "max_tokens": 64}


@tool
def look(path: str) -> str:
    """Look."""
    return path


@tool(needs_approval=True)
async def pay(euros: int, to: str) -> bool:
    """Pay."""
    return bool(to) and euros > 0


@beta_tool
def of_the_sdk(path: str) -> str:
    return path


@beta_async_tool
async def async_of_the_sdk(path: str) -> str:
    return path


def plain(path: str) -> str:
    return path


class Own:
    def send(self, request: object) -> dict[str, Any]:
        return {"request": request}


class AsyncOwn:
    async def send(self, request: object) -> dict[str, Any]:
        return {"request": request}


def clients_of_each_platform_are_taken(
    client: SdkClient,
    bedrock: AnthropicBedrock | AnthropicBedrockMantle,
    vertex: AnthropicVertex,
    subclass: AnthropicAWS | AnthropicFoundry | AnthropicGoogleCloud,
) -> None:
    ToolLoopHandle(client, params={})
    ToolLoopHandle(bedrock, params={})
    ToolLoopHandle(vertex, params={})
    ToolLoopHandle(subclass, params={})


def sync_ones_are_taken(client: Anthropic, own: Provider, store: Store) -> None:
    ToolLoopHandle(own, params={})
    ToolLoopHandle(Own(), params={})
    ToolLoopHandle(AnthropicProvider(client), params={})
    assert_type(ToolLoopHandle.open(store, "a", client), ToolLoopHandle)
    assert_type(ToolLoopHandle.restore({}, Own()), ToolLoopHandle)
    ToolRunner(ScriptedProvider([]), params={})
    Worker(store, Own(), [])
    assert_type(provider_for(client, is_async=False), Provider)


async def async_ones_are_taken(
    client: AsyncAnthropic,
    either: AsyncSdkClient,
    other: AsyncAnthropicBedrock | AsyncAnthropicVertex,
    own: AsyncProvider,
    store: Store,
) -> None:
    AsyncToolLoopHandle(either, params={})
    AsyncToolLoopHandle(other, params={})
    AsyncToolLoopHandle(own, params={})
    assert_type(await AsyncToolLoopHandle.open(store, "a", AsyncOwn()), AsyncToolLoopHandle)
    assert_type(AsyncToolLoopHandle.restore({}, client), AsyncToolLoopHandle)
    AsyncToolRunner(AsyncScriptedProvider([]), params={})
    AsyncWorker(store, AsyncOwn(), [])
    assert_type(provider_for(client, is_async=True), AsyncProvider)


def others_are_refused(client: AsyncAnthropic, store: Store) -> None:
    ToolLoopHandle(42, params={})  # type: ignore[arg-type]
    ToolLoopHandle(client, params={})  # type: ignore[arg-type]
    ToolLoopHandle(Anthropic, params={})  # type: ignore[arg-type]
    ToolLoopHandle(AsyncOwn(), params={})  # type: ignore[arg-type]
    ToolLoopHandle.open(store, "a", client)  # type: ignore[arg-type]
    ToolLoopHandle.restore({}, client)  # type: ignore[arg-type]
    ToolRunner(client, params={})  # type: ignore[call-overload]
    Worker(store, client, [])  # type: ignore[arg-type]
    DurableLoops(store, client, dbos={"name": "a"})  # type: ignore[arg-type]
    provider_for(client, is_async=False)  # type: ignore[call-overload]


async def others_are_refused_under_async_ones(client: Anthropic, store: Store) -> None:
    AsyncToolLoopHandle(42, params={})  # type: ignore[arg-type]
    AsyncToolLoopHandle(client, params={})  # type: ignore[arg-type]
    AsyncToolLoopHandle(Own(), params={})  # type: ignore[arg-type]
    await AsyncToolLoopHandle.open(store, "a", client)  # type: ignore[arg-type]
    AsyncToolLoopHandle.restore({}, client)  # type: ignore[arg-type]
    AsyncToolRunner(client, params={})  # type: ignore[call-overload]
    AsyncWorker(store, client, [])  # type: ignore[arg-type]


def tools_of_each_kind_are_taken(client: Anthropic, store: Store, memory: BetaAbstractMemoryTool) -> None:
    child = sub_loop("child", "A child.", params=PARAMS, tools=[look, of_the_sdk])
    ToolLoopHandle(client, params={}, tools=[look, pay, of_the_sdk, async_of_the_sdk, memory, child, as_tool(look)])
    ToolLoopHandle.open(store, "a", client, tools=ToolRegistry([look, of_the_sdk]))
    ToolLoopHandle.restore({}, client, tools=(look, pay))
    in_a_variable: Tools = [look, pay, of_the_sdk]
    ToolRunner(client, params={}, tools=in_a_variable)
    Worker(store, client, in_a_variable)
    as_tool(of_the_sdk)


def what_is_no_tool_is_refused(client: Anthropic, later: AsyncAnthropic, store: Store) -> None:
    ToolLoopHandle(client, params={}, tools=[42])  # type: ignore[list-item]
    ToolLoopHandle(client, params={}, tools=42)  # type: ignore[arg-type]
    ToolLoopHandle(client, params={}, tools=look)  # type: ignore[arg-type]
    ToolLoopHandle(client, params={}, tools=[plain])  # type: ignore[list-item]
    ToolLoopHandle(client, params={}, tools=[{"name": "look"}])  # type: ignore[list-item]
    ToolLoopHandle.open(store, "a", client, tools=[42])  # type: ignore[list-item]
    ToolLoopHandle.restore({}, client, tools=[42])  # type: ignore[list-item]
    AsyncToolLoopHandle(later, params={}, tools=[42])  # type: ignore[list-item]
    ToolRunner(client, params={}, tools=[42])  # type: ignore[list-item]
    Worker(store, client, [42])  # type: ignore[list-item]
    AsyncWorker(store, later, [42])  # type: ignore[list-item]
    DurableLoops(store, client, [42], dbos={"name": "a"})  # type: ignore[list-item]
    sub_loop("child", "A child.", params=PARAMS, tools=[42])  # type: ignore[list-item]
    ToolRegistry([42])  # type: ignore[list-item]
    as_tool(plain)  # type: ignore[arg-type]
