"""Where loops are kept: stores of journals, and the snapshot format."""

# ruff: noqa: TC004 - what `__all__` names is imported by the door, when somebody asks for it
from typing import TYPE_CHECKING

from toolloop._doors import door

if TYPE_CHECKING:
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

door(
    __name__,
    {
        "toolloop.stores.audit": ("Action", "Audit", "Breach", "audit"),
        "toolloop.stores.codec": ("dump", "load"),
        "toolloop.stores.events": ("decode_event", "encode_event", "read_journal"),
        "toolloop.stores.formats": ("FORMAT",),
        "toolloop.stores.memory": ("MemoryStore",),
        "toolloop.stores.protocol": ("Entry", "Head", "Lease", "Store", "StoredJournal", "StoredLoop"),
        "toolloop.stores.sqlite": ("SqliteStore",),
    },
)
