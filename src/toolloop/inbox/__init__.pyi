# Written by `make docs` from the tables in __init__.py.

from toolloop.inbox.asynchronous import AsyncInbox
from toolloop._journal.records import derive_message_id
from toolloop._journal.statistics import Statistics
from toolloop._journal.statistics import Waits
from toolloop.inbox.auditing import audit
from toolloop.inbox.auditing import recount
from toolloop.inbox.export.verifying import verify_trail
from toolloop.inbox.export.writing import export_trail
from toolloop.inbox.hiding import ShownInput
from toolloop.inbox.inbox import Inbox
from toolloop.inbox.items import InboxCall
from toolloop.inbox.items import LeftView
from toolloop.inbox.items import ResultView
from toolloop.inbox.items import ShownLoop
from toolloop.inbox.items import TrailEntry
from toolloop.inbox.live import EventReader
from toolloop.inbox.live import LiveEvents
from toolloop.inbox.listing import InboxCounts
from toolloop.inbox.listing import InboxPage
from toolloop.inbox.page import inbox_app
from toolloop.inbox.restoring import mark_restored
from toolloop.inbox.rights.offers import Offer
from toolloop.inbox.rights.rights import Action
from toolloop.inbox.rights.rights import May
from toolloop.inbox.rights.rights import Seen
from toolloop.inbox.rights.rights import Sees
from toolloop.inbox.transcript import MessagePart
from toolloop.inbox.transcript import escape_hidden
from toolloop.inbox.transcript import read_parts
from toolloop.inbox.watching import LoopChange
from toolloop.inbox.watching import retry_store_errors

__all__ = [
    "Action",
    "AsyncInbox",
    "EventReader",
    "Inbox",
    "InboxCall",
    "InboxCounts",
    "InboxPage",
    "LeftView",
    "LiveEvents",
    "LoopChange",
    "May",
    "MessagePart",
    "Offer",
    "ResultView",
    "Seen",
    "Sees",
    "ShownInput",
    "ShownLoop",
    "Statistics",
    "TrailEntry",
    "Waits",
    "audit",
    "derive_message_id",
    "escape_hidden",
    "export_trail",
    "inbox_app",
    "mark_restored",
    "read_parts",
    "recount",
    "retry_store_errors",
    "verify_trail",
]
