"""A caller-driven, resumable tool loop for the Messages API of Claude.

Start with `ToolLoopHandle`; the README has a complete program. Other public names are in modules: `toolloop.errors`,
`.terminations`, `.events`, `.history`, `.machine`, `.prices`, `.providers`, `.stores`, `.tools`, `.types`, `.testing`.
"""

from toolloop._names import lazy_names

__version__ = "0.1.0"

# The one list of the public names. `make docs` writes the stub, which type checkers read, from it.
_ORIGIN = {
    "toolloop.machine.values.setup": ("Budget", "KeepResults", "LoopDetection", "Texts"),
    "toolloop._usage": ("Cost", "IterationUsage", "ModelUsage", "Usage"),
    "toolloop.machine.values.calls": (
        "Answer",
        "Approve",
        "Continue",
        "Deny",
        "Grant",
        "InjectMessages",
        "Rerun",
        "Stop",
    ),
    "toolloop.machine.values.demands": ("Ask",),
    "toolloop.machine.values.names": ("Person",),
    "toolloop.inbox.asynchronous": ("AsyncInbox",),
    "toolloop.inbox.inbox": ("Inbox",),
    "toolloop._handles.asynchronous": ("AsyncToolLoopHandle",),
    "toolloop._interface.config": ("LoopConfig", "LoopContext"),
    "toolloop._runner.runners": ("AsyncToolRunner", "ToolRunner"),
    "toolloop._engine.sub_loops": ("sub_loop",),
    "toolloop._handles.sync": ("ToolLoopHandle",),
    "toolloop._interface.loop_view": ("LoopView",),
    "toolloop._interface.results": ("Completed", "Error", "ToolLoopResult", "Yielded"),
    "toolloop._interface.calls": ("PolicyView",),
    "toolloop.tools.calls": ("ToolCall", "ToolResult"),
    "toolloop.stores.memory": ("MemoryStore",),
    "toolloop.stores.sqlite.store": ("SqliteStore",),
    "toolloop.tools.context": ("ToolContext",),
    "toolloop.tools.tool_errors": ("ToolError",),
    "toolloop.tools.function": ("Tool", "tool"),
    "toolloop.tools.registry": ("ToolRegistry",),
    "toolloop._worker.asynchronous": ("AsyncWorker",),
    "toolloop._worker.sync": ("Worker",),
}
_MODULES = (
    "acp",
    "agui",
    "compaction",
    "dbos",
    "errors",
    "events",
    "history",
    "inbox",
    "machine",
    "otel",
    "prices",
    "providers",
    "responses",
    "rules",
    "stores",
    "terminations",
    "testing",
    "tools",
    "types",
)
__all__, __getattr__, __dir__ = lazy_names(__name__, _ORIGIN, _MODULES, moved={"View": "toolloop:PolicyView"})
