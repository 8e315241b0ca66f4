"""The configuration of DBOS: what toolloop needs of it, and what cannot work."""

from __future__ import annotations

import os
import sqlite3
from typing import Any, cast

from dbos import DBOSConfig, DBOSPortableJSONSerializer
from sqlalchemy.engine import make_url

from toolloop.machine.jsontext import a_type
from toolloop.stores import MemoryStore, SqliteStore
from toolloop.stores.protocol import Store

# Counts the orders of steps that a stretch has had: DBOS replays a stretch only in an application of its own version.
VERSION = "toolloop-1"
# Else a network that forwards nothing holds a start, a decision and the sweeps up for hours. Parameters of libpq.
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
        config: as the caller gave it.
        store: where the loops are.
        drives: whether this process drives loops.

    Raises:
        ValueError: something is missing, or two parts do not fit.

    """
    for name in ("name", "system_database_url"):
        if not config.get(name):
            raise ValueError(f"dbos has no {name!r}; the processes that share the loops must name the same one")
    url = make_url(str(config.get("system_database_url")))
    if url.get_backend_name() == "sqlite":
        if url.database in (None, "", ":memory:"):
            raise ValueError("the system database of DBOS is in memory; give the path of a file: 'sqlite:///dbos.db'")
    elif isinstance(store, SqliteStore | MemoryStore):
        raise ValueError(
            f"DBOS is on PostgreSQL, and the loops are in {a_type(store)}, which other machines cannot read: "
            "give a PostgresStore, or let DBOS use a SQLite file"
        )
    elif drives and (config.get("executor_id") or os.environ.get("DBOS__VMID") or "local") == "local":
        raise ValueError(
            "the executor_id is 'local', as in any other process: DBOS would take the stretches that another one runs "
            "for its own. Give each process an executor_id that it keeps when it is started again, such as its host "
            "and number"
        )
    if url.get_backend_name() != "sqlite":
        url = url.set(query={**_NETWORK, **url.query})
    defaults: dict[str, Any] = {"application_version": VERSION, "serializer": DBOSPortableJSONSerializer()}
    given = {name: value for name, value in config.items() if value is not None}
    address = {"system_database_url": url.render_as_string(hide_password=False)}
    return cast("DBOSConfig", {**defaults, **given, **address})


def preset_wal(url: object) -> None:
    """Let a SQLite system database use a write-ahead log: without one, the processes lock each other out."""
    parsed = make_url(str(url))
    if parsed.get_backend_name() == "sqlite":
        connection = sqlite3.connect(str(parsed.database))
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        finally:
            connection.close()
