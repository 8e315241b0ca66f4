"""The test kit: a fake Messages API over real HTTP, scripted providers, and a conformance suite for stores.

Not here: anything that the library needs at run time.
"""

from toolloop._public import export as _export
from toolloop.providers.scripted import (
    AsyncScript as AsyncScript,
    AsyncScriptedProvider as AsyncScriptedProvider,
    Script as Script,
    ScriptedProvider as ScriptedProvider,
)
from toolloop.testing.api.answers import APIScript as APIScript
from toolloop.testing.api.conversations import RefuseThread as RefuseThread
from toolloop.testing.api.replies import (
    Block as Block,
    Delayed as Delayed,
    Dropped as Dropped,
    Fault as Fault,
    Verbatim as Verbatim,
    call as call,
    compacted as compacted,
    delayed as delayed,
    dropped as dropped,
    fault as fault,
    html as html,
    reply as reply,
    server_call as server_call,
    server_result as server_result,
    verbatim as verbatim,
)
from toolloop.testing.api.server import FakeMessagesAPI as FakeMessagesAPI, RecordedRequest as RecordedRequest
from toolloop.testing.api.streams import RecordedStream as RecordedStream, Streamed as Streamed, streamed as streamed
from toolloop.testing.contexts import tool_context as tool_context
from toolloop.testing.crash import Crash as Crash, CrashReport as CrashReport, crash_everywhere as crash_everywhere
from toolloop.testing.stores.rules import check_store as check_store

_export(globals())
