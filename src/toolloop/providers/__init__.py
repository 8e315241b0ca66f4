"""Providers, which answer model requests."""

from toolloop.providers.accumulate import accumulate
from toolloop.providers.anthropic import AnthropicProvider, AsyncAnthropicProvider, provider_for
from toolloop.providers.protocol import (
    OPTION_NAMES,
    SECRET_OPTIONS,
    AsyncProvider,
    AsyncStreamingProvider,
    Provider,
    Reply,
    Request,
    StreamingProvider,
    given,
)
from toolloop.providers.replies import as_sdk
from toolloop.providers.streaming import AsyncEventStream, EventStream
from toolloop.providers.threads import ThreadedRequest

__all__ = [
    "OPTION_NAMES",
    "SECRET_OPTIONS",
    "AnthropicProvider",
    "AsyncAnthropicProvider",
    "AsyncEventStream",
    "AsyncProvider",
    "AsyncStreamingProvider",
    "EventStream",
    "Provider",
    "Reply",
    "Request",
    "StreamingProvider",
    "ThreadedRequest",
    "accumulate",
    "as_sdk",
    "given",
    "provider_for",
]
