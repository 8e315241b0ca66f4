"""Where the loops of an attack are: an SQLite file or a PostgreSQL database; and earlier versions of this library."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from tests.kit import postgres
from tests.kit.earlier_source import write_earlier_source
from tests.promises.attack.checkpoints import EagerStore, eager_place, path_in
from toolloop import SqliteStore

if TYPE_CHECKING:
    from toolloop.stores import PostgresStore

BEFORE = "97397d3"  # the last commit whose revisions are numbers without digests


class LeftOut(Exception):
    """An attack needs something that this machine does not have."""


def place_in(kind: str, folder: Path) -> str:
    """Return the path of an SQLite file in a folder, or the URL of a new PostgreSQL database.

    `kind`: `sqlite`, `checkpoints` (SQLite with a checkpoint after each turn), or `postgres`.

    Raises:
        LeftOut: there is no PostgreSQL on this machine.

    """
    if kind == "sqlite":
        return os.fspath(folder / "loops.db")
    if kind == "checkpoints":
        return eager_place(folder / "loops.db")
    if postgres.programs() is None:
        raise LeftOut("no PostgreSQL here: apt-get install postgresql")
    return postgres.database()


def open_store(place: str, *, lease_seconds: float | None = None) -> SqliteStore | PostgresStore:
    """Open the store at a path or URL. `lease_seconds`: shorter than a store takes as an argument."""
    store: SqliteStore | PostgresStore
    if (path := path_in(place)) is not None:
        store = EagerStore(path)
    elif "://" in place:
        from toolloop.stores import PostgresStore  # noqa: PLC0415 - psycopg may not be there

        store = PostgresStore(place)
    else:
        store = SqliteStore(place)
    if lease_seconds is not None:
        store.lease_seconds = lease_seconds
    return store


def earlier_source(folder: Path) -> Path:
    """Write the code of an earlier version into a folder, and return the folder with its package.

    Raises:
        LeftOut: the history of the repository is not there.

    """
    if (source := write_earlier_source(BEFORE, folder)) is None:
        raise LeftOut("this is not a clone with the history of the earlier version")
    return source
