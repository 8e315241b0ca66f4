"""Two machines and one database: leases count by the clock of the database, and a lost call never runs again.

The other machine is a process with a host name and process ids of its own (Linux namespaces), and with a wrong clock.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.fork_server import ForkServer, interpreter
from tests.kit.postgres import database, needs_postgres
from tests.promises.processes.shared_store import SharedStore
from toolloop.stores import PostgresStore
from toolloop.stores.process import find_standing

pytestmark = needs_postgres
ELSEWHERE = ("unshare", "--uts", "--pid", "--fork", "--mount-proc", "sh", "-c", 'hostname elsewhere; exec "$@"', "sh")
CLOCKS = [pytest.param(300.0, id="ahead"), pytest.param(-300.0, id="behind", marks=pytest.mark.deep)]  # five minutes
LEASE = 60.0
# Runs a module with a wrong clock. No code of the library is loaded before it.
WRONG = (
    "import runpy, sys, time; right = time.time; time.time = lambda: right() + {}; "
    "runpy.run_module(sys.argv.pop(1), run_name='__main__')"
)


def has_namespaces() -> bool:
    return (
        sys.platform == "linux"
        and not subprocess.run([*ELSEWHERE, "true"], capture_output=True, check=False).returncode
    )


@pytest.fixture(scope="module", params=CLOCKS)
def elsewhere(request: pytest.FixtureRequest) -> Iterator[ForkServer]:
    """A machine whose clock is wrong."""
    if not has_namespaces():
        pytest.skip("this process may not make namespaces")
    within = (*ELSEWHERE, sys.executable, "-c", WRONG.format(request.param))
    with ForkServer(interpreter("tests.promises.processes.programs", within=within)) as server:
        yield server


@pytest.fixture
def here(fork_server: ForkServer, tmp_path: Path) -> Iterator[SharedStore]:
    shared = SharedStore(fork_server, tmp_path, database())
    yield shared
    fork_server.clear_away()


@pytest.fixture
def there(here: SharedStore, elsewhere: ForkServer) -> Iterator[SharedStore]:
    """The same store, as the other machine sees it."""
    yield SharedStore(elsewhere, here.folder, here.place, here.store)
    elsewhere.clear_away()


@pytest.mark.parametrize("owner", [pytest.param("here", marks=pytest.mark.deep), "there"])
def test_a_lease_of_another_machine_ends_by_the_clock_of_the_database(
    here: SharedStore, there: SharedStore, owner: str
) -> None:
    """Also if one of them has a wrong clock. The call that ran when its driver died is uncertain, and not repeated."""
    first, second = (here, there) if owner == "here" else (there, here)
    store = here.store
    assert isinstance(store, PostgresStore)
    driver = first.start("drive", "loop", hold={"at": "after", "call": "send1"})
    driver.hear("stands")
    lease = store.head("loop").lease
    assert lease is not None
    assert LEASE - 30 < lease.until - store.now() <= LEASE
    host = json.loads(lease.owner.rpartition(" ")[0])["host"]
    assert (host == "elsewhere") == (owner == "there")
    driver.kill()
    assert find_standing(lease.owner) == ("unknown" if owner == "there" else "gone")
    refused = second.start("drive", "loop").end()
    assert refused["until"] == lease.until
    store.renew(lease, until=store.now() + 0.2)  # so that a test need not wait for a minute
    while "conflict" in (end := second.start("drive", "loop").end()):
        pass
    assert (end["text"], end["asked"]) == ("done", [["send1", "uncertain"]])
    assert sorted(here.ran("loop")) == ["log1", "look1", "pay1", "send1"]
    here.assert_sound("loop")


def test_a_process_of_this_machine_is_judged_by_its_life(here: SharedStore) -> None:
    """As with a file: no process waits for the lease of a driver that is gone."""
    driver = here.start("drive", "loop", hold={"at": "after", "call": "send1"})
    driver.hear("stands")
    driver.kill()
    end = here.start("drive", "loop").end()
    assert (end["text"], end["asked"]) == ("done", [["send1", "uncertain"]])
    assert here.ran("loop").count("send1") == 1
