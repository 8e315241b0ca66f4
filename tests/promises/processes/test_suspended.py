"""A process that is suspended after it stored the start of a call, and before it ran the tool (SIGSTOP, SIGCONT)."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.each import each
from tests.kit.fork_server import Child, ForkServer
from tests.kit.postgres import database, needs_postgres
from tests.promises.processes.programs import approved
from tests.promises.processes.shared_store import SharedStore

LEASE = 0.3  # seconds, so that a test need not wait for a minute
EVERY_CALL = ["log1", "look1", "pay1", "send1"]
DRIVERS = [("drive", "sync"), ("drive", "asyncio"), ("work", "sync"), ("work", "asyncio")]
each_driver = each(("program", "kind"), DRIVERS)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=needs_postgres)])
def shared(request: pytest.FixtureRequest, fork_server: ForkServer, tmp_path: Path) -> Iterator[SharedStore]:
    place = database() if request.param == "postgres" else str(tmp_path / "loops.db")
    shared = SharedStore(fork_server, tmp_path, place)
    try:
        yield shared
    finally:
        fork_server.clear_away()
        shared.store.close()  # type: ignore[attr-defined]  # it is one of the two that have it


def suspended(shared: SharedStore, loop_id: str, program: str, kind: str, **given: Any) -> Child:
    """A driver that stored the start of `send1`, did not run it, and is suspended until its lease is over."""
    approved(shared.store, loop_id, str(shared.folder / loop_id))
    hold = {"at": "start stored", "call": "send1"}
    driver = shared.start(program, loop_id, kind=kind, hold=hold, lease=LEASE, **given)
    driver.hear("stands")
    driver.signal(signal.SIGSTOP)
    assert not driver.line.says_within(LEASE)  # its lease was last renewed before now
    return driver


def go_on(driver: Child) -> Any:
    """Let it continue, to its end."""
    driver.signal(signal.SIGCONT)
    driver.go()
    return driver.end()


@each_driver
def test_a_suspended_process_does_not_run_a_call_that_was_denied_meanwhile(
    program: str, kind: str, shared: SharedStore
) -> None:
    """Another process took the loop over. The call does not run, for the tool was not called."""
    loop_id = f"{program} {kind}"
    driver = suspended(shared, loop_id, program, kind)
    other = shared.start("drive", loop_id, take_over=True, uncertain="deny").end()
    assert other["text"] == "done"
    assert ["send1", "uncertain"] in other["asked"]
    end = go_on(driver)
    assert "conflict" in end
    assert "send1" not in shared.ran(loop_id)
    shared.assert_sound(loop_id)


@each(("program", "kind"), [("drive", "asyncio"), ("work", "sync")])
def test_a_suspended_process_does_not_run_a_call_again_that_ran_meanwhile(
    program: str, kind: str, shared: SharedStore
) -> None:
    """The person who took the loop over ran it again by name."""
    loop_id = f"{program} {kind}"
    driver = suspended(shared, loop_id, program, kind)
    assert shared.start("drive", loop_id, take_over=True, uncertain="rerun").end()["text"] == "done"
    go_on(driver)
    assert sorted(shared.ran(loop_id)) == EVERY_CALL
    shared.assert_sound(loop_id)


@each_driver
def test_a_suspended_process_goes_on_if_no_other_came(program: str, kind: str, shared: SharedStore) -> None:
    """It renews its lease: each call starts once, none is uncertain, and there is no `Conflict`."""
    loop_id = f"{program} {kind}"
    end = go_on(suspended(shared, loop_id, program, kind))
    assert end == "ended" if program == "work" else (end["text"], end["asked"]) == ("done", [])
    assert sorted(shared.ran(loop_id)) == EVERY_CALL
    shared.assert_sound(loop_id)
