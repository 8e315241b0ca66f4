"""The test kit: a fake Messages API over real HTTP, scripted providers, and a conformance suite for stores."""

from toolloop.providers.scripted import AsyncScript, AsyncScriptedProvider, Script, ScriptedProvider
from toolloop.testing.answers import APIScript
from toolloop.testing.crash import Crash, CrashReport, crash_everywhere
from toolloop.testing.replies import (
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
from toolloop.testing.server import FakeMessagesAPI, RecordedRequest
from toolloop.testing.store_rules import check_store
from toolloop.testing.streams import RecordedStream, Streamed, streamed
from toolloop.testing.threads import RefuseThread

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
