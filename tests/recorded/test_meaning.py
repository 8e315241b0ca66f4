"""The meaning of checkpoints: what the recorded journals lead to. `python -m tests.recorded.test_meaning` records it.

A checkpoint has the number `MEANING`, and a version reads those with its own number only. So the number must change
with the states. `golden/meaning.json` has a digest of the checkpoints of each recorded journal, at each revision.
"""

from __future__ import annotations

import json
import sys
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

from tests.kit.each import each
from tests.recorded.covering import machine_fields, recorded_fields
from tests.recorded.test_golden_journals import GOLDEN, files
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import State
from toolloop.stores import Entry, Revision
from toolloop.stores.checkpoints import MEANING, Checkpoint, read_checkpoint, write_checkpoint
from toolloop.stores.codec import replay

RECORDED = GOLDEN / "meaning.json"


@cache
def steps(path: Path) -> tuple[tuple[ev.Event, State], ...]:
    """The events of a recorded journal, each with the state after it."""
    golden = json.loads(path.read_text("utf-8"))
    return tuple(replay(Entry(str(at), **entry) for at, entry in enumerate(golden["journal"])))


def digest_of(path: Path) -> str:
    """The digest of the checkpoints at each revision."""
    digest = blake2b(digest_size=8)
    for number, (_, state) in enumerate(steps(path), 1):
        digest.update(write_checkpoint(Checkpoint(state, Revision(number, "00"), "0")))
    return digest.hexdigest()


def states() -> dict[str, str]:
    return {path.stem: digest_of(path) for path in files()}


def test_the_number_changes_with_what_the_recorded_journals_lead_to() -> None:
    """Else a checkpoint of an earlier version would be taken for the state of this one."""
    recorded: dict[str, Any] = json.loads(RECORDED.read_text("utf-8"))
    found = states()
    changed = {name for name, digest in recorded["states"].items() if found[name] != digest}
    advice = "Raise MEANING in toolloop/stores/checkpoints.py, then run python -m tests.recorded.test_meaning"
    assert not changed or recorded["meaning"] != MEANING, f"other states after {sorted(changed)}. {advice}"
    assert (recorded["meaning"], {*found}) == (MEANING, {*recorded["states"]}), advice


@each("path", files())
def test_a_checkpoint_of_a_recorded_state_is_that_state(path: Path) -> None:
    """At its end; random journals are compared at each revision."""
    *_, (_, state) = steps(path)
    checkpoint = Checkpoint(state, Revision(7, "00"), "0")
    assert read_checkpoint(state.root.setup.loop_id, write_checkpoint(checkpoint)) == checkpoint


def test_the_recorded_journals_have_all_that_the_machine_has() -> None:
    """Each event, phase and value, and each optional field with a value other than its default."""
    recorded = recorded_fields([part for path in files() for step in steps(path) for part in step])
    missing = {
        f"{kind.__name__}.{name}" if name else kind.__name__
        for kind, names in machine_fields().items()
        for name in ([*names - recorded[kind]] if kind in recorded else [""])
    }
    assert missing == {"Unfinished"}  # of results only: no state has it


def write_meaning() -> None:
    """Record the digests of new journals; those that have changed only under a new number."""
    recorded: dict[str, Any] = json.loads(RECORDED.read_text("utf-8"))
    found = states()
    if recorded["meaning"] == MEANING and not recorded["states"].items() <= found.items():
        sys.exit("the recorded journals lead to other states: raise MEANING first")
    RECORDED.write_text(json.dumps({"meaning": MEANING, "states": found}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    write_meaning()
