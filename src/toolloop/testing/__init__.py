"""What to test a tool loop with: a fake Messages API over real HTTP, and providers that answer from a script."""

from toolloop.providers.scripted import AsyncScriptedProvider, ScriptedProvider
from toolloop.testing.replies import (
    call,
    delayed,
    dropped,
    fault,
    html,
    reply,
    server_call,
    server_result,
    verbatim,
)
from toolloop.testing.server import FakeMessagesAPI, RecordedRequest

__all__ = [
    "AsyncScriptedProvider",
    "FakeMessagesAPI",
    "RecordedRequest",
    "ScriptedProvider",
    "call",
    "delayed",
    "dropped",
    "fault",
    "html",
    "reply",
    "server_call",
    "server_result",
    "verbatim",
]
