"""Providers, which answer model requests.

Not here: changes of a loop; a provider gets a request and returns a reply.
"""

from toolloop._public import export as _export
from toolloop.providers.accumulate import accumulate as accumulate
from toolloop.providers.anthropic import (
    AnthropicProvider as AnthropicProvider,
    AsyncAnthropicProvider as AsyncAnthropicProvider,
    provider_for as provider_for,
)
from toolloop.providers.message_threads import ThreadedRequest as ThreadedRequest
from toolloop.providers.protocol import (
    OPTION_NAMES as OPTION_NAMES,
    SECRET_OPTIONS as SECRET_OPTIONS,
    AsyncProvider as AsyncProvider,
    AsyncStreamingProvider as AsyncStreamingProvider,
    Provider as Provider,
    Reply as Reply,
    Request as Request,
    StreamingProvider as StreamingProvider,
    given as given,
)
from toolloop.providers.replies import as_sdk as as_sdk
from toolloop.providers.streaming import AsyncEventStream as AsyncEventStream, EventStream as EventStream

_export(globals())
