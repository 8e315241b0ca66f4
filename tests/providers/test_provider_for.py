"""The providers that a loop accepts, and its errors for anything else."""

from __future__ import annotations

import functools
import subprocess
import sys
from typing import Any

import anthropic
import pytest

from toolloop.providers import AnthropicProvider, AsyncAnthropicProvider, provider_for


class Sync:
    def send(self, request: Any) -> dict[str, Any]:
        return {}


class Async:
    async def send(self, request: Any) -> dict[str, Any]:
        return {}


class Wrapped:
    @functools.wraps(Async.send)
    def send(self, *args: Any) -> Any:
        return Async().send(*args)


class Streaming(Sync):
    def stream(self, request: Any) -> Any:
        yield {}


class AsyncStreaming(Async):
    async def stream(self, request: Any) -> Any:
        yield {}


class NotCallable:
    send = "now"


class HalfAClient:
    messages = Sync()


def test_a_client_is_wrapped() -> None:
    """Of any kind."""
    google: dict[str, Any] = {"region": "r", "project_id": "p", "access_token": "t"}
    for client in (anthropic.Anthropic(api_key="k"), anthropic.AnthropicVertex(**google)):
        provider = provider_for(client, is_async=False)
        assert isinstance(provider, AnthropicProvider)
        assert provider.client is client
    for awaited in (anthropic.AsyncAnthropic(api_key="k"), anthropic.AsyncAnthropicVertex(**google)):
        assert isinstance(provider_for(awaited, is_async=True), AsyncAnthropicProvider)


def test_a_provider_is_used_as_it_is() -> None:
    """Anything with `send`, of the right kind."""
    for sync in (Sync(), Streaming(), AnthropicProvider(object())):
        assert provider_for(sync, is_async=False) is sync
    all_async: list[Any] = [Async(), AsyncStreaming(), Wrapped(), AsyncAnthropicProvider(object())]
    for awaited in all_async:
        assert provider_for(awaited, is_async=True) is awaited


def test_a_sync_one_under_the_async_handle_is_refused() -> None:
    """It would block the event loop; the message names the remedy."""
    cases: list[Any] = [Sync(), anthropic.Anthropic(api_key="k")]
    for given in cases:
        with pytest.raises(TypeError, match=r"is sync, but async methods are needed here\. .* use the sync handle"):
            provider_for(given, is_async=True)


def test_an_async_one_under_the_sync_handle_is_refused() -> None:
    """It could never be awaited."""
    cases: list[Any] = [Async(), Wrapped(), anthropic.AsyncAnthropic(api_key="k")]
    for given in cases:
        with pytest.raises(TypeError, match=r"is async, but sync methods are needed here\. .* use the async handle"):
            provider_for(given, is_async=False)


def test_anything_else_is_refused_with_what_is_allowed() -> None:
    """Also a class instead of an instance."""
    given_cases: list[Any] = [None, "claude", object(), NotCallable(), HalfAClient(), anthropic.Anthropic, Sync]
    for is_async in (False, True):
        for given in given_cases:
            choose: Any = provider_for
            with pytest.raises(
                TypeError, match=r"expected a client of the anthropic SDK, .* or an object with `send\(request\)`"
            ):
                choose(given, is_async=is_async)


def test_the_package_loads_without_the_sdk() -> None:
    """`import toolloop.providers`, and choosing a provider, load neither the SDK nor its HTTP library."""
    program = (
        "import sys, toolloop.providers as p\n"
        "class Sync:\n    def send(self, request): return {}\n"
        "p.provider_for(Sync(), is_async=False); p.AnthropicProvider(object()); p.given({'a': 1})\n"
        "print(sorted({'anthropic', 'httpx2', 'pydantic', 'anyio'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
