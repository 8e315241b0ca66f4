# Written by `make docs` from the tables in __init__.py.

from toolloop.stores.arguments import MetadataFilter
from toolloop.stores.codec import FORMAT
from toolloop.stores.codec import decode_event
from toolloop.stores.codec import dump
from toolloop.stores.codec import encode_event
from toolloop.stores.codec import load
from toolloop.stores.codec import read_journal
from toolloop.stores.memory import MemoryStore
from toolloop.stores.pending import PendingCall
from toolloop.stores.postgres.store import PostgresStore
from toolloop.stores.protocol import Entry
from toolloop.stores.protocol import Head
from toolloop.stores.protocol import Lease
from toolloop.stores.protocol import Left
from toolloop.stores.protocol import Store
from toolloop.stores.protocol import StoredJournal
from toolloop.stores.protocol import StoredLoop
from toolloop.stores.revisions import Revision
from toolloop.stores.sqlite.store import SqliteStore

__all__ = [
    "Entry",
    "FORMAT",
    "Head",
    "Lease",
    "Left",
    "MemoryStore",
    "MetadataFilter",
    "PendingCall",
    "PostgresStore",
    "Revision",
    "SqliteStore",
    "Store",
    "StoredJournal",
    "StoredLoop",
    "decode_event",
    "dump",
    "encode_event",
    "load",
    "read_journal",
]
