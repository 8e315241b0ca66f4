"""Ctrl-C at each call of a function of toolloop, and at each return, in small runs."""

from __future__ import annotations

import signal
import sys
import threading
import traceback
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

from attrs import define

from tests.promises.attack.ledger import Ledger
from tests.promises.attack.row import Row
from tests.promises.attack.story import Story
from toolloop import MemoryStore, SqliteStore
from toolloop.stores import Store


@define
class Interrupt:
    """A profile hook that raises SIGINT at a call or return inside toolloop, counted from 1."""

    number: int
    seen: int = 0

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        if event in ("call", "return") and "toolloop" in frame.f_code.co_filename:
            self.seen += 1
            if self.seen == self.number:
                sys.setprofile(None)
                signal.raise_signal(signal.SIGINT)


def attack(rounds: int, seed: int, folder: Path, _server: object, kind: str) -> Row:
    """Interrupt at so many places of a run, drawn at random; at each, if it has no more."""
    row = Row(f"interrupt, {kind}", "SIGINT at a call or return inside toolloop; the same handle goes on, or another")
    whole = Interrupt(0)
    _interrupted(row, kind, seed, whole, folder / "undisturbed")
    places = range(1, whole.seen + 1)
    for number in sorted(Random(f"interrupts {seed} {kind}").sample(places, min(rounds, whole.seen))):
        row.rounds += 1
        with row.watched(f"place {number}"):
            _interrupted(row, kind, seed, Interrupt(number), folder / f"{number}")
    return row


def _interrupted(row: Row, kind: str, seed: int, hook: Interrupt, place: Path) -> None:
    """Run a loop, interrupt it, and let it go on."""
    store: Store = MemoryStore() if kind == "memory" else SqliteStore(place.with_suffix(".db"))
    story = Story(seed, Ledger(place), is_small=True, deciding=Random(seed))
    handle: Any = None
    where, before = "not interrupted", sys.getprofile()
    sys.setprofile(hook)
    try:
        handle = story.open("sync", store)
        story.run(handle)
    except KeyboardInterrupt as error:
        where = " > ".join(f"{frame.name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)[2:-1])
    finally:
        sys.setprofile(before)
    if handle is None or hook.number % 3 == 0:
        if handle is not None:
            handle.close()
        # The first handle may have a tool at work, or its lease is given back by the thread that renews leases.
        while (ended := story.drive("sync", store)) == "Conflict":
            threading.Event().wait(0.05)
    else:
        ended = story.run(handle)
        handle.close()
    row.ended(ended, where)
    if isinstance(store, SqliteStore):
        store.close()
    row.judge(story.ledger.lines(), where)
