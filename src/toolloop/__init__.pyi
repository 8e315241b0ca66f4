# Written by `make docs` from the tables in __init__.py.

from . import acp as acp
from . import agui as agui
from . import compaction as compaction
from . import dbos as dbos
from . import errors as errors
from . import events as events
from . import history as history
from . import inbox as inbox
from . import machine as machine
from . import otel as otel
from . import prices as prices
from . import providers as providers
from . import responses as responses
from . import rules as rules
from . import stores as stores
from . import terminations as terminations
from . import testing as testing
from . import tools as tools
from . import types as types
from toolloop.machine.values.setup import Budget
from toolloop.machine.values.setup import KeepResults
from toolloop.machine.values.setup import LoopDetection
from toolloop.machine.values.setup import Texts
from toolloop._usage import Cost
from toolloop._usage import IterationUsage
from toolloop._usage import ModelUsage
from toolloop._usage import Usage
from toolloop.machine.values.calls import Answer
from toolloop.machine.values.calls import Approve
from toolloop.machine.values.calls import Continue
from toolloop.machine.values.calls import Deny
from toolloop.machine.values.calls import Grant
from toolloop.machine.values.calls import InjectMessages
from toolloop.machine.values.calls import Rerun
from toolloop.machine.values.calls import Stop
from toolloop.machine.values.demands import Ask
from toolloop.machine.values.names import Person
from toolloop.inbox.asynchronous import AsyncInbox
from toolloop.inbox.inbox import Inbox
from toolloop._handles.asynchronous import AsyncToolLoopHandle
from toolloop._interface.config import LoopConfig
from toolloop._interface.config import LoopContext
from toolloop._runner.runners import AsyncToolRunner
from toolloop._runner.runners import ToolRunner
from toolloop._engine.sub_loops import sub_loop
from toolloop._handles.sync import ToolLoopHandle
from toolloop._interface.loop_view import LoopView
from toolloop._interface.results import Completed
from toolloop._interface.results import Error
from toolloop._interface.results import ToolLoopResult
from toolloop._interface.results import Yielded
from toolloop._interface.calls import PolicyView
from toolloop.tools.calls import ToolCall
from toolloop.tools.calls import ToolResult
from toolloop.stores.memory import MemoryStore
from toolloop.stores.sqlite.store import SqliteStore
from toolloop.tools.context import ToolContext
from toolloop.tools.tool_errors import ToolError
from toolloop.tools.function import Tool
from toolloop.tools.function import tool
from toolloop.tools.registry import ToolRegistry
from toolloop._worker.asynchronous import AsyncWorker
from toolloop._worker.sync import Worker

__version__: str

__all__ = [
    "Answer",
    "Approve",
    "Ask",
    "AsyncInbox",
    "AsyncToolLoopHandle",
    "AsyncToolRunner",
    "AsyncWorker",
    "Budget",
    "Completed",
    "Continue",
    "Cost",
    "Deny",
    "Error",
    "Grant",
    "Inbox",
    "InjectMessages",
    "IterationUsage",
    "KeepResults",
    "LoopConfig",
    "LoopContext",
    "LoopDetection",
    "LoopView",
    "MemoryStore",
    "ModelUsage",
    "Person",
    "PolicyView",
    "Rerun",
    "SqliteStore",
    "Stop",
    "Texts",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolError",
    "ToolLoopHandle",
    "ToolLoopResult",
    "ToolRegistry",
    "ToolResult",
    "ToolRunner",
    "Usage",
    "Worker",
    "Yielded",
    "sub_loop",
    "tool",
]
