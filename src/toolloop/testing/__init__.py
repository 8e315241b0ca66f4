"""The test kit: a fake Messages API over real HTTP, scripted providers, and a conformance suite for stores."""

from toolloop.providers.scripted import AsyncScript, AsyncScriptedProvider, Script, ScriptedProvider
from toolloop.testing.api.answers import APIScript
from toolloop.testing.api.replies import (
    Block,
    Delayed,
    Fault,
    Verbatim,
    call,
    compacted,
    delayed,
    dropped,
    fault,
    html,
    reply,
    server_call,
    server_result,
    verbatim,
)
from toolloop.testing.api.server import FakeMessagesAPI, RecordedRequest
from toolloop.testing.api.streams import RecordedStream, Streamed, streamed
from toolloop.testing.api.threads import RefuseThread
from toolloop.testing.crash import Crash, CrashReport, crash_everywhere
from toolloop.testing.stores.rules import check_store

__all__ = [
    "APIScript",
    "AsyncScript",
    "AsyncScriptedProvider",
    "Block",
    "Crash",
    "CrashReport",
    "Delayed",
    "FakeMessagesAPI",
    "Fault",
    "RecordedRequest",
    "RecordedStream",
    "RefuseThread",
    "Script",
    "ScriptedProvider",
    "Streamed",
    "Verbatim",
    "call",
    "check_store",
    "compacted",
    "crash_everywhere",
    "delayed",
    "dropped",
    "fault",
    "html",
    "reply",
    "server_call",
    "server_result",
    "streamed",
    "verbatim",
]
