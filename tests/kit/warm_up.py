"""What a process does before it forks, so that none of its children has to; and the client that they have."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module

import anthropic

from toolloop import MemoryStore, ToolLoopHandle, tool
from toolloop.testing import ScriptedProvider, call, reply

_LOADED = (
    "anthropic.resources.beta.messages",
    "anthropic.resources.messages",
    "anyio._backends._asyncio",
    "httpcore2",
    "toolloop.stores.sqlite.store",
)


def async_client(url: str) -> anthropic.AsyncAnthropic:
    """Return a client of the API at an address, without proxies, certificates and retries."""
    http = anthropic.DefaultAsyncHttpxClient(trust_env=False, verify=False)
    return anthropic.AsyncAnthropic(api_key="test-key", base_url=url, max_retries=0, http_client=http)


@tool
def _look() -> str:
    """Look."""
    return "seen"


def warm_up(*modules: str) -> None:
    """Load these modules, and what a client and a loop load at their first use. No thread and no connection is left."""
    for name in (*_LOADED, *modules):
        with suppress(ImportError):
            import_module(name)
    anthropic.Anthropic(api_key="test-key", http_client=anthropic.DefaultHttpxClient(verify=False)).close()
    params = {"model": "claude-opus-5-5", "max_tokens": 100, "messages": [{"role": "user", "content": "Look."}]}
    provider = ScriptedProvider([reply(calls=[call("_look", {})]), reply("Done.")])
    with ToolLoopHandle.open(MemoryStore(), "warm", provider, params=params, tools=[_look]) as handle:
        handle.run().unwrap()
