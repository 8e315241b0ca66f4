"""Owners: a slow one is not mistaken for a dead one, a dead one blocks no process, and takers take all the way."""

from __future__ import annotations

import json
import signal
import time

import pytest

from tests.kit.effort import some
from tests.kit.fork_server import Child
from tests.promises.processes.counting import COUNTS
from tests.promises.processes.programs import TOOLS, approved
from tests.promises.processes.shared_store import KINDS, SharedStore
from toolloop import ToolLoopHandle
from toolloop.errors import Conflict
from toolloop.machine.record.journal_events import Ended
from toolloop.stores.process import name_this_process
from toolloop.testing import ScriptedProvider

EVERY_CALL = ["log1", "look1", "pay1", "send1"]
LONG_AGO = 1.0


def stopped(shared: SharedStore, kind: str, call: str, at: str = "after") -> Child:
    """A driver that stands still in a call, and got SIGSTOP there; its lease has run out by the clock."""
    driver = shared.start("drive", "loop", kind=kind, hold={"at": at, "call": call})
    driver.hear("stands")
    driver.signal(signal.SIGSTOP)
    lease = shared.store.head("loop").lease
    assert lease is not None
    shared.store.renew(lease, until=LONG_AGO)
    return driver


def go_on(driver: Child) -> None:
    driver.signal(signal.SIGCONT)
    driver.go()


@pytest.mark.parametrize("kind", KINDS)
def test_a_slow_owner_is_not_mistaken_for_a_dead_one(shared: SharedStore, kind: str) -> None:
    """However late it is: who wakes the loop meanwhile gets `Conflict`, and the owner finishes."""
    driver = stopped(shared, kind, "send1")
    for other in KINDS:
        refused = shared.start("drive", "loop", kind=other).end()
        assert f"process {driver.pid} on" in refused["conflict"]
        assert refused["until"] == LONG_AGO
        assert json.loads(refused["owner"].rpartition(" ")[0])["pid"] == driver.pid
    go_on(driver)
    assert driver.end()["text"] == "done"
    assert sorted(shared.ran("loop")) == EVERY_CALL
    shared.assert_sound("loop")


@pytest.mark.parametrize("unburied", [False, True], ids=["buried", "zombie"])
def test_a_dead_owner_blocks_no_process(shared: SharedStore, unburied: bool) -> None:
    """Its lease still runs for long, and is over."""
    driver = shared.start("drive", "loop", hold={"at": "after", "call": "pay1"})
    driver.hear("stands")
    (driver.kill_unburied if unburied else driver.kill)()
    lease = shared.store.head("loop").lease
    assert lease is not None
    assert lease.until > time.time() + 1
    assert shared.start("drive", "loop").end()["text"] == "done"
    if unburied:
        driver.bury()
    shared.assert_sound("loop")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("call", ["send1", "log1", "pay1"])
def test_what_a_stopped_owner_finds_when_its_loop_was_taken_over(shared: SharedStore, kind: str, call: str) -> None:
    """The loop is over. Its end comes too late and is only recorded; the driver gets an error, and runs no more."""
    driver = stopped(shared, kind, call)
    other = shared.start("drive", "loop", take_over=True, uncertain="answer")
    end = other.end()
    assert end["text"] == "done"
    assert [each for each in end["asked"] if each[1] == "uncertain"] == [[call, "uncertain"]] * (call != "pay1")
    before = shared.store.load("loop").rev
    go_on(driver)
    assert "conflict" in driver.end()
    assert shared.ran("loop").count(call) == 1 + (call == "pay1")
    assert sorted(set(shared.ran("loop"))) == EVERY_CALL
    late = {(entry.call_id, entry.attempt) for entry in shared.journal("loop")[before:]}
    # `look1` runs beside `log1`, and the signal may come before its end is stored.
    assert late - ({("look1", 1)} if call == "log1" else set()) == {(call, 1)}
    shared.assert_sound("loop")


@pytest.mark.parametrize("kind", KINDS)
def test_the_late_end_of_a_stopped_owner_counts_if_no_decision_was_recorded(shared: SharedStore, kind: str) -> None:
    """Its call waits as uncertain with who took the loop over; then it comes back, and there is nothing to ask."""
    driver = stopped(shared, kind, "send1")
    with ToolLoopHandle.open(shared.store, "loop", ScriptedProvider([]), tools=TOOLS, take_over=True) as other:
        assert [(call.id, call.why) for call in other.pending] == [("send1", "uncertain")]
        go_on(driver)
        assert "conflict" in driver.end()
    end = shared.start("drive", "loop").end()
    assert (end["text"], end["asked"]) == ("done", [])
    assert sorted(shared.ran("loop")) == EVERY_CALL
    shared.assert_sound("loop")


def test_what_a_stopped_owner_was_about_to_do_is_not_done_when_its_loop_was_taken_over(shared: SharedStore) -> None:
    """It stood before a write, or in a request. Nothing that it says later is believed, nothing runs again."""
    places = [{"at": "between writes", "number": number} for number in range(1, 16)]
    places += [{"at": "request", "number": number} for number in range(3)]
    for number, hold in enumerate(some(places, 3)):
        loop_id = f"loop{number}"
        driver = shared.start("drive", loop_id, kind=KINDS[number % 3], hold=hold)
        driver.hear("stands")
        driver.signal(signal.SIGSTOP)
        assert shared.start("drive", loop_id, take_over=True).end()["text"] == "done"
        before, ran = shared.journal(loop_id), shared.ran(loop_id)
        go_on(driver)
        end = driver.end()
        assert end.keys() & {"conflict", "refused"} or end["text"] == "done"
        assert shared.ran(loop_id) == ran
        assert [type(event) for event in shared.journal(loop_id)[len(before) :]] in ([], [Ended], [Ended, Ended])
        assert shared.ran(loop_id).count("send1") <= 1
        assert shared.ran(loop_id).count("log1") <= 1
        shared.assert_sound(loop_id)
        COUNTS["overtaken owners that did nothing more"] += 1


def test_a_lease_of_another_machine_ends_by_time_alone(shared: SharedStore) -> None:
    """Here it is unknown whether its owner lives, so it is believed until it says itself that it is over."""
    approved(shared.store, "loop", str(shared.folder / "loop"))
    elsewhere = json.dumps({**json.loads(name_this_process()), "host": "elsewhere", "boot": "another"}) + " 1"
    forged = shared.store.acquire("loop", elsewhere, until=time.time() + 1000)
    refused = shared.start("drive", "loop").end()
    assert "on elsewhere" in refused["conflict"]
    assert refused["until"] == forged.until
    with (
        pytest.raises(Conflict),
        ToolLoopHandle.open(shared.store, "loop", ScriptedProvider([]), tools=TOOLS) as handle,
    ):
        handle.next_turn()
    shared.store.renew(forged, until=time.time())
    assert shared.start("drive", "loop").end()["text"] == "done"
    assert sorted(shared.ran("loop")) == EVERY_CALL


def test_a_number_that_another_process_has_now_is_not_an_owner(shared: SharedStore) -> None:
    """The same number, another beginning: the owner is gone, though a process of its number runs."""
    approved(shared.store, "loop", str(shared.folder / "loop"))
    said = json.loads(name_this_process())
    shared.store.acquire("loop", json.dumps({**said, "start": said["start"] - 1}) + " 1", until=time.time() + 1000)
    assert shared.start("drive", "loop").end()["text"] == "done"
