"""The process that forks all others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kit.fork_server import ForkServer
from tests.kit.postgres import database, needs_postgres
from tests.kit.warm_python import warm
from tests.promises.processes.shared_store import SharedStore


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    with ForkServer(warm("tests.promises.processes.programs")) as fork_server:
        yield fork_server


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=[needs_postgres, pytest.mark.deep])])
def shared(request: pytest.FixtureRequest, fork_server: ForkServer, tmp_path: Path) -> Iterator[SharedStore]:
    """A store and a witness in a folder of their own, and processes that are gone with the test."""
    with _shared(
        fork_server, tmp_path, database() if request.param == "postgres" else str(tmp_path / "loops.db")
    ) as it:
        yield it


@pytest.fixture
def shared_database(fork_server: ForkServer, tmp_path: Path) -> Iterator[SharedStore]:
    """The same, in PostgreSQL."""
    with _shared(fork_server, tmp_path, database()) as it:
        yield it


@contextmanager
def _shared(fork_server: ForkServer, folder: Path, place: str) -> Iterator[SharedStore]:
    shared = SharedStore(fork_server, folder, place)
    try:
        yield shared
    finally:
        fork_server.clear_away()
        shared.store.close()  # type: ignore[attr-defined] # it is one of the two that have it
