"""What the processes of the attacks do."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import itertools
import logging
import os
import shutil
import socket
import sys
from pathlib import Path
from random import Random
from typing import Any

import anyio
import anyio.lowlevel

import toolloop
from tests.kit.fork_server import Line, serve
from tests.promises.attack.hosts import visit
from tests.promises.attack.ledger import Ledger
from tests.promises.attack.places import open_store
from tests.promises.attack.row import PATIENCE
from tests.promises.attack.story import Story
from toolloop import Approve, Deny, MemoryStore
from toolloop.errors import ToolLoopError


def drive(
    line: Line,
    *,
    folder: str,
    seed: int,
    kind: str,
    salt: str = "",
    loop_id: str = "loop",
    place: str | None = None,
    url: str | None = None,
    must_exist: bool = False,
    copy_to: str | None = None,
) -> str:
    """Drive a loop to its end; then copy its file and the log as they are, if asked to."""
    faulthandler.dump_traceback_later(PATIENCE - 5, exit=True)
    path = Path(folder, "loops.db")
    story = Story(seed, Ledger(Path(folder, loop_id), Path(f"{path}-wal")), deciding=Random(salt), url=url)
    with open_store(place or os.fspath(path)) as store:
        ended = story.drive(kind, store, loop_id, **({"params": None} if must_exist else {}))
        if copy_to is not None:
            for name in (path, Path(f"{path}-wal")):
                shutil.copy(name, copy_to)
    return ended


def race(line: Line, *, folder: str, place: str) -> int:
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
        with open_store(place) as store:
            line.say(said=_take_part(line, story, store, asked))
        faulthandler.cancel_dump_traceback_later()
    raise AssertionError("the count never ends")


def _take_part(line: Line, story: Story, store: Any, asked: dict[str, Any]) -> str:
    role, loop_id = asked["role"], asked["loop_id"]
    if role == "work":
        return _work(line, story, store)
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


def _work(line: Line, story: Story, store: Any) -> str:
    worker = story.worker(store)
    line.say(ready=True)
    line.hear()
    try:
        worker.run_once()
    except ToolLoopError as error:
        return type(error).__name__
    return "done"


def version(_line: Line) -> str:
    """Return the folder of the library that runs here."""
    return os.fspath(Path(toolloop.__file__).parents[1])


def _warm_up() -> None:
    """Load what is loaded at first use, once for all children. It starts no thread and opens no database."""
    with contextlib.suppress(ImportError):
        importlib.import_module("toolloop.stores.postgres.store")
    for kind in ("asyncio", "trio"):
        anyio.run(anyio.lowlevel.checkpoint, backend=kind)
    Story(seed=12, ledger=Ledger(Path(os.devnull))).drive("sync", MemoryStore())
    gc.freeze()  # no child looks through all of this, which would copy its pages


if __name__ == "__main__":
    logging.disable()
    _warm_up()
    serve(socket.socket(fileno=int(sys.argv[1])), {"drive": drive, "race": race, "version": version, "visit": visit})
