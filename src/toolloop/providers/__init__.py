"""What answers model requests."""

from toolloop.providers.accumulate import accumulate
from toolloop.providers.anthropic import AnthropicProvider, AsyncAnthropicProvider
from toolloop.providers.choose import provider_for
from toolloop.providers.options import OPTION_NAMES, SECRET_OPTIONS, given
from toolloop.providers.protocol import (
    AsyncProvider,
    AsyncStreamingProvider,
    Provider,
    Reply,
    Request,
    StreamingProvider,
)
from toolloop.providers.sdk import as_sdk

__all__ = [
    "OPTION_NAMES",
    "SECRET_OPTIONS",
    "AnthropicProvider",
    "AsyncAnthropicProvider",
    "AsyncProvider",
    "AsyncStreamingProvider",
    "Provider",
    "Reply",
    "Request",
    "StreamingProvider",
    "accumulate",
    "as_sdk",
    "given",
    "provider_for",
]
