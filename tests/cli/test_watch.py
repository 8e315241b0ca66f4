"""`watch`: what begins to wait, is decided, ends and fails, at two widths and in a pipe, while others work."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from tests.cli.support import Session, filled, store_of
from tests.kit.warm_python import Piped
from toolloop import Approve, Deny
from toolloop._cli.watching import Watcher
from toolloop.testing import call, reply


@pytest.mark.parametrize("columns", [80, 200])
def test_a_person_sees_what_happens_as_it_happens(tmp_path: Path, columns: int) -> None:
    """Each event in one row. Ctrl-C ends it in a line."""
    found = filled(tmp_path)
    with Session(tmp_path, ("watch",), columns) as person:
        person.see("2 calls waiting, 0 loops failed. Watching; Ctrl-C ends it.")
        found.inbox.decide("loop", {"c1": Approve(by="bo"), "c2": Deny("no", by="cy")})
        person.see("decided ", "loop  pay (c1)  approved by bo", "loop  pay (c2)  denied by cy")
        found.drive()
        person.see("ended   loop")
        found.drive("other-" + "x" * 100)
        person.see("waits   other-x")
        row = found.store.head("other-" + "x" * 100)
        found.store.append(row.loop_id, [], expected_rev=row.rev, head=evolve(row.head, status="failed"))
        person.see("failed  other-x")
        found.store.delete(row.loop_id)
        person.see("deleted other-x")
        person.terminal.interrupt()
        code, screen = person.end()
    assert code == 130
    assert screen.rstrip().endswith("toolloop: interrupted. Watching has ended.")
    assert "Traceback" not in screen


def test_a_loop_that_is_deleted_and_created_again_is_another_one(tmp_path: Path) -> None:
    """The old calls no longer wait, and the new ones do."""
    found = filled(tmp_path)
    watcher = Watcher(found.store, None)
    watcher.begin()
    found.store.delete("loop")
    found.script = (reply(calls=[call("pay", {"to": "cy", "euros": 9}, id="c3")]), reply("Done"))
    found.drive()
    assert [(each.kind, each.text, each.call and each.call.id) for each in watcher.look()] == [
        ("decided", "no longer waits", "c1"),
        ("decided", "no longer waits", "c2"),
        ("waits", "", "c3"),
    ]


def events(process: Piped, number: int) -> list[dict[str, Any]]:
    return [json.loads(process.stdout.readline()) for _ in range(number)]


def test_a_program_reads_one_json_object_a_line(tmp_path: Path) -> None:
    """Its fields stay. A loop that began and ended in between is there, too."""
    found = filled(tmp_path)
    env = {**os.environ, "TOOLLOOP_STORE": store_of(tmp_path), "PYTHONWARNINGS": "error"}
    with Piped(["-m", "toolloop", "watch", "--json"], env=env) as process:
        process.stderr.readline()
        found.drive("new", metadata={"owner": "bo"})
        first, second = events(process, 2)
        assert first.keys() == {"at", "event", "loop_id", "text", "call"}
        assert [(each["event"], each["loop_id"], each["call"]["path"]) for each in (first, second)] == [
            ("waits", "new", ["c1"]),
            ("waits", "new", ["c2"]),
        ]
        assert (first["call"]["input"], len(first["call"]["digest"])) == ({"to": "ana", "euros": 5}, 64)
        found.script = found.script[1:]
        found.now += 1
        found.drive("short")
        (ended,) = events(process, 1)
        assert {**ended, "at": ""} == {
            "at": "", "event": "ended", "loop_id": "short", "text": "complete", "call": None,
        }  # fmt: skip
        process.program.send_signal(signal.SIGINT)
        assert process.program.wait() == 130
