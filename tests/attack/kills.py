"""Processes that are killed with SIGKILL at a random moment, one after the other, until one gets through."""

from __future__ import annotations

import os
import time
from pathlib import Path
from random import Random

from tests.attack.ledger import Ledger
from tests.attack.row import Row
from tests.attack.story import KINDS
from tests.processes.fork_server import ForkServer

_AT_MOST = 5  # deaths of one loop
_SPARED = 10  # one loop of so many is not killed: it shows how long a loop takes


def attack(rounds: int, seed: int, folder: Path, server: ForkServer) -> Row:
    """Kill so many processes."""
    row = Row("kill", "SIGKILL at a random moment; the next process goes on")
    chance, usual, number = Random(f"kills {seed}"), 0.1, -1
    while row.rounds < rounds:
        number += 1
        loop_id, deaths = f"loop{number}", 0
        drawn = chance.randrange(1 << 30)
        with row.watched(loop_id):
            while True:
                kind, begun = chance.choice(KINDS), time.monotonic()
                given = {"seed": drawn, "kind": kind, "salt": f"{drawn} {deaths}", "loop_id": loop_id}
                child = server.start("drive", folder=os.fspath(folder), **given)
                patience = chance.uniform(0, usual)
                is_mortal = number % _SPARED and deaths < _AT_MOST and row.rounds < rounds
                if is_mortal and child.killed_within(patience):
                    deaths += 1
                    row.rounds += 1
                    continue
                row.ended(child.end(), loop_id)
                if number % _SPARED == 0:
                    usual = time.monotonic() - begun
                break
        row.judge(Ledger(folder / loop_id).lines(), loop_id)
        server.clear_away()
    return row
