"""What the processes of the attacks do."""

from __future__ import annotations

import faulthandler
import itertools
import logging
import os
import shutil
import socket
import sys
from pathlib import Path
from random import Random
from typing import Any

from tests.attack.ledger import Ledger
from tests.attack.row import PATIENCE
from tests.attack.story import Story
from tests.processes.fork_server import Line, serve
from tests.processes.programs import warm_up
from toolloop import Approve, Deny, MemoryStore, SqliteStore
from toolloop.errors import ToolLoopError


def drive(
    line: Line,
    *,
    folder: str,
    seed: int,
    kind: str,
    salt: str = "",
    loop_id: str = "loop",
    must_exist: bool = False,
    copy_to: str | None = None,
) -> str:
    """Drive a loop to its end; then copy its file and the log as they are, if asked to."""
    faulthandler.dump_traceback_later(PATIENCE - 5, exit=True)
    path = Path(folder, "loops.db")
    story = Story(seed, Ledger(Path(folder, loop_id), Path(f"{path}-wal")), deciding=Random(salt))
    with SqliteStore(path) as store:
        ended = story.drive(kind, store, loop_id, **({"params": None} if must_exist else {}))
        if copy_to is not None:
            for name in (path, Path(f"{path}-wal")):
                shutil.copy(name, copy_to)
    return ended


def race(line: Line, *, folder: str) -> int:
    """Take part in one round after the other: drive, take over, approve or deny, at the same moment as others."""
    for count in itertools.count():
        asked = line.hear()
        if "over" in asked:
            return count
        faulthandler.dump_traceback_later(PATIENCE - 5, exit=True)
        story = Story(
            asked["seed"],
            Ledger(Path(folder, asked["loop_id"])),
            is_small=True,
            deciding=Random(f"{asked['salt']}"),
            watching=False,
            config=asked["config"],
        )
        with SqliteStore(Path(folder, "loops.db")) as store:
            line.say(said=_take_part(line, story, store, asked))
        faulthandler.cancel_dump_traceback_later()
    raise AssertionError("the count never ends")


def _take_part(line: Line, story: Story, store: SqliteStore, asked: dict[str, Any]) -> str:
    role, loop_id = asked["role"], asked["loop_id"]
    if role in ("drive", "take over"):
        line.say(ready=True)
        line.hear()
        return story.drive(asked["kind"], store, loop_id, take_over=role == "take over")
    try:
        handle = story.open("sync", store, loop_id)
        waiting = [each for each in handle.pending if each.why == "approval"]
        line.say(ready=True)
        line.hear()
        decision = Approve() if role == "approve" else Deny("no")
        handle.decide(decided := dict.fromkeys(waiting, decision))
    except ToolLoopError as error:
        return type(error).__name__
    story.note(decided)
    return "decided"


if __name__ == "__main__":
    logging.disable()
    warm_up()
    # What is imported at first use is imported once for all children. This starts no thread and opens no database.
    Story(seed=12, ledger=Ledger(Path(os.devnull))).drive("sync", MemoryStore())
    serve(socket.socket(fileno=int(sys.argv[1])), {"drive": drive, "race": race})
