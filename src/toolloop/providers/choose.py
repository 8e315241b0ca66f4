"""What a caller hands a loop as its provider, as a provider.

Nothing is imported to tell: a client exists only where the SDK is imported already.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Literal, overload

from toolloop.providers.anthropic import AnthropicProvider, AsyncAnthropicProvider

if TYPE_CHECKING:
    from toolloop.providers.protocol import AsyncProvider, Provider


@overload
def provider_for(client_or_provider: Any, *, is_async: Literal[False]) -> Provider: ...
@overload
def provider_for(client_or_provider: Any, *, is_async: Literal[True]) -> AsyncProvider: ...
def provider_for(client_or_provider: Any, *, is_async: bool) -> Provider | AsyncProvider:
    """A client of the anthropic SDK wrapped, a provider as it is.

    Args:
        client_or_provider: any client of the anthropic SDK, or anything with `send` (and `stream`, if it can).
        is_async: whether it is for an `AsyncToolLoopHandle`.

    Raises:
        TypeError: it is neither, or sync where async is needed, or the other way round; the message says which.

    """
    given = client_or_provider
    send, create = _method(given, "send"), _method(given, "messages", "with_raw_response", "create")
    face = send or create
    if isinstance(given, type) or face is None:
        raise TypeError(
            f"the provider is {_described(given)}: give a client of the anthropic SDK, such as "
            f"anthropic.{'AsyncAnthropic' if is_async else 'Anthropic'}(), or an object with `send(request)` "
            "(toolloop.providers.Provider or AsyncProvider)"
        )
    if inspect.iscoroutinefunction(inspect.unwrap(face)) != is_async:
        raise TypeError(_mismatch(given, "send" if send else "messages.create", is_async))
    if send:
        if (stream := _method(given, "stream")) is not None:
            _check_stream(given, inspect.unwrap(stream), is_async=is_async)
        return client_or_provider  # type: ignore[no-any-return] # it has `send`, and that is all a provider is
    return AsyncAnthropicProvider(given) if is_async else AnthropicProvider(given)


def _method(value: object, *path: str) -> Any:
    for name in path:
        value = getattr(value, name, None)
    return value if callable(value) else None


def _check_stream(given: object, stream: Any, *, is_async: bool) -> None:
    wrong = inspect.isgeneratorfunction if is_async else inspect.isasyncgenfunction
    if wrong(stream):
        raise TypeError(_mismatch(given, "stream", is_async))
    if inspect.iscoroutinefunction(stream):
        raise TypeError(
            f"{type(given).__name__}.stream must be awaited before it gives its events: let it return "
            f"{'an async iterator' if is_async else 'an iterator'} at once, and send the request when the first event "
            "is asked for"
        )


def _described(value: object) -> str:
    return f"the class {value.__name__} and not an instance of it" if isinstance(value, type) else type(value).__name__


def _mismatch(given: object, method: str, is_async: bool) -> str:
    if is_async:
        return (
            f"{type(given).__name__}.{method} is sync, and an AsyncToolLoopHandle awaits it: give an async client "
            "(anthropic.AsyncAnthropic()) or provider, or use ToolLoopHandle"
        )
    return (
        f"{type(given).__name__}.{method} is async, and a ToolLoopHandle cannot await it: give a sync client "
        "(anthropic.Anthropic()) or provider, or use AsyncToolLoopHandle"
    )
