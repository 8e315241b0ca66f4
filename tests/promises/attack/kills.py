"""Processes that are killed with SIGKILL at a random moment, one after the other, until one gets through."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from attrs import define, field

from tests.kit.fork_server import Child, ForkServer
from tests.promises.attack.checkpoints import Tampering
from tests.promises.attack.ledger import Ledger
from tests.promises.attack.places import place_in
from tests.promises.attack.row import Row
from tests.promises.attack.story import KINDS, Story
from toolloop.testing import FakeMessagesAPI

_AT_MOST = 5  # deaths of one loop
_SPARED = 10  # one loop of so many is not killed: it shows how long a loop takes
_NAMES = {"sqlite": "kill", "checkpoints": "kill, checkpoints", "postgres": "kill, PostgreSQL"}
_DID = "SIGKILL at a random moment; the next process goes on"


def attack(rounds: int, seed: int, folder: Path, server: ForkServer, kind: str = "sqlite") -> Row:
    """Kill so many processes, whose loops are in an SQLite file, with `checkpoints`, or in `postgres`."""
    row = Row(_NAMES[kind], _DID)
    given = {"folder": os.fspath(folder), "place": place_in(kind, folder)}
    start = partial(server.start, "drive", **given)
    chance = Random(f"kills {seed}")
    if kind == "checkpoints":
        tampering = Tampering(folder / "loops.db", Random(f"checkpoints {seed}"))
        _kill(row, rounds, chance, partial(_start_tampered, start, tampering), Turn(folder))
        row.did += f"; before that, a checkpoint is damaged or set back ({tampering.count:,} times)"
    else:
        _kill(row, rounds, chance, start, Turn(folder))
    server.clear_away()
    return row


def _start_tampered(start: Callable[..., Child], tampering: Tampering, **given: Any) -> Child:
    """Start a process on a file whose checkpoint is another one."""
    if tampering.path.exists():
        tampering.look()
        tampering.tamper()
    return start(**given)


def attack_threads(rounds: int, seed: int, folder: Path, server: ForkServer) -> Row:
    """Kill so many processes whose conversations are kept by the server of the API."""
    row, turn = Row("kill, message threads", _DID), Turn(folder)
    with FakeMessagesAPI(turn.answer) as api:
        given = {"folder": os.fspath(folder), "url": api.url}
        _kill(row, rounds, Random(f"kills {seed}"), partial(server.start, "drive", **given), turn)
        server.clear_away()
    return row


@define
class Turn:
    """Whose turn it is: the loop that is driven now."""

    folder: Path
    story: Story = field(init=False)

    def begin(self, loop_id: str, seed: int) -> Story:
        """Begin the next loop."""
        self.story = Story(seed, Ledger(self.folder / loop_id))
        return self.story

    def answer(self, request: dict[str, Any]) -> Any:
        """Answer as the model of this loop."""
        return self.story.answer(request)


def _kill(row: Row, rounds: int, chance: Random, start: Callable[..., Child], turn: Turn) -> None:
    usual, number = 0.1, -1
    while row.rounds < rounds:
        number += 1
        loop_id, deaths = f"loop{number}", 0
        story = turn.begin(loop_id, chance.randrange(1 << 30))
        with row.watched(loop_id):
            while True:
                kind, begun = chance.choice(KINDS), time.monotonic()
                child = start(seed=story.seed, kind=kind, salt=f"{story.seed} {deaths}", loop_id=loop_id)
                patience = chance.uniform(0, usual)
                is_mortal = number % _SPARED and deaths < _AT_MOST and row.rounds < rounds
                if is_mortal and child.kill_within(patience):
                    deaths += 1
                    row.rounds += 1
                    continue
                row.ended(child.end(), loop_id)
                if number % _SPARED == 0:
                    usual = time.monotonic() - begun
                break
        row.judge(story.ledger.lines(), loop_id)
