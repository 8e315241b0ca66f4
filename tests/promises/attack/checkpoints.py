"""Checkpoints after each turn; another program puts back old ones: damaged, stale, of a lost branch."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

from attrs import define, field

from toolloop import SqliteStore

_MARK = "checkpoints:"


class EagerStore(SqliteStore):
    """A store whose drivers keep a checkpoint at the end of each turn."""

    checkpoint_after = 0


def eager_place(path: Path) -> str:
    """Return the text by which the programs of the attacks get a file with such a store."""
    return f"{_MARK}{os.fspath(path)}"


def path_in(place: str) -> str | None:
    """Return the path in such a text, or None."""
    return place.removeprefix(_MARK) if place.startswith(_MARK) else None


@define
class Tampering:
    """A program that keeps each checkpoint of the newest loop of a file, and puts one back later.

    Attributes:
        path: the file.
        chance: what it is drawn from.
        kept: the rows of all checkpoints so far.
        count: how often one was put back, or damaged.

    """

    path: Path
    chance: Random
    kept: list[tuple[Any, ...]] = field(factory=list)
    count: int = 0

    def look(self) -> None:
        """Keep the checkpoint that the newest loop has now."""
        with closing(sqlite3.connect(self.path)) as db:
            self.kept += db.execute("SELECT * FROM checkpoints ORDER BY number DESC LIMIT 1").fetchall()

    def tamper(self) -> None:
        """Put an old checkpoint into the file, as it was or damaged; or leave the file as it is."""
        if not self.kept or (how := self.chance.choice(("leave", "put back", "put back", "damage"))) == "leave":
            return
        self.count += 1
        *parts, body = self.chance.choice(self.kept[-4:])
        if how == "damage":
            at = self.chance.randrange(len(body))
            body = self.chance.choice((body[:at], body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]))
        with closing(sqlite3.connect(self.path)) as db, db:
            db.execute("INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?, ?, ?)", (*parts, body))
