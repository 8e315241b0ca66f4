"""Where loops are kept: stores of journals, and the snapshot format."""

from toolloop.stores.audit import Action, Audit, Breach, audit
from toolloop.stores.codec import dump, load
from toolloop.stores.events import decode_event, encode_event, read_journal
from toolloop.stores.formats import FORMAT
from toolloop.stores.memory import MemoryStore
from toolloop.stores.protocol import Entry, Head, Lease, Store, StoredJournal, StoredLoop
from toolloop.stores.sqlite import SqliteStore

__all__ = [
    "FORMAT",
    "Action",
    "Audit",
    "Breach",
    "Entry",
    "Head",
    "Lease",
    "MemoryStore",
    "SqliteStore",
    "Store",
    "StoredJournal",
    "StoredLoop",
    "audit",
    "decode_event",
    "dump",
    "encode_event",
    "load",
    "read_journal",
]
