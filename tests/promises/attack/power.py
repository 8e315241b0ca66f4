"""Losses of power: what was in the write-ahead log behind some byte is gone, or half written.

A line of a ledger notes how long the log was. The lines that were written while it was no longer than the cut had
happened when the power failed; what they say must be in what is left of the log. The lines after them did not happen.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

from attrs import frozen

from tests.kit.fork_server import ForkServer
from tests.promises.attack.ledger import Ledger, Line
from tests.promises.attack.row import Row
from tests.promises.attack.story import KINDS

_CUTS = 8  # of one life
_SECTOR = 512


def attack(rounds: int, seed: int, folder: Path, server: ForkServer) -> Row:
    """Lose power a number of times."""
    row = Row("power loss", "the log cut at a random byte, or sectors behind it zeroed; another process goes on")
    chance = Random(f"power {seed}")
    for number in range(rounds):
        if number % _CUTS == 0:
            life = Life.lived(server, chance, folder / f"{number}-life")
        row.rounds += 1
        cut, place = chance.randrange(len(life.log)), folder / f"{number}"
        ledger = life.write(place, _left(life.log, cut, chance), life.until(cut))
        child = server.start("drive", folder=os.fspath(place), salt="after", seed=life.seed, kind=life.kind)
        with row.watched(place):
            row.ended(child.end(), place)
        row.judge(ledger.lines(), place)
        server.clear_away()
    return row


@frozen
class Life:
    """The files of a loop that came to its end, and its ledger. Nearly all that it stored is in the log."""

    seed: int
    kind: str
    file: bytes
    log: bytes
    lines: list[Line]

    @classmethod
    def lived(cls, server: ForkServer, chance: Random, folder: Path) -> Life:
        """Let a process drive a loop to its end."""
        kept = folder / "kept"
        kept.mkdir(parents=True)
        seed, kind = chance.randrange(1 << 30), chance.choice(KINDS)
        given = {"seed": seed, "kind": kind, "salt": f"{seed}", "copy_to": os.fspath(kept)}
        assert server.start("drive", folder=os.fspath(folder), **given).end() == "done"
        file, log = ((kept / name).read_bytes() for name in ("loops.db", "loops.db-wal"))
        return cls(seed, kind, file, log, Ledger(folder / "loop").lines())

    def until(self, cut: int) -> list[Line]:
        """Return the lines that were written while the log was no longer than this."""
        return [line for line in self.lines if line["log"] <= cut]

    def write(self, folder: Path, log: bytes, lines: list[Line]) -> Ledger:
        """Write the files into a new folder, with this log and ledger."""
        folder.mkdir()
        (folder / "loops.db").write_bytes(self.file)
        (folder / "loops.db-wal").write_bytes(log)
        ledger = Ledger(folder / "loop")
        ledger.keep(lines)
        return ledger


def _left(log: bytes, cut: int, chance: Random) -> bytes:
    """Return what is left of a log that was on the disk up to the cut."""
    if chance.random() < 0.5:
        return log[:cut]
    sectors = [log[at : at + _SECTOR] for at in range(cut, len(log), _SECTOR)]
    return log[:cut] + b"".join(each if chance.random() < 0.5 else bytes(len(each)) for each in sectors)
