"""How a loop is kept: the snapshot format."""

from toolloop.stores.codec import FORMAT, dump, load

__all__ = ["FORMAT", "dump", "load"]
