"""What answers model requests."""

# ruff: noqa: TC004 - what `__all__` names is imported by the door, when somebody asks for it
from typing import TYPE_CHECKING

from toolloop._doors import door

if TYPE_CHECKING:
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

door(
    __name__,
    {
        "toolloop.providers.accumulate": ("accumulate",),
        "toolloop.providers.anthropic": ("AnthropicProvider", "AsyncAnthropicProvider"),
        "toolloop.providers.choose": ("provider_for",),
        "toolloop.providers.options": ("OPTION_NAMES", "SECRET_OPTIONS", "given"),
        "toolloop.providers.protocol": (
            "AsyncProvider",
            "AsyncStreamingProvider",
            "Provider",
            "Reply",
            "Request",
            "StreamingProvider",
        ),
        "toolloop.providers.sdk": ("as_sdk",),
    },
)
