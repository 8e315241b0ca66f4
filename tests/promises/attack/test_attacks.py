"""The attacks in small: no promise is broken. `python -m tests.promises.attack` counts all, and writes the table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.fork_server import ForkServer
from tests.kit.warm_python import warm
from tests.promises.attack.attacks import ATTACKS
from tests.promises.attack.places import LeftOut

ROUNDS = {
    "races": 1,
    "versions": 1,
    "suspensions, SQLite": 1,
    "suspensions, PostgreSQL": 1,
    "damaged logs": 6,  # the damage is often before the loop, of which nothing is left then
    "crafted": 8,
}


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer(warm("tests.promises.attack.programs")) as server:
        yield server


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a finalizer may be struck, too
@pytest.mark.parametrize("name", ATTACKS)
def test_no_promise_is_broken(name: str, server: ForkServer, tmp_path: Path) -> None:
    """Nothing runs twice, nothing denied runs, nothing is lost, nothing hangs, no other error comes out."""
    try:
        row = ATTACKS[name](ROUNDS.get(name, 2), 1, tmp_path, server)
    except LeftOut as missing:
        pytest.skip(str(missing))
    assert row.findings == []
    assert row.rounds == ROUNDS.get(name, 2)
    assert row.starts > 0
