"""Damaged files: bytes flipped, cut off, zeroed, in the database file or in its log.

What a loop cannot know is not held against it: SQLite takes a damaged place of the log for its end. So the runs whose
starts were written behind that place are left out, as after a loss of power; `unseen` counts how often they ran again.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

from tests.kit.fork_server import ForkServer
from tests.promises.attack.ledger import TWICE, judge
from tests.promises.attack.power import Life
from tests.promises.attack.row import Row
from toolloop import SqliteStore

_CUTS = 8  # rounds for one life
_PAGE = 8192


def attack(rounds: int, seed: int, folder: Path, server: ForkServer, part: str) -> Row:
    """Damage so many files: the `file`, with all in it, or the `log`."""
    row = Row(f"damaged {part}", "bytes flipped, cut off or zeroed; another process goes on")
    chance, unseen = Random(f"damage {seed} {part}"), 0
    for number in range(rounds):
        if number % _CUTS == 0:
            life = Life.lived(server, chance, folder / f"{part}{number}-life")
        row.rounds += 1
        place = folder / f"{part}{number}"
        cut = chance.choice(life.lines)["log"]  # the loop was in its middle
        ledger = life.write(place, life.log[:cut], lines := life.until(cut))
        if part == "file":
            with SqliteStore(place / "loops.db") as store:
                store.list()  # as it is closed, the log is taken over into the file
        first = _damage(place / ("loops.db" if part == "file" else "loops.db-wal"), chance)
        given = {"seed": life.seed, "kind": life.kind, "must_exist": True}
        child = server.start("drive", folder=os.fspath(place), **given)
        with row.watched(place):
            row.ended(child.end(), place, may_refuse=True)
        after = ledger.lines()[len(lines) :]
        known = lines if part == "file" else [line for line in lines if line["log"] <= first]
        row.judge([*known, *after], place)
        unseen += any(finding.kind == TWICE for finding in judge([*lines, *after]))
        server.clear_away()
    if part == "log":
        row.did += f" ({unseen} times a run that only the lost part of the log knew of was repeated)"
    return row


def _damage(path: Path, chance: Random) -> int:
    """Damage a file, and return the first byte that is another one."""
    data = bytearray(path.read_bytes())
    at = chance.randrange(len(data))
    match chance.choice(["flip", "cut", "zero"]):
        case "flip":
            places = [chance.randrange(len(data)) for _ in range(chance.choice([1, 1, 8, 64]))]
            for place in places:
                data[place] ^= 1 << chance.randrange(8)
            at = min(places)
        case "cut":
            del data[at:]
        case "zero":
            at -= at % _PAGE
            data[at : at + _PAGE] = bytes(len(data[at : at + _PAGE]))
    path.write_bytes(data)
    return at
