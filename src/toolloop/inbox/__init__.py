"""Show stored loops and decide their calls, without a client, tools or parameters."""

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolloop.inbox.asynchronous import AsyncInbox
    from toolloop.inbox.inbox import Inbox
    from toolloop.inbox.items import HistoryEntry, InboxCall, InboxPage, ShownLoop
    from toolloop.inbox.page import inbox_app

__all__ = ["AsyncInbox", "HistoryEntry", "Inbox", "InboxCall", "InboxPage", "ShownLoop", "inbox_app"]

_ORIGIN = {
    "toolloop.inbox.asynchronous": ("AsyncInbox",),
    "toolloop.inbox.inbox": ("Inbox",),
    "toolloop.inbox.items": ("HistoryEntry", "InboxCall", "InboxPage", "ShownLoop"),
    "toolloop.inbox.page": ("inbox_app",),
}


if not TYPE_CHECKING:  # with a module-level `__getattr__`, a type checker would accept every name

    def __getattr__(name: str) -> object:
        """Import a public name on first use (PEP 562)."""
        for module, names in _ORIGIN.items():
            if name in names:
                import_module("toolloop.machine")  # all of it: threads that import parts could deadlock
                value = globals()[name] = getattr(import_module(module), name)
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])

    def __dir__() -> list[str]:
        """Return the public names."""
        return __all__
