"""Workers with different files of rules on one store, as while a new version of a file is rolled out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.each import each
from tests.kit.world import World
from tests.worker.support import place_of
from toolloop import Approve, LoopConfig, Person
from toolloop.rules import Rules

FAY, FRED = Person("fay", "finance"), Person("fred", "finance")
FILES = {
    "allows": 'do = "allow"',
    "asks": 'do = "ask"',
    "asks two": 'do = "ask"\nneed = 2\nof = "finance"',
    "denies": 'do = "deny"\nreason = "Not any more."',
}


def rules(name: str, folder: Path) -> Rules:
    file = folder / f"{name}.toml"
    file.write_text(f'[[rule]]\nname = "{name}"\ntool = "pay"\n{FILES[name]}\n', encoding="utf-8")
    return Rules.load(file)


def approve(place: World, person: Person) -> None:
    for each_ in place.inbox.pending():
        place.inbox.decide("loop", {each_: Approve(by=person)})


@each(("first", "second", "approvals"), [
    ("asks", "allows", 1),  # a call that waited does not run because a newer rule allows it
    ("asks", "asks two", 2),
    ("asks two", "asks", 2),  # while it waits, no worker drives it
    ("asks two", "allows", 2),
    ("asks", "denies", None),
    ("asks two", "denies", None),
    ("denies", "allows", None),  # it has its result
    ("allows", "denies", 0),
])  # fmt: skip
def test_the_rules_of_the_worker_that_drives_hold(
    first: str, second: str, approvals: int | None, tmp_path: Path
) -> None:
    """After a person has approved once, the second worker drives; then the persons that it asks for approve."""
    place = place_of()
    place.create()
    files = {name: rules(name, tmp_path) for name in (first, second)}
    workers = {name: place.worker(config=LoopConfig(on_tool_call=found)) for name, found in files.items()}
    place.work(workers[first])
    given = 0
    for person in (FAY, FRED):
        if place.inbox.pending():
            approve(place, person)
            given += 1
        place.work(workers[second])
    assert [len(place.did), given] == ([0, given] if approvals is None else [1, approvals])
    (last, *_) = [entry for entry in reversed(place.inbox.trail("loop")) if entry.path == ("c1",)]
    if approvals is None:
        decides = second if first != "denies" else first
        assert (last.kind, last.rule, last.rule_digest) == ("deny", decides, files[decides].digest)
    elif last.kind == "approve" and not last.by_policy:
        assert {each_.rule for each_ in last.demands} <= {first, second}


def test_each_worker_may_drive_in_turn(tmp_path: Path) -> None:
    """With the old file or the new one: the call does not run with fewer approvals than the last one asks for."""
    place = place_of()
    place.create()
    old, new = (place.worker(config=LoopConfig(on_tool_call=rules(name, tmp_path))) for name in ("asks", "asks two"))
    place.work(old)
    approve(place, FAY)
    place.work(new)
    assert (place.did, place.inbox.pending()[0].progress[:6]) == ([], "1 of 2")
    approve(place, FRED)
    place.work(old)
    assert len(place.did) == 1


def test_a_worker_with_a_wrong_file_does_not_start(tmp_path: Path) -> None:
    """The error names the rule and the key."""
    file = tmp_path / "wrong.toml"
    file.write_text('[[rule]]\nname = "r"\ndo = "ask"\nneed = 0\n', encoding="utf-8")
    with pytest.raises(ValueError, match=r"wrong\.toml: rule 'r': need: "):
        Rules.load(file)
