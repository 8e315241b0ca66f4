"""Show stored loops and decide their calls, without a client, tools or parameters.

Not here: tools and model requests; an inbox never starts a call.
"""

from toolloop._names import lazy_names

# The one list of the public names. `make docs` writes the stub, which type checkers read, from it.
_ORIGIN = {
    "toolloop.inbox.asynchronous": ("AsyncInbox",),
    "toolloop._journal.records": ("derive_message_id",),
    "toolloop._journal.statistics": ("Statistics", "Waits"),
    "toolloop.inbox.auditing": ("audit", "recount"),
    "toolloop.inbox.export.verifying": ("verify_trail",),
    "toolloop.inbox.export.writing": ("export_trail",),
    "toolloop.inbox.hiding": ("ShownInput",),
    "toolloop.inbox.inbox": ("Inbox",),
    "toolloop.inbox.items": ("InboxCall", "LeftView", "ResultView", "ShownLoop", "TrailEntry"),
    "toolloop.inbox.live": ("EventReader", "LiveEvents"),
    "toolloop.inbox.listing": ("InboxCounts", "InboxPage"),
    "toolloop.inbox.page": ("inbox_app",),
    "toolloop.inbox.restoring": ("mark_restored",),
    "toolloop.inbox.rights.offers": ("Offer",),
    "toolloop.inbox.rights.rights": ("Action", "May", "Seen", "Sees"),
    "toolloop.inbox.transcript": ("MessagePart", "escape_hidden", "read_parts"),
    "toolloop.inbox.watching": ("LoopChange", "retry_store_errors"),
}
__all__, __getattr__, __dir__ = lazy_names(__name__, _ORIGIN, moved={"HistoryEntry": "toolloop.inbox:TrailEntry"})
