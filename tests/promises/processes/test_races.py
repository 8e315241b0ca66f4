"""Processes that meet on one loop: two and eight that wake it, some that decide while another drives."""

from __future__ import annotations

import itertools

import pytest

from tests.kit.effort import IS_DEEP
from tests.kit.fork_server import Child
from tests.promises.processes.counting import COUNTS
from tests.promises.processes.programs import approved
from tests.promises.processes.shared_store import KINDS, SharedStore

ROUNDS = 50 if IS_DEEP else 3
MANY = 40 if IS_DEEP else 6


def racers(shared: SharedStore, count: int) -> list[Child]:
    folder = shared.folder
    return [shared.fork_server.start("race", path=shared.place, folder=str(folder)) for _ in range(count)]


def line_up(shared: SharedStore, loop_id: str, runners: list[Child], *, held: bool) -> None:
    """A loop with an approved call, and all runners before it; then let them go in one moment."""
    approved(shared.store, loop_id, str(shared.folder / loop_id))
    for runner, kind in zip(runners, itertools.cycle(KINDS), strict=False):
        runner.line.say(loop_id=loop_id, kind=kind, held=held)
    for runner in runners:
        runner.hear("ready")
    for runner in runners:
        runner.go()


@pytest.mark.parametrize("count", [2, 8])
def test_of_those_who_wake_a_loop_at_one_moment_one_runs_it(shared: SharedStore, count: int) -> None:
    """The others get `Conflict`, which says who has it; the approved call runs once."""
    runners = racers(shared, count)
    for number in range(ROUNDS):
        loop_id = f"loop{number}"
        line_up(shared, loop_id, runners, held=True)
        said = {runner.pid: runner.hear("stands", "conflict") for runner in runners}
        (winner,) = [runner for runner in runners if "stands" in said[runner.pid]]
        refused = [words["conflict"] for words in said.values() if "conflict" in words]
        assert len(refused) == count - 1
        assert [text for text in refused if f"process {winner.pid} on" not in text] == []
        winner.go()
        assert winner.hear("turn")["turn"] == "tools_executed"
        assert shared.ran(loop_id).count("send1") == 1
        shared.assert_sound(loop_id)
        COUNTS[f"one of {count} woke a loop, the others got Conflict"] += 1


def test_a_race_without_delays_runs_each_call_once(shared: SharedStore) -> None:
    """Who comes a little later finds the turn done, or is refused; nothing runs again."""
    runners = racers(shared, 4)
    for number in range(20 if IS_DEEP else 3):
        loop_id = f"loop{number}"
        line_up(shared, loop_id, runners, held=False)
        said = [runner.hear("turn", "conflict", "late") for runner in runners]
        assert any("turn" in words for words in said)
        assert sorted(shared.ran(loop_id)) == ["log1", "look1", "pay1", "send1"]
        shared.assert_sound(loop_id)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_decided_while_another_process_drives_is_never_lost(shared: SharedStore, kind: str) -> None:
    """In each round the word is said just as a tool of the driver ends; every call it is about runs, once."""
    driver = shared.start("drive_many", "loop", kind=kind, rounds=MANY)
    driver.hear("waits")
    decider = shared.start("decide", "loop")
    said = 0
    driver.go()
    while "end" not in (words := driver.hear("slow", "waits", "end")):
        if "slow" in words:
            decider.line.say(call=f"send{words['slow']}")
            driver.go()
            decider.hear("decided")
            said += 1
        else:
            driver.go()
    assert (words["end"], said) == ("done", MANY)
    wanted = [f"{name}{number}" for number in range(MANY) for name in ("send", "slow")]
    assert sorted(shared.ran("loop")) == sorted(wanted)
    shared.assert_sound("loop")
    COUNTS["decided by another process while one drove"] += said


def test_of_two_processes_that_decide_differently_one_is_refused(shared: SharedStore) -> None:
    """At the same moment: one decision stands, the other is a `DecisionConflict`, and what ran goes by the first."""
    for number in range(6 if IS_DEEP else 3):
        loop_id = f"loop{number}"
        driver = shared.start("drive_many", loop_id, kind="sync", rounds=1)
        driver.hear("waits")
        sides = {shared.start("decide", loop_id): False, shared.start("decide", loop_id): True}
        for side, deny in sides.items():
            side.line.say(call="send0", deny=deny)
        said = {deny: side.hear("decided", "conflict") for side, deny in sides.items()}
        assert sorted(key for words in said.values() for key in words) == ["conflict", "decided"]
        driver.go()
        driver.hear("slow")
        driver.go()
        assert driver.end() is not None
        assert ("send0" in shared.ran(loop_id)) == ("decided" in said[False])
        shared.assert_sound(loop_id)
