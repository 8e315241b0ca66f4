# Written by `make docs` from the tables in __init__.py.

from toolloop.inbox.asynchronous import AsyncInbox
from toolloop.inbox.hiding import ShownInput
from toolloop.inbox.inbox import Inbox
from toolloop.inbox.items import InboxCall
from toolloop.inbox.items import ShownLoop
from toolloop.inbox.items import TrailEntry
from toolloop.inbox.listing import InboxPage
from toolloop.inbox.page import inbox_app
from toolloop.inbox.watching import LoopChange

__all__ = [
    "AsyncInbox",
    "Inbox",
    "InboxCall",
    "InboxPage",
    "LoopChange",
    "ShownInput",
    "ShownLoop",
    "TrailEntry",
    "inbox_app",
]
