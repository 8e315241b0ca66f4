"""The configuration of DBOS: the defaults of toolloop, and the checks."""

from __future__ import annotations

import os
import sqlite3
from typing import Any, cast

from dbos import DBOSConfig, DBOSPortableJSONSerializer
from sqlalchemy.engine import make_url

from toolloop.machine.values.jsontext import describe_type
from toolloop.stores import MemoryStore, SqliteStore
from toolloop.stores.protocol import Store

# Counts the changes to the steps of a stretch: DBOS replays a stretch only in an application of the same version.
VERSION = "toolloop-1"
# Parameters of libpq. Without them, a network that drops all packets blocks starts, decisions and sweeps for hours.
_NETWORK = {
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}


def settings_of(config: DBOSConfig, store: Store, *, drives: bool) -> DBOSConfig:
    """Return the configuration of DBOS with the defaults of toolloop.

    Args:
        config: the caller's configuration.
        store: the store with the loops.
        drives: whether this process drives loops.

    Raises:
        ValueError: a setting is missing, or two settings do not fit together.

    """
    for name in ("name", "system_database_url"):
        if not config.get(name):
            raise ValueError(f"dbos has no {name!r}; give the same one to all processes that share the loops")
    url = make_url(str(config.get("system_database_url")))
    if url.get_backend_name() == "sqlite":
        if url.database in (None, "", ":memory:"):
            raise ValueError("the system database of DBOS is in memory; give a file, such as 'sqlite:///dbos.db'")
    elif isinstance(store, SqliteStore | MemoryStore):
        raise ValueError(
            f"DBOS uses PostgreSQL, but the loops are in {describe_type(store)}, which other machines cannot read: "
            "give a PostgresStore, or let DBOS use an SQLite file"
        )
    elif drives and (config.get("executor_id") or os.environ.get("DBOS__VMID") or "local") == "local":
        raise ValueError(
            "the executor_id is 'local', the default of every process: DBOS would recover stretches that another "
            "process runs. Give each process its own executor_id, which it keeps after a restart, such as its host and "
            "number"
        )
    if url.get_backend_name() != "sqlite":
        url = url.set(query={**_NETWORK, **url.query})
    defaults: dict[str, Any] = {"application_version": VERSION, "serializer": DBOSPortableJSONSerializer()}
    given = {name: value for name, value in config.items() if value is not None}
    address = {"system_database_url": url.render_as_string(hide_password=False)}
    return cast("DBOSConfig", {**defaults, **given, **address})


def preset_wal(url: object) -> None:
    """Give an SQLite system database a write-ahead log: without one, the processes lock each other out."""
    parsed = make_url(str(url))
    if parsed.get_backend_name() == "sqlite":
        connection = sqlite3.connect(str(parsed.database))
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        finally:
            connection.close()
