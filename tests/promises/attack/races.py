"""Eight processes that drive, take over, approve and deny one loop at one moment."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from random import Random

from tests.kit.fork_server import ForkServer
from tests.promises.attack.ledger import Ledger
from tests.promises.attack.places import open_store, place_in
from tests.promises.attack.row import Row
from tests.promises.attack.story import KINDS, Story

RACERS = 8
_ROLES = ("drive", "drive", "drive", "take over", "take over", "approve", "deny")


def attack(rounds: int, seed: int, folder: Path, server: ForkServer) -> Row:
    """Run so many races, each for a loop of its own in one file."""
    row = Row("race", f"{RACERS} processes drive, take over, approve and deny; some decisions expire meanwhile")
    run_races(row, rounds, seed, [server] * RACERS, folder=folder, place=place_in("sqlite", folder), roles=_ROLES)
    server.clear_away()
    return row


def run_races(
    row: Row,
    rounds: int,
    seed: int,
    servers: Sequence[ForkServer],
    *,
    folder: Path,
    place: str,
    roles: Sequence[str],
) -> None:
    """Run races between processes, one of each server."""
    chance = Random(f"races {seed}")
    with open_store(place) as store:
        runners = [server.start("race", folder=os.fspath(folder), place=place) for server in servers]
        for number in range(rounds):
            row.rounds += 1
            loop_id, drawn = f"loop{number}", chance.randrange(1 << 30)
            config = {"decision_timeout": chance.choice([None, None, 0.05, 0.2])}
            story = Story(drawn, Ledger(folder / loop_id), is_small=True, deciding=Random(drawn), config=config)
            with row.watched(loop_id):
                with story.open("sync", store, loop_id) as handle:
                    handle.next_turn()
                for salt, runner in enumerate(runners):
                    role, kind = chance.choice(roles), chance.choice(KINDS)
                    told = {"role": role, "kind": kind, "salt": f"{drawn} {salt}", "config": config, "seed": drawn}
                    runner.line.say(loop_id=loop_id, **told)
                heard = [runner.hear("ready", "said") for runner in runners]
                for runner, first in zip(runners, heard, strict=True):
                    if "ready" in first:
                        runner.go()
                for runner, first in zip(runners, heard, strict=True):
                    how = (runner.hear("said") if "ready" in first else first)["said"]
                    row.ended("done" if how == "decided" else how, loop_id, may_refuse=True)
                row.ended(story.drive("sync", store, loop_id), loop_id)
            row.judge(story.ledger.lines(), loop_id)
