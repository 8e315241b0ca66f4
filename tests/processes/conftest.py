"""The process that forks all others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.fork_server import ForkServer
from tests.processes.shared_store import SharedStore


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    with ForkServer() as fork_server:
        yield fork_server


@pytest.fixture
def shared(fork_server: ForkServer, tmp_path: Path) -> Iterator[SharedStore]:
    """A store and a witness in a folder of their own, and processes that are gone with the test."""
    try:
        yield SharedStore(fork_server, tmp_path)
    finally:
        fork_server.clear_away()
