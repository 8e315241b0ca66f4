"""The attacks in small: no promise is broken. `python -m tests.attack` has the full counts, and writes the table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attack.attacks import ATTACKS
from tests.processes.fork_server import ForkServer

ROUNDS = {"kills": 5, "power losses": 6, "races": 4, "damaged files": 8, "damaged logs": 8, "crafted": 80}


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer("tests.attack.programs") as server:
        yield server


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a finalizer may be struck, too
@pytest.mark.parametrize("name", ATTACKS)
def test_no_promise_is_broken(name: str, server: ForkServer, tmp_path: Path) -> None:
    """Nothing runs twice, nothing denied runs, nothing is lost, nothing hangs, no other error comes out."""
    row = ATTACKS[name](ROUNDS.get(name, 8), 1, tmp_path, server)
    assert row.findings == []
    assert row.rounds == ROUNDS.get(name, 8)
    assert row.starts > 0
