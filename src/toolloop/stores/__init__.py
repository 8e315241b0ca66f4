"""The stores of journals, and the stored format."""

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolloop.stores.codec import FORMAT, decode_event, dump, encode_event, load, read_journal
    from toolloop.stores.memory import MemoryStore
    from toolloop.stores.pending import PendingCall
    from toolloop.stores.postgres.store import PostgresStore
    from toolloop.stores.protocol import Entry, Head, Lease, Store, StoredJournal, StoredLoop
    from toolloop.stores.sqlite.store import SqliteStore

__all__ = [
    "FORMAT",
    "Entry",
    "Head",
    "Lease",
    "MemoryStore",
    "PendingCall",
    "PostgresStore",
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

_ORIGIN = {
    "toolloop.stores.codec": ("FORMAT", "decode_event", "dump", "encode_event", "load", "read_journal"),
    "toolloop.stores.memory": ("MemoryStore",),
    "toolloop.stores.pending": ("PendingCall",),
    "toolloop.stores.postgres.store": ("PostgresStore",),
    "toolloop.stores.protocol": ("Entry", "Head", "Lease", "Store", "StoredJournal", "StoredLoop"),
    "toolloop.stores.sqlite.store": ("SqliteStore",),
}


if not TYPE_CHECKING:  # with a module-level `__getattr__`, a type checker would assume that every name exists

    def __getattr__(name: str) -> object:
        """Import a public name at its first use (PEP 562)."""
        for module, names in _ORIGIN.items():
            if name in names:
                import_module("toolloop.machine")  # as a whole: threads that import parts of it may deadlock
                value = globals()[name] = getattr(import_module(module), name)
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])

    def __dir__() -> list[str]:
        """Return the public names."""
        return __all__
