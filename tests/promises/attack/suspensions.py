"""Hosts that are suspended: a driver is stopped with SIGSTOP until its lease is over, while another process goes on.

Half of the drivers are stopped at a call of the store, and the library alone must see to it that they start nothing
late. The others are stopped at a random moment, which may be between the last look at the clock and the first line of
a tool. No program can close this gap, so their tools look at `ToolContext.lease_ends_at` themselves.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from random import Random
from typing import Any

from attrs import frozen

from tests.kit.fork_server import Child, ForkServer
from tests.promises.attack.hosts import LEASE
from tests.promises.attack.ledger import Ledger, find_late_starts
from tests.promises.attack.places import open_store, place_in
from tests.promises.attack.row import Row
from tests.promises.attack.story import KINDS, Story
from toolloop.errors import LoopNotFound
from toolloop.stores.optional import read_time

_ROLES = ("nobody", "drive", "drive", "take over", "deny", "deny")
_STORE_CALLS = 16  # about as many as a driver makes for a story
_USUAL = 0.4  # seconds that a driver takes


def attack(rounds: int, seed: int, folder: Path, server: ForkServer, kind: str) -> Row:
    """Suspend so many drivers."""
    name = {"sqlite": "SQLite", "postgres": "PostgreSQL"}[kind]
    row = Row(f"suspension, {name}", "SIGSTOP until the lease is over; another host drives or denies; SIGCONT")
    chance, place = Random(f"suspensions {seed}"), place_in(kind, folder)
    with open_store(place, lease_seconds=LEASE) as store:
        for number in range(rounds):
            row.rounds += 1
            loop_id = f"loop{number}"
            story = Story(chance.randrange(1 << 30), Ledger(folder / loop_id), is_small=True, watching=False)
            where = f"{loop_id}, seed {story.seed}"
            with row.watched(where):
                given = {"folder": os.fspath(folder), "place": place, "loop_id": loop_id, "seed": story.seed}
                Suspension(row, where, chance, server, given, store).play()
                while (ended := story.drive("sync", store, loop_id)) == "Conflict":
                    threading.Event().wait(LEASE / 4)  # a lease of a process that ended on another host ends by time
                row.ended(ended, where)
            lines = story.ledger.lines()
            row.judge(lines, where)
            for finding in find_late_starts(lines):
                row.add(finding, where)
            server.clear_away()
    return row


@frozen
class Suspension:
    """A loop, its driver, and what goes on while it is suspended.

    Attributes:
        given: what each process is given.
        store: the store of the loop.

    """

    row: Row
    where: str
    chance: Random
    server: ForkServer
    given: dict[str, Any]
    store: Any

    def play(self) -> None:
        """Suspend a driver."""
        role, is_fenced, patience = self.chance.choice(_ROLES), self.chance.random() < 0.5, self._moment()
        stop_at = None if is_fenced else self.chance.randint(1, _STORE_CALLS)
        driver = self._start("here", "drive", is_fenced=is_fenced, stop_at=stop_at)
        is_over = not is_fenced or driver.line.says_within(patience)
        if is_over and "end" in (said := driver.hear("stops", "end")):
            self.row.ended(said["end"], self.where)
            return
        driver.signal(signal.SIGSTOP)
        _wait_for_end_of_lease(self.store, self.given["loop_id"])
        other = None if role == "nobody" else self._start("there", role)
        if other is not None and self.chance.random() < 0.7:
            self.row.ended(other.end(), self.where, may_refuse=True)
        elif other is not None:
            other.line.says_within(self._moment())
        driver.signal(signal.SIGCONT)
        if not is_fenced:  # such a driver is not waiting, and may have ended
            driver.go()
        self.row.ended(driver.end(), self.where, may_refuse=other is not None)
        if other is not None and other.is_alive:
            self.row.ended(other.end(), self.where, may_refuse=True)

    def _start(self, host: str, role: str, **more: Any) -> Child:
        drawn = {"kind": self.chance.choice(KINDS), "salt": f"{self.where} {host}"}
        return self.server.start("visit", host=host, role=role, **drawn, **self.given, **more)

    def _moment(self) -> float:
        return self.chance.uniform(0, _USUAL)


def _wait_for_end_of_lease(store: Any, loop_id: str) -> None:
    """Wait until the lease is over, by the clock of the store."""
    give_up = time.monotonic() + 10 * LEASE
    while time.monotonic() < give_up:
        try:
            lease = store.head(loop_id).lease
        except LoopNotFound:
            return
        if lease is None or lease.until <= read_time(store):
            return
        threading.Event().wait(LEASE / 10)
