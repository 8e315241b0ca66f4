"""Backups of the stores of tests, and their restores: in place, or by another file at the same path."""

from __future__ import annotations

import copy
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.kit.postgres import database, in_postgres
from toolloop.stores import MemoryStore, SqliteStore, Store

Restore = Callable[[], None]
_NUMBERS = count()

each_restore = pytest.mark.parametrize("way", ["memory", "in place", "replaced", in_postgres])


@cache
def _database() -> str:
    return database()


def _empty_database() -> str:
    """One for all tests of a process: creating it takes longer than what they do."""
    import psycopg  # noqa: PLC0415 - not every test has it

    with psycopg.connect(_database(), autocommit=True) as db:
        db.execute("DROP SCHEMA IF EXISTS toolloop CASCADE")
    return _database()


class Backups:
    """A store, and another one on the same content, as another process has it.

    Attributes:
        store: the store.
        other: the other one.

    """

    def __init__(self, way: str, folder: Path) -> None:
        self.way = way
        self.path = folder / f"loops-{next(_NUMBERS)}.db"
        self.url = _empty_database() if way == "postgres" else ""
        self.store: Store = self._open()
        self.other: Store = self.store if way == "memory" else self._open()

    def _open(self) -> Any:
        if self.way == "postgres":
            from toolloop.stores import PostgresStore  # noqa: PLC0415 - likewise

            return PostgresStore(self.url, pool_size=2)
        return MemoryStore() if self.way == "memory" else SqliteStore(self.path)

    def close(self) -> None:
        for store in (self.store, self.other):
            if not isinstance(store, MemoryStore):
                store.close()  # type: ignore[attr-defined]  # each store in a database has it

    def back_up(self) -> Restore:
        """Make a backup, and return the function that restores it."""
        if isinstance(self.store, MemoryStore):
            return self._of_memory(self.store)
        return self._of_tables() if self.url else self._of_file()

    def _of_memory(self, store: MemoryStore) -> Restore:
        kept = copy.deepcopy(store._loops)

        def restore() -> None:
            store._loops = copy.deepcopy(kept)

        return restore

    def _of_file(self) -> Restore:
        backup = self.path.with_name(f"backup-{next(_NUMBERS)}.db")
        with closing(sqlite3.connect(self.path)) as source, closing(sqlite3.connect(backup)) as target:
            source.backup(target)

        def restore() -> None:
            if self.way == "in place":  # as `.restore` of the `sqlite3` shell does
                with closing(sqlite3.connect(backup)) as source, closing(sqlite3.connect(self.path)) as target:
                    source.backup(target)
                return
            fresh = backup.with_suffix(".new")
            shutil.copy(backup, fresh)
            os.replace(fresh, self.path)  # noqa: PTH105 - what restore scripts do
            for suffix in ("-wal", "-shm"):
                Path(f"{self.path}{suffix}").unlink(missing_ok=True)

        return restore

    def _of_tables(self) -> Restore:
        kept = [(table, self._sql(f"SELECT * FROM toolloop.{table}")) for table in ("loops", "events")]

        def restore() -> None:
            import psycopg  # noqa: PLC0415 - likewise

            with psycopg.connect(self.url) as db:  # one transaction, as `pg_restore --single-transaction`
                db.execute("DELETE FROM toolloop.loops")
                for table, rows in kept:
                    for row in rows:
                        places = ", ".join(["%s"] * len(row))
                        query = f"INSERT INTO toolloop.{table} OVERRIDING SYSTEM VALUE VALUES ({places})"
                        db.execute(query.encode(), row)

        return restore

    def _sql(self, query: str) -> list[Any]:
        import psycopg  # noqa: PLC0415 - likewise

        with psycopg.connect(self.url, autocommit=True) as db:
            return db.execute(query.encode()).fetchall()
