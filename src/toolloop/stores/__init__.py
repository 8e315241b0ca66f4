"""The stores of journals, and the stored format.

Not here: rules of a loop; a store keeps texts in order, and only the codec reads them.
"""

from toolloop._names import lazy_names

# The one list of the public names. `make docs` writes the stub, which type checkers read, from it.
_ORIGIN = {
    "toolloop.stores.arguments": ("MetadataFilter",),
    "toolloop.stores.codec": ("FORMAT", "decode_event", "dump", "encode_event", "load", "read_journal"),
    "toolloop.stores.memory": ("MemoryStore",),
    "toolloop.stores.pending": ("PendingCall",),
    "toolloop.stores.postgres.store": ("PostgresStore",),
    "toolloop.stores.protocol": ("Entry", "Head", "Lease", "Left", "Store", "StoredJournal", "StoredLoop"),
    "toolloop.stores.revisions": ("Revision",),
    "toolloop.stores.sqlite.store": ("SqliteStore",),
}
__all__, __getattr__, __dir__ = lazy_names(__name__, _ORIGIN)
