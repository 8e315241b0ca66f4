"""Eight processes that drive, take over, approve and deny one loop at one moment."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

from tests.attack.ledger import Ledger
from tests.attack.row import Row
from tests.attack.story import KINDS, Story
from tests.processes.fork_server import ForkServer
from toolloop import SqliteStore

RACERS = 8
_ROLES = ["drive", "drive", "drive", "take over", "take over", "approve", "deny"]


def attack(rounds: int, seed: int, folder: Path, server: ForkServer) -> Row:
    """Run so many races, each for a loop of its own in one file."""
    row = Row("race", f"{RACERS} processes drive, take over, approve and deny; some decisions expire meanwhile")
    chance = Random(f"races {seed}")
    with SqliteStore(folder / "loops.db") as store:
        runners = [server.start("race", folder=os.fspath(folder)) for _ in range(RACERS)]
        for number in range(rounds):
            row.rounds += 1
            loop_id, drawn = f"loop{number}", chance.randrange(1 << 30)
            config = {"decision_timeout": chance.choice([None, None, 0.05, 0.2])}
            story = Story(drawn, Ledger(folder / loop_id), is_small=True, deciding=Random(drawn), config=config)
            with row.watched(loop_id):
                with story.open("sync", store, loop_id) as handle:
                    handle.next_turn()
                for salt, runner in enumerate(runners):
                    role, kind = chance.choice(_ROLES), chance.choice(KINDS)
                    told = {"role": role, "kind": kind, "salt": f"{drawn} {salt}", "config": config, "seed": drawn}
                    runner.line.say(loop_id=loop_id, **told)
                for runner in runners:
                    runner.hear("ready", "said")
                for runner in runners:
                    runner.go()
                for runner in runners:
                    how = runner.hear("said")["said"]
                    row.ended("done" if how == "decided" else how, loop_id, may_refuse=True)
                row.ended(story.drive("sync", store, loop_id), loop_id)
            row.judge(story.ledger.lines(), loop_id)
        server.clear_away()
    return row
