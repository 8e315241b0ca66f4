"""A caller-driven, resumable tool loop for the Messages API of Claude.

Start with `ToolLoopHandle`; the README has a complete program. Other public names are in modules: `toolloop.errors`,
`.terminations`, `.events`, `.history`, `.machine`, `.providers`, `.stores`, `.tools`, `.types`, `.testing`.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolloop import (
        compaction as compaction,
    )
    from toolloop import (
        errors as errors,
    )
    from toolloop import (
        events as events,
    )
    from toolloop import (
        history as history,
    )
    from toolloop import (
        inbox as inbox,
    )
    from toolloop import (
        machine as machine,
    )
    from toolloop import (
        otel as otel,
    )
    from toolloop import (
        providers as providers,
    )
    from toolloop import (
        responses as responses,
    )
    from toolloop import (
        stores as stores,
    )
    from toolloop import (
        terminations as terminations,
    )
    from toolloop import (
        testing as testing,
    )
    from toolloop import (
        tools as tools,
    )
    from toolloop import (
        types as types,
    )
    from toolloop._engine.sub_loops import sub_loop
    from toolloop._handles.asynchronous import AsyncToolLoopHandle
    from toolloop._handles.sync import ToolLoopHandle
    from toolloop._interface.calls import View
    from toolloop._interface.config import LoopConfig, LoopContext
    from toolloop._interface.loop_view import LoopView
    from toolloop._interface.results import Completed, Error, ToolLoopResult, Yielded
    from toolloop._runner.runners import AsyncToolRunner, ToolRunner
    from toolloop._worker.asynchronous import AsyncWorker
    from toolloop._worker.sync import Worker
    from toolloop.inbox.asynchronous import AsyncInbox
    from toolloop.inbox.inbox import Inbox
    from toolloop.machine.values.calls import Answer, Approve, Ask, Continue, Deny, Grant, InjectMessages, Rerun, Stop
    from toolloop.machine.values.setup import Budget, LoopDetection, Texts
    from toolloop.machine.values.usage import IterationUsage, Usage
    from toolloop.stores.memory import MemoryStore
    from toolloop.stores.sqlite.store import SqliteStore
    from toolloop.tools.calls import ToolCall, ToolResult
    from toolloop.tools.context import ToolContext
    from toolloop.tools.failures import ToolError
    from toolloop.tools.function import Tool, tool
    from toolloop.tools.registry import ToolRegistry

__version__ = "0.1.0"

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
    "Deny",
    "Error",
    "Grant",
    "Inbox",
    "InjectMessages",
    "IterationUsage",
    "LoopConfig",
    "LoopContext",
    "LoopDetection",
    "LoopView",
    "MemoryStore",
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
    "View",
    "Worker",
    "Yielded",
    "sub_loop",
    "tool",
]

_ORIGIN = {
    "toolloop.machine.values.setup": ("Budget", "LoopDetection", "Texts"),
    "toolloop.machine.values.usage": ("IterationUsage", "Usage"),
    "toolloop.machine.values.calls": (
        "Answer",
        "Approve",
        "Ask",
        "Continue",
        "Deny",
        "Grant",
        "InjectMessages",
        "Rerun",
        "Stop",
    ),
    "toolloop.inbox.asynchronous": ("AsyncInbox",),
    "toolloop.inbox.inbox": ("Inbox",),
    "toolloop._handles.asynchronous": ("AsyncToolLoopHandle",),
    "toolloop._interface.config": ("LoopConfig", "LoopContext"),
    "toolloop._runner.runners": ("AsyncToolRunner", "ToolRunner"),
    "toolloop._engine.sub_loops": ("sub_loop",),
    "toolloop._handles.sync": ("ToolLoopHandle",),
    "toolloop._interface.loop_view": ("LoopView",),
    "toolloop._interface.results": ("Completed", "Error", "ToolLoopResult", "Yielded"),
    "toolloop._interface.calls": ("View",),
    "toolloop.tools.calls": ("ToolCall", "ToolResult"),
    "toolloop.stores.memory": ("MemoryStore",),
    "toolloop.stores.sqlite.store": ("SqliteStore",),
    "toolloop.tools.context": ("ToolContext",),
    "toolloop.tools.failures": ("ToolError",),
    "toolloop.tools.function": ("Tool", "tool"),
    "toolloop.tools.registry": ("ToolRegistry",),
    "toolloop._worker.asynchronous": ("AsyncWorker",),
    "toolloop._worker.sync": ("Worker",),
}
_MODULES = (
    "compaction",
    "dbos",
    "errors",
    "events",
    "history",
    "inbox",
    "machine",
    "otel",
    "providers",
    "responses",
    "stores",
    "terminations",
    "testing",
    "tools",
    "types",
)


if not TYPE_CHECKING:  # to a type checker, a module-level `__getattr__` means that every name exists

    def __getattr__(name: str) -> object:
        """Import a public name at its first use (PEP 562)."""
        for module, names in _ORIGIN.items():
            if name in names:
                import_module("toolloop.machine")  # as a whole: threads that import parts of it may wait for each other
                value = globals()[name] = getattr(import_module(module), name)
                return value
        if name in _MODULES:
            return import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])

    def __dir__() -> list[str]:
        """Return the public names."""
        return [*__all__, *_MODULES]
